//! TLS with clients: the handshake, before anything else is read.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::units::Seconds;

/// The first byte of a handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// For whoever takes this for a port without TLS.
const IN_THE_CLEAR: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
    This address speaks TLS: write https:// in place of http://.\n";

/// A connection within TLS, of which one byte was looked at beforehand.
pub(super) type Shaken<IO> = TlsStream<BufReader<IO>>;

/// Why there is none.
pub(super) enum Unshaken {
    /// Whoever connected left before a word, as those do who only look whether somebody is there.
    Silent,
    /// It spoke no TLS that we take, or took too long.
    Failed,
}

/// The connection within TLS, when it comes about within the limit.
pub(super) async fn shake_hands<IO>(
    io: IO,
    config: Arc<ServerConfig>,
    limit: Seconds,
) -> Result<Shaken<IO>, Unshaken>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let greeted = timeout(limit.to_duration(), greet(io, config)).await;
    greeted.unwrap_or(Err(Unshaken::Failed))
}

async fn greet<IO>(io: IO, config: Arc<ServerConfig>) -> Result<Shaken<IO>, Unshaken>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    // With room for one byte nothing that follows is copied twice.
    let mut io = BufReader::with_capacity(1, io);
    let first = io.fill_buf().await.map_err(|_| Unshaken::Silent)?;
    match first.first().ok_or(Unshaken::Silent)? {
        &HANDSHAKE => {}
        first if first.is_ascii_alphabetic() => {
            // Whatever becomes of it, the connection ends here.
            let _ = io.write_all(IN_THE_CLEAR).await;
            let _ = io.shutdown().await;
            return Err(Unshaken::Failed);
        }
        _ => return Err(Unshaken::Failed),
    }
    let shaken = TlsAcceptor::from(config).accept(io).await;
    shaken.map_err(|error| {
        tracing::debug!(%error, "a handshake failed");
        Unshaken::Failed
    })
}
