//! One fault type for everything the proxy itself refuses or fails at.
//!
//! A [`Fault`] answers the questions that the rest of the house asks: which status, which code and metric label, whose
//! fault, may it be tried again. The match arms below are the one table of them (contract §4); what an error looks like
//! on the wire is rendered in `forward/refusal.rs`, by the path's dialect.

use http::StatusCode;

use crate::units::{ModelName, Seconds};

/// What went wrong, as the contract names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The request cannot be read safely.
    BadRequest,
    /// A key or token is missing or wrong.
    Unauthorized,
    /// The key may not do this.
    Forbidden,
    /// No configured worker that could answer is in a zone where this request may go.
    Residency,
    /// No configured worker serves a model of this name.
    ModelNotFound,
    /// No route and no built-in path matches.
    NoRoute,
    /// The path exists, not with this method.
    MethodNotAllowed,
    /// The request body came too slowly.
    RequestTimeout,
    /// The request body is over `limits.body`.
    BodyTooLarge,
    /// The body is compressed; routing would read something else than the worker does.
    UnsupportedEncoding,
    /// The tenant uses as much as it may.
    RateLimited,
    /// All workers are at their limit and so is the queue.
    QueueFull,
    /// Waited in the queue as long as is allowed.
    QueueTimeout,
    /// The client left before the answer was complete. Only ever logged.
    ClientGone,
    /// Every allowed attempt failed.
    WorkerFailed,
    /// No worker that serves this model is up.
    NoWorker,
    /// The proxy holds as many request bytes as `limits.buffered` allows, or is stopping.
    Overloaded,
    /// The worker sent nothing within `timeouts.first_byte`.
    FirstByteTimeout,
    /// The whole answer did not come within `timeouts.answer`.
    AnswerTimeout,
    /// The worker fell silent inside an answer for `timeouts.between_bytes`.
    Stalled,
    /// `timeouts.total` or the client's deadline passed, or nobody can answer before it does.
    Deadline,
}

/// Who has to change something for it to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The client.
    Client,
    /// A worker.
    Worker,
    /// The proxy, its operator or the load.
    Proxy,
}

impl Kind {
    /// Every kind, for tables and tests.
    pub const ALL: [Kind; 21] = [
        Kind::BadRequest,
        Kind::Unauthorized,
        Kind::Forbidden,
        Kind::Residency,
        Kind::ModelNotFound,
        Kind::NoRoute,
        Kind::MethodNotAllowed,
        Kind::RequestTimeout,
        Kind::BodyTooLarge,
        Kind::UnsupportedEncoding,
        Kind::RateLimited,
        Kind::QueueFull,
        Kind::QueueTimeout,
        Kind::ClientGone,
        Kind::WorkerFailed,
        Kind::NoWorker,
        Kind::Overloaded,
        Kind::FirstByteTimeout,
        Kind::AnswerTimeout,
        Kind::Stalled,
        Kind::Deadline,
    ];

    /// HTTP status, reason label and whose fault it is: the contract's table.
    const fn row(self) -> (u16, &'static str, Blame) {
        match self {
            Kind::BadRequest => (400, "bad_request", Blame::Client),
            Kind::Unauthorized => (401, "unauthorized", Blame::Client),
            Kind::Forbidden => (403, "forbidden", Blame::Client),
            Kind::Residency => (403, "residency", Blame::Client),
            Kind::ModelNotFound => (404, "model_not_found", Blame::Client),
            Kind::NoRoute => (404, "no_route", Blame::Client),
            Kind::MethodNotAllowed => (405, "method_not_allowed", Blame::Client),
            Kind::RequestTimeout => (408, "request_timeout", Blame::Client),
            Kind::BodyTooLarge => (413, "body_too_large", Blame::Client),
            Kind::UnsupportedEncoding => (415, "unsupported_encoding", Blame::Client),
            Kind::RateLimited => (429, "rate_limited", Blame::Client),
            Kind::QueueFull => (429, "queue_full", Blame::Proxy),
            Kind::QueueTimeout => (429, "queue_timeout", Blame::Proxy),
            Kind::ClientGone => (499, "client_gone", Blame::Client),
            Kind::WorkerFailed => (502, "worker_failed", Blame::Worker),
            Kind::NoWorker => (503, "no_worker", Blame::Worker),
            Kind::Overloaded => (503, "overloaded", Blame::Proxy),
            Kind::FirstByteTimeout => (504, "first_byte_timeout", Blame::Worker),
            Kind::AnswerTimeout => (504, "answer_timeout", Blame::Worker),
            Kind::Stalled => (504, "stalled", Blame::Worker),
            Kind::Deadline => (504, "deadline", Blame::Worker),
        }
    }

    /// The status a client sees; 499 is only ever logged.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The `code` of the error object, `x-forebay-reason` and the metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.row().1
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn blame(self) -> Blame {
        self.row().2
    }
}

/// A refusal or failure on its way to the client: what, in words, and when to come back.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What went wrong.
    pub kind: Kind,
    /// The cause and the way out, for a person. Never holds request text other than a model name.
    pub message: String,
    /// What may have been meant. It is told only to whom it may be: see [`Fault::suggesting`].
    pub suggestion: Option<ModelName>,
    /// When trying again makes sense (`Retry-After`), where that is known.
    pub retry_after: Option<Seconds>,
    /// The field of the request that is wrong (`param` of OpenAI's error object).
    pub param: Option<&'static str>,
    /// The methods that would have been taken (`Allow`), when the method was wrong.
    pub allow: Option<&'static str>,
    /// How much there is of what was used up, when a limit was in the way.
    pub quota: Option<Quota>,
}

/// A limit by the minute and how it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// What a minute has.
    pub limit: u32,
    /// What is left.
    pub remaining: u32,
    /// When all of it is there again.
    pub reset: Seconds,
}

impl Fault {
    /// A fault with its message and nothing else.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Fault {
            kind,
            message: message.into(),
            suggestion: None,
            retry_after: None,
            param: None,
            allow: None,
            quota: None,
        }
    }

    /// What may have been meant.
    #[must_use]
    pub fn suggest(mut self, model: Option<ModelName>) -> Self {
        self.suggestion = model;
        self
    }

    /// Says what may have been meant, if whoever asked may hear of it.
    #[must_use]
    pub fn suggesting(mut self, may_hear: impl FnOnce(&ModelName) -> bool) -> Self {
        if let Some(model) = self.suggestion.take().filter(may_hear) {
            self.message += &format!("; did you mean `{model}`?");
        }
        self
    }

    /// Says when to come back.
    #[must_use]
    pub fn retry_after(mut self, wait: Seconds) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Names the field that is wrong.
    #[must_use]
    pub fn param(mut self, field: &'static str) -> Self {
        self.param = Some(field);
        self
    }

    /// Says which methods would have been taken.
    #[must_use]
    pub fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    /// Says how the limit stands that was in the way.
    #[must_use]
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota = Some(quota);
        self
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.label(), self.message)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_label_of_its_own_and_an_error_status() {
        let mut labels: Vec<_> = Kind::ALL.iter().map(|kind| kind.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Kind::ALL.len());
        assert!(
            Kind::ALL
                .iter()
                .all(|kind| (400..600).contains(&kind.status().as_u16()))
        );
    }

    #[test]
    fn statuses_of_4xx_blame_the_client_unless_load_is_the_cause() {
        for kind in Kind::ALL {
            let load = [Kind::QueueFull, Kind::QueueTimeout].contains(&kind);
            let client = kind.status().is_client_error() && !load;
            assert_eq!(kind.blame() == Blame::Client, client, "{kind:?}");
        }
    }
}
