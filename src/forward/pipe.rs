//! One direction of a tunnel: bytes are read, written and flushed, and a piece at a time is in memory, so that a reader
//! that is slow holds its writer up.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::frames::Frames;

/// The most that is under way.
const PIECE: usize = 16 << 10;

/// Which end of a pipe is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// The one that is read from.
    Source,
    /// The one that is written to.
    Sink,
}

/// One direction.
pub(super) struct Pipe<R, W> {
    from: R,
    to: W,
    piece: Box<[u8]>,
    /// What of the piece was read, and of that written.
    read: usize,
    written: usize,
    flushed: bool,
    /// Whether the piece is a frame of ours.
    ours: bool,
    /// The frames that were written.
    pub(super) frames: Frames,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Pipe<R, W> {
    pub(super) fn new(from: R, to: W) -> Self {
        Pipe {
            from,
            to,
            piece: vec![0; PIECE].into(),
            read: 0,
            written: 0,
            flushed: true,
            ours: false,
            frames: Frames::default(),
        }
    }

    /// Ready with the length of a piece when it has passed, which is zero for a frame of ours; nothing is lost when it
    /// is asked anew.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Gone>> {
        if self.written == self.read && self.flushed {
            let mut buf = ReadBuf::new(&mut self.piece);
            let read = ready!(Pin::new(&mut self.from).poll_read(cx, &mut buf));
            let length = buf.filled().len();
            if read.is_err() || length == 0 {
                return Poll::Ready(Err(Gone::Source));
            }
            (self.read, self.written, self.flushed) = (length, 0, false);
            self.ours = false;
        }
        self.poll_pass(cx)
    }

    /// Passes on what is under way.
    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Gone>> {
        let sunk = |_: io::Error| Gone::Sink;
        while self.written < self.read {
            let rest = &self.piece[self.written..self.read];
            let count = ready!(Pin::new(&mut self.to).poll_write(cx, rest)).map_err(sunk)?;
            if count == 0 {
                return Poll::Ready(Err(Gone::Sink));
            }
            self.frames.passed(&rest[..count]);
            self.written += count;
        }
        ready!(Pin::new(&mut self.to).poll_flush(cx)).map_err(sunk)?;
        self.flushed = true;
        Poll::Ready(Ok(if self.ours { 0 } else { self.read }))
    }

    /// Whether a frame of ours may be written now: nothing is under way, and no close has passed.
    pub(super) fn may_speak(&self) -> bool {
        self.written == self.read
            && self.flushed
            && self.frames.at_border()
            && !self.frames.closed()
    }

    /// A frame of ours, of a control frame's length, passes next. It stands where a piece would, so that nothing but
    /// its rest can follow it.
    pub(super) fn put(&mut self, frame: &[u8]) {
        self.piece[..frame.len()].copy_from_slice(frame);
        (self.read, self.written, self.flushed) = (frame.len(), 0, false);
        self.ours = true;
    }

    /// Passes on what is under way. Given up half-way, it is still under way.
    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
        poll_fn(|cx| self.poll_pass(cx)).await.map(drop)
    }

    /// Says that nothing more comes.
    pub(super) async fn shut(&mut self) {
        // Whoever is gone need not hear it.
        let _ = self.to.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, duplex};

    use super::super::frames::{Code, close};
    use super::*;

    #[test]
    fn a_frame_that_is_taken_in_part_gets_its_rest_and_no_other_behind_it() {
        let (near, mut far) = duplex(5);
        let mut pipe = Pipe::new(&b"later"[..], near);
        let frame = close(Code::GoingAway, "the proxy is stopping", None);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pipe.may_speak());
        pipe.put(&frame);
        assert!(pin!(pipe.flush()).poll(&mut cx).is_pending());
        assert!(!pipe.may_speak());
        let mut taken: Vec<u8> = Vec::new();
        while taken.len() < frame.len() {
            let mut bytes = [0; 5];
            let Poll::Ready(Ok(count)) = pin!(far.read(&mut bytes)).poll(&mut cx) else {
                panic!("nothing came behind {taken:?}");
            };
            taken.extend(&bytes[..count]);
            let _ = pipe.poll(&mut cx);
        }
        assert_eq!(taken[..frame.len()], frame);
        assert!(pipe.frames.closed() && !pipe.may_speak());
    }
}
