//! Bodies that come compressed: read for routing, and passed on as they came.
//!
//! gzip and deflate (RFC 9110 §8.4.1) are undone; what a body then says counts toward the same limits as the body itself,
//! so that a bomb is refused when it has grown as large as a plain body may be (promise P34). Anything behind the
//! end of the compressed data is refused: some readers go on there and others stop. Other codings are refused with 415, as
//! routing would read something else than the worker does.

use std::io::Read;

use bytes::Bytes;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use super::Intake;
use super::body::Held;
use crate::fault::{Fault, Kind};

/// Undone at a time; others have their turn in between.
const STEP: usize = 256 << 10;

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
        let (plain, rest) = match coding {
            Coding::Gzip => {
                let mut decoder = GzDecoder::new(&packed[..]);
                (self.grow(held, &mut decoder).await?, decoder.into_inner())
            }
            Coding::Deflate => {
                let mut decoder = ZlibDecoder::new(&packed[..]);
                (self.grow(held, &mut decoder).await?, decoder.into_inner())
            }
        };
        if !rest.is_empty() {
            return Err(bad("something stands behind the compressed body"));
        }
        held.says(plain);
        Ok(())
    }

    async fn grow(
        &self,
        held: &mut Held,
        decoder: &mut (impl Read + Send),
    ) -> Result<Bytes, Fault> {
        let mut plain = Vec::new();
        loop {
            let step = decoder.by_ref().take(STEP as u64).read_to_end(&mut plain);
            let more =
                step.map_err(|_| bad("the body is not compressed as Content-Encoding says"))?;
            if more == 0 {
                return Ok(plain.into());
            }
            self.count(held.counted(), more)?;
            tokio::task::yield_now().await;
        }
    }
}

fn bad(message: &str) -> Fault {
    Fault::new(Kind::BadRequest, message)
}
