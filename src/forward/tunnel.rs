//! A WebSocket: after the worker has switched protocols, bytes pass both ways until an end closes.
//!
//! The request took the same line as every other (RFC 6455 §4: an upgrade is a GET), and its place on the worker is
//! held for the tunnel's whole life. Nothing passes before the worker's 101, which goes to the client with the worker's
//! own `Sec-WebSocket-*` fields; extensions are agreed on between the two ends. An end of a tunnel is one of these:
//!
//! - an end closed as RFC 6455 §7 has it: the other's close passes, and after it the tunnel ends within [`FAREWELL`];
//! - the client is gone without a word: the worker's connection is closed at once (promise P8);
//! - the worker is gone without a word: the client gets a close with 1011;
//! - `timeouts.between_bytes` of silence in both directions, `timeouts.total` or the client's deadline: both ends get a
//!   close with 1001. Pings that either end sends keep a tunnel alive: they are bytes. With `timeouts.ping` the proxy
//!   sends pings of its own, and an end that answers none is silent by itself (`signs.rs`). Their answers pass on to
//!   the other end, which takes them for a sign of life that it did not ask for (RFC 6455 §5.5.3);
//! - the process stops: both get a close with 1001 once nothing has passed for [`LULL`], so that what is being said is
//!   said to its end; one that is never silent is told so between two frames when the drain limit is over. Only who
//!   then stands inside a frame for [`LAST`] is left without a word, and counted as `overloaded` like every request
//!   that is cut.
//!
//! The listener drives it, on the client's connection, which so counts as open.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;

use super::Begun;
use super::deadlines::Deadlines;
use super::frames::Code;
use super::judge::Judgement;
use super::pipe::Gone;
use super::pipes::{FAREWELL, Pipes};
use super::relay::Relay;
use super::signs::{Side, Signs};
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::decide::Outcome;
use crate::fault::Kind;
use crate::fleet::Lease;
use crate::observe::Exchange;
use crate::units::Seconds;

/// A silence in which a stopping process may close.
const LULL: Seconds = Seconds(1.0);
/// How long a process whose time is over waits for the end of a frame, and for the answer to its close.
const LAST: Seconds = Seconds(0.3);

const STOPPING: &str = "the proxy is stopping";

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
    bytes_in: u64,
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
        bytes_in: 0,
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

/// What happens in a tunnel.
enum Event {
    Up(usize),
    Down(usize),
    ClientGone,
    WorkerGone,
    Rings(Bell),
    /// The process stops.
    Stops,
    /// Its time is over.
    Cut,
}

/// What it is time for.
#[derive(Clone, Copy)]
enum Bell {
    /// A timer fired, as this fault.
    Timer(Kind),
    /// To ask an end whether it lives.
    Ping(Side),
    /// To say goodbye, for nothing has passed for long enough.
    Lull,
    /// To leave, whatever passes.
    Last,
}

/// How a tunnel came to its end.
enum End {
    Closed,
    ClientGone,
    WorkerGone,
    Due(Kind),
    Cut,
}

/// How far a tunnel has come.
struct Course {
    signs: Signs,
    /// Since when an end has closed.
    closing: Option<Seconds>,
    /// Since when a silence counts in which a stopping process may close.
    lull: Option<Seconds>,
    /// When a stopping process ran out of time.
    cut: Option<Seconds>,
}

impl Tunnel {
    /// Passes bytes until an end closes. From when `stopping` is ready it closes as soon as it can, and when `cut` is,
    /// it does so between any two frames.
    pub async fn run(mut self, stopping: impl Future<Output = ()>, cut: impl Future<Output = ()>) {
        let Some(Ends { client, worker }) = self.ends.take() else {
            return;
        };
        let (Ok(client), Ok(worker)) = (client.await, worker.await) else {
            return;
        };
        let mut pipes = Pipes::new(client, worker);
        if let Some(lease) = &mut self.lease {
            lease.first_byte(self.clock.now());
        }
        let end = self.pass(&mut pipes, stopping, cut).await;
        self.close(&mut pipes, end).await;
    }

    async fn pass(
        &mut self,
        pipes: &mut Pipes,
        stopping: impl Future<Output = ()>,
        cut: impl Future<Output = ()>,
    ) -> End {
        let (mut stopping, mut cut) = (pin!(stopping), pin!(cut));
        let mut alarm = Alarm::new(self.clock);
        let mut course = Course {
            signs: Signs::new(self.clock.now()),
            closing: None,
            lull: None,
            cut: None,
        };
        loop {
            if course.cut.is_some() {
                pipes.part(STOPPING);
            }
            let due = self.due(&course);
            let event = tokio::select! {
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
                bell = ring(&mut alarm, due) => Event::Rings(bell),
                () = &mut stopping, if course.lull.is_none() => Event::Stops,
                () = &mut cut, if course.cut.is_none() => Event::Cut,
            };
            if let Some(end) = self.took(event, &mut course, pipes).await {
                return end;
            }
        }
    }

    /// Takes note of an event; it may be the end.
    async fn took(&mut self, event: Event, course: &mut Course, pipes: &mut Pipes) -> Option<End> {
        let now = self.clock.now();
        match event {
            // A frame of ours has passed.
            Event::Up(0) | Event::Down(0) => {}
            Event::Up(length) => {
                course.signs.heard(Side::Client, now);
                self.bytes_in += length as u64;
                self.exchange.bytes_in(self.bytes_in);
            }
            Event::Down(length) => {
                course.signs.heard(Side::Worker, now);
                self.exchange.add_bytes_out(length as u64);
                if let Some(lease) = &self.lease {
                    lease.heard(0, now);
                }
            }
            Event::Stops => course.lull = Some(course.signs.last()),
            Event::Cut => course.cut = Some(now),
            Event::Rings(Bell::Ping(side)) => {
                let asked = pipes.ping(side);
                course.signs.tried(side, asked, now);
            }
            Event::Rings(Bell::Lull) => {
                pipes.farewell(STOPPING).await;
                // Where both ends are inside a frame, nothing was said: the next lull may do.
                course.lull = Some(self.clock.now());
            }
            Event::Rings(Bell::Last) if pipes.closed() => return Some(End::Closed),
            Event::Rings(Bell::Last) => return Some(End::Cut),
            Event::Rings(_) | Event::ClientGone | Event::WorkerGone if pipes.closes() => {
                return Some(End::Closed);
            }
            Event::Rings(Bell::Timer(kind)) => return Some(End::Due(kind)),
            Event::ClientGone => return Some(End::ClientGone),
            Event::WorkerGone => return Some(End::WorkerGone),
        }
        if course.closing.is_none() && pipes.closes() {
            course.closing = Some(now);
        }
        None
    }

    /// What it is time for next: once an end has closed nothing but the end.
    fn due(&self, course: &Course) -> Option<(Seconds, Bell)> {
        let signs = &course.signs;
        let last = course.cut.map(|since| (since + LAST, Bell::Last));
        let bells = if let Some(since) = course.closing {
            [
                Some((since + FAREWELL, Bell::Timer(Kind::Stalled))),
                None,
                None,
                last,
            ]
        } else {
            let timer = self.deadlines.next(Some(signs.silent_since()), None);
            let timer = timer.map(|(due, kind, ..)| (due, Bell::Timer(kind)));
            let lull = course
                .lull
                .map(|since| (since.max(signs.last()) + LULL, Bell::Lull));
            let ping = self.deadlines.ping.filter(|_| lull.is_none());
            let ping = ping.map(|every| signs.next(every));
            [
                timer,
                lull,
                ping.map(|(due, side)| (due, Bell::Ping(side))),
                last,
            ]
        };
        let bells = bells.into_iter().flatten();
        bells.min_by(|(one, _), (other, _)| one.0.total_cmp(&other.0))
    }

    /// Tells both ends, and writes down how it ended.
    async fn close(mut self, pipes: &mut Pipes, end: End) {
        let (outcome, label) = match end {
            End::Closed => (self.judged.outcome, self.judged.label),
            End::ClientGone => return,
            End::WorkerGone => {
                self.exchange.broke(Kind::WorkerFailed);
                pipes.tell_client(Code::Failed, "the worker is gone").await;
                (Outcome::Lost, Kind::WorkerFailed.label())
            }
            End::Due(kind) => {
                self.exchange.broke(kind);
                pipes.farewell(kind.label()).await;
                (Outcome::Gone, kind.label())
            }
            // An end stood inside a frame to the last, so that it could not be told.
            End::Cut => {
                self.exchange.broke(Kind::Overloaded);
                (Outcome::Gone, Kind::Overloaded.label())
            }
        };
        self.exchange.complete();
        if let Some(lease) = self.lease.take() {
            let now = self.clock.now();
            self.exchange.attempt_ended(lease.worker(), label, now);
            lease.finish(outcome, now);
        }
        drop(self);
        pipes.shut().await;
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

async fn ring(alarm: &mut Alarm, due: Option<(Seconds, Bell)>) -> Bell {
    match due {
        Some((due, bell)) => {
            poll_fn(|cx| alarm.poll(cx, due)).await;
            bell
        }
        None => std::future::pending().await,
    }
}
