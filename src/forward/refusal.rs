//! What a fault looks like on the wire, in the words of the path's dialect (contract §4).

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::headers::X_FOREBAY_REASON;
use super::quota;
use super::relay::{self, Relay};
use crate::facts::{Dialect, percent_encoded};
use crate::fault::{Fault, Kind};
use crate::observe::Exchange;
use crate::units::Seconds;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Whether it makes sense to send the request once more: OpenAI's and Anthropic's clients repeat what is 429 or 5xx
/// unless this says no.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The longest that those clients wait when they are told to; told more they come back at once.
const LONGEST_HEEDED: Seconds = Seconds(60.0);

/// The answer that tells a fault to the client, and closes the exchange with it.
#[must_use]
pub fn response(dialect: Dialect, fault: &Fault, mut exchange: Box<Exchange>) -> Response<Relay> {
    exchange.fault(fault);
    if dialect == Dialect::Grpc {
        return grpc(fault, exchange);
    }
    let mut response = Response::new(Bytes::from(body(dialect, fault)));
    *response.status_mut() = fault.kind.status();
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(
        X_FOREBAY_REASON,
        HeaderValue::from_static(fault.kind.label()),
    );
    if let Some(wait) = fault.retry_after {
        fields.insert(RETRY_AFTER, HeaderValue::from(quota::whole_seconds(wait)));
    }
    if is_in_vain(fault) {
        fields.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(methods) = fault.allow {
        fields.insert(ALLOW, HeaderValue::from_static(methods));
    }
    if let Some(quota) = fault.quota {
        quota::show(fields, quota);
    }
    if fault.kind == Kind::Unauthorized {
        fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    relay::whole(response, exchange)
}

/// A gRPC call that ends with its head ("Trailers-Only" of gRPC over HTTP/2).
fn grpc(fault: &Fault, exchange: Box<Exchange>) -> Response<Relay> {
    let mut response = Response::new(Bytes::new());
    let fields = response.headers_mut();
    fields.extend(trailers(fault));
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let reason = HeaderValue::from_static(fault.kind.label());
    fields.insert(X_FOREBAY_REASON, reason);
    relay::whole(response, exchange)
}

/// What ends a gRPC call that went wrong.
pub(super) fn trailers(fault: &Fault) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(GRPC_STATUS, HeaderValue::from(grpc_status(fault.kind)));
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(&fault.message)) {
        fields.insert(GRPC_MESSAGE, message);
    }
    fields
}

/// gRPC's word for a fault (its "Status codes and their use").
const fn grpc_status(kind: Kind) -> u16 {
    match kind {
        Kind::ClientGone => 1,
        Kind::BadRequest => 3,
        Kind::RequestTimeout
        | Kind::FirstByteTimeout
        | Kind::AnswerTimeout
        | Kind::Stalled
        | Kind::Deadline => 4,
        Kind::ModelNotFound => 5,
        Kind::Forbidden | Kind::Residency => 7,
        Kind::BodyTooLarge | Kind::RateLimited | Kind::QueueFull | Kind::QueueTimeout => 8,
        Kind::NoRoute | Kind::MethodNotAllowed | Kind::UnsupportedEncoding => 12,
        Kind::WorkerFailed | Kind::NoWorker | Kind::Overloaded => 14,
        Kind::Unauthorized => 16,
    }
}

/// Whether sending it once more would only be refused again: its time is over, or its limit is as small as that for
/// longer than clients wait.
fn is_in_vain(fault: &Fault) -> bool {
    match fault.kind {
        Kind::Deadline => true,
        Kind::RateLimited => fault.retry_after.is_none_or(|wait| wait > LONGEST_HEEDED),
        _ => false,
    }
}

/// The error object of an OpenAI-shaped answer.
#[derive(Serialize)]
struct OpenAi<'a> {
    message: &'a str,
    r#type: &'static str,
    code: &'static str,
    param: Option<&'static str>,
}

#[derive(Serialize)]
struct OpenAiBody<'a> {
    error: OpenAi<'a>,
}

/// Anthropic's shape: the kind of error stands inside, `type` outside says that it is one.
#[derive(Serialize)]
struct AnthropicBody<'a> {
    r#type: &'static str,
    error: Anthropic<'a>,
}

#[derive(Serialize)]
struct Anthropic<'a> {
    r#type: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct KServeBody<'a> {
    error: &'a str,
}

/// The JSON that tells a fault.
#[must_use]
pub(super) fn body(dialect: Dialect, fault: &Fault) -> String {
    let message = fault.message.as_str();
    let written = match dialect {
        Dialect::OpenAi => sonic_rs::to_string(&OpenAiBody {
            error: OpenAi {
                message,
                r#type: openai_type(fault.kind),
                code: fault.kind.label(),
                param: fault.param,
            },
        }),
        Dialect::Anthropic => sonic_rs::to_string(&AnthropicBody {
            r#type: "error",
            error: Anthropic {
                r#type: anthropic_type(fault.kind.status()),
                message,
            },
        }),
        Dialect::KServe => sonic_rs::to_string(&KServeBody { error: message }),
        // A status and a message, and no body.
        Dialect::Grpc => Ok(String::new()),
    };
    written.unwrap_or_default()
}

/// The server-sent event that ends a broken stream.
#[must_use]
pub(super) fn event(dialect: Dialect, fault: &Fault) -> String {
    format!("event: error\ndata: {}\n\n", body(dialect, fault))
}

fn openai_type(kind: Kind) -> &'static str {
    match kind.status() {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    }
}

/// Source: Anthropic's API reference, "Errors".
fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(dialect: Dialect) -> Value {
        let fault = Fault::new(Kind::ModelNotFound, "no worker serves `x\"y`").param("model");
        serde_json::from_str(&body(dialect, &fault)).unwrap()
    }

    #[test]
    fn the_manual_has_every_kind_with_its_status_and_types() {
        let manual = include_str!("../../docs/http.md");
        for kind in Kind::ALL {
            let status = kind.status();
            let row = format!("| {} | `{}` |", status.as_u16(), kind.label());
            let row = manual.lines().find(|line| line.starts_with(&row)).unwrap();
            let types = [openai_type(kind), anthropic_type(status)];
            let types = types.map(|name| format!("| `{name}` "));
            let is_said = kind != Kind::ClientGone;
            assert_eq!(row.contains(&types.concat()), is_said, "{row}");
        }
    }

    #[test]
    fn each_dialect_has_its_own_shape() {
        let message = "no worker serves `x\"y`";
        let openai = json!({"error": {"message": message, "type": "not_found_error", "code": "model_not_found", "param": "model"}});
        assert_eq!(told(Dialect::OpenAi), openai);
        let anthropic =
            json!({"type": "error", "error": {"type": "not_found_error", "message": message}});
        assert_eq!(told(Dialect::Anthropic), anthropic);
        assert_eq!(told(Dialect::KServe), json!({"error": message}));
    }
}
