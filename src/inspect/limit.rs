//! How long an exchange may take in all: the operator's `timeouts.total` or the client's deadline, whichever is shorter. It
//! runs from the request's head, and it runs in line as well.
//!
//! A client says its deadline as `x-forebay-deadline`, and on KServe paths also as Triton's request parameter `timeout`;
//! of two the shorter holds.

use http::{HeaderMap, HeaderName};

use crate::config::quantity;
use crate::fault::{Fault, Kind};
use crate::units::Seconds;

/// A client's word on how long it will wait: `2s`, with or without quotes.
const DEADLINE: &str = "x-forebay-deadline";
const DEADLINE_HEADER: HeaderName = HeaderName::from_static(DEADLINE);

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
    let values: Vec<_> = headers.get_all(DEADLINE_HEADER).iter().take(2).collect();
    let [value] = values[..] else {
        return match values[..] {
            [] => Ok(None),
            _ => Err(bad("it is given twice")),
        };
    };
    let text = value.to_str().unwrap_or_default().trim();
    let bare = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text);
    match quantity::duration(bare) {
        Ok(span) => Ok(Some(Limit {
            span: span.min(FARTHEST),
            name: DEADLINE,
        })),
        Err(flaw) => Err(bad(flaw.words())),
    }
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
