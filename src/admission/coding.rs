//! Bodies that come compressed: read for routing, and passed on as they came.
//!
//! gzip and deflate (RFC 9110 §8.4.1) are undone; what a body then says counts toward the same limits as the body itself,
//! so that a bomb is refused when it has grown as large as a plain body may be (promise P34). Anything behind the
//! end of the compressed data is refused: some readers go on there and others stop. Other codings are refused with 415, as
//! routing would read something else than the worker does.

use std::io::Read;

use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use super::Intake;
use super::body::Held;
use crate::fault::{Fault, Kind};

/// Undone at a time; others have their turn in between.
const STEP: usize = 64 << 10;

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
}

/// A compressed body as it is undone.
enum Decoder<'a> {
    Gzip(GzDecoder<&'a [u8]>),
    Deflate(ZlibDecoder<&'a [u8]>),
}

impl<'a> Decoder<'a> {
    fn new(coding: Coding, packed: &'a [u8]) -> Self {
        match coding {
            Coding::Gzip => Decoder::Gzip(GzDecoder::new(packed)),
            Coding::Deflate => Decoder::Deflate(ZlibDecoder::new(packed)),
        }
    }

    /// What was not read of the body.
    fn rest(self) -> &'a [u8] {
        match self {
            Decoder::Gzip(decoder) => decoder.into_inner(),
            Decoder::Deflate(decoder) => decoder.into_inner(),
        }
    }

    /// The next bytes; none at the end.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        let read = match self {
            Decoder::Gzip(decoder) => decoder.read(into),
            Decoder::Deflate(decoder) => decoder.read(into),
        };
        read.map_err(|_| bad("the body is not compressed as Content-Encoding says"))
    }
}

impl Intake {
    /// Reads what a compressed body says; a plain one stays as it is.
    ///
    /// # Errors
    /// `bad_request` when it can't be undone, `body_too_large`, `overloaded`.
    pub async fn undo(&self, held: &mut Held, coding: Option<Coding>) -> Result<(), Fault> {
        let Some(coding) = coding.filter(|_| !held.bytes().is_empty()) else {
            return Ok(());
        };
        let packed = held.bytes().clone();
        let mut decoder = Decoder::new(coding, &packed);
        let length = self.measure(held, &mut decoder).await?;
        if !decoder.rest().is_empty() {
            return Err(bad("something stands behind the compressed body"));
        }
        let mut plain = vec![0; length];
        let mut decoder = Decoder::new(coding, &packed);
        let mut filled = 0;
        while filled < length {
            let step = (filled + STEP).min(length);
            filled += decoder.read(&mut plain[filled..step])?;
            tokio::task::yield_now().await;
        }
        held.says(plain.into());
        Ok(())
    }

    /// How much a body says, counted toward the limits. Told before it is kept, so that a bomb takes no memory.
    async fn measure(&self, held: &mut Held, decoder: &mut Decoder<'_>) -> Result<usize, Fault> {
        let mut scratch = vec![0; STEP];
        let mut length = 0;
        loop {
            let more = decoder.read(&mut scratch)?;
            if more == 0 {
                return Ok(length);
            }
            self.count(held.counted(), more)?;
            length += more;
            tokio::task::yield_now().await;
        }
    }
}

fn bad(message: &str) -> Fault {
    Fault::new(Kind::BadRequest, message)
}
