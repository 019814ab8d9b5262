//! What the admin side answers with: one shape for pages, JSON and refusals, guarded alike.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
/// Prometheus' text format.
pub(super) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// On every answer: never sniffed, kept, framed or told onward.
pub(super) const GUARDS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// An answer before it knows whether its body will be sent.
pub(super) struct Answer(Response<String>);

impl Answer {
    /// With this status, kind and body.
    pub(super) fn new(status: StatusCode, kind: &'static str, body: impl Into<String>) -> Self {
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        for (name, value) in GUARDS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        Answer(response)
    }

    /// Good, as JSON.
    pub(super) fn json(text: sonic_rs::Result<String>) -> Self {
        match text {
            Ok(text) => Answer::new(StatusCode::OK, JSON, text),
            Err(error) => {
                tracing::error!(%error, "an answer can't be written as JSON");
                Answer::refusal(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal_error",
                    "this can't be shown; the log says why",
                )
            }
        }
    }

    /// An error in the shape of the client side's.
    pub(super) fn refusal(status: StatusCode, code: &'static str, message: &str) -> Self {
        let error = Refusal {
            error: RefusalDetail {
                message,
                r#type: "admin_error",
                code,
            },
        };
        Answer::new(
            status,
            JSON,
            sonic_rs::to_string(&error).unwrap_or_default(),
        )
    }

    /// With one more header.
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.0.headers_mut().insert(name, value);
        }
        self
    }

    /// For `HEAD` the length stays and the body goes; HTTP/2 would send it otherwise.
    pub(super) fn into_response(self, method: &Method) -> Response<Full<Bytes>> {
        let mut response = self.0.map(|body| Full::new(Bytes::from(body)));
        let length = http_body::Body::size_hint(response.body()).lower();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        if method == Method::HEAD {
            *response.body_mut() = Full::default();
        }
        response
    }
}

#[derive(Serialize)]
struct Refusal<'a> {
    error: RefusalDetail<'a>,
}

#[derive(Serialize)]
struct RefusalDetail<'a> {
    message: &'a str,
    r#type: &'static str,
    code: &'static str,
}
