//! Bodies that are compressed on the way: gzip and deflate, both ways.
//!
//! A body is inflated no further than the largest that is taken uncompressed, so that a small one that swells up costs
//! no more than a large one. Bytes after its end are refused: two readers of one body must not differ on what it says.
//! An answer is compressed only where a client says that it takes it, as Triton does, and only if that makes it
//! shorter.

use std::io::{self, Read, Write};

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::fault::{Fault, Kind};

/// Answers below this size are sent as they are: the packet is as short either way.
const WORTH_IT: usize = 512;

/// A way to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, which HTTP calls deflate.
    Deflate,
}

impl Encoding {
    /// HTTP's name.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::Gzip => "gzip",
            Encoding::Deflate => "deflate",
        }
    }

    /// How a request's body is compressed, if it is.
    pub fn of_body(headers: &HeaderMap) -> Result<Option<Encoding>, Fault> {
        let mut named = headers.get_all(CONTENT_ENCODING).iter();
        let (first, more) = (named.next(), named.next().is_some());
        match first
            .map(|name| name.as_bytes().to_ascii_lowercase())
            .as_deref()
        {
            _ if more => Err(unread()),
            None | Some(b"identity" | b"") => Ok(None),
            Some(b"gzip" | b"x-gzip") => Ok(Some(Encoding::Gzip)),
            Some(b"deflate") => Ok(Some(Encoding::Deflate)),
            Some(_) => Err(unread()),
        }
    }

    /// How an answer may be compressed: the first way that the client names without refusing it (RFC 9110, 12.5.3).
    pub fn of_answer(headers: &HeaderMap) -> Option<Encoding> {
        let lines = headers.get_all(ACCEPT_ENCODING).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).find_map(|entry| {
            let (name, weight) = entry.split_once(';').unwrap_or((entry, ""));
            let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
            match name.trim() {
                _ if weight == Some(Ok(0.0)) => None,
                name if name.eq_ignore_ascii_case("gzip") => Some(Encoding::Gzip),
                name if name.eq_ignore_ascii_case("deflate") => Some(Encoding::Deflate),
                _ => None,
            }
        })
    }

    /// The body as it was before it was compressed, if that is at most `limit` bytes.
    pub fn inflate(self, body: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
        let inflated = match self {
            Encoding::Gzip => {
                let mut decoder = GzDecoder::new(body);
                bounded(&mut decoder, limit).map(|inflated| (inflated, decoder.into_inner()))
            }
            Encoding::Deflate => {
                let mut decoder = ZlibDecoder::new(body);
                bounded(&mut decoder, limit).map(|inflated| (inflated, decoder.into_inner()))
            }
        };
        let name = self.name();
        match inflated {
            Ok((inflated, _)) if inflated.len() > limit => {
                let problem = format!("the body is over {limit} bytes once inflated");
                Err(Fault::new(Kind::BodyTooLarge, problem))
            }
            Ok((inflated, [])) => Ok(inflated),
            Ok((_, rest)) => {
                let count = rest.len();
                Err(Fault::bad(format!(
                    "{count} bytes follow the end of the {name} body"
                )))
            }
            Err(_) => Err(Fault::bad(format!("the body is no whole {name}"))),
        }
    }

    /// The body compressed, if that makes it shorter.
    pub fn deflate(self, body: &[u8]) -> Option<Vec<u8>> {
        if body.len() < WORTH_IT {
            return None;
        }
        let compressed = match self {
            Encoding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(body).and_then(|()| encoder.finish())
            }
            Encoding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(body).and_then(|()| encoder.finish())
            }
        };
        compressed.ok().filter(|shorter| shorter.len() < body.len())
    }
}

/// Reads at most one byte more than the limit, so that what is over it shows.
fn bounded(decoder: &mut impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut inflated = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(most).read_to_end(&mut inflated)?;
    Ok(inflated)
}

fn unread() -> Fault {
    let problem = "bodies are read plain, as gzip or as deflate; send it with one Content-Encoding of these, or none";
    Fault::new(Kind::UnsupportedEncoding, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [Encoding; 2] = [Encoding::Gzip, Encoding::Deflate];

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_body_comes_back_as_it_was_and_no_larger_than_the_limit() {
        let body = b"0123456789".repeat(1000);
        for way in WAYS {
            let shorter = way.deflate(&body).unwrap();
            assert_eq!(way.inflate(&shorter, body.len()).unwrap(), body);
            let over = way.inflate(&shorter, body.len() - 1).unwrap_err();
            assert_eq!(over.kind, Kind::BodyTooLarge);
        }
    }

    #[test]
    fn damaged_bodies_are_the_clients_mistake() {
        let body = b"0123456789".repeat(1000);
        for way in WAYS {
            let shorter = way.deflate(&body).unwrap();
            let longer = [&shorter[..], b"x"].concat();
            for damaged in [
                &shorter[..shorter.len() - 1],
                &shorter[..9],
                b"",
                b"nonsense",
                &longer,
            ] {
                let fault = way.inflate(damaged, 1 << 20).unwrap_err();
                assert_eq!(
                    fault.kind,
                    Kind::BadRequest,
                    "{way:?} of {} bytes",
                    damaged.len()
                );
            }
        }
    }

    #[test]
    fn what_clients_take_is_read_from_their_list() {
        let answer = |list: &str| Encoding::of_answer(&headers("accept-encoding", list));
        assert_eq!(answer("br, GZIP;q=0.5, deflate"), Some(Encoding::Gzip));
        assert_eq!(answer("gzip;q=0, deflate"), Some(Encoding::Deflate));
        assert_eq!(answer("identity, *;q=0"), None);
        let body = |name: &str| Encoding::of_body(&headers("content-encoding", name));
        assert_eq!(body("deflate").unwrap(), Some(Encoding::Deflate));
        assert_eq!(body("br").unwrap_err().kind, Kind::UnsupportedEncoding);
        assert_eq!(WAYS[0].deflate(b"short"), None);
    }
}
