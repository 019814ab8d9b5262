//! Getting an answer: send to the worker whose place was booked, and on failure to another.
//!
//! What may be repeated (contract §4): what never reached a worker always, whatever its method, and at no cost. What may
//! have been read by one that then failed, until the first byte has gone to the client: inference on built-in paths, GET
//! and HEAD, and routes whose `repeat` is `"safe"`; at most `routing.retries.extra` times. `x-forebay-retry: never`
//! forbids the latter. A worker that was tried is not tried again. A 429 or 503 of a worker (over its limit, or loading
//! its model after a restart) goes to another one that has a place free, and to the client where there is none.
//!
//! The head of an inference answer is held until its first body bytes are there. A worker that dies in between has given
//! the client nothing yet, so the request can still be answered by another.

mod deadlines;
mod flow;
mod headers;
pub mod refusal;
pub mod relay;

use deadlines::Deadlines;
use headers::Draft;

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode, Version, response};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::config::Plan;
use crate::config::plan::{Repeat, WorkerPlan};
use crate::decide::{Ask, Outcome};
use crate::facts::{BuiltIn, Dialect, RequestFacts};
use crate::fault::{Fault, Kind};
use crate::fleet::{Fleet, Lease};
use crate::inspect::{Client, Way};
use crate::observe::Exchange;
use crate::queue;
use crate::units::{Seconds, WorkerId};
use crate::upstream::{Loss, Upstream, UpstreamBody};

/// A client's word that nothing may be sent twice.
const RETRY_HEADER: &str = "x-forebay-retry";

/// Sends requests to workers.
pub struct Forward {
    clock: Clock,
    fleet: Arc<Fleet>,
    upstreams: Vec<Arc<Upstream>>,
}

/// A request to be answered, whole.
pub struct Errand<'a> {
    /// Its head.
    pub head: &'a Parts,
    /// Its body.
    pub body: &'a Bytes,
    /// What was read from both.
    pub facts: &'a RequestFacts,
    /// Where it goes.
    pub way: &'a Way<'a>,
    /// What it is priced by.
    pub ask: &'a Ask,
    /// The configuration.
    pub plan: &'a Plan,
    /// Who asks.
    pub client: &'a Client,
}

/// An answer that has begun, and the place it occupies.
pub struct Begun {
    begun: Begin,
    lease: Lease,
    /// Whose errors it would show.
    dialect: Dialect,
}

impl Begun {
    /// The answer's status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.begun.head.status
    }

    /// Whether the worker says that it can't just now: over its limit, or still loading.
    fn is_busy(&self) -> bool {
        matches!(
            self.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        )
    }

    /// Another worker is asked instead: this answer is dropped and its place given back.
    fn decline(self, exchange: &mut Exchange) {
        exchange.attempt_ended(self.lease.worker(), "busy");
        self.lease.finish(Outcome::Busy { retry_after: None });
    }
}

/// The beginning of a worker's answer.
struct Begin {
    /// Its head, as the client gets it.
    head: response::Parts,
    /// The first piece of its body, when that was waited for.
    first: Option<Bytes>,
    /// The rest of its body.
    body: UpstreamBody,
    /// Its timers.
    deadlines: Deadlines,
}

enum Failure {
    /// It can't be sent to this worker, or to any.
    Refused(Fault),
    /// No answer; perhaps somebody else has one.
    Loss(Loss),
    /// A timer fired.
    TimedOut(Fault),
}

impl Forward {
    /// Sends through these pools, one per worker in the plan's order.
    #[must_use]
    pub fn new(clock: Clock, fleet: Arc<Fleet>, upstreams: Vec<Arc<Upstream>>) -> Self {
        Forward {
            clock,
            fleet,
            upstreams,
        }
    }

    /// The attempts: the first on the place that was booked, further ones where the fleet then says.
    ///
    /// # Errors
    /// `worker_failed` when every allowed attempt failed, or the timer that fired.
    pub async fn answer(
        &self,
        lease: Lease,
        errand: &Errand<'_>,
        exchange: &mut Exchange,
    ) -> Result<Begun, Fault> {
        let mut lease = lease;
        let mut tried = Vec::new();
        let mut sent = 0;
        loop {
            let worker = lease.worker();
            exchange.attempt(worker);
            let loss = match self.attempt(lease, errand, exchange).await {
                Ok(begun)
                    if begun.is_busy()
                        && errand.repeatable()
                        && sent < errand.plan.routing.retries.extra =>
                {
                    tried.push(worker);
                    match self.fleet.reserve(errand.ask, &tried) {
                        Ok(other) => lease = other,
                        Err(_) => return Ok(begun),
                    }
                    sent += 1;
                    begun.decline(exchange);
                    exchange.retried("busy");
                    continue;
                }
                Ok(begun) => return Ok(begun),
                Err(Failure::TimedOut(fault) | Failure::Refused(fault)) => return Err(fault),
                Err(Failure::Loss(loss)) => loss,
            };
            tried.push(worker);
            sent += u32::from(!loss.unsent());
            let may_repeat =
                loss.unsent() || (errand.repeatable() && sent <= errand.plan.routing.retries.extra);
            let failed = || {
                failed(
                    &errand.plan.workers[worker.index()],
                    &loss,
                    exchange.attempts(),
                )
            };
            if !may_repeat {
                return Err(failed());
            }
            let total = errand.way.timeouts(errand.plan).total;
            let turn = queue::another_turn(&self.fleet, errand.ask, &tried);
            lease = queue::within(total, exchange.started(), self.clock, turn)
                .await
                .map_err(|fault| match fault.kind {
                    Kind::Deadline => fault,
                    _ => failed(),
                })?;
            exchange.retried(loss.label());
        }
    }

    async fn attempt(
        &self,
        lease: Lease,
        errand: &Errand<'_>,
        exchange: &mut Exchange,
    ) -> Result<Begun, Failure> {
        let worker = lease.worker();
        match self.send(worker, errand, exchange).await {
            Ok(begun) => Ok(Begun {
                begun,
                lease,
                dialect: errand.dialect(),
            }),
            Err(failure) => {
                let (label, outcome) = failure.judged();
                exchange.attempt_ended(worker, label);
                lease.finish(outcome);
                Err(failure)
            }
        }
    }

    async fn send(
        &self,
        worker: WorkerId,
        errand: &Errand<'_>,
        exchange: &mut Exchange,
    ) -> Result<Begin, Failure> {
        let plan = errand.plan;
        let (Some(worker_plan), Some(pool)) = (
            plan.workers.get(worker.index()),
            self.upstreams.get(worker.index()),
        ) else {
            return Err(Failure::Loss(Loss::Refused(
                "the worker is gone".to_owned(),
            )));
        };
        let timeouts = errand.way.timeouts(plan).under(&worker_plan.timeouts);
        let id = exchange.id().clone();
        let catalogue = self.fleet.catalogue();
        let model = errand.facts.model.as_ref();
        let name = model.and_then(|model| catalogue.renamed(worker, model));
        let draft = Draft::new(errand, worker_plan, name, &id).map_err(Failure::Refused)?;
        let now = self.clock.now();
        exchange.upstream_sent(now);
        let mut deadlines =
            Deadlines::new(&timeouts, errand.facts.streamed, now, exchange.started());
        let draft = || draft.request();
        let sending = pin!(pool.send(&draft, timeouts.connect, errand.repeatable()));
        let sent = self.in_time(&deadlines, None, sending).await?;
        if let Some(took) = sent.connected_in {
            self.fleet.connected(worker, took);
            exchange.connected(took);
        }
        let (mut head, mut body) = sent.response.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::Loss(Loss::Malformed(
                "101 without an upgrade having been asked for".to_owned(),
            )));
        }
        let streamed = headers::is_event_stream(&head.headers);
        if streamed {
            deadlines.streams();
        }
        let first = match errand.way {
            Way::Route(_) => None,
            Way::BuiltIn(_) => {
                let piece = pin!(first_piece(&mut body));
                self.in_time(&deadlines, Some(self.clock.now()), piece)
                    .await?
            }
        };
        // What is spoken to the client is ours to say (RFC 9110 §2.5): an answer that only ends with its connection, as
        // HTTP/1.0 has it, gets a framing in which a cut can be seen.
        head.version = Version::HTTP_11;
        headers::answer(&mut head.headers, streamed, exchange, self.clock.now());
        Ok(Begin {
            head,
            first,
            body,
            deadlines,
        })
    }

    /// Waits for an answer to begin, until the first timer fires; its head came at `begun`, if it came yet.
    async fn in_time<T>(
        &self,
        deadlines: &Deadlines,
        begun: Option<Seconds>,
        sending: impl Future<Output = Result<T, Loss>>,
    ) -> Result<T, Failure> {
        let Some((due, kind, name, span)) = deadlines.next(None, begun) else {
            return sending.await.map_err(Failure::Loss);
        };
        match timeout((due - self.clock.now()).to_duration(), sending).await {
            Ok(result) => result.map_err(Failure::Loss),
            Err(_) => {
                let passed = self.clock.now() - (due - span);
                let message = format!("no answer began within {name} = {span} ({passed} passed)");
                Err(Failure::TimedOut(Fault::new(kind, message)))
            }
        }
    }
}

impl Failure {
    /// The label it is counted by, and what it says of the worker.
    fn judged(&self) -> (&'static str, Outcome) {
        match self {
            Failure::Loss(loss) if loss.unsent() => (loss.label(), Outcome::Refused),
            Failure::Loss(loss) => (loss.label(), Outcome::Failed),
            // Our own limit on the whole exchange says nothing of the worker that happened to be asked.
            Failure::TimedOut(fault) if fault.kind == Kind::Deadline => {
                (fault.kind.label(), Outcome::Gone)
            }
            Failure::TimedOut(fault) => (fault.kind.label(), Outcome::Failed),
            Failure::Refused(fault) => (fault.kind.label(), Outcome::Unsent),
        }
    }
}

impl Errand<'_> {
    /// Whether it may be sent again after a worker may have read it.
    fn repeatable(&self) -> bool {
        let forbidden = self
            .head
            .headers
            .get(RETRY_HEADER)
            .is_some_and(|value| value == "never");
        let safe = match self.way {
            Way::Route(route) => route.repeat == Repeat::Safe,
            Way::BuiltIn(built_in) => matches!(
                built_in,
                BuiltIn::Inference(_) | BuiltIn::KServeModel { .. }
            ),
        };
        let read_only = self.head.method == Method::GET || self.head.method == Method::HEAD;
        !forbidden && (safe || read_only)
    }

    fn dialect(&self) -> Dialect {
        match self.way {
            Way::Route(_) => Dialect::OpenAi,
            Way::BuiltIn(built_in) => built_in.dialect(),
        }
    }
}

/// The first piece of a body, if it has any.
async fn first_piece(body: &mut UpstreamBody) -> Result<Option<Bytes>, Loss> {
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else {
            return Ok(None);
        };
        let frame = frame.map_err(|error| Loss::Reset(error.to_string()))?;
        match frame.into_data() {
            Ok(piece) if !piece.is_empty() => return Ok(Some(piece)),
            _ => {}
        }
    }
    Ok(None)
}

fn failed(worker: &WorkerPlan, loss: &Loss, attempts: u32) -> Fault {
    let times = if attempts == 1 {
        "the only attempt failed".to_owned()
    } else {
        format!("{attempts} attempts failed")
    };
    Fault::new(
        Kind::WorkerFailed,
        format!("{times}; the last cause at {}: {loss}", worker.name),
    )
}
