//! Deadlines of a client connection, kept in the IO itself.
//!
//! hyper's own `header_read_timeout` also runs while a kept-alive connection is idle, and it has none for HTTP/2, so
//! the deadlines live here: the *whole* head must arrive within `limits.header_timeout` (a byte now and then does not
//! extend it), and between requests the connection may be silent for `limits.idle`. While a request is being answered
//! there is no deadline here; the line and the relay have theirs. On HTTP/2 only the first head has a deadline of its
//! own: what comes between later requests may be a ping, so the next head has `limits.idle`. A connection that closes
//! on a client which still sends an upload lingers for a moment. A client that does not read its answer is waited for
//! as long as an idle one: once the socket has taken nothing for `limits.idle`, the connection is cut, so that it can't
//! keep a place on a worker for ever. (On HTTP/2 a stream that its client keeps from flowing while the connection lives
//! is not seen here.)
//!
//! Nor does hyper's HTTP/1 see a client leave while bytes of a next request (a stray line break is enough) lie unread
//! in its buffer: it reads no further, so neither an end nor a reset reaches it. It does flush whenever it is woken, so
//! a flush looks ahead while a request that has arrived whole is being answered, up to [`AHEAD`], and an end found
//! there ends the connection (promise P8). Whoever pipelines more than that is noticed at the next write.
//!
//! A timer is armed at most once per deadline that lies nearer than the armed one, and only when a read would wait, so
//! a busy connection pays one atomic store per request.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::units::Seconds;

/// How long a refused upload is still read after the answer, so that a reset does not erase it (RFC 9112 §9.6).
const LINGER: Seconds = Seconds(1.0);

/// No deadline, in microseconds since the start of the process.
const NEVER: u64 = u64::MAX;

/// The most that hyper is given at a time. It doubles its buffer whenever a read fills it, up to the largest head, and
/// keeps it as long as the connection lives, also while its request stands in line. Less than 32 KiB, and the buffer
/// stays at that.
const LARGEST_READ: usize = (32 << 10) - 1;

/// The most that is read ahead of hyper.
const AHEAD: usize = 64 << 10;

/// What a connection is waiting for, shared by its IO and the requests on it.
#[derive(Debug)]
pub(super) struct Pulse {
    clock: Clock,
    header_timeout: Seconds,
    idle: Seconds,
    deadline: AtomicU64,
    answering: AtomicU32,
    head_begun: AtomicBool,
    multiplexed: AtomicBool,
    unread: AtomicBool,
    arriving: AtomicU32,
    cut: AtomicBool,
}

impl Pulse {
    /// A connection that was just accepted: its first head is due.
    pub(super) fn new(clock: Clock, header_timeout: Seconds, idle: Seconds) -> Arc<Self> {
        let pulse = Pulse {
            clock,
            header_timeout,
            idle,
            deadline: AtomicU64::new(NEVER),
            answering: AtomicU32::new(0),
            head_begun: AtomicBool::new(true),
            multiplexed: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            arriving: AtomicU32::new(0),
            cut: AtomicBool::new(false),
        };
        pulse.due_in(header_timeout);
        Arc::new(pulse)
    }

    /// A head was read whole; the returned value ends the request when it is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::AcqRel);
        self.deadline.store(NEVER, Ordering::Release);
        Answering(self.clone())
    }

    /// A request's body begins to arrive; the returned value ends that when it is dropped.
    pub(super) fn arrives(self: &Arc<Self>) -> Arriving {
        self.arriving.fetch_add(1, Ordering::AcqRel);
        Arriving(self.clone())
    }

    /// HTTP/2 is spoken: bytes between requests are pings and window updates rather than the beginning of a head.
    pub(super) fn multiplexes(&self) {
        self.multiplexed.store(true, Ordering::Release);
    }

    /// A request was answered while its client still sends: the connection will close, and not before that was read.
    pub(super) fn leaves_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    /// Whether a request is being answered.
    fn is_answering(&self) -> bool {
        self.answering.load(Ordering::Acquire) > 0
    }

    /// Whether what comes next is not of the request that is being answered, which is there whole.
    fn awaits_no_more(&self) -> bool {
        self.is_answering() && self.arriving.load(Ordering::Acquire) == 0
    }

    /// True when a head did not arrive in time.
    pub(super) fn cut_a_head(&self) -> bool {
        self.cut.load(Ordering::Acquire) && self.head_begun.load(Ordering::Acquire)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "microseconds of a process's life"
    )]
    fn due_in(&self, span: Seconds) {
        let at = (self.clock.now() + span).0 * 1e6;
        self.deadline.store(at as u64, Ordering::Release);
    }

    /// Bytes came in: between requests they begin a head, unless nobody can tell what they are.
    fn heard(&self) {
        let tells = !self.multiplexed.load(Ordering::Acquire);
        if !self.is_answering() && tells && !self.head_begun.swap(true, Ordering::AcqRel) {
            self.due_in(self.header_timeout);
        }
    }

    /// The point in time at which the connection is cut, if any.
    #[expect(
        clippy::cast_precision_loss,
        reason = "microseconds of a process's life"
    )]
    fn deadline(&self) -> Option<Seconds> {
        let at = self.deadline.load(Ordering::Acquire);
        (at != NEVER).then(|| Seconds(at as f64 / 1e6))
    }
}

/// A request that is being answered on a connection.
#[derive(Debug)]
pub(super) struct Answering(Arc<Pulse>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.head_begun.store(false, Ordering::Release);
        if self.0.answering.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.due_in(self.0.idle);
        }
    }
}

/// A request's body that has not arrived whole.
#[derive(Debug)]
pub(super) struct Arriving(Arc<Pulse>);

impl Drop for Arriving {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection with its deadlines, and the bytes that were read before hyper asked for them: to find out what it
/// speaks, or whether its client is still there.
pub(super) struct Guarded<IO> {
    io: IO,
    ahead: BytesMut,
    looks_ahead: bool,
    pulse: Arc<Pulse>,
    alarm: Alarm,
    stall: Stall,
    /// When reading on after the last answer ends; set once nothing more is written.
    lingers_until: Option<Seconds>,
}

/// A socket that takes no bytes because its client does not read.
#[derive(Debug)]
struct Stall {
    clock: Clock,
    since: Option<Seconds>,
    alarm: Alarm,
}

impl Stall {
    fn new(clock: Clock) -> Self {
        Stall {
            clock,
            since: None,
            alarm: Alarm::new(clock),
        }
    }

    /// A write would wait: fails when it has for longer than this.
    fn poll(&mut self, cx: &mut Context<'_>, longest: Seconds) -> Poll<io::Error> {
        let since = *self.since.get_or_insert_with(|| self.clock.now());
        self.alarm
            .poll(cx, since + longest)
            .map(|()| io::ErrorKind::TimedOut.into())
    }
}

impl<IO> Guarded<IO> {
    pub(super) fn new(io: IO, pulse: Arc<Pulse>) -> Self {
        let clock = pulse.clock;
        Guarded {
            io,
            ahead: BytesMut::new(),
            looks_ahead: false,
            pulse,
            alarm: Alarm::new(clock),
            stall: Stall::new(clock),
            lingers_until: None,
        }
    }

    /// These bytes are read (again) before anything else.
    pub(super) fn replay(&mut self, bytes: BytesMut) {
        self.ahead = bytes;
    }

    /// From here on a flush looks for the client's end while a request is being answered.
    pub(super) fn look_ahead(&mut self) {
        self.looks_ahead = true;
    }

    /// A read would wait: fails when the deadline has passed, else sees to it that somebody wakes up then.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(deadline) = self.pulse.deadline() else {
            // One may be set by another task: look again after an idle span at the latest.
            self.alarm.ring_within(cx, self.pulse.idle);
            return Poll::Pending;
        };
        ready!(self.alarm.poll(cx, deadline));
        self.pulse.cut.store(true, Ordering::Release);
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }
}

impl<IO: AsyncRead + Unpin> Guarded<IO> {
    /// Reads and forgets what still comes, until the client has heard and closes, or time is up.
    fn poll_linger(&mut self, cx: &mut Context<'_>, until: Seconds) -> Poll<()> {
        let mut scratch = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
                Poll::Pending => return self.alarm.poll(cx, until),
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    if self.pulse.clock.now() >= until {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
    }

    /// Reads ahead until nothing more comes.
    ///
    /// # Errors
    /// When the client has left.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.looks_ahead && self.pulse.awaits_no_more() && self.ahead.len() < AHEAD {
            let mut chunk = [MaybeUninit::uninit(); 4096];
            let mut buf = ReadBuf::uninit(&mut chunk);
            match Pin::new(&mut self.io).poll_read(cx, &mut buf) {
                Poll::Pending => break,
                Poll::Ready(read) => read?,
            }
            if buf.filled().is_empty() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.ahead.extend_from_slice(buf.filled());
        }
        Ok(())
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Guarded<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead[..count]);
            self.ahead.advance(count);
            self.pulse.heard();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        match poll_read_some(&mut self.io, cx, buf) {
            Poll::Ready(result) => {
                if buf.filled().len() > before {
                    self.pulse.heard();
                }
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_deadline(cx).map(Err),
        }
    }
}

/// Reads less than there may be room for: see [`LARGEST_READ`]. A shorter buffer made by hand would be filled with
/// zeros first, and a long body came with three times its own length of them.
fn poll_read_some<IO: AsyncRead + Unpin>(
    io: &mut IO,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let mut some = buf.limit(LARGEST_READ);
    let read = pin!(io.read_buf(&mut some));
    read.poll(cx).map_ok(|_| ())
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match Pin::new(&mut this.io).poll_write(cx, buf) {
            Poll::Pending => this.stall.poll(cx, this.pulse.idle).map(Err),
            ready => {
                this.stall.since = None;
                ready
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_gone(cx)?;
        // Within TLS there may be bytes left that the client does not take.
        let this = &mut *self;
        match Pin::new(&mut this.io).poll_flush(cx) {
            Poll::Pending => this.stall.poll(cx, this.pulse.idle).map(Err),
            ready => {
                this.stall.since = None;
                ready
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let until = match self.lingers_until {
            Some(until) => until,
            None => {
                let this = &mut *self;
                if Pin::new(&mut this.io).poll_shutdown(cx)?.is_pending() {
                    return this.stall.poll(cx, this.pulse.idle).map(Err);
                }
                let until = self.pulse.clock.now() + LINGER;
                *self.lingers_until.insert(until)
            }
        };
        if self.pulse.unread.load(Ordering::Acquire) {
            ready!(self.poll_linger(cx, until));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match Pin::new(&mut this.io).poll_write_vectored(cx, bufs) {
            Poll::Pending => this.stall.poll(cx, this.pulse.idle).map(Err),
            ready => {
                this.stall.since = None;
                ready
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn guarded(
        header: f64,
        idle: f64,
    ) -> (
        tokio::io::DuplexStream,
        Guarded<tokio::io::DuplexStream>,
        Arc<Pulse>,
    ) {
        let (client, server) = duplex(1024);
        let pulse = Pulse::new(Clock::start(), Seconds(header), Seconds(idle));
        (client, Guarded::new(server, pulse.clone()), pulse)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    #[test]
    fn no_more_is_read_at_a_time_than_leaves_the_buffer_small() {
        runtime().block_on(async {
            let (mut client, server) = duplex(2 * LARGEST_READ);
            let pulse = Pulse::new(Clock::start(), Seconds(60.0), Seconds(60.0));
            let mut server = Guarded::new(server, pulse);
            let mut bytes = vec![7; 2 * LARGEST_READ];
            client.write_all(&bytes).await.unwrap();
            assert_eq!(server.read(&mut bytes).await.unwrap(), LARGEST_READ);
        });
    }

    #[test]
    fn a_client_that_does_not_read_is_cut() {
        runtime().block_on(async {
            let (mut client, mut server, pulse) = guarded(60.0, 0.1);
            let _answering = pulse.begin();
            server.write_all(&[7; 1024]).await.unwrap();
            client.read_exact(&mut [0; 1024]).await.unwrap();
            let written = server.write_all(&[7; 2048]).await;
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_head_that_trickles_is_cut_at_its_deadline() {
        runtime().block_on(async {
            let (mut client, mut server, pulse) = guarded(0.05, 60.0);
            client.write_all(b"GET").await.unwrap();
            let mut buffer = [0; 16];
            assert_eq!(server.read(&mut buffer).await.unwrap(), 3);
            assert_eq!(
                server.read(&mut buffer).await.unwrap_err().kind(),
                io::ErrorKind::TimedOut
            );
            assert!(pulse.cut_a_head());
        });
    }

    #[test]
    fn idleness_is_cut_and_is_no_cut_head() {
        runtime().block_on(async {
            let (_client, mut server, pulse) = guarded(60.0, 0.05);
            drop(pulse.begin());
            let mut buffer = [0; 16];
            assert_eq!(
                server.read(&mut buffer).await.unwrap_err().kind(),
                io::ErrorKind::TimedOut
            );
            assert!(!pulse.cut_a_head());
        });
    }

    #[test]
    fn a_ping_between_http2_requests_begins_no_head() {
        runtime().block_on(async {
            let (mut client, mut server, pulse) = guarded(0.02, 60.0);
            pulse.multiplexes();
            drop(pulse.begin());
            client.write_all(b"ping").await.unwrap();
            let mut buffer = [0; 16];
            assert_eq!(server.read(&mut buffer).await.unwrap(), 4);
            let read =
                tokio::time::timeout(Seconds(0.1).to_duration(), server.read(&mut buffer)).await;
            assert!(read.is_err(), "the connection may idle on");
        });
    }

    #[test]
    fn a_request_being_answered_has_no_deadline_here() {
        runtime().block_on(async {
            let (mut client, mut server, pulse) = guarded(0.02, 0.02);
            let answering = pulse.begin();
            let mut buffer = [0; 16];
            let read =
                tokio::time::timeout(Seconds(0.1).to_duration(), server.read(&mut buffer)).await;
            assert!(read.is_err(), "the read must still wait");
            client.write_all(b"next").await.unwrap();
            assert_eq!(server.read(&mut buffer).await.unwrap(), 4);
            drop(answering);
        });
    }

    #[test]
    fn replayed_bytes_come_first() {
        runtime().block_on(async {
            let (mut client, mut server, _pulse) = guarded(60.0, 60.0);
            server.replay(BytesMut::from(&b"first "[..]));
            client.write_all(b"second").await.unwrap();
            drop(client);
            let mut all = String::new();
            server.read_to_string(&mut all).await.unwrap();
            assert_eq!(all, "first second");
        });
    }
}
