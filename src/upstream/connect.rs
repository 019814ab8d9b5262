//! Opening a connection to a worker.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::names::Addresses;
use super::wire::{Tag, Wire};
use super::{Loss, Outgoing};
use crate::clock::Clock;
use crate::config::plan::{ClientTls, Origin, Protocol};
use crate::units::Seconds;

/// The most of an answer that is taken from a worker before it was read (Linux takes twice as much for its own
/// book-keeping). What the system and hyper choose by themselves grows to megabytes, which a worker would write for a
/// client that reads nothing (promise P19). As a window it is 1.3 MB a second over 100 ms, a thousand times what a
/// model writes.
const RECEIVED: u32 = 128 << 10;

/// The same of all streams of an HTTP/2 connection together: no bound, or streams that stand still would hold up
/// others.
const RECEIVED_OF_ALL: u32 = (1 << 31) - 1;

/// Linux' EMFILE and ENFILE: no descriptor is left to the process, or to the system.
const PROCESS_FULL: i32 = 24;
const SYSTEM_FULL: i32 = 23;

/// Requests go in here; the connection itself runs in a task of its own.
pub(super) enum Sender {
    /// One request at a time.
    Http1(Http1),
    /// Many at once.
    Http2(http2::SendRequest<Outgoing>),
}

/// An HTTP/1.1 connection and the tag of its socket.
pub(super) struct Http1 {
    pub(super) sender: http1::SendRequest<Outgoing>,
    pub(super) tag: Tag,
}

/// Opens connections to one worker.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) origin: Origin,
    pub(super) addresses: Arc<Addresses>,
    pub(super) clock: Clock,
}

impl Connector {
    /// A TCP connection without Nagle's delay: answers are many small writes. Each address is tried until one accepts;
    /// one that is silent leaves the next its share of the time.
    pub(super) async fn tcp(&self, limit: Seconds) -> Result<TcpStream, Loss> {
        let began = self.clock.now();
        let addresses = self.addresses.in_turn(began);
        let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut loss = Loss::Refused(format!("{} is not resolved yet", self.addresses.host()));
        for address in addresses {
            let share = (began + limit - self.clock.now()) * (1.0 / f64::from(left.max(1)));
            left -= 1;
            // Names are followed once for all ports of a worker.
            let at = SocketAddr::new(address.ip(), self.origin.port);
            loss = match timeout(share.to_duration(), TcpStream::connect(at)).await {
                Err(_) => Loss::ConnectTimeout {
                    limit,
                    passed: self.clock.now() - began,
                },
                Ok(Err(error)) => refused(&error),
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true).map_err(|error| refused(&error))?;
                    return Ok(stream);
                }
            };
            if matches!(loss, Loss::Exhausted(_)) {
                return Err(loss);
            }
            self.addresses.shun(address, self.clock.now());
        }
        Err(loss)
    }

    /// A connection that is ready for its first request.
    pub(super) async fn open(&self, limit: Seconds) -> Result<Sender, Loss> {
        let began = self.clock.now();
        let stream = self.tcp(limit).await?;
        if !self.origin.protocol.is_http2() {
            let bounded = SockRef::from(&stream).set_recv_buffer_size(RECEIVED as usize);
            bounded.map_err(|error| refused(&error))?;
        }
        match self.origin.protocol {
            Protocol::Http1 => {
                let (wire, tag) = Wire::new(stream);
                http1(TokioIo::new(wire), tag).await
            }
            Protocol::Https => {
                let (wire, tag) = Wire::new(stream);
                let config = self.trust()?.config.clone();
                let wire = self.tls(wire, config, (began, limit)).await?;
                http1(TokioIo::new(wire), tag).await
            }
            Protocol::H2c => http2(TokioIo::new(stream)).await,
            Protocol::H2 => {
                let config = self.trust()?.for_http2();
                let wire = self.tls(stream, config, (began, limit)).await?;
                if wire.get_ref().1.alpn_protocol() != Some(b"h2") {
                    return Err(Loss::Refused("TLS: there is no HTTP/2 there".to_owned()));
                }
                http2(TokioIo::new(wire)).await
            }
        }
    }
}

impl Connector {
    /// Whom the worker is believed to be.
    fn trust(&self) -> Result<&ClientTls, Loss> {
        let trust = self.origin.tls.as_deref();
        trust.ok_or_else(|| unshaken(&"nobody is trusted"))
    }

    /// The same connection within TLS, if the worker is whom it should be; all of opening it began then and may take so
    /// long.
    async fn tls<IO>(
        &self,
        wire: IO,
        config: Arc<ClientConfig>,
        (began, limit): (Seconds, Seconds),
    ) -> Result<TlsStream<IO>, Loss>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(self.origin.host.clone());
        let name = name.map_err(|error| unshaken(&error))?;
        let left = began + limit - self.clock.now();
        let shaking = TlsConnector::from(config).connect(name, wire);
        match timeout(left.to_duration(), shaking).await {
            Ok(shaken) => shaken.map_err(|error| unshaken(&error)),
            Err(_) => Err(Loss::ConnectTimeout {
                limit,
                passed: self.clock.now() - began,
            }),
        }
    }
}

fn unshaken(cause: &dyn std::fmt::Display) -> Loss {
    Loss::Refused(format!("TLS: {cause}"))
}

async fn http1<IO>(io: IO, tag: Tag) -> Result<Sender, Loss>
where
    IO: Read + Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(io).await.map_err(|error| lost(&error))?;
    run(connection.with_upgrades());
    Ok(Sender::Http1(Http1 { sender, tag }))
}

async fn http2<IO>(io: IO) -> Result<Sender, Loss>
where
    IO: Read + Write + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(20))
        .initial_stream_window_size(RECEIVED)
        .initial_connection_window_size(RECEIVED_OF_ALL)
        .handshake(io)
        .await
        .map_err(|error| lost(&error))?;
    run(connection);
    Ok(Sender::Http2(sender))
}

#[expect(
    clippy::disallowed_methods,
    reason = "ends by itself when its sender and its answers are dropped"
)]
fn run<C>(connection: C)
where
    C: Future<Output = hyper::Result<()>> + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a worker's connection ended");
        }
    });
}

fn refused(error: &io::Error) -> Loss {
    match error.raw_os_error() {
        Some(PROCESS_FULL | SYSTEM_FULL) => Loss::Exhausted(error.to_string()),
        _ => Loss::Refused(error.to_string()),
    }
}

/// What an error of hyper's means once a request was handed over.
pub(super) fn lost(error: &hyper::Error) -> Loss {
    use std::error::Error as _;
    let cause = error
        .source()
        .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    if error.is_parse() {
        Loss::Malformed(cause)
    } else {
        Loss::Reset(cause)
    }
}

/// Whether it was the connection that ended, and not one answer on it.
pub(super) fn died(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    error.is_closed()
        || error
            .source()
            .is_some_and(<dyn std::error::Error>::is::<io::Error>)
}
