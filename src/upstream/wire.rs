//! A worker's HTTP/1.1 socket, looked at before each reuse.
//!
//! Bytes that a worker sends behind an answer would be taken for the answer to the next request, which is somebody
//! else's (promise P7). hyper notices them only if its task reads them before the next request is handed over, so the
//! socket itself is asked (`MSG_PEEK`) in the moment when the first byte of a request is about to go out on a kept
//! connection: if anything lies there, or the end does, nothing is written and the request stays unsent. What arrives
//! later than that cannot be told from an answer by anybody.
//!
//! Within TLS the same is asked of the socket below it. What lies there may be TLS's own, such as a ticket that comes
//! late; then a good connection is given up, which costs a handshake and no request.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// In use, or fresh: the next write is not looked at.
const BUSY: u8 = 0;
/// Kept: the next write begins a request.
const IDLE: u8 = 1;
/// Found with bytes, or its end, lying in it: nothing was written.
const SPOILT: u8 = 2;

/// What the pool tells a connection, and hears from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tag(Arc<AtomicU8>);

impl Tag {
    /// The connection has nothing to do: whatever comes now was not asked for.
    pub(super) fn idle(&self) {
        self.0.store(IDLE, Ordering::Release);
    }

    /// Whether the request that was handed over last was not written, because the connection was no longer good.
    pub(super) fn spoilt(&self) -> bool {
        self.0.load(Ordering::Acquire) == SPOILT
    }
}

/// The socket.
pub(super) struct Wire {
    stream: TcpStream,
    tag: Tag,
}

impl Wire {
    /// A fresh connection and the tag that the pool keeps of it.
    pub(super) fn new(stream: TcpStream) -> (Self, Tag) {
        let tag = Tag::default();
        let wire = Wire {
            stream,
            tag: tag.clone(),
        };
        (wire, tag)
    }

    /// Lets a write pass, unless it would begin a request on a connection that is no longer good.
    fn fit(&self) -> io::Result<()> {
        let begins = self.tag.0.load(Ordering::Acquire) != BUSY;
        if !begins {
            return Ok(());
        }
        match SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.tag.0.store(BUSY, Ordering::Release);
                Ok(())
            }
            _ => {
                self.tag.0.store(SPOILT, Ordering::Release);
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fit()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fit()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A connection of ours and the worker's end of it.
    async fn pair() -> (Wire, Tag, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (theirs, _) = listener.accept().await.unwrap();
        let (wire, tag) = Wire::new(ours);
        (wire, tag, theirs)
    }

    /// What the worker reads once we have closed.
    async fn arrived(wire: Wire, mut theirs: TcpStream) -> Vec<u8> {
        drop(wire);
        let mut bytes = Vec::new();
        // A reset says as well that there is no more.
        let _ = theirs.read_to_end(&mut bytes).await;
        bytes
    }

    #[tokio::test]
    async fn a_quiet_connection_takes_request_after_request() {
        let (mut wire, tag, theirs) = pair().await;
        for _ in 0..3 {
            tag.idle();
            wire.write_all(b"request").await.unwrap();
        }
        assert!(!tag.spoilt());
        assert_eq!(arrived(wire, theirs).await, b"requestrequestrequest");
    }

    #[tokio::test]
    async fn an_answer_that_comes_while_a_request_is_written_spoils_nothing() {
        let (mut wire, tag, mut theirs) = pair().await;
        tag.idle();
        wire.write_all(b"head").await.unwrap();
        theirs.write_all(b"early answer").await.unwrap();
        wire.write_all(b"body").await.unwrap();
        assert!(!tag.spoilt());
    }

    #[tokio::test]
    async fn bytes_that_nobody_asked_for_keep_a_request_from_being_written() {
        let (mut wire, tag, mut theirs) = pair().await;
        tag.idle();
        theirs.write_all(b"stray").await.unwrap();
        assert!(wire.write_all(b"request").await.is_err());
        assert!(tag.spoilt());
        assert_eq!(arrived(wire, theirs).await, b"");
    }

    #[tokio::test]
    async fn so_does_the_end_of_the_connection() {
        let (mut wire, tag, theirs) = pair().await;
        tag.idle();
        drop(theirs);
        assert!(wire.write_all(b"request").await.is_err());
        assert!(tag.spoilt());
    }
}
