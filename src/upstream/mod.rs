//! Connections to workers: a pool of our own per worker, and hyper's client on top of each connection.
//!
//! Why not hyper-util's pooled client: the difference between *refused*, *never sent*, *died on reuse* and *failed
//! after it was sent* decides whether a request may be repeated (contract §4), and only the lower interface tells them
//! apart: `try_send_request` hands back what was never written.
//!
//! Guaranteed: a connection goes back to the pool only after its answer was read to the end, and had one framing;
//! dropping an answer early closes its connection at once (HTTP/2: resets its stream), which is how a worker learns
//! that a client has left (promise P8).

mod answer;
mod connect;
mod names;
mod outgoing;
mod pool;
mod probe;
mod wire;

pub use answer::UpstreamBody;
pub use names::Addresses;
pub use outgoing::Outgoing;
pub use pool::{Resend, Sent, Upstream};
pub use probe::{Question, Reply};

use crate::units::Seconds;

/// A request as it is sent to a worker.
pub type UpstreamRequest = http::Request<Outgoing>;

/// Why an attempt produced no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// No connection: refused, unreachable, name unknown. Nothing was sent.
    Refused(String),
    /// No connection within `timeouts.connect`. Nothing was sent.
    ConnectTimeout {
        /// The limit.
        limit: Seconds,
        /// What had passed.
        passed: Seconds,
    },
    /// The connection ended after the request may have been sent and before an answer began.
    Reset(String),
    /// What came back is not HTTP.
    Malformed(String),
    /// This process may open no more connections. Nothing was sent, and no worker is to blame.
    Exhausted(String),
}

impl Loss {
    /// Whether the worker can't have seen the request.
    #[must_use]
    pub fn unsent(&self) -> bool {
        matches!(
            self,
            Loss::Refused(_) | Loss::ConnectTimeout { .. } | Loss::Exhausted(_)
        )
    }

    /// The label of `forebay_attempts_total`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Loss::Refused(_) => "refused",
            Loss::ConnectTimeout { .. } => "connect_timeout",
            Loss::Reset(_) => "reset",
            Loss::Malformed(_) => "malformed",
            Loss::Exhausted(_) => "exhausted",
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Loss::Refused(cause) => write!(f, "no connection: {cause}"),
            Loss::ConnectTimeout { limit, passed } => {
                let timer = format!("timeouts.connect = {limit} ({passed} passed)");
                write!(f, "no connection within {timer}")
            }
            Loss::Reset(cause) => {
                write!(f, "the connection broke before an answer began ({cause})")
            }
            Loss::Malformed(cause) => write!(f, "the answer is not HTTP ({cause})"),
            Loss::Exhausted(cause) => write!(
                f,
                "the proxy can open no more connections ({cause}); raise its limit on open files (ulimit -n, LimitNOFILE)"
            ),
        }
    }
}
