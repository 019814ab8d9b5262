//! A WebSocket: after the worker has switched protocols, bytes pass both ways until an end closes.
//!
//! The request took the same line as every other (RFC 6455 §4: an upgrade is a GET), and its place on the worker is held
//! for the tunnel's whole life. Nothing passes before the worker's 101, which goes to the client with the worker's own
//! `Sec-WebSocket-*` fields; extensions are agreed on between the two ends. An end of a tunnel is one of these:
//!
//! - an end closed as RFC 6455 §7 has it: the other's close passes, and after it the tunnel ends within [`FAREWELL`];
//! - the client is gone without a word: the worker's connection is closed at once (promise P8);
//! - the worker is gone without a word: the client gets a close with 1011;
//! - `timeouts.between_bytes` of silence in both directions, `timeouts.total` or the client's deadline: both ends get a
//!   close with 1001. Pings that either end sends keep a tunnel alive: they are bytes;
//! - the process stops: both get a close with 1001 once nothing has passed for [`LULL`], so that what is being said is said
//!   to its end; one that is never silent lives until the drain limit.
//!
//! The listener drives it, on the client's connection, which so counts as open.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use super::Begun;
use super::deadlines::Deadlines;
use super::frames::{self, Code};
use super::judge::Judgement;
use super::pipe::{Gone, Pipe};
use super::relay::Relay;
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::decide::Outcome;
use crate::fault::Kind;
use crate::fleet::Lease;
use crate::observe::Exchange;
use crate::units::Seconds;

/// How long an end has to answer a close, or to take one.
const FAREWELL: Seconds = Seconds(2.0);
/// A silence in which a stopping process may close.
const LULL: Seconds = Seconds(1.0);

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Both connections, as they will be once the 101 is out.
pub(super) struct Ends {
    client: OnUpgrade,
    worker: OnUpgrade,
}

impl Ends {
    /// Those of a request that asks for a WebSocket, and of its answer, if that agrees.
    pub(super) fn of(asked: &Parts, answer: &mut response::Parts) -> Option<Self> {
        let protocol = answer.headers.get(UPGRADE)?;
        if !protocol
            .as_bytes()
            .eq_ignore_ascii_case(WEBSOCKET.as_bytes())
        {
            return None;
        }
        Some(Ends {
            client: asked.extensions.get::<OnUpgrade>()?.clone(),
            worker: answer.extensions.remove::<OnUpgrade>()?,
        })
    }
}

/// Asks the next hop for a WebSocket, or tells it that it has one.
pub(super) fn switch(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// A tunnel that waits for its 101 to go out. Dropped unopened, its client has left.
pub struct Tunnel {
    ends: Option<Ends>,
    exchange: Box<Exchange>,
    lease: Option<Lease>,
    judged: Judgement,
    deadlines: Deadlines,
    clock: Clock,
}

/// A tunnel on its way to the listener, in its answer's extensions.
#[derive(Clone)]
struct Carried(Arc<Mutex<Option<Tunnel>>>);

/// The 101 that opens a tunnel.
pub(super) fn response(
    begun: Box<Begun>,
    ends: Ends,
    exchange: Box<Exchange>,
    clock: Clock,
) -> Response<Relay> {
    let Begun {
        mut begin, lease, ..
    } = *begun;
    begin.deadlines.streams();
    let tunnel = Tunnel {
        ends: Some(ends),
        exchange,
        lease,
        judged: begin.judged,
        deadlines: begin.deadlines,
        clock,
    };
    let mut head = begin.head;
    head.headers.remove(CONTENT_LENGTH);
    switch(&mut head.headers);
    head.extensions
        .insert(Carried(Arc::new(Mutex::new(Some(tunnel)))));
    Response::from_parts(head, Relay::nothing())
}

/// The tunnel that an answer opens, if it does.
pub fn carried<B>(answer: &mut Response<B>) -> Option<Tunnel> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return None;
    }
    let Carried(tunnel) = answer.extensions_mut().remove()?;
    tunnel.lock().take()
}

type Up = Pipe<ReadHalf<TokioIo<Upgraded>>, WriteHalf<TokioIo<Upgraded>>>;

/// Both directions.
struct Pipes {
    /// From the client to the worker.
    up: Up,
    /// From the worker to the client.
    down: Up,
}

/// What happens in a tunnel.
enum Event {
    Up(usize),
    Down(usize),
    ClientGone,
    WorkerGone,
    /// A timer fired, as this fault.
    Due(Kind),
    /// The process stops.
    Stops,
}

/// How a tunnel came to its end.
enum End {
    Closed,
    ClientGone,
    WorkerGone,
    Due(Kind),
}

impl Tunnel {
    /// Passes bytes until an end closes. From when `stopping` is ready it closes as soon as it can.
    pub async fn run(mut self, stopping: impl Future<Output = ()>) {
        let Some(Ends { client, worker }) = self.ends.take() else {
            return;
        };
        let (Ok(client), Ok(worker)) = (client.await, worker.await) else {
            return;
        };
        let (from_client, to_client) = split(TokioIo::new(client));
        let (from_worker, to_worker) = split(TokioIo::new(worker));
        let mut pipes = Pipes {
            up: Pipe::new(from_client, to_worker),
            down: Pipe::new(from_worker, to_client),
        };
        if let Some(lease) = &mut self.lease {
            lease.first_byte(self.clock.now());
        }
        let end = self.pass(&mut pipes, stopping).await;
        self.close(&mut pipes, end).await;
    }

    async fn pass(&mut self, pipes: &mut Pipes, stopping: impl Future<Output = ()>) -> End {
        let mut stopping = pin!(stopping);
        // Since when a silence counts in which a stopping process may close.
        let mut lull = None;
        let mut alarm = Alarm::new(self.clock);
        let mut heard = self.clock.now();
        let mut closing = None;
        let mut bytes_in = 0;
        loop {
            let due = self.due(heard, closing, lull);
            let event = tokio::select! {
                biased;
                event = poll_fn(|cx| pipes.up.poll(cx)) => match event {
                    Ok(length) => Event::Up(length),
                    Err(Gone::Source) => Event::ClientGone,
                    Err(Gone::Sink) => Event::WorkerGone,
                },
                event = poll_fn(|cx| pipes.down.poll(cx)) => match event {
                    Ok(length) => Event::Down(length),
                    Err(Gone::Source) => Event::WorkerGone,
                    Err(Gone::Sink) => Event::ClientGone,
                },
                kind = ring(&mut alarm, due) => Event::Due(kind),
                () = &mut stopping, if lull.is_none() => Event::Stops,
            };
            let now = self.clock.now();
            match event {
                Event::Up(length) => {
                    heard = now;
                    bytes_in += length as u64;
                    self.exchange.bytes_in(bytes_in);
                }
                Event::Down(length) => {
                    heard = now;
                    self.exchange.add_bytes_out(length as u64);
                    if let Some(lease) = &self.lease {
                        lease.heard(0, now);
                    }
                }
                Event::Stops => lull = Some(heard),
                Event::Due(Kind::Overloaded) => {
                    pipes.farewell("the proxy is stopping").await;
                    // Where both ends are inside a frame, nothing was said: the next lull may do.
                    lull = Some(self.clock.now());
                }
                Event::Due(_) | Event::ClientGone | Event::WorkerGone if pipes.closes() => {
                    return End::Closed;
                }
                Event::Due(kind) => return End::Due(kind),
                Event::ClientGone => return End::ClientGone,
                Event::WorkerGone => return End::WorkerGone,
            }
            if closing.is_none() && pipes.closes() {
                closing = Some(now);
            }
        }
    }

    /// The timer that fires next: the farewell's once an end has closed, the lull's when the process stops.
    fn due(
        &self,
        heard: Seconds,
        closing: Option<Seconds>,
        lull: Option<Seconds>,
    ) -> Option<(Seconds, Kind)> {
        if let Some(since) = closing {
            return Some((since + FAREWELL, Kind::Stalled));
        }
        let timer = self.deadlines.next(Some(heard), None);
        let timer = timer.map(|(due, kind, ..)| (due, kind));
        let lull = lull.map(|since| (since.max(heard) + LULL, Kind::Overloaded));
        match (timer, lull) {
            (Some(timer), Some(lull)) if timer.0 < lull.0 => Some(timer),
            (timer, lull) => lull.or(timer),
        }
    }

    /// Tells both ends, and writes down how it ended.
    async fn close(mut self, pipes: &mut Pipes, end: End) {
        let outcome = match end {
            End::Closed => self.judged.outcome,
            End::ClientGone => return,
            End::WorkerGone => {
                self.exchange.broke(Kind::WorkerFailed);
                pipes.tell_client(Code::Failed, "the worker is gone").await;
                Outcome::Lost
            }
            End::Due(kind) => {
                self.exchange.broke(kind);
                pipes.farewell(kind.label()).await;
                Outcome::Gone
            }
        };
        pipes.shut().await;
        self.exchange.complete();
        if let Some(lease) = self.lease.take() {
            let label = match end {
                End::WorkerGone => Kind::WorkerFailed.label(),
                End::Due(kind) => kind.label(),
                End::Closed | End::ClientGone => self.judged.label,
            };
            let now = self.clock.now();
            self.exchange.attempt_ended(lease.worker(), label, now);
            lease.finish(outcome, now);
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // The client left: the place is given back by the lease itself.
        if let Some(lease) = self.lease.take() {
            self.exchange
                .attempt_ended(lease.worker(), Kind::ClientGone.label(), self.clock.now());
        }
    }
}

impl Pipes {
    /// Whether an end has closed.
    fn closes(&self) -> bool {
        self.up.frames.closed() || self.down.frames.closed()
    }

    /// Both ends are told that this one goes away.
    async fn farewell(&mut self, why: &str) {
        self.tell_client(Code::GoingAway, why).await;
        if self.up.may_close() {
            let frame = frames::close(Code::GoingAway, why, Some(rand::random()));
            // Who does not take it in time gets no other.
            let _ = timeout(FAREWELL.to_duration(), self.up.put(&frame)).await;
        }
    }

    async fn tell_client(&mut self, code: Code, why: &str) {
        if self.down.may_close() {
            let frame = frames::close(code, why, None);
            let _ = timeout(FAREWELL.to_duration(), self.down.put(&frame)).await;
        }
    }

    async fn shut(&mut self) {
        let both = async { tokio::join!(self.up.shut(), self.down.shut()) };
        let _ = timeout(FAREWELL.to_duration(), both).await;
    }
}

async fn ring(alarm: &mut Alarm, due: Option<(Seconds, Kind)>) -> Kind {
    match due {
        Some((due, kind)) => {
            poll_fn(|cx| alarm.poll(cx, due)).await;
            kind
        }
        None => std::future::pending().await,
    }
}
