//! From an accepted connection to requests: what it speaks, its deadlines, and its end.
//!
//! [`serve`] is generic over the stream, so that tests drive it with a tokio listener and `serve.rs` hands it
//! Pingora's. The client plane's requests go to the line, the admin plane's to the admin room; the two never share a
//! listener.
//!
//! hyper reads heads. One that it can't read gets hyper's bare 400, 414 or 431 (or a close) and is counted here; what
//! it lets through and we don't (a missing or doubled Host, CONNECT, odd targets) is refused by the line with a reason.

mod entrance;
mod gate;
mod guard;
mod tls;
mod upload;

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body_util::Either;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use self::entrance::Admitted;
pub use self::gate::Gate;
use self::gate::{Phase, Told};
use self::guard::{Answering, Arriving, Guarded, Pulse};
use self::tls::Unshaken;
use self::upload::Upload;
use crate::admin::{Admin, Sent};
use crate::admission::Intake;
use crate::forward::relay::Relay;
use crate::forward::tunnel::{self, Tunnel};
use crate::inspect::Client;
use crate::line::{self, App};

/// What an HTTP/2 client says first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Streams per HTTP/2 connection and window sizes in bytes: the figures that Envoy recommends for an edge proxy.
const H2_STREAMS: u32 = 100;
const H2_STREAM_WINDOW: u32 = 64 << 10;
const H2_CONNECTION_WINDOW: u32 = 1 << 20;

/// hyper will not go below this read buffer.
const LEAST_HEADER: usize = 8192;

/// Where a connection's requests go.
#[derive(Clone)]
pub enum Plane {
    /// To the fleet.
    Client(Arc<App>),
    /// To the admin room.
    Admin(Arc<Admin>),
}

impl Plane {
    /// What clients are shown there, if it speaks TLS.
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        match self {
            Plane::Client(app) => Some(app.plan.load().listen.tls.as_ref()?.config.clone()),
            Plane::Admin(_) => None,
        }
    }

    /// The address that a connection is counted under, and how many that may have; nothing where neither is bounded.
    fn bounded(&self, peer: Option<IpAddr>, most: u32) -> Option<(IpAddr, u32)> {
        let Plane::Client(app) = self else {
            return None;
        };
        let stands_for_many = || Client::new(peer, false, false).is_trusted(&app.plan.load());
        peer.filter(|_| most > 0 && !stands_for_many())
            .map(|peer| (peer, most))
    }
}

/// Serves one connection until it ends. Once the gate drains, the request at hand is answered and no other; once it is
/// cut, not even that.
pub async fn serve<IO>(io: IO, peer: Option<IpAddr>, plane: Plane, gate: Arc<Gate>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let inside = gate.enter();
    let mut told = gate.told();
    let admitted = tokio::select! {
        biased;
        admitted = admit(peer, &plane, &gate) => admitted,
        () = told.to(Phase::Draining) => return,
    };
    let _admitted = match admitted {
        Ok(admitted) => admitted,
        Err(cause) => return gate.observe.connection_refused(cause),
    };
    let Some(config) = plane.tls() else {
        converse(
            io,
            |http2| Client::new(peer, http2, false),
            plane,
            &gate,
            told,
        )
        .await;
        return;
    };
    let shaken = tokio::select! {
        biased;
        shaken = tls::shake_hands(io, config, gate.limits.load().header_timeout) => shaken,
        () = told.to(Phase::Draining) => return,
    };
    match shaken {
        Ok(io) => {
            let client = |http2| Client::new(peer, http2, true);
            // Boxed, so that a connection without TLS does not keep room for it.
            Box::pin(converse(io, client, plane, &gate, told)).await;
        }
        Err(Unshaken::Silent) => {}
        Err(Unshaken::Failed) => gate.observe.connection_refused("tls"),
    }
    drop(inside);
}

/// Lets a client's connection in; the operator's always come in.
async fn admit(
    peer: Option<IpAddr>,
    plane: &Plane,
    gate: &Gate,
) -> Result<Option<Admitted>, &'static str> {
    if matches!(plane, Plane::Admin(_)) {
        return Ok(None);
    }
    let limits = gate.limits.load_full();
    let address = plane.bounded(peer, limits.connections_per_address);
    let admitted = gate.entrance.admit(address, limits.header_timeout).await;
    admitted.map(Some)
}

/// Finds out which HTTP is spoken, and speaks it.
async fn converse<IO>(
    io: IO,
    client: impl Fn(bool) -> Client,
    plane: Plane,
    gate: &Arc<Gate>,
    mut told: Told,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = gate.limits.load_full();
    let pulse = Pulse::new(gate.clock, limits.header_timeout, limits.idle);
    let mut io = Guarded::new(io, pulse.clone());
    let spoken = tokio::select! {
        biased;
        spoken = what_is_spoken(&mut io) => spoken,
        () = told.to(Phase::Draining) => Spoken::Nothing,
    };
    let seat = |http2| Seat {
        client: client(http2),
        plane,
        gate: gate.clone(),
        pulse: pulse.clone(),
        slot: Slot::default(),
    };
    match spoken {
        Spoken::Nothing if pulse.cut_a_head() => gate.observe.connection_refused("header_timeout"),
        Spoken::Nothing => {}
        Spoken::Http1 => serve_http1(io, seat(false), gate, told).await,
        // Boxed, so that HTTP/1.1 does not keep room for it.
        Spoken::Http2 => Box::pin(serve_http2(io, seat(true), gate, told)).await,
    }
}

enum Spoken {
    Http1,
    Http2,
    Nothing,
}

/// Reads until the first bytes tell HTTP/2's preface from anything else, and puts them back.
async fn what_is_spoken<IO: AsyncRead + Unpin>(io: &mut Guarded<IO>) -> Spoken {
    let mut seen = BytesMut::with_capacity(1024);
    let spoken = loop {
        match io.read_buf(&mut seen).await {
            Ok(0) | Err(_) => return Spoken::Nothing,
            Ok(_) if seen.len() >= PREFACE.len() && seen.starts_with(PREFACE) => {
                break Spoken::Http2;
            }
            Ok(_) if !PREFACE.starts_with(&seen) => break Spoken::Http1,
            Ok(_) => {}
        }
    };
    io.replay(seen);
    spoken
}

async fn serve_http1<IO>(mut io: Guarded<IO>, seat: Seat, gate: &Gate, told: Told)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    io.look_ahead();
    let (pulse, slot) = (seat.pulse.clone(), seat.slot.clone());
    let connection = http1::Builder::new()
        .max_buf_size(gate.limits.load().header.to_usize().max(LEAST_HEADER))
        .serve_connection(
            TokioIo::new(io),
            service_fn(move |request| seat.answer(request)),
        )
        .with_upgrades();
    let finish = http1::UpgradeableConnection::graceful_shutdown;
    let ended = drive(connection, finish, told).await;
    count_refusal(gate, &pulse, ended);
    let opened = slot.lock().take();
    if let Some(opened) = opened {
        Box::pin(opened.run(gate)).await;
    }
}

async fn serve_http2<IO>(io: Guarded<IO>, seat: Seat, gate: &Gate, told: Told)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pulse = seat.pulse.clone();
    pulse.multiplexes();
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS)
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(gate.limits.load().header.0).unwrap_or(u32::MAX))
        .serve_connection(
            TokioIo::new(io),
            service_fn(move |request| seat.answer(request)),
        );
    let ended = drive(connection, http2::Connection::graceful_shutdown, told).await;
    count_refusal(gate, &pulse, ended);
}

/// Runs a connection to its end. Once the gate drains it is told to finish; once it is cut it is left.
async fn drive<C>(
    connection: C,
    finish: impl FnOnce(Pin<&mut C>),
    mut told: Told,
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = told.to(Phase::Draining) => finish(connection.as_mut()),
    }
    tokio::select! {
        ended = connection => ended,
        () = told.to(Phase::Cut) => Ok(()),
    }
}

/// Connections that end before a head was read whole have no request to count, so they are counted here.
fn count_refusal(gate: &Gate, pulse: &Pulse, ended: hyper::Result<()>) {
    let Err(error) = ended else { return };
    let cause = match error {
        error if error.is_parse_too_large() => "headers_too_large",
        error if error.is_parse() => "bad_request",
        _ if pulse.cut_a_head() => "header_timeout",
        error => return tracing::debug!(%error, "a client connection ended"),
    };
    gate.observe.connection_refused(cause);
}

/// One connection's place: whose it is and where its requests go.
struct Seat {
    client: Client,
    plane: Plane,
    gate: Arc<Gate>,
    pulse: Arc<Pulse>,
    slot: Slot,
}

/// Where an answer leaves the tunnel that it opens, until its connection is free to become that.
type Slot = Arc<Mutex<Option<Opened>>>;

/// A tunnel, and what keeps its connection from counting as idle, and from being read ahead of it.
struct Opened {
    tunnel: Tunnel,
    _answering: Answering,
    _arriving: Arriving,
}

impl Opened {
    /// Passes bytes until an end closes.
    async fn run(self, gate: &Gate) {
        let (mut stopping, mut cut) = (gate.told(), gate.told());
        let stopping = stopping.to(Phase::Draining);
        self.tunnel.run(stopping, cut.to(Phase::Cut)).await;
    }
}

type Answer = Tracked<Either<Relay, Sent>>;

impl Seat {
    /// Takes note of the request at once; the rest is done when the future is polled.
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Answer>, Infallible>> + use<> {
        let answering = self.pulse.begin();
        let (pulse, slot) = (self.pulse.clone(), self.slot.clone());
        let gate = (!self.client.http2).then(|| self.gate.clone());
        let upload = request.body().size_hint().lower() > Intake::DISCARDED;
        let opened = match &self.plane {
            Plane::Client(app) => {
                let request = request.map(|body| Upload::new(body, pulse.arrives()));
                Either::Left(line::open(app.clone(), self.client.clone(), request))
            }
            Plane::Admin(admin) => Either::Right((admin.clone(), request)),
        };
        async move {
            let mut response = match opened {
                Either::Left(opened) => opened.answer().await.map(Either::Left),
                Either::Right((admin, request)) => admin.answer(request).await.map(Either::Right),
            };
            if let Some(tunnel) = tunnel::carried(&mut response) {
                *slot.lock() = Some(Opened {
                    tunnel,
                    _answering: pulse.begin(),
                    _arriving: pulse.arrives(),
                });
            } else if gate.is_some_and(|gate| gate.parting.load(Ordering::Acquire)) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            if upload && !response.status().is_success() {
                pulse.leaves_unread();
            }
            Ok(response.map(|body| Tracked {
                body,
                _answering: answering,
            }))
        }
    }
}

/// A body that keeps its connection from counting as idle.
struct Tracked<B> {
    body: B,
    _answering: Answering,
}

impl<B: Body + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
