//! The codings in which bodies and messages come compressed.
//!
//! gzip and deflate (RFC 9110 §8.4.1) are undone. Anything behind the end of the compressed data is refused: some
//! readers go on there and others stop. Other codings are refused with 415, as routing would read something else than
//! the worker does. zstd and br are among them: they look back on 8 to 16 MiB (RFC 9659, RFC 7932 §9.1) where gzip
//! keeps 32 KiB, and that much for each body which is being undone is more than promise P34 allows. (Tried with ruzstd
//! and brotli-decompressor: a bomb of each coding, one after the other, took 12.02 MiB where 12 are allowed.)

use std::io::Read;

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName};

use super::body::Counted;
use crate::facts::{self, PREFIX};
use crate::fault::{Fault, Kind};
use crate::units::Bytes as ByteCount;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Undone at a time; others have their turn in between.
pub(super) const STEP: usize = 64 << 10;

/// Undone at first of a message, which may be short.
const LEAST: usize = 4 << 10;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`.
    Gzip,
    /// `deflate`: zlib's format.
    Deflate,
}

impl Coding {
    /// What a head says of its body; nothing when it is plain.
    ///
    /// # Errors
    /// `unsupported_encoding` for a coding that is not known here, or several.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, Fault> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let word = value.as_bytes().trim_ascii().to_ascii_lowercase();
        match (&word[..], values.next()) {
            (b"identity", None) => Ok(None),
            (b"gzip" | b"x-gzip", None) => Ok(Some(Coding::Gzip)),
            (b"deflate", None) => Ok(Some(Coding::Deflate)),
            _ => Err(Fault::new(
                Kind::UnsupportedEncoding,
                "send the body as it is, or compressed once by gzip or deflate",
            )),
        }
    }

    /// What a head says of those of its messages that are compressed; nothing when it names no coding that is known
    /// here.
    #[must_use]
    pub fn of_messages(headers: &HeaderMap) -> Option<Self> {
        match headers.get(GRPC_ENCODING)?.as_bytes() {
            b"gzip" => Some(Coding::Gzip),
            b"deflate" => Some(Coding::Deflate),
            _ => None,
        }
    }
}

/// A compressed message of a stream as it is undone.
pub struct Unpacking {
    decoder: Decoder,
    plain: Vec<u8>,
    most: ByteCount,
}

impl Unpacking {
    /// Begins, where a message is compressed.
    ///
    /// # Errors
    /// `unsupported_encoding` when it is so in a way that is not known here.
    pub fn of(
        coding: Option<Coding>,
        message: &Bytes,
        most: ByteCount,
    ) -> Result<Option<Self>, Fault> {
        if !facts::is_compressed(message) {
            return Ok(None);
        }
        let decoder = Decoder::new(coding.ok_or_else(unknown)?, message.slice(PREFIX..));
        let plain = Vec::new();
        Ok(Some(Unpacking {
            decoder,
            plain,
            most,
        }))
    }

    /// A piece more: whether there may be another. The room that it takes is counted.
    ///
    /// # Errors
    /// `body_too_large`, `overloaded`, `bad_request` when it can't be undone.
    pub fn step(&mut self, counted: &mut Counted) -> Result<bool, Fault> {
        let (length, room) = (self.plain.len(), self.plain.capacity());
        self.plain.resize(length + length.clamp(LEAST, STEP), 0);
        counted.add(self.plain.capacity() - room)?;
        let more = self.decoder.read(&mut self.plain[length..])?;
        self.plain.truncate(length + more);
        if self.plain.len() as u64 > self.most.0 {
            let message = format!("a message says more than limits.body = {}", self.most);
            return Err(Fault::new(Kind::BodyTooLarge, message));
        }
        if more == 0 {
            self.decoder.ended()?;
        }
        Ok(more > 0)
    }

    /// What it says, without its prefix; its capacity is counted still.
    #[must_use]
    pub fn said(self) -> Vec<u8> {
        self.plain
    }
}

/// A compressed body as it is undone.
pub(super) enum Decoder {
    Gzip(GzDecoder<Reader<Bytes>>),
    Deflate(ZlibDecoder<Reader<Bytes>>),
}

impl Decoder {
    pub(super) fn new(coding: Coding, packed: Bytes) -> Self {
        let packed = packed.reader();
        match coding {
            Coding::Gzip => Decoder::Gzip(GzDecoder::new(packed)),
            Coding::Deflate => Decoder::Deflate(ZlibDecoder::new(packed)),
        }
    }

    /// Nothing may stand behind it.
    pub(super) fn ended(&self) -> Result<(), Fault> {
        let rest = match self {
            Decoder::Gzip(decoder) => decoder.get_ref(),
            Decoder::Deflate(decoder) => decoder.get_ref(),
        };
        if !rest.get_ref().has_remaining() {
            Ok(())
        } else {
            Err(bad("something stands behind the compressed body"))
        }
    }

    /// The next bytes; none at the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        let read = match self {
            Decoder::Gzip(decoder) => decoder.read(into),
            Decoder::Deflate(decoder) => decoder.read(into),
        };
        read.map_err(|_| bad("the body is not compressed as its head says"))
    }
}

/// A message is compressed, and nobody says how.
pub(super) fn unknown() -> Fault {
    let message = "a message is compressed, and grpc-encoding says neither gzip nor deflate";
    Fault::new(Kind::UnsupportedEncoding, message)
}

pub(super) fn bad(message: &str) -> Fault {
    Fault::new(Kind::BadRequest, message)
}
