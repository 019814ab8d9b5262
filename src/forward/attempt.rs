//! One attempt: the request goes to one worker, and its answer begins or does not.
//!
//! The head of an inference answer is held until its first body bytes are there. A worker that dies in between has
//! given the client nothing yet, so the request can still be answered by another. The same holds for every answer that
//! another worker may better, whatever its path.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, response};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use tokio::time::timeout_at;

use super::deadlines::Deadlines;
use super::headers::{self, Draft};
use super::judge::{self, Judgement};
use super::load_report::LoadReport;
use super::sending::Sending;
use super::tunnel::Ends;
use super::{Begun, Errand, Forward};
use crate::config::plan::WorkerPlan;
use crate::decide::{Ending, Tally};
use crate::fault::{Fault, Kind};
use crate::fleet::{Lease, Station};
use crate::inspect::Way;
use crate::observe::Exchange;
use crate::units::{Seconds, WorkerId};
use crate::upstream::{Loss, Resend, Upstream, UpstreamBody};

/// The beginning of a worker's answer.
pub(super) struct Begin {
    /// Its head, as the worker sent it.
    pub head: response::Parts,
    /// Whether it is a stream of events.
    pub streamed: bool,
    /// The first piece of its body, when that was waited for.
    pub first: Option<Frame<Bytes>>,
    /// The rest of its body.
    pub body: UpstreamBody,
    /// Its timers.
    pub deadlines: Deadlines,
    /// What its head means.
    pub judged: Judgement,
    /// Where it leads, when it opens a tunnel.
    pub ends: Option<Ends>,
    /// The client's stream, which may still be on its way to the worker.
    pub stream: Option<Sending>,
}

/// Why an attempt gave no answer.
pub(super) enum Failure {
    /// It can't be sent, to this worker or to any.
    Unsendable(Fault),
    /// No answer; perhaps somebody else has one.
    Loss(Loss),
    /// A timer fired.
    TimedOut(Fault),
    /// The client's stream can't go on.
    Spoilt(Fault),
    /// The adapter that it asks for could not be loaded, in words; it was not sent.
    Unloaded(String),
    /// This worker can't be sent such a request, in words.
    Unfit(String),
}

impl From<Loss> for Failure {
    fn from(loss: Loss) -> Self {
        match loss {
            // Nobody else could be reached either.
            Loss::Exhausted(_) => {
                let fault = Fault::new(Kind::Overloaded, loss.to_string());
                Failure::Unsendable(fault.retry_after(Seconds(1.0)))
            }
            loss => Failure::Loss(loss),
        }
    }
}

impl Failure {
    /// What the client is told when this was the last of so many attempts.
    pub(super) fn told(self, worker: &str, attempts: u32) -> Fault {
        let cause = match self {
            Failure::Unsendable(fault) | Failure::TimedOut(fault) | Failure::Spoilt(fault) => {
                return fault;
            }
            Failure::Loss(loss) => loss.to_string(),
            Failure::Unloaded(why) | Failure::Unfit(why) => why,
        };
        let times = if attempts == 1 {
            "the only attempt failed".to_owned()
        } else {
            format!("{attempts} attempts failed")
        };
        Fault::new(
            Kind::WorkerFailed,
            format!("{times}; the last cause at {worker}: {cause}"),
        )
    }
}

impl Forward {
    /// Sends to the worker on which a place is held, and judges what comes. A failed attempt has given its place back.
    pub(super) async fn attempt(
        &self,
        mut lease: Lease,
        errand: &Errand<'_>,
        tally: &mut Tally,
        exchange: &mut Exchange,
    ) -> Result<Box<Begun>, (Judgement, Failure)> {
        let worker = lease.worker();
        exchange.attempt(worker);
        lease.charge_to(exchange.tab());
        let station = lease.station().clone();
        let asked = (errand, tally, &mut *exchange);
        match self.send(worker, &station, asked).await {
            Ok(begin) => {
                if begin.judged.ending == Ending::Unsupported {
                    self.fleet.unsupported(worker, errand.ask);
                }
                if begin.head.status == StatusCode::NOT_FOUND
                    && let Some(model) = &errand.facts.model
                {
                    self.fleet.has_lost(worker, model);
                }
                Ok(Begun::new(begin, lease, errand.dialect()))
            }
            Err(failure) => {
                let spoilt = errand.stream.and_then(Sending::fault);
                let failure = spoilt.map_or(failure, Failure::Spoilt);
                if let Some(stream) = errand.stream {
                    exchange.bytes_in(stream.came());
                }
                let judged = judge::failure(&failure);
                let now = self.clock.now();
                exchange.attempt_ended(worker, judged.label, now);
                lease.finish(judged.outcome, now);
                Err((judged, failure))
            }
        }
    }

    async fn send(
        &self,
        worker: WorkerId,
        station: &Station,
        (errand, tally, exchange): (&Errand<'_>, &mut Tally, &mut Exchange),
    ) -> Result<Begin, Failure> {
        let (worker_plan, pool) = (&station.plan, &station.upstream);
        let timeouts = errand.way.timeouts(errand.plan);
        let timeouts = timeouts.under(&worker_plan.timeouts);
        let id = exchange.id().clone();
        let catalogue = self.fleet.catalogue();
        let model = errand.facts.model.as_ref();
        let name = model.and_then(|model| catalogue.renamed(worker, model));
        let now = self.clock.now();
        let report = LoadReport::wanted(&self.fleet, worker, errand, now);
        let draft = Draft::new(errand, worker_plan, name, &id).map_err(Failure::Unsendable)?;
        let draft = draft.wanting(report);
        let port = port(errand, worker_plan, pool)?;
        let wanted = errand.facts.streamed
            || errand.facts.upgrades
            || errand.stream.is_some_and(Sending::converses);
        let started = exchange.started();
        let mut deadlines = Deadlines::new(&timeouts, wanted, now, started, errand.deadline);
        let at = (worker_plan, pool);
        self.ready_adapter(worker, at, errand, &mut deadlines)
            .await?;
        exchange.upstream_sent(self.clock.now());
        let draft = || draft.request();
        let mut resend = Resend::allowed(tally.may_resend());
        let sent = {
            let sending = pin!(port.send(&draft, timeouts.connect, &mut resend));
            self.in_time(&mut deadlines, None, errand.stream, sending)
                .await
        };
        if resend.done() {
            tally.resent();
        }
        let sent = sent?;
        if let Some(took) = sent.connected_in {
            self.fleet.connected(worker, took);
            exchange.connected(took);
        }
        let (mut head, mut body) = sent.response.into_parts();
        report.take(&self.fleet, worker, &mut head);
        let ends = opened(errand, &mut head)?;
        let streamed = headers::is_event_stream(&head.headers);
        if streamed {
            deadlines.streams();
        }
        let built_in = matches!(errand.way, Way::BuiltIn(_));
        let judged = judge::answer(head.status, &head.headers, built_in);
        let waits = built_in && errand.stream.is_none();
        let first = if waits || judged.ending != Ending::Answer {
            let piece = pin!(first_piece(&mut body));
            let begun = Some(self.clock.now());
            self.in_time(&mut deadlines, begun, errand.stream, piece)
                .await?
        } else {
            None
        };
        Ok(Begin {
            head,
            streamed,
            first,
            body,
            deadlines,
            judged,
            ends,
            stream: errand.stream.cloned(),
        })
    }

    /// Waits for an answer to begin, until the first timer fires; its head came at `begun`, if it came yet. As long as
    /// the client sends an upload, the worker is not late; and when both ends of a stream are silent, nobody is to be
    /// blamed.
    pub(super) async fn in_time<T>(
        &self,
        deadlines: &mut Deadlines,
        begun: Option<Seconds>,
        stream: Option<&Sending>,
        mut sending: impl Future<Output = Result<T, Loss>> + Unpin,
    ) -> Result<T, Failure> {
        while let Some((due, kind, name, span)) = deadlines.next(None, begun) {
            let owing = stream.filter(|stream| stream.owes());
            if let Ok(result) = timeout_at(self.clock.instant(due).into(), &mut sending).await {
                return result.map_err(Failure::from);
            }
            let now = self.clock.now();
            let owing = owing.filter(|_| kind != Kind::Deadline);
            // Having owed, and owing no more, it ended at some time in between.
            if owing.is_some_and(|stream| !stream.owes() || !stream.converses()) {
                deadlines.owed(now);
                continue;
            }
            let passed = now - (due - span);
            let message = format!("no answer began within {name} = {span} ({passed} passed)");
            let fault = Fault::new(kind, message);
            return Err(match owing {
                Some(_) => Failure::Spoilt(fault),
                None => Failure::TimedOut(fault),
            });
        }
        sending.await.map_err(Failure::from)
    }
}

/// The connections over which a worker can be sent such a request.
fn port<'p>(
    errand: &Errand<'_>,
    worker: &WorkerPlan,
    pool: &'p Arc<Upstream>,
) -> Result<&'p Arc<Upstream>, Failure> {
    if errand.stream.is_some_and(Sending::begun) {
        let message = "the worker failed when it had a part of the stream";
        return Err(Failure::Unsendable(Fault::new(Kind::WorkerFailed, message)));
    }
    if errand.facts.upgrades && worker.origin.protocol.is_http2() {
        let why = "WebSockets are carried by HTTP/1.1, and it is configured for HTTP/2";
        return Err(Failure::Unfit(why.to_owned()));
    }
    if !errand.is_grpc {
        return Ok(pool);
    }
    let why = "it speaks no gRPC that is known here: set its grpc_url";
    pool.grpc().ok_or_else(|| Failure::Unfit(why.to_owned()))
}

/// The tunnel that an answer opens, if it does.
fn opened(errand: &Errand<'_>, head: &mut response::Parts) -> Result<Option<Ends>, Loss> {
    if head.status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(None);
    }
    let ends = Ends::of(errand.head, head).filter(|_| errand.facts.upgrades);
    let odd = || Loss::Malformed("101 to something that was not asked for".to_owned());
    ends.ok_or_else(odd).map(Some)
}

/// The first piece of a body, if it has any.
async fn first_piece(body: &mut UpstreamBody) -> Result<Option<Frame<Bytes>>, Loss> {
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else {
            return Ok(None);
        };
        let frame = frame.map_err(|error| Loss::Reset(error.to_string()))?;
        if frame.data_ref().is_none_or(|piece| !piece.is_empty()) {
            return Ok(Some(frame));
        }
    }
    Ok(None)
}
