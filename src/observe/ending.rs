//! How a request ended, as the counters and the log tell it.

use http::StatusCode;

use super::series::Usage;
use crate::decide::Expense;
use crate::fault::Kind;

/// What a request came to, as whoever keeps accounts is told at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// Whether a worker worked on it: it was sent, and what came was no error.
    pub served: bool,
    /// Tokens of its prompt, as reported.
    pub prompt: Option<u64>,
    /// Tokens of its answer, as reported, else as many as passed one by one, if any did.
    pub output: Option<u64>,
    /// What it took of machines.
    pub expense: Expense,
}

/// Hears what a request came to.
pub type Listener = Box<dyn FnOnce(Spent) + Send + Sync>;

/// Whom the end of a request is told, once.
#[derive(Default)]
pub(super) struct AtEnd(Option<Listener>);

impl AtEnd {
    /// This listener.
    pub(super) fn of(listener: Listener) -> Self {
        AtEnd(Some(listener))
    }

    /// It is over.
    pub(super) fn tell(&mut self, spent: Spent) {
        if let Some(listener) = self.0.take() {
            listener(spent);
        }
    }
}

impl std::fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AtEnd").field(&self.0.is_some()).finish()
    }
}

impl Spent {
    /// By the attempts made, the status counted, the tokens, and what it took of machines.
    pub(super) fn of(attempts: u32, status: StatusCode, usage: Usage, expense: Expense) -> Self {
        let failed = status.is_client_error() || status.is_server_error();
        Spent {
            served: attempts > 0 && (!failed || status == Kind::ClientGone.status()),
            prompt: usage.prompt,
            output: usage
                .output
                .or(Some(usage.passed).filter(|passed| *passed > 0)),
            expense,
        }
    }
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Status {
    /// What the client saw, or will,
    shown: Option<StatusCode>,
    /// and whether it has.
    is_out: bool,
    /// What it would have been, had the head not gone out before.
    unseen: Option<StatusCode>,
}

impl Status {
    /// The answer's status is known.
    pub(super) fn set(&mut self, status: StatusCode) {
        if self.is_out {
            self.unseen = Some(status);
        } else {
            self.shown = Some(status);
        }
    }

    /// The head has gone out with it.
    pub(super) fn goes_out(&mut self) {
        self.is_out = true;
    }

    /// What the answer came to, whatever the client saw.
    pub(super) fn real(self) -> Option<StatusCode> {
        self.unseen.or(self.shown)
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nobody said: the client left.
    Unsaid,
    /// The whole answer was handed to the connection.
    Complete,
    /// Refused or failed.
    Fault(Kind),
}

impl End {
    /// The status that is counted, which is the one that the client saw, and why. `cutting` says that the proxy is stopping
    /// and cuts what is left.
    pub(super) fn told(self, answer: Status, cutting: bool) -> (StatusCode, &'static str) {
        let as_seen = |kind: Kind| (answer.shown.unwrap_or(kind.status()), kind.label());
        match self {
            End::Unsaid if std::thread::panicking() => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal_error")
            }
            End::Unsaid if cutting => as_seen(Kind::Overloaded),
            End::Unsaid | End::Fault(Kind::ClientGone) => {
                (Kind::ClientGone.status(), Kind::ClientGone.label())
            }
            End::Fault(kind) => as_seen(kind),
            End::Complete => {
                let status = answer.shown.unwrap_or(StatusCode::OK);
                let real = answer.real().unwrap_or(status);
                let failed = real.is_client_error() || real.is_server_error();
                (status, if failed { "worker_status" } else { "ok" })
            }
        }
    }
}
