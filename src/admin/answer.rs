//! What the admin side answers with: one shape for pages, JSON, events and refusals, guarded alike.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{Either, Full};
use serde::Serialize;

use super::events::Events;

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const EVENTS: &str = "text/event-stream";
/// Prometheus' text format.
pub(super) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// On every answer: never sniffed, kept, framed or told onward.
pub(super) const GUARDS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// What is sent: a whole, or one picture after another.
pub type Sent = Either<Full<Bytes>, Events>;

/// An answer before it knows whether its body will be sent.
pub(super) struct Answer(Response<Either<String, Events>>);

impl Answer {
    /// With this status, kind and body.
    pub(super) fn new(status: StatusCode, kind: &'static str, body: impl Into<String>) -> Self {
        Answer::of(status, kind, Either::Left(body.into()))
    }

    /// Good, and goes on.
    pub(super) fn events(events: Events) -> Self {
        Answer::of(StatusCode::OK, EVENTS, Either::Right(events))
    }

    fn of(status: StatusCode, kind: &'static str, body: Either<String, Events>) -> Self {
        let mut response = Response::new(body);
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
    pub(super) fn into_response(self, method: &Method) -> Response<Sent> {
        let (mut head, body) = self.0.into_parts();
        if let Either::Left(whole) = &body {
            let length = HeaderValue::from(whole.len());
            head.headers.insert(header::CONTENT_LENGTH, length);
        }
        let body = match body {
            _ if method == Method::HEAD => Either::Left(Full::default()),
            Either::Left(whole) => Either::Left(Full::new(Bytes::from(whole))),
            Either::Right(events) => Either::Right(events),
        };
        Response::from_parts(head, body)
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
