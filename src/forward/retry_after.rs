//! `Retry-After`, as a worker says it: seconds, or a date (RFC 9110 §10.2.3).

use std::time::UNIX_EPOCH;

use http::HeaderMap;
use http::header::RETRY_AFTER;

use crate::units::Seconds;

/// How long the worker asks to be left alone, if it says so; a date that is over means no time at all. The wall clock
/// is read for dates alone.
pub(super) fn retry_after(headers: &HeaderMap, wall: impl FnOnce() -> Seconds) -> Option<Seconds> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Seconds(text.parse().ok()?));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let date = Seconds::from(date.duration_since(UNIX_EPOCH).unwrap_or_default());
    Some((date - wall()).max(Seconds::ZERO))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn it_is_read_as_seconds_and_as_a_date() {
        let read = |text: &'static str| {
            let field = (RETRY_AFTER, HeaderValue::from_static(text));
            let headers = [field].into_iter().collect();
            // Sun, 06 Nov 1994 08:49:37 GMT
            retry_after(&headers, || Seconds(784_111_777.0)).map(|wait| wait.0)
        };
        assert_eq!(read("120"), Some(120.0));
        assert_eq!(read("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30.0));
        assert_eq!(read("Sunday, 06-Nov-94 08:50:07 GMT"), Some(30.0));
        assert_eq!(read("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0.0));
        for odd in ["", "-1", "1.5", "soon", "1s"] {
            assert_eq!(read(odd), None, "{odd}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), || Seconds::ZERO), None);
    }
}
