//! A call's deadline, which its client sends as `grpc-timeout` ("gRPC over HTTP2", "Requests").
//!
//! A call that is over is dropped wherever it is, so that what waits in a model's line leaves it. tonic's own server
//! does the same and answers CANCELLED, which clients take for their own doing; it is DEADLINE_EXCEEDED here. A stream
//! is under way as soon as its head is answered: its client ends it.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tonic::Status;

use crate::units::Seconds;

/// Answers a call, or says that its time is over.
pub async fn keep(call: Request, next: Next) -> Response {
    let given = call
        .headers()
        .get("grpc-timeout")
        .map(|value| value.to_str().ok().and_then(read));
    let span = match given {
        None => return next.run(call).await,
        Some(Some(span)) => span,
        Some(None) => {
            return Status::invalid_argument("grpc-timeout is not up to 8 digits and a unit")
                .into_http();
        }
    };
    let answer = tokio::time::timeout(span.to_duration(), next.run(call)).await;
    answer
        .unwrap_or_else(|_| Status::deadline_exceeded("the call's deadline has passed").into_http())
}

/// At most 8 digits and a unit.
fn read(text: &str) -> Option<Seconds> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "H" => 3600.0,
        "M" => 60.0,
        "S" => 1.0,
        "m" => 1e-3,
        "u" => 1e-6,
        "n" => 1e-9,
        _ => return None,
    };
    let plain = digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u32 = digits.parse().ok().filter(|_| plain)?;
    Some(Seconds(f64::from(count) * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_digits_and_a_unit_and_nothing_else() {
        assert_eq!(read("250m"), Some(Seconds(0.25)));
        assert_eq!(read("2H"), Some(Seconds(7200.0)));
        assert_eq!(read("99999999S"), Some(Seconds(99_999_999.0)));
        for odd in ["", "m", "1", "1s", "-1S", "+1S", "1.5S", "100000000S", "1é"] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }
}
