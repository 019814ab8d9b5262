//! Opening a connection to a worker.

use std::io;
use std::time::Duration;

use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::Loss;
use super::wire::{Tag, Wire};
use crate::config::plan::{Origin, Protocol};
use crate::units::Seconds;

type Body = Full<bytes::Bytes>;

/// Requests go in here; the connection itself runs in a task of its own.
pub(super) enum Sender {
    /// One request at a time.
    Http1(Http1),
    /// Many at once.
    Http2(http2::SendRequest<Body>),
}

/// An HTTP/1.1 connection and the tag of its socket.
pub(super) struct Http1 {
    pub(super) sender: http1::SendRequest<Body>,
    pub(super) tag: Tag,
}

/// A TCP connection without Nagle's delay: answers are many small writes.
pub(super) async fn tcp(origin: &Origin, limit: Seconds) -> Result<TcpStream, Loss> {
    let connecting = TcpStream::connect((origin.host.as_str(), origin.port));
    let stream = match tokio::time::timeout(limit.to_duration(), connecting).await {
        Err(_) => return Err(Loss::ConnectTimeout(limit)),
        Ok(Err(error)) => return Err(refused(&error)),
        Ok(Ok(stream)) => stream,
    };
    stream.set_nodelay(true).map_err(|error| refused(&error))?;
    Ok(stream)
}

/// A connection that is ready for its first request.
pub(super) async fn open(origin: &Origin, limit: Seconds) -> Result<Sender, Loss> {
    let stream = tcp(origin, limit).await?;
    match origin.protocol {
        Protocol::Http1 => {
            let (wire, tag) = Wire::new(stream);
            let (sender, connection) = http1::handshake(TokioIo::new(wire))
                .await
                .map_err(|error| lost(&error))?;
            run(connection);
            Ok(Sender::Http1(Http1 { sender, tag }))
        }
        Protocol::H2c => {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(Duration::from_secs(20))
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|error| lost(&error))?;
            run(connection);
            Ok(Sender::Http2(sender))
        }
    }
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
    Loss::Refused(error.to_string())
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
