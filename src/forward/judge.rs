//! What the end of an attempt means: the one table from statuses and failures to how it is counted, what it says of the
//! worker, and whether another may be asked.
//!
//! | end | counted as | the worker | another? |
//! |---|---|---|---|
//! | 2xx | `ok` | answered | – |
//! | 429, 503 | `busy` | lives, says nothing of its speed | yes |
//! | 404, 405, 501 on a built-in path | `unsupported` | lives, does not know the path | yes |
//! | other 5xx, but for 501 | `5xx` | failed | yes |
//! | other statuses | `ok` | lives | – |
//! | a gRPC call that ends with its head: 8, 14 as 503; 12 as 501; others | | | |
//! | a gRPC call that ends with its head: 2, 13, 15 | `5xx` | failed, unless a second one says so too | yes |
//! | the adapter was not loaded | `lora` | was not sent it | yes |
//! | a worker that does not speak what the request needs | `unfit` | was not sent it | yes |
//! | no connection | `refused`, `connect_timeout` | was not reached | yes |
//! | lost | `reset` | lost it, as one does that dies | yes |
//! | no HTTP | `malformed` | failed | yes |
//! | a timer of the worker's | its reason | failed | yes |
//! | the client's own stream is at fault, or neither of its ends says anything | its reason | – | no |
//! | `timeouts.total`, `x-forebay-deadline` | `deadline` | – | no |
//!
//! HTTP has 4xx for requests that can't be served; gRPC's servers answer 2 or 13 also to a message that they can't
//! read. So of two workers that answer a call so neither is blamed (`tries.rs`): else a client with one such message
//! could have workers ejected.
//!
//! Whether "yes" comes to pass is decided by `decide/retry.rs`.

use http::{HeaderMap, StatusCode};

use super::Failure;
use super::retry_after::retry_after;
use crate::clock;
use crate::decide::{Ending, Outcome};
use crate::fault::Kind;
use crate::upstream::Loss;

/// What the end of an attempt means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judgement {
    /// What it is counted as.
    pub label: &'static str,
    /// What it says of the worker; an answer's tokens are not known yet.
    pub outcome: Outcome,
    /// Whether another worker may be asked.
    pub ending: Ending,
}

const fn judged(label: &'static str, outcome: Outcome, ending: Ending) -> Judgement {
    Judgement {
        label,
        outcome,
        ending,
    }
}

/// An answer, by its head.
pub(super) fn answer(status: StatusCode, headers: &HeaderMap, built_in: bool) -> Judgement {
    let good = Outcome::Answered {
        prompt_tokens: None,
        cached_tokens: None,
        output_tokens: None,
    };
    let busy = || {
        let retry_after = retry_after(headers, clock::wall);
        judged("busy", Outcome::Busy { retry_after }, Ending::Busy)
    };
    match grpc_status(headers) {
        Some(8 | 14) => return busy(),
        Some(12) if built_in => {
            return judged("unsupported", Outcome::Rejected, Ending::Unsupported);
        }
        Some(2 | 13 | 15) => return judged("5xx", Outcome::Doubted, Ending::ServerError),
        Some(1..) => return judged("ok", Outcome::Rejected, Ending::Answer),
        Some(0) | None => {}
    }
    match status.as_u16() {
        200..300 => judged("ok", good, Ending::Answer),
        429 | 503 => busy(),
        404 | 405 | 501 if built_in => {
            judged("unsupported", Outcome::Rejected, Ending::Unsupported)
        }
        500 | 502 | 504.. => judged("5xx", Outcome::Failed, Ending::ServerError),
        _ => judged("ok", Outcome::Rejected, Ending::Answer),
    }
}

/// The status of a gRPC call that ended with its head.
fn grpc_status(headers: &HeaderMap) -> Option<u8> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// No answer.
pub(super) fn failure(failure: &Failure) -> Judgement {
    match failure {
        Failure::Loss(loss) if loss.unsent() => {
            judged(loss.label(), Outcome::Refused, Ending::Refused)
        }
        Failure::Loss(loss @ Loss::Reset(_)) => judged(loss.label(), Outcome::Lost, Ending::Reset),
        Failure::Loss(loss) => judged(loss.label(), Outcome::Failed, Ending::Reset),
        // The limit on the whole exchange says nothing of the worker that happened to be asked.
        Failure::TimedOut(fault) if fault.kind == Kind::Deadline => {
            judged(fault.kind.label(), Outcome::Gone, Ending::Hopeless)
        }
        Failure::TimedOut(fault) => judged(fault.kind.label(), Outcome::Failed, Ending::Timeout),
        Failure::Spoilt(fault) => judged(fault.kind.label(), Outcome::Gone, Ending::Hopeless),
        Failure::Unloaded(_) => judged("lora", Outcome::Unsent, Ending::Unloadable),
        Failure::Unfit(_) => judged("unfit", Outcome::Unsent, Ending::Unloadable),
        Failure::Unsendable(fault) => judged(fault.kind.label(), Outcome::Unsent, Ending::Hopeless),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::units::Seconds;

    #[test]
    fn statuses_are_told_apart() {
        let of = |status, built_in| {
            let status = StatusCode::from_u16(status).unwrap();
            let judged = answer(status, &HeaderMap::new(), built_in);
            (judged.label, judged.ending)
        };
        for status in [200, 204, 302, 400, 401, 422] {
            assert_eq!(of(status, true), ("ok", Ending::Answer), "{status}");
        }
        for status in [500, 502, 504, 529, 599] {
            assert_eq!(of(status, true), ("5xx", Ending::ServerError), "{status}");
        }
        for status in [404, 405, 501] {
            assert_eq!(of(status, true), ("unsupported", Ending::Unsupported));
            assert_eq!(of(status, false), ("ok", Ending::Answer), "{status}");
        }
        assert_eq!(of(429, false), ("busy", Ending::Busy));
        assert_eq!(of(503, true), ("busy", Ending::Busy));
    }

    #[test]
    fn a_busy_answer_says_for_how_long() {
        let headers: HeaderMap = [(http::header::RETRY_AFTER, "7".parse().unwrap())]
            .into_iter()
            .collect();
        let judged = answer(StatusCode::SERVICE_UNAVAILABLE, &headers, true);
        let busy = Outcome::Busy {
            retry_after: Some(Seconds(7.0)),
        };
        assert_eq!(judged.outcome, busy);
    }

    #[test]
    fn failures_are_told_apart() {
        let of = |failure: Failure| {
            let judged = super::failure(&failure);
            (judged.label, judged.outcome, judged.ending)
        };
        let timed = |kind| Failure::TimedOut(Fault::new(kind, ""));
        let lost = |loss| Failure::Loss(loss);
        assert_eq!(
            of(lost(Loss::Refused(String::new()))),
            ("refused", Outcome::Refused, Ending::Refused)
        );
        assert_eq!(
            of(lost(Loss::Reset(String::new()))),
            ("reset", Outcome::Lost, Ending::Reset)
        );
        assert_eq!(
            of(lost(Loss::Malformed(String::new()))),
            ("malformed", Outcome::Failed, Ending::Reset)
        );
        assert_eq!(
            of(timed(Kind::FirstByteTimeout)),
            ("first_byte_timeout", Outcome::Failed, Ending::Timeout)
        );
        assert_eq!(
            of(timed(Kind::Deadline)),
            ("deadline", Outcome::Gone, Ending::Hopeless)
        );
        assert_eq!(
            of(Failure::Spoilt(Fault::new(Kind::BodyTooLarge, ""))),
            ("body_too_large", Outcome::Gone, Ending::Hopeless)
        );
    }
}
