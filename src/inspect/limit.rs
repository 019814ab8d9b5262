//! How long an exchange may take in all: the operator's `timeouts.total` or the client's deadline, whichever is
//! shorter. It runs from the request's head, and it runs in line as well.
//!
//! A client says its deadline as `x-forebay-deadline`, in gRPC also as `grpc-timeout`, and on KServe paths also as
//! Triton's request parameter `timeout`; of two the shorter holds.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};

use crate::config::quantity;
use crate::facts;
use crate::fault::{Fault, Kind};
use crate::units::Seconds;

/// A client's word on how long it will wait: `2s`, with or without quotes.
const DEADLINE: &str = "x-forebay-deadline";
const DEADLINE_HEADER: HeaderName = HeaderName::from_static(DEADLINE);

/// gRPC's: up to eight digits and a unit.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// The same in the body of a KServe request.
const TIMEOUT_PARAMETER: &str = "parameters.timeout";

/// A deadline that is farther away than this is as good as none.
const FARTHEST: Seconds = Seconds(365.0 * 86_400.0);

/// The longest an exchange may take, and who says so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// From the request's head to the answer's last byte.
    pub span: Seconds,
    /// What set it, as an error names it.
    pub name: &'static str,
}

impl Limit {
    /// The shorter of the operator's limit and the client's.
    #[must_use]
    pub fn of(total: Option<Seconds>, deadline: Option<Limit>) -> Option<Limit> {
        let name = "timeouts.total";
        shorter(deadline, total.map(|span| Limit { span, name }))
    }

    /// The client's deadline: what its head says, or its body.
    #[must_use]
    pub fn of_client(head: Option<Limit>, body: Option<Seconds>) -> Option<Limit> {
        let name = TIMEOUT_PARAMETER;
        shorter(head, body.map(|span| Limit { span, name }))
    }
}

fn shorter(one: Option<Limit>, other: Option<Limit>) -> Option<Limit> {
    match (one, other) {
        (Some(one), Some(other)) if other.span < one.span => Some(other),
        (one, other) => one.or(other),
    }
}

/// The client's deadline, counted from its request's head.
///
/// # Errors
/// `bad_request` when it is no duration with a unit, or is given twice.
pub fn deadline(headers: &HeaderMap) -> Result<Option<Limit>, Fault> {
    let grpc = grpc_timeout(headers)?;
    let values: Vec<_> = headers.get_all(DEADLINE_HEADER).iter().take(2).collect();
    let [value] = values[..] else {
        return match values[..] {
            [] => Ok(grpc),
            _ => Err(bad("it is given twice")),
        };
    };
    let text = value.to_str().unwrap_or_default().trim();
    let bare = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text);
    match quantity::duration(bare) {
        Ok(span) => {
            let span = span.min(FARTHEST);
            let name = DEADLINE;
            Ok(shorter(Some(Limit { span, name }), grpc))
        }
        Err(flaw) => Err(bad(flaw.words())),
    }
}

/// The deadline of a gRPC call (gRPC over HTTP/2, "Requests"): `100m` is 100 milliseconds.
fn grpc_timeout(headers: &HeaderMap) -> Result<Option<Limit>, Fault> {
    let Some(value) = headers.get(GRPC_TIMEOUT) else {
        return Ok(None);
    };
    let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    if !kind.is_some_and(facts::is_grpc) {
        return Ok(None);
    }
    let odd = || Fault::new(Kind::BadRequest, "grpc-timeout is no time that gRPC has");
    let (unit, digits) = value.as_bytes().split_last().ok_or_else(odd)?;
    let unit = match unit {
        b'H' => 3_600.0,
        b'M' => 60.0,
        b'S' => 1.0,
        b'm' => 1e-3,
        b'u' => 1e-6,
        b'n' => 1e-9,
        _ => return Err(odd()),
    };
    let sound = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let count = std::str::from_utf8(digits).ok().filter(|_| sound);
    let count: f64 = count.and_then(|text| text.parse().ok()).ok_or_else(odd)?;
    let span = Seconds(count * unit).min(FARTHEST);
    let name = GRPC_TIMEOUT;
    Ok(Some(Limit { span, name }))
}

fn bad(why: &str) -> Fault {
    let message = format!("{DEADLINE}: {why}; write it like 2s or 500ms");
    Fault::new(Kind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(values: &[&'static str]) -> Result<Option<f64>, Kind> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(DEADLINE_HEADER, HeaderValue::from_static(value));
        }
        let read = deadline(&headers);
        read.map(|limit| limit.map(|limit| limit.span.0))
            .map_err(|fault| fault.kind)
    }

    #[test]
    fn a_deadline_is_a_duration_with_or_without_quotes() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["2s"]), Ok(Some(2.0)));
        assert_eq!(read(&["\"250ms\""]), Ok(Some(0.25)));
        assert_eq!(read(&["999999999d"]), Ok(Some(FARTHEST.0)));
        for bad in ["", "2", "\"2s", "soon", "-1s", "2 s", "1e9s"] {
            assert_eq!(read(&[bad]), Err(Kind::BadRequest), "{bad}");
        }
        assert_eq!(read(&["2s", "3s"]), Err(Kind::BadRequest));
    }

    #[test]
    fn grpc_has_units_of_its_own() {
        let read = |value: &'static str, kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, HeaderValue::from_static(value));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            let limit = deadline(&headers).map_err(|fault| fault.kind)?;
            Ok(limit.map(|limit| limit.span.0))
        };
        let grpc = "application/grpc";
        assert_eq!(read("2S", grpc), Ok(Some(2.0)));
        assert_eq!(read("250m", grpc), Ok(Some(0.25)));
        assert_eq!(read("1H", grpc), Ok(Some(3_600.0)));
        assert_eq!(read("rubbish", "application/json"), Ok(None));
        for odd in ["", "S", "2", "2s", "123456789S", "-1S", "1.5S"] {
            assert_eq!(read(odd, grpc), Err(Kind::BadRequest), "{odd}");
        }
    }

    #[test]
    fn the_shorter_limit_holds_and_says_whose_it_is() {
        let of = |total: Option<f64>, deadline: Option<f64>| {
            let name = DEADLINE;
            let deadline = deadline.map(|span| Limit {
                span: Seconds(span),
                name,
            });
            let limit = Limit::of(total.map(Seconds), deadline);
            limit.map(|limit| (limit.span.0, limit.name))
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(3.0), None), Some((3.0, "timeouts.total")));
        assert_eq!(of(Some(1.0), Some(2.0)), Some((1.0, "timeouts.total")));
        assert_eq!(of(Some(3.0), Some(2.0)), Some((2.0, DEADLINE)));
        assert_eq!(of(None, Some(2.0)), Some((2.0, DEADLINE)));
        let header = |span| {
            let name = DEADLINE;
            Some(Limit {
                span: Seconds(span),
                name,
            })
        };
        let body = Limit::of_client(header(3.0), Some(Seconds(2.0))).unwrap();
        assert_eq!((body.span.0, body.name), (2.0, TIMEOUT_PARAMETER));
        assert_eq!(
            Limit::of_client(header(1.0), Some(Seconds(2.0))),
            header(1.0)
        );
    }
}
