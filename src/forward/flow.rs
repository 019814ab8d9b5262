//! A worker's answer as it flows through.
//!
//! It holds the place on the worker until it ends, and it ends in one of three ways:
//!
//! - its last byte was handed over: the place is free, the exchange complete;
//! - the worker broke it, or a timer did, or the end of `drain`: the worker's connection is closed at once. An event stream then ends with
//!   `event: error` and never with a made-up end, and the body fails, which closes the client's connection (HTTP/1) or
//!   resets its stream (HTTP/2). hyper drops what it has not flushed when a body fails, be it the event or the head: a client
//!   that is shown no head takes the connection for one that died idle, and may send its request again. So the failure
//!   comes one poll later on HTTP/1 and a moment later on HTTP/2, where a connection flushes for many streams;
//! - the client left: hyper drops it, which closes the worker's connection, so that a GPU stops (promise P8).
//!
//! Each read from the worker is handed on at once, as it came (promise P30). Timers are looked at only when the worker
//! has nothing to say, so a client that reads slowly is never taken for a silent worker.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};

use super::attempt::Begin;
use super::deadlines::Deadlines;
use super::judge::Judgement;
use super::relay::Broken;
use super::sending::Sending;
use super::tries::Repeating;
use super::{Begun, headers, refusal};
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::decide::Outcome;
use crate::facts::{Dialect, Usage, UsageScan};
use crate::fault::{Blame, Fault, Kind};
use crate::fleet::Lease;
use crate::observe::{Cut, Exchange};
use crate::units::Seconds;
use crate::upstream::UpstreamBody;

/// Time for an HTTP/2 connection to flush the last event before its stream is reset.
const LINGER: Seconds = Seconds(0.05);

/// An answer in transit.
pub(super) struct Flow {
    clock: Clock,
    stage: Stage,
    exchange: Box<Exchange>,
    /// Held until the answer ends, unless the attempt was over before.
    lease: Option<Lease>,
    _repeating: Option<Repeating>,
    judged: Judgement,
    scan: UsageScan,
    /// An event stream that can take one more event: not compressed, not of a told length.
    tellable: bool,
    /// The bytes so far end an event.
    at_border: bool,
    dialect: Dialect,
    /// What the client still sends, where that is a stream.
    stream: Option<Sending>,
    http2: bool,
    deadlines: Deadlines,
    alarm: Alarm,
    /// When a stopping proxy ends it, where the client can be told.
    cut: Option<Cut>,
    begun: Seconds,
    /// When bytes last came.
    heard: Option<Seconds>,
    token_seen: bool,
}

enum Stage {
    /// Pieces come; the first may be here already.
    Flowing {
        first: Option<Frame<Bytes>>,
        body: UpstreamBody,
    },
    /// It broke: fails after one more poll, and not before this time.
    Lingering { until: Seconds, polled: bool },
    /// All was handed over, or it has failed.
    Ended,
}

impl Flow {
    /// The head as the client gets it, and the flow of the body.
    pub(super) fn new(
        begun: Box<Begun>,
        exchange: Box<Exchange>,
        clock: Clock,
        http2: bool,
    ) -> (Parts, Box<Self>) {
        let Begun {
            begin,
            lease,
            repeating,
            dialect,
            at,
            ..
        } = *begun;
        let Begin {
            head,
            streamed,
            first,
            body,
            deadlines,
            judged,
            ends: _,
            stream,
        } = begin;
        let tellable = streamed && tellable(&head.headers, &body);
        let ends_with_trailers = dialect == Dialect::Grpc && http2;
        let mut flow = Box::new(Flow {
            clock,
            cut: (tellable || ends_with_trailers).then(|| exchange.cut()),
            exchange,
            lease,
            _repeating: repeating,
            judged,
            scan: UsageScan::new(streamed),
            tellable,
            at_border: true,
            dialect,
            stream,
            http2,
            deadlines,
            alarm: Alarm::new(clock),
            begun: at,
            heard: None,
            token_seen: false,
            stage: Stage::Flowing { first, body },
        });
        // An answer without a body is complete with its head; hyper will not poll it.
        flow.complete_if_ended(at);
        (head, flow)
    }

    pub(super) fn ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let Stage::Flowing { first, body } = &self.stage else {
            return SizeHint::new();
        };
        let held = first.as_ref().and_then(Frame::data_ref);
        let held = held.map_or(0, Bytes::len) as u64;
        match body.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(held + rest),
            None => SizeHint::new(),
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.stage {
            Stage::Flowing { .. } => self.poll_flowing(cx),
            Stage::Lingering {
                polled: polled @ false,
                ..
            } => {
                *polled = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Stage::Lingering { until, .. } => {
                ready!(self.alarm.poll(cx, *until));
                self.stage = Stage::Ended;
                Poll::Ready(Some(Err(Broken)))
            }
            Stage::Ended => Poll::Ready(None),
        }
    }

    fn poll_flowing(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Stage::Flowing { first, body } = &mut self.stage else {
            return Poll::Ready(None);
        };
        if let Some(piece) = first.take() {
            return Poll::Ready(Some(Ok(self.passed(piece, self.begun))));
        }
        match std::pin::Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                Poll::Ready(Some(Ok(self.passed(frame, self.clock.now()))))
            }
            Poll::Ready(None) => {
                self.complete(self.clock.now());
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                let spoilt = self.stream.as_ref().and_then(Sending::fault);
                let lost = || {
                    let message = format!("the worker's answer broke off ({error})");
                    Fault::new(Kind::WorkerFailed, message)
                };
                self.broke(spoilt.unwrap_or_else(lost), cx)
            }
            Poll::Pending => {
                let fault = match self.poll_cut(cx) {
                    Poll::Ready(fault) => fault,
                    Poll::Pending => ready!(self.poll_timers(cx)),
                };
                self.broke(fault, cx)
            }
        }
    }

    /// A piece goes out: takes note of it, and ends the flow with the last.
    fn passed(&mut self, mut frame: Frame<Bytes>, now: Seconds) -> Frame<Bytes> {
        if let Some(fields) = frame.trailers_mut() {
            headers::trailers(fields);
        }
        if let Some(piece) = frame.data_ref() {
            self.note(piece, now);
            self.heard = Some(now);
        }
        self.complete_if_ended(now);
        frame
    }

    fn note(&mut self, piece: &Bytes, now: Seconds) {
        let events = self.scan.chunk(piece);
        self.at_border = piece.ends_with(b"\n\n") || piece.ends_with(b"\r\n\r\n");
        self.exchange.add_bytes_out(piece.len() as u64);
        self.exchange.token_events(events, now);
        if self.heard.is_none() {
            self.exchange.first_byte(now);
        }
        let Some(lease) = &mut self.lease else { return };
        if self.heard.is_none() && matches!(self.judged.outcome, Outcome::Answered { .. }) {
            lease.first_byte(now);
        }
        // The first token is the prefill's; only those after it tell how fast the worker decodes.
        let after_first = if self.token_seen {
            events
        } else {
            events.saturating_sub(1)
        };
        self.token_seen |= events > 0;
        lease.heard(after_first, now);
    }

    fn complete_if_ended(&mut self, now: Seconds) {
        if let Stage::Flowing { first: None, body } = &self.stage
            && body.is_end_stream()
        {
            self.complete(now);
        }
    }

    fn complete(&mut self, now: Seconds) {
        self.stage = Stage::Ended;
        self.note_sent();
        let usage = std::mem::replace(&mut self.scan, UsageScan::new(false)).finish();
        self.exchange
            .usage(usage.prompt, usage.cached, usage.output);
        self.exchange.complete();
        let outcome = with_tokens(self.judged.outcome, usage);
        self.release(self.judged.label, outcome, now);
    }

    /// Takes note of how much the client has sent by now, where that was not all here before.
    fn note_sent(&mut self) {
        if let Some(stream) = &self.stream {
            self.exchange.bytes_in(stream.came());
        }
    }

    fn release(&mut self, label: &'static str, outcome: Outcome, now: Seconds) {
        if let Some(lease) = self.lease.take() {
            self.exchange.attempt_ended(lease.worker(), label, now);
            lease.finish(outcome, now);
        }
    }

    /// The proxy waits no longer for what still runs.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let Some(cut) = &mut self.cut else {
            return Poll::Pending;
        };
        let fault = |()| Fault::new(Kind::Overloaded, "the proxy is stopping");
        cut.poll(cx).map(fault)
    }

    /// The timer that has fired.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        while let Some((due, kind, name, span)) = self.deadlines.next(self.heard, Some(self.begun))
        {
            ready!(self.alarm.poll(cx, due));
            let now = self.clock.now();
            let owes = |stream: &Sending| stream.owes() && !stream.converses();
            if kind != Kind::Deadline && self.stream.as_ref().is_some_and(owes) {
                self.deadlines.owed(now);
                continue;
            }
            let passed = now - (due - span);
            let message = format!("{name} = {span} fired after {passed}");
            return Poll::Ready(Fault::new(kind, message));
        }
        Poll::Pending
    }

    /// Ends a flow that can't be completed.
    fn broke(
        &mut self,
        fault: Fault,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let now = self.clock.now();
        self.exchange.broke(fault.kind);
        self.note_sent();
        let linger = if self.http2 { LINGER } else { Seconds::ZERO };
        self.stage = Stage::Lingering {
            until: now + linger,
            polled: false,
        };
        let outcome = match fault.kind {
            kind if kind.blame() == Blame::Client => Outcome::Gone,
            Kind::Deadline | Kind::Overloaded => Outcome::Gone,
            Kind::WorkerFailed => Outcome::Lost,
            // Both ends of a stream are silent, and it may be the client's turn.
            _ if self.stream.as_ref().is_some_and(Sending::goes_on) => Outcome::Gone,
            _ => Outcome::Failed,
        };
        self.release(fault.kind.label(), outcome, now);
        if self.dialect == Dialect::Grpc && self.http2 {
            self.stage = Stage::Ended;
            return Poll::Ready(Some(Ok(Frame::trailers(refusal::trailers(&fault)))));
        }
        if !self.tellable {
            return self.poll_frame(cx);
        }
        let border = if self.at_border { "" } else { "\n\n" };
        let event = Bytes::from(format!("{border}{}", refusal::event(self.dialect, &fault)));
        self.exchange.add_bytes_out(event.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // The client left: the place is given back by the lease itself, before the exchange asks what it took.
        if let Some(lease) = self.lease.take() {
            self.note_sent();
            self.exchange
                .attempt_ended(lease.worker(), Kind::ClientGone.label(), self.clock.now());
        }
    }
}

/// What an answer teaches, with the counts that the worker reports.
#[expect(clippy::cast_precision_loss, reason = "token counts of one answer")]
fn with_tokens(outcome: Outcome, usage: Usage) -> Outcome {
    match outcome {
        Outcome::Answered { .. } => Outcome::Answered {
            prompt_tokens: usage.prompt.map(|count| count as f64),
            cached_tokens: usage.cached.map(|count| count as f64),
            output_tokens: usage.output.map(|count| count as f64),
        },
        other => other,
    }
}

fn tellable(head: &HeaderMap, body: &UpstreamBody) -> bool {
    !head.contains_key(CONTENT_ENCODING) && body.size_hint().exact().is_none()
}
