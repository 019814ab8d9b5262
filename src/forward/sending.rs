//! What a client still sends while its request is under way to a worker: a stream of gRPC messages, or an upload on a
//! route for which there was no room in memory.
//!
//! To KServe's service each message is taken whole before it goes on: its model has to be the one that the stream was
//! routed by, or a later message would reach what the first may not; and it is renamed like the first. One that is
//! compressed is read undone and goes on as it came, unless it is renamed. A message is bounded by `limits.body`, also
//! in what it says, the stream by nothing; no more than one is in memory, and counts toward `limits.buffered` there. On
//! a route a stream passes as it comes. So does an upload, bounded by `limits.body` like every body; of both only what
//! was read before a worker was chosen is in memory.
//!
//! What was read goes out in small pieces, since whoever takes one keeps it until it is written; until it asks for the
//! next, that counts too. A compressed message is undone a piece at a time, and others have their turn in between.
//!
//! Each can be sent once. Until its first byte was taken, though, any connection may take it: a handle is cheap to
//! clone, and all of them read the same stream.
//!
//! What is wrong with it ends the sending, and that looks like a worker that breaks off. So the fault is kept, and
//! whoever meets such an end asks for it first: it is the client's to hear, and no worker's to be blamed for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;

use crate::admission::{Coding, Counted, Unpacking};
use crate::facts;
use crate::fault::{Fault, Kind};
use crate::units::{Bytes as ByteCount, ModelName};

/// The most that goes out at once.
const PIECE: usize = 64 << 10;

/// What a client sends.
#[derive(Clone)]
pub struct Sending(Arc<Mutex<Stream>>);

struct Stream {
    rest: UnsyncBoxBody<Bytes, Fault>,
    /// Read, and not sent.
    held: BytesMut,
    counted: Counted,
    /// How many bytes came.
    came: u64,
    ended: bool,
    reads: Reads,
    /// A message that is undone to be read.
    packed: Option<(Bytes, Unpacking)>,
    /// What goes out next, and for how much of what is counted it stands.
    passing: (Bytes, usize),
    /// How much of that was taken last.
    taken: usize,
    /// Whether a worker was sent any of it.
    begun: bool,
    /// Why it can't go on: nothing of it is sent any more.
    fault: Option<Fault>,
}

/// How it is read.
enum Reads {
    /// A stream, message by message.
    Messages {
        /// What they have to be.
        rule: Rule,
        /// What the worker calls the model, where that differs.
        name: Option<ModelName>,
    },
    /// A stream, as bytes.
    Stream,
    /// An upload, of which so many bytes may come.
    Upload { most: ByteCount },
}

/// What all messages of a stream have to be.
pub struct Rule {
    /// What they call the model.
    pub model: ModelName,
    /// How those are compressed that are.
    pub coding: Option<Coding>,
    /// How long one may be.
    pub most: ByteCount,
}

impl Sending {
    /// An upload: what was read of it, which is counted, and the rest.
    pub fn upload<B>((first, counted): (Bytes, Counted), rest: B, most: ByteCount) -> Self
    where
        B: Body<Data = Bytes, Error = Fault> + Send + 'static,
    {
        let reads = Reads::Upload { most };
        Sending::new((first.into(), counted), rest.boxed_unsync(), reads)
    }

    /// What was read of a stream, and the rest of it; nothing of it is counted yet. Without a rule it passes as it
    /// comes.
    ///
    /// # Errors
    /// `overloaded` when what was read is too much already.
    pub fn stream<B>(
        (first, mut counted): (&Bytes, Counted),
        rest: B,
        rule: Option<Rule>,
    ) -> Result<Self, Fault>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let broken = |error: B::Error| {
            Fault::new(
                Kind::BadRequest,
                format!("the stream can't be read: {error}"),
            )
        };
        counted.add(first.len())?;
        let reads = match rule {
            Some(rule) => Reads::Messages { rule, name: None },
            None => Reads::Stream,
        };
        let rest = rest.map_err(broken).boxed_unsync();
        Ok(Sending::new((first[..].into(), counted), rest, reads))
    }

    fn new(
        (held, counted): (BytesMut, Counted),
        rest: UnsyncBoxBody<Bytes, Fault>,
        reads: Reads,
    ) -> Self {
        Sending(Arc::new(Mutex::new(Stream {
            rest,
            came: held.len() as u64,
            held,
            counted,
            ended: false,
            reads,
            packed: None,
            passing: (Bytes::new(), 0),
            taken: 0,
            begun: false,
            fault: None,
        })))
    }

    /// Whether its answer may begin before it has ended.
    pub(super) fn converses(&self) -> bool {
        !matches!(self.0.lock().reads, Reads::Upload { .. })
    }

    /// Whether its client may still send some of it.
    pub(super) fn goes_on(&self) -> bool {
        !self.0.lock().ended
    }

    /// Whether a worker may be waiting for more of it before it answers at all: of KServe's service it had a whole
    /// message.
    pub(super) fn owes(&self) -> bool {
        let stream = self.0.lock();
        !stream.ended && !matches!(stream.reads, Reads::Messages { .. })
    }

    /// Whether a worker was sent any of it.
    pub(super) fn begun(&self) -> bool {
        self.0.lock().begun
    }

    /// How many bytes of it came.
    pub(super) fn came(&self) -> u64 {
        self.0.lock().came
    }

    /// What is wrong with it, if that ended it.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.0.lock().fault.clone()
    }

    /// The stream for a worker that calls the model so.
    pub(super) fn named(&self, name: Option<&ModelName>) -> Self {
        if let Reads::Messages { name: here, .. } = &mut self.0.lock().reads {
            *here = name.cloned();
        }
        self.clone()
    }
}

impl Stream {
    /// A piece of what goes out.
    fn cut(&mut self) -> Option<Bytes> {
        let (passing, counts) = &mut self.passing;
        if passing.is_empty() {
            return None;
        }
        let piece = passing.split_to(PIECE.min(passing.len()));
        self.taken = if passing.is_empty() {
            *counts
        } else {
            piece.len().min(*counts)
        };
        *counts -= self.taken;
        Some(piece)
    }

    /// Whether there is something more to go out, or to be undone.
    fn advance(&mut self) -> Result<bool, Fault> {
        match &self.reads {
            Reads::Messages { .. } => self.message(),
            Reads::Upload { most } if self.came > most.0 => {
                let message = format!("the body is over limits.body = {most}");
                Err(Fault::new(Kind::BodyTooLarge, message))
            }
            _ => {
                let held = self.held.split().freeze();
                let length = held.len();
                self.passing = (held, length);
                Ok(length > 0)
            }
        }
    }

    /// Whether the next message is there whole.
    fn message(&mut self) -> Result<bool, Fault> {
        let Reads::Messages { rule, .. } = &self.reads else {
            return Ok(false);
        };
        let Some(length) = facts::message_length(&self.held)? else {
            return Ok(false);
        };
        if length as u64 > rule.most.0 {
            let message = format!(
                "a message of the stream is over limits.body = {}",
                rule.most
            );
            return Err(Fault::new(Kind::BodyTooLarge, message));
        }
        if self.held.len() < length {
            return Ok(false);
        }
        let message = self.held.split_to(length).freeze();
        match Unpacking::of(rule.coding, &message, rule.most)? {
            Some(unpacking) => self.packed = Some((message, unpacking)),
            None => {
                let says = message.slice(facts::PREFIX..);
                self.passes(message, &says)?;
            }
        }
        Ok(true)
    }

    /// Undoes some of the message that is undone: whether it goes out now.
    fn unpack(&mut self) -> Result<bool, Fault> {
        let Some((message, mut unpacking)) = self.packed.take() else {
            return Ok(true);
        };
        if unpacking.step(&mut self.counted)? {
            self.packed = Some((message, unpacking));
            return Ok(false);
        }
        let says = unpacking.said();
        self.passes(message, &says)?;
        self.counted.give_back(says.capacity());
        Ok(true)
    }

    /// A message that says this goes out next, as the worker is to get it.
    fn passes(&mut self, message: Bytes, says: &[u8]) -> Result<(), Fault> {
        let Reads::Messages { rule, name } = &self.reads else {
            return Ok(());
        };
        let (model, span) = facts::model_in_message(says)?.unzip();
        if model.as_deref() != Some(rule.model.as_str()) {
            let message = "a message of the stream names another model than the first";
            return Err(Fault::new(Kind::BadRequest, message));
        }
        let counts = message.len();
        let goes = match name.as_ref().zip(span) {
            None => message,
            Some((name, span)) => {
                let renamed = facts::renamed(says, span, name);
                let long = || Fault::new(Kind::BodyTooLarge, "a message of the stream is too long");
                renamed.ok_or_else(long)?.into()
            }
        };
        self.passing = (goes, counts);
        Ok(())
    }

    /// Keeps what came. What is not read as messages goes on at once, and need not be counted.
    fn take(&mut self, piece: &[u8]) -> Result<(), Fault> {
        self.came += piece.len() as u64;
        if let Reads::Messages { .. } = self.reads {
            self.counted.add(piece.len())?;
        }
        self.held.extend_from_slice(piece);
        Ok(())
    }

    /// The next piece, once it is there whole.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Fault>> {
        self.counted.give_back(std::mem::take(&mut self.taken));
        loop {
            if let Some(piece) = self.cut() {
                self.begun = true;
                return Poll::Ready(Ok(Some(piece)));
            }
            if self.packed.is_some() {
                if !self.unpack()? {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            if self.advance()? {
                continue;
            }
            if self.ended {
                let is_whole = std::mem::take(&mut self.held).is_empty();
                let cut = || Fault::new(Kind::BadRequest, "the stream ends inside a message");
                return Poll::Ready(if is_whole { Ok(None) } else { Err(cut()) });
            }
            match ready!(Pin::new(&mut self.rest).poll_frame(cx)).transpose()? {
                None => self.ended = true,
                // Trailers of a request have no meaning here.
                Some(frame) => {
                    if let Ok(piece) = frame.into_data() {
                        self.take(&piece)?;
                    }
                }
            }
        }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let mut stream = self.0.lock();
        if let Some(fault) = &stream.fault {
            return Poll::Ready(Some(Err(fault.clone())));
        }
        let polled = ready!(stream.poll_piece(cx));
        stream.fault = polled.as_ref().err().cloned();
        Poll::Ready(polled.map(|message| message.map(Frame::data)).transpose())
    }

    fn size_hint(&self) -> SizeHint {
        let stream = self.0.lock();
        match (&stream.reads, stream.rest.size_hint().exact()) {
            (Reads::Upload { .. }, Some(rest)) => {
                let here = stream.passing.0.len() + stream.held.len();
                SizeHint::with_exact(here as u64 + rest)
            }
            _ => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body_util::{Empty, Full};

    use super::*;
    use crate::admission::intake;

    /// The length of the next piece.
    fn next(sending: &mut Sending) -> Option<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(sending).poll_frame(&mut cx) {
            Poll::Ready(frame) => Some(frame?.unwrap().into_data().unwrap().len()),
            Poll::Pending => panic!("all of it is here"),
        }
    }

    #[test]
    fn a_piece_counts_until_the_next_is_asked_for() {
        let intake = intake(1 << 20, 1 << 20);
        let first = vec![0; PIECE + 1000];
        let mut counted = intake.counted();
        counted.add(first.len()).unwrap();
        let rest = Empty::new().map_err(|never| match never {});
        let mut upload = Sending::upload((first.into(), counted), rest, ByteCount(1 << 20));
        for (length, held) in [(Some(PIECE), PIECE + 1000), (Some(1000), 1000), (None, 0)] {
            assert_eq!(next(&mut upload), length);
            assert_eq!(intake.held(), ByteCount(held as u64));
        }
        assert_eq!(upload.came(), PIECE as u64 + 1000);
    }

    #[test]
    fn what_nobody_takes_is_given_back() {
        let intake = intake(1 << 20, 1 << 20);
        let message = facts::framed(&[&[0x0a, 1, b'm']]).unwrap();
        let rule = Rule {
            model: ModelName::new("m"),
            coding: None,
            most: ByteCount(1 << 20),
        };
        let rest = Full::new(Bytes::from(message.clone()));
        let first = (&Bytes::from(message), intake.counted());
        let mut stream = Sending::stream(first, rest, Some(rule)).unwrap();
        assert_eq!(next(&mut stream), Some(8));
        assert_eq!(intake.held(), ByteCount(8));
        drop(stream);
        assert_eq!(intake.held(), ByteCount(0));
    }
}
