//! Test requests on their way: sent when the fleet says that one is due, over the connections that clients' use.
//!
//! A test holds a place like a client's request and teaches by the same first bytes and tokens (`forward/flow.rs`), so
//! what it measures is what clients would see. It is sent once, to the worker it is for; what goes wrong with it speaks
//! against that worker as a client's request would. It ends at the worker's own timers, which is a failure, or after
//! [`LONGEST`], which says nothing.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::trial::Trial;
use super::{Fleet, Lease, Station, discover};
use crate::clock::Clock;
use crate::config::Plan;
use crate::config::plan::WorkerPlan;
use crate::decide::{Outcome, Work};
use crate::facts::UsageScan;
use crate::observe::{Observe, Tested};
use crate::units::{ModelName, Seconds};
use crate::upstream::{Loss, Outgoing, Resend, Upstream, UpstreamBody, UpstreamRequest};

/// Time between two looks whether a test is due.
const LOOK: Seconds = Seconds(0.2);
/// The longest that a test is waited for.
const LONGEST: Seconds = Seconds(60.0);

/// A test whose place is booked.
pub(super) struct Booked {
    pub lease: Lease,
    pub model: ModelName,
    pub work: Work,
    pub prompt: f64,
}

/// Sends test requests for as long as the process lives.
pub struct Calibrator {
    fleet: Arc<Fleet>,
    clock: Clock,
    observe: Arc<Observe>,
    plan: Arc<ArcSwap<Plan>>,
}

/// How a test ended.
struct Ended {
    status: StatusCode,
    label: &'static str,
    outcome: Outcome,
}

/// What was seen of an answer.
#[derive(Default)]
struct Seen {
    first_byte: Option<Seconds>,
    bytes: u64,
}

impl Calibrator {
    /// Has sent nothing yet.
    #[must_use]
    pub fn new(
        fleet: Arc<Fleet>,
        clock: Clock,
        observe: Arc<Observe>,
        plan: Arc<ArcSwap<Plan>>,
    ) -> Arc<Self> {
        Arc::new(Calibrator {
            fleet,
            clock,
            observe,
            plan,
        })
    }

    /// Never ends; tests under way end with it.
    pub async fn run(self: Arc<Self>) {
        let mut ticks = interval(LOOK.to_duration());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tests = JoinSet::new();
        loop {
            ticks.tick().await;
            for booked in self.fleet.begin_tests() {
                let calibrator = self.clone();
                tests.spawn(async move { calibrator.test(booked).await });
            }
            while tests.try_join_next().is_some() {}
        }
    }

    /// One test, from its body to its line in the log.
    async fn test(&self, booked: Booked) {
        let Booked {
            mut lease,
            model,
            work,
            prompt,
        } = booked;
        let station = lease.station().clone();
        let Station { plan, upstream, .. } = &*station;
        let catalogue = self.fleet.catalogue();
        let name = catalogue.renamed(lease.worker(), &model).unwrap_or(&model);
        let Some(trial) = Trial::new(plan, name, work, prompt, rand::random()) else {
            return lease.finish(Outcome::Unsent, self.clock.now());
        };
        let began = self.clock.now();
        let mut seen = Seen::default();
        let asked = self.ask(plan, upstream, &trial, (&mut lease, &mut seen));
        let limit = self.limit(plan, work);
        let ended = match timeout(limit.to_duration(), asked).await {
            Ok(ended) => ended,
            Err(_) => Ended::too_late(limit),
        };
        self.observe.tested(&Tested {
            worker: lease.worker(),
            model: &model,
            path: trial.path,
            status: ended.status.as_u16(),
            outcome: ended.label,
            bytes_in: trial.body.len() as u64,
            bytes_out: seen.bytes,
            first_byte: seen.first_byte.map(|first| first - began),
            total: self.clock.now() - began,
        });
        lease.finish(ended.outcome, self.clock.now());
    }

    /// How long the worker may take.
    fn limit(&self, plan: &WorkerPlan, work: Work) -> Seconds {
        let timeouts = self.plan.load().timeouts.under(&plan.timeouts);
        let own = match work {
            Work::Generate => timeouts.first_byte,
            Work::Embed | Work::Infer => timeouts.answer,
        };
        own.map_or(LONGEST, |own| own.min(LONGEST))
    }

    /// Sends it and reads the answer to its end.
    async fn ask(
        &self,
        plan: &WorkerPlan,
        upstream: &Arc<Upstream>,
        trial: &Trial,
        (lease, seen): (&mut Lease, &mut Seen),
    ) -> Ended {
        let target = PathAndQuery::try_from(&*trial.target).map_err(http::Error::from);
        let Ok(uri) = target.and_then(|target| plan.origin.uri(target)) else {
            return Ended::unsent("unsendable");
        };
        let headers = headers(plan);
        let draft = || request(&uri, &headers, &trial.body);
        let connect = self.plan.load().timeouts.under(&plan.timeouts).connect;
        let sent = upstream
            .send(&draft, connect, &mut Resend::allowed(true))
            .await;
        let sent = match sent {
            Ok(sent) => sent,
            Err(loss) => return Ended::lost(&loss),
        };
        if let Some(took) = sent.connected_in {
            self.fleet.connected(lease.worker(), took);
        }
        let (head, body) = sent.response.into_parts();
        let ended = Ended::answered(head.status);
        let teaches = matches!(ended.outcome, Outcome::Answered { .. });
        let streamed = is_event_stream(&head.headers);
        match self
            .read(body, UsageScan::new(streamed), teaches, (lease, seen))
            .await
        {
            Ok(outcome) if teaches => Ended { outcome, ..ended },
            Ok(_) => ended,
            Err(loss) => Ended::lost(&loss),
        }
    }

    /// Reads an answer, and tells the lease what it shows if it teaches anything.
    #[expect(clippy::cast_precision_loss, reason = "token counts of one answer")]
    async fn read(
        &self,
        mut body: UpstreamBody,
        mut scan: UsageScan,
        teaches: bool,
        (lease, seen): (&mut Lease, &mut Seen),
    ) -> Result<Outcome, Loss> {
        let mut token_seen = false;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Loss::Reset(error.to_string()))?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            let (now, events) = (self.clock.now(), scan.chunk(&piece));
            seen.bytes += piece.len() as u64;
            if seen.first_byte.is_none() {
                seen.first_byte = Some(now);
                if teaches {
                    lease.first_byte(now);
                }
            }
            // The first token is the prefill's, as in `forward/flow.rs`.
            let after_first = events.saturating_sub(u32::from(!token_seen));
            token_seen |= events > 0;
            lease.heard(after_first, now);
        }
        let usage = scan.finish();
        Ok(Outcome::Answered {
            prompt_tokens: usage.prompt.map(|count| count as f64),
            cached_tokens: usage.cached.map(|count| count as f64),
            output_tokens: usage.output.map(|count| count as f64),
        })
    }
}

impl Ended {
    /// With an answer of this status; `forward/judge.rs` says why each means what it means.
    fn answered(status: StatusCode) -> Ended {
        let (label, outcome) = match status.as_u16() {
            200..300 => (
                "ok",
                Outcome::Answered {
                    prompt_tokens: None,
                    cached_tokens: None,
                    output_tokens: None,
                },
            ),
            429 | 503 => ("busy", Outcome::Busy { retry_after: None }),
            500 | 502 | 504.. => ("5xx", Outcome::Failed),
            _ => ("rejected", Outcome::Rejected),
        };
        Ended {
            status,
            label,
            outcome,
        }
    }

    fn lost(loss: &Loss) -> Ended {
        let outcome = match loss {
            Loss::Exhausted(_) => Outcome::Unsent,
            loss if loss.unsent() => Outcome::Refused,
            Loss::Reset(_) => Outcome::Lost,
            _ => Outcome::Failed,
        };
        Ended {
            status: StatusCode::BAD_GATEWAY,
            label: loss.label(),
            outcome,
        }
    }

    /// A timer fired: the worker's own, or ours.
    fn too_late(limit: Seconds) -> Ended {
        let ours = limit >= LONGEST;
        Ended {
            status: StatusCode::GATEWAY_TIMEOUT,
            label: "timeout",
            outcome: if ours { Outcome::Gone } else { Outcome::Failed },
        }
    }

    fn unsent(label: &'static str) -> Ended {
        Ended {
            status: StatusCode::BAD_GATEWAY,
            label,
            outcome: Outcome::Unsent,
        }
    }
}

fn request(uri: &Uri, headers: &HeaderMap, body: &Bytes) -> UpstreamRequest {
    let mut request = http::Request::new(Outgoing::whole(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers.clone();
    request
}

/// Those of a probe, and the kind of the body.
fn headers(plan: &WorkerPlan) -> HeaderMap {
    let mut headers = discover::headers(plan, &plan.origin);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_says_of_the_worker() {
        let outcome = |status: u16| Ended::answered(StatusCode::from_u16(status).unwrap()).label;
        let found = [200, 204, 400, 404, 429, 500, 501, 503, 504].map(outcome);
        let wanted = [
            "ok", "ok", "rejected", "rejected", "busy", "5xx", "rejected", "busy", "5xx",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_workers_own_timer_speaks_against_it_and_ours_does_not() {
        assert_eq!(Ended::too_late(Seconds(5.0)).outcome, Outcome::Failed);
        assert_eq!(Ended::too_late(LONGEST).outcome, Outcome::Gone);
    }
}
