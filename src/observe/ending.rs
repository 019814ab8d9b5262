//! How a request ended, as the counters and the log tell it.

use http::StatusCode;

use crate::fault::Kind;

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
    /// The status that is counted, and why. `sent` is the status that the client saw, `cutting` says that the proxy is
    /// stopping and cuts what is left.
    pub(super) fn told(
        self,
        sent: Option<StatusCode>,
        cutting: bool,
    ) -> (StatusCode, &'static str) {
        let as_seen = |kind: Kind| (sent.unwrap_or(kind.status()), kind.label());
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
                let status = sent.unwrap_or(StatusCode::OK);
                let failed = status.is_client_error() || status.is_server_error();
                (status, if failed { "worker_status" } else { "ok" })
            }
        }
    }
}
