//! Getting an answer: send to the worker whose place was booked, and when that goes wrong to another.
//!
//! Read [`Forward::answer`]: attempt, verdict, next turn. What an attempt's end means stands in `judge`, whether the
//! request is then sent again in `decide/retry.rs` (contract §4):
//!
//! - what never reached a worker always is, whatever its method, and at no cost;
//! - what a worker may have read: inference on built-in paths, GET and HEAD, and routes whose `repeat` is `"safe"`, at
//!   most `routing.retries.extra` times and until the first byte has gone to the client. Other routes repeat only what
//!   a worker was too busy to begin; `x-forebay-retry: never` forbids all of it;
//! - a worker that was tried is not tried again. The exception is a kept-alive connection that dies on reuse: the
//!   request goes to the same worker on a fresh one. The worker may have read it, so that counts toward `extra` all the
//!   same.
//!
//! Who can't be given a place elsewhere waits in line for one. When that fails, or all is used up, the client gets the
//! last worker's real answer if there was one (`tries`), and an error of ours otherwise.

mod adapter;
mod attempt;
mod deadlines;
mod flow;
mod forwarded;
mod frames;
pub mod headers;
pub mod heartbeat;
mod judge;
mod load_report;
mod pipe;
mod pipes;
mod quota;
pub mod refusal;
pub mod relay;
mod retry_after;
pub mod sending;
mod signs;
mod tries;
pub mod tunnel;

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use http::{HeaderName, StatusCode, Version};

use attempt::{Begin, Failure};
use sending::Sending;
use tries::{Repeating, Repeats, Tries};

use crate::clock::Clock;
use crate::config::Plan;
use crate::config::plan::{Repeat, Retries, RetryOn};
use crate::decide::{
    Ask, Ending, NoChoice, Outcome, Permit, RetryRules, Shortlist, Tally, Verdict,
};
use crate::facts::{BuiltIn, Dialect, RequestFacts};
use crate::fault::{Fault, Kind};
use crate::fleet::{Fleet, Lease};
use crate::inspect::{Client, Limit, Way};
use crate::observe::Exchange;
use crate::queue::{self, Guest, Patience, Spot};
use crate::units::{Seconds, WorkerId};

/// A client's word that nothing may be sent twice.
const RETRY_HEADER: HeaderName = HeaderName::from_static("x-forebay-retry");

/// When to come back to workers that took no connection.
const COME_BACK: Seconds = Seconds(2.0);

/// Sends requests to workers.
pub struct Forward {
    clock: Clock,
    fleet: Arc<Fleet>,
    repeats: Repeats,
}

/// A request to be answered, whole.
pub struct Errand<'a> {
    /// Its head.
    pub head: &'a Parts,
    /// Its body.
    pub body: &'a Bytes,
    /// What that says: the same, unless it came compressed.
    pub text: &'a Bytes,
    /// The stream that it begins, if its body is one; that can be sent once.
    pub stream: Option<&'a Sending>,
    /// What was read from both.
    pub facts: &'a RequestFacts,
    /// Where it goes.
    pub way: &'a Way<'a>,
    /// What it is priced by.
    pub ask: &'a Ask,
    /// How long the client waits, counted from the head.
    pub deadline: Option<Limit>,
    /// Where it stands in line.
    pub spot: &'a Spot,
    /// The configuration.
    pub plan: &'a Plan,
    /// Who asks.
    pub client: &'a Client,
    /// Whether gRPC is spoken, on whatever path.
    pub is_grpc: bool,
}

/// An answer that has begun, and the place it occupies.
pub struct Begun {
    begin: Begin,
    worker: WorkerId,
    /// Given back before the end by an answer that was set aside.
    lease: Option<Lease>,
    /// The request's place in the budget of repeats, if it needed one.
    repeating: Option<Repeating>,
    /// Whose errors it would show.
    dialect: Dialect,
    /// When it goes out.
    at: Seconds,
}

impl Begun {
    fn new(begin: Begin, lease: Lease, dialect: Dialect) -> Box<Self> {
        Box::new(Begun {
            begin,
            worker: lease.worker(),
            lease: Some(lease),
            repeating: None,
            dialect,
            at: Seconds::ZERO,
        })
    }

    /// The answer's status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.begin.head.status
    }

    fn ending(&self) -> Ending {
        self.begin.judged.ending
    }

    /// Whether it is an error that may be the request's own fault.
    fn is_doubted(&self) -> bool {
        self.begin.judged.outcome == Outcome::Doubted
    }

    /// Gives the place back: this attempt is over, whether the client will get its answer or not.
    fn settle(&mut self, exchange: &mut Exchange, now: Seconds) {
        if let Some(lease) = self.lease.take() {
            exchange.attempt_ended(self.worker, self.begin.judged.label, now);
            lease.finish(self.begin.judged.outcome, now);
        }
    }

    /// Makes the head fit for the client.
    fn present(&mut self, exchange: &mut Exchange, now: Seconds) {
        self.at = now;
        exchange.answered_by(self.worker);
        let head = &mut self.begin.head;
        // What is spoken to the client is ours to say (RFC 9110 §2.5): an answer that only ends with its connection, as
        // HTTP/1.0 has it, gets a framing in which a cut can be seen.
        head.version = Version::HTTP_11;
        headers::answer(&mut head.headers, self.begin.streamed, exchange, now);
    }
}

impl Forward {
    /// Sends to this fleet.
    #[must_use]
    pub fn new(clock: Clock, fleet: Arc<Fleet>) -> Self {
        Forward {
            clock,
            fleet,
            repeats: Repeats::default(),
        }
    }

    /// Gets an answer: the first attempt on the place that was booked, further ones where the fleet then says.
    ///
    /// # Errors
    /// `worker_failed` when every allowed attempt failed and none gave an answer, or the timer that fired.
    pub async fn answer(
        &self,
        lease: Lease,
        errand: &Errand<'_>,
        exchange: &mut Exchange,
    ) -> Result<Box<Begun>, Fault> {
        let mut begun = self.best_answer(lease, errand, exchange).await?;
        begun.present(exchange, self.clock.now());
        Ok(begun)
    }

    async fn best_answer(
        &self,
        mut lease: Lease,
        errand: &Errand<'_>,
        exchange: &mut Exchange,
    ) -> Result<Box<Begun>, Fault> {
        let mut tries = Tries::new(errand.tally(), &self.repeats, &self.fleet);
        loop {
            let station = lease.station().clone();
            tries.tried.push(lease.worker());
            let (ending, fault) = match self
                .attempt(lease, errand, &mut tries.tally, exchange)
                .await
            {
                Ok(begun) => {
                    let ending = begun.ending();
                    match tries.verdict(ending, exchange) {
                        Verdict::Elsewhere => tries.set_aside(begun, exchange, self.clock.now()),
                        Verdict::Deliver | Verdict::Fail => return Ok(tries.deliver(begun)),
                    }
                    (ending, None)
                }
                Err((judged, failure)) => {
                    let fault = failure.told(&station.plan.name, exchange.attempts());
                    if tries.verdict(judged.ending, exchange) != Verdict::Elsewhere {
                        return tries.give_up(fault);
                    }
                    (judged.ending, Some(fault))
                }
            };
            lease = match self.another_turn(errand, &tries.tried, exchange).await {
                Ok(lease) => lease,
                Err(refused)
                    if refused.kind == Kind::NoWorker
                        && self.may_start_over(errand, &mut tries) =>
                {
                    match self.turn_again(errand, exchange).await {
                        Ok(lease) => lease,
                        Err(refused) => return tries.give_up(refused),
                    }
                }
                Err(refused) => return tries.give_up(last_word(fault, refused)),
            };
            exchange.retried(ending.label());
        }
    }

    /// Whether a request that nobody has read goes back into line, to wait for a worker that takes it.
    fn may_start_over(&self, errand: &Errand<'_>, tries: &mut Tries) -> bool {
        self.fleet.may_wait(errand.ask, &NoChoice::Down) && tries.starts_over()
    }

    /// A place as if the request had just come; none when it has waited for a worker as long as it may.
    async fn turn_again(
        &self,
        errand: &Errand<'_>,
        exchange: &mut Exchange,
    ) -> Result<Lease, Fault> {
        let longest = errand.plan.queue.wait_no_worker;
        let end = Limit {
            span: longest,
            name: "queue.wait_no_worker",
        };
        let total = errand.way.timeouts(errand.plan).total;
        let limit = Limit::of(total, errand.deadline);
        let limit = limit.filter(|limit| limit.span < longest).unwrap_or(end);
        let mut considered = Shortlist::default();
        let turn = {
            let turn = self.guest(errand).turn(&mut considered);
            queue::within(Some(limit), exchange.started(), self.clock, pin!(turn)).await
        };
        exchange.considered(considered, self.clock.now());
        exchange.stood_at(errand.spot.position());
        let (lease, waited) = turn.map_err(|fault| match fault.kind {
            Kind::Deadline if limit == end => {
                let message = format!("no worker took it within {} = {longest}", end.name);
                Fault::new(Kind::NoWorker, message).retry_after(COME_BACK)
            }
            _ => fault,
        })?;
        exchange.queued(waited);
        Ok(lease)
    }

    fn guest<'a>(&'a self, errand: &'a Errand<'_>) -> Guest<'a> {
        Guest {
            fleet: &self.fleet,
            ask: errand.ask,
            patience: Patience::of(&errand.plan.queue, errand.ask.claim.class),
            deadline: errand.deadline,
            spot: errand.spot,
            clock: self.clock,
        }
    }

    /// A place on a worker that was not tried, after a wait in line if need be.
    async fn another_turn(
        &self,
        errand: &Errand<'_>,
        tried: &[WorkerId],
        exchange: &mut Exchange,
    ) -> Result<Lease, Fault> {
        let total = errand.way.timeouts(errand.plan).total;
        let limit = Limit::of(total, errand.deadline);
        let mut considered = Shortlist::default();
        let turn = {
            let turn = self.guest(errand).another_turn(tried, &mut considered);
            queue::within(limit, exchange.started(), self.clock, pin!(turn)).await
        };
        exchange.considered(considered, self.clock.now());
        exchange.stood_at(errand.spot.position());
        turn
    }
}

impl Errand<'_> {
    fn tally(&self) -> Tally {
        Tally::new(self.permit(), rules(&self.plan.routing.retries))
    }

    /// What may happen to it twice.
    fn permit(&self) -> Permit {
        let mut words = self.head.headers.get_all(RETRY_HEADER).iter();
        if self.stream.is_some() || words.any(|word| word == "never") {
            return Permit::Unseen;
        }
        let safe = match self.way {
            Way::Route(route) => route.repeat == Repeat::Safe,
            Way::BuiltIn(built_in) => matches!(
                built_in,
                BuiltIn::Inference(_) | BuiltIn::KServeModel { .. } | BuiltIn::Grpc(_)
            ),
        };
        let read_only = self.head.method == Method::GET || self.head.method == Method::HEAD;
        if safe || read_only {
            Permit::Everything
        } else {
            Permit::Unbegun
        }
    }

    fn dialect(&self) -> Dialect {
        match self.way {
            Way::Route(_) if self.is_grpc => Dialect::Grpc,
            Way::Route(_) => Dialect::OpenAi,
            Way::BuiltIn(built_in) => built_in.dialect(),
        }
    }
}

/// The operator's rules, as the core reads them.
fn rules(retries: &Retries) -> RetryRules {
    let on = |kind| retries.on.contains(&kind);
    RetryRules {
        extra: retries.extra,
        refused: on(RetryOn::Refused),
        reset: on(RetryOn::Reset),
        server_error: on(RetryOn::ServerError),
        busy: on(RetryOn::Busy),
        timeout: on(RetryOn::Timeout),
    }
}

/// What the client is told when nobody else could be asked: that its time is over, else what went wrong last.
fn last_word(failed: Option<Fault>, refused: Fault) -> Fault {
    match failed {
        Some(failed) if refused.kind != Kind::Deadline => failed,
        _ => refused,
    }
}
