//! One fault type for everything that the worker refuses or fails at.
//!
//! The match arms of [`Kind::row`] are the one table of HTTP's statuses, gRPC's codes and labels. A client's mistake is
//! always a 4xx, never a 500: Triton 2.51 answers 500 to malformed JSON, to a missing `shape` and to `data` of the
//! wrong length, so that a proxy in front of it takes a client's slip for an ill machine. What a fault looks like on
//! the wire is rendered in `api/`, in the shape that the path's clients expect.

use std::fmt;

use crate::units::Seconds;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request is malformed, or does not fit the model.
    BadRequest,
    /// No model, or no such version of it, is served here.
    ModelNotFound,
    /// No such path.
    NoRoute,
    /// The path exists, not with this method.
    MethodNotAllowed,
    /// The body is over the limit.
    BodyTooLarge,
    /// The body is compressed in a way that is not read here.
    UnsupportedEncoding,
    /// The answer holds NaN or Infinity, which JSON can't say.
    NotFinite,
    /// Part of the protocol, and not done here.
    NotServed,
    /// The engine failed on a request that was well formed.
    EngineFailed,
    /// The models are still loading.
    Loading,
    /// As many requests wait as may wait.
    Busy,
    /// The request waited for as long as its model's queue policy lets it.
    QueueTimeout,
    /// The worker is stopping.
    Stopping,
}

impl Kind {
    /// HTTP's status, gRPC's code and the label that clients see as `code`. gRPC's numbers are named in its "Status
    /// codes and their use": 3 invalid argument, 5 not found, 8 resource exhausted, 12 unimplemented, 13 internal, 14
    /// unavailable.
    const fn row(self) -> (u16, i32, &'static str) {
        match self {
            Kind::BadRequest => (400, 3, "bad_request"),
            Kind::ModelNotFound => (404, 5, "model_not_found"),
            Kind::NoRoute => (404, 12, "no_route"),
            Kind::MethodNotAllowed => (405, 12, "method_not_allowed"),
            Kind::BodyTooLarge => (413, 8, "body_too_large"),
            Kind::UnsupportedEncoding => (415, 12, "unsupported_encoding"),
            Kind::NotFinite => (422, 3, "not_finite"),
            Kind::EngineFailed => (500, 13, "engine_failed"),
            Kind::NotServed => (501, 12, "not_served"),
            Kind::Loading => (503, 14, "loading"),
            Kind::Busy => (503, 14, "busy"),
            Kind::QueueTimeout => (503, 14, "queue_timeout"),
            Kind::Stopping => (503, 14, "stopping"),
        }
    }

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        self.row().0
    }

    /// gRPC's status code.
    pub const fn grpc(self) -> i32 {
        self.row().1
    }

    /// How it counts among a model's failures.
    pub const fn reason(self) -> Reason {
        match self {
            Kind::Busy | Kind::QueueTimeout => Reason::Rejected,
            Kind::EngineFailed => Reason::Backend,
            _ => Reason::Other,
        }
    }

    /// The label, as `code` of an OpenAI error object.
    pub const fn label(self) -> &'static str {
        self.row().2
    }
}

/// Triton's reasons why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It would have waited, or has waited, for too long.
    Rejected,
    /// Its client left.
    Canceled,
    /// The engine failed.
    Backend,
    /// Anything else: mostly a request that does not fit the model.
    Other,
}

impl Reason {
    /// All of them, each at its own place.
    pub const ALL: [Reason; 4] = [
        Reason::Rejected,
        Reason::Canceled,
        Reason::Backend,
        Reason::Other,
    ];

    /// Triton's name for it.
    pub const fn label(self) -> &'static str {
        match self {
            Reason::Rejected => "REJECTED",
            Reason::Canceled => "CANCELED",
            Reason::Backend => "BACKEND",
            Reason::Other => "OTHER",
        }
    }
}

/// What there is instead of what was asked for, for a message.
pub fn there_are(names: &[&str]) -> String {
    match names {
        [] => "there are none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    }
}

/// A refusal or failure on its way to the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What went wrong.
    pub kind: Kind,
    /// The cause and the way out, for a person. Holds names and numbers, never a text that was to be embedded.
    pub message: String,
    /// When trying again makes sense (`Retry-After`).
    pub retry_after: Option<Seconds>,
    /// The field of the request that is wrong (`param` of OpenAI's error object).
    pub param: Option<&'static str>,
}

impl Fault {
    /// A fault with its message and nothing else.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Fault {
            kind,
            message: message.into(),
            retry_after: None,
            param: None,
        }
    }

    /// The client's mistake.
    pub fn bad(message: impl Into<String>) -> Self {
        Fault::new(Kind::BadRequest, message)
    }

    /// Says when to come back.
    pub fn retry_after(mut self, wait: Seconds) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Names the field that is wrong.
    pub fn param(mut self, field: &'static str) -> Self {
        self.param = Some(field);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.label(), self.message)
    }
}

impl std::error::Error for Fault {}
