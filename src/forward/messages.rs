//! A stream of gRPC messages from a client, on its way to a worker while the answer comes back.
//!
//! Each message is taken whole before it goes on: its model has to be the one that the stream was routed by, or a later
//! message would reach what the first may not; and it is renamed like the first. A message is bounded by
//! `limits.body`, the stream by nothing; no more than one is in memory, and counts toward `limits.buffered` there.
//!
//! The stream can be sent once. Until its first byte was taken, though, any connection may take it: a handle is cheap to
//! clone, and all of them read the same stream.
//!
//! What is wrong with it ends the sending, and that looks like a worker that breaks off. So the fault is kept, and whoever
//! meets such an end asks for it first: it is the client's to hear, and no worker's to be blamed for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;

use crate::admission::Counted;
use crate::facts;
use crate::fault::{Fault, Kind};
use crate::units::{Bytes as ByteCount, ModelName};

/// A client's stream.
#[derive(Clone)]
pub struct Messages(Arc<Mutex<Stream>>);

struct Stream {
    rest: UnsyncBoxBody<Bytes, Fault>,
    /// Read, and not sent.
    held: BytesMut,
    counted: Counted,
    ended: bool,
    most: ByteCount,
    /// What all its messages call the model.
    model: ModelName,
    /// What the worker calls it, where that differs.
    name: Option<ModelName>,
    /// Whether a worker was sent any of it.
    begun: bool,
    /// Why it can't go on: nothing of it is sent any more.
    fault: Option<Fault>,
}

impl Messages {
    /// What was read of a stream, and the rest of it; nothing of it is counted yet.
    ///
    /// # Errors
    /// `overloaded` when what was read is too much already.
    pub fn new<B>(
        (first, mut counted): (&Bytes, Counted),
        rest: B,
        most: ByteCount,
        model: &ModelName,
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
        Ok(Messages(Arc::new(Mutex::new(Stream {
            rest: rest.map_err(broken).boxed_unsync(),
            held: BytesMut::from(&first[..]),
            counted,
            ended: false,
            most,
            model: model.clone(),
            name: None,
            begun: false,
            fault: None,
        }))))
    }

    /// Whether a worker was sent any of it.
    pub(super) fn begun(&self) -> bool {
        self.0.lock().begun
    }

    /// What is wrong with it, if that ended it.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.0.lock().fault.clone()
    }

    /// The stream for a worker that calls the model so.
    pub(super) fn named(&self, name: Option<&ModelName>) -> Self {
        self.0.lock().name = name.cloned();
        self.clone()
    }
}

impl Stream {
    /// The next message, as the worker is to get it.
    fn message(&mut self) -> Result<Option<Bytes>, Fault> {
        let Some(length) = facts::message_length(&self.held)? else {
            return Ok(None);
        };
        if length as u64 > self.most.0 {
            let message = format!(
                "a message of the stream is over limits.body = {}",
                self.most
            );
            return Err(Fault::new(Kind::BodyTooLarge, message));
        }
        if self.held.len() < length {
            return Ok(None);
        }
        let message = self.held.split_to(length).freeze();
        self.counted.give_back(length);
        let (model, span) = facts::model_in_message(&message[facts::PREFIX..])?.unzip();
        if model.as_deref() != Some(self.model.as_str()) {
            let message = "a message of the stream names another model than the first";
            return Err(Fault::new(Kind::BadRequest, message));
        }
        match (&self.name, span) {
            (Some(name), Some(span)) => Ok(facts::renamed(&message, span, name).map(Bytes::from)),
            _ => Ok(Some(message)),
        }
    }

    /// The next message, once it is there whole.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Fault>> {
        loop {
            if let Some(message) = self.message()? {
                self.begun = true;
                return Poll::Ready(Ok(Some(message)));
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
                        self.counted.add(piece.len())?;
                        self.held.extend_from_slice(&piece);
                    }
                }
            }
        }
    }
}

impl Body for Messages {
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
        let polled = ready!(stream.poll_message(cx));
        stream.fault = polled.as_ref().err().cloned();
        Poll::Ready(polled.map(|message| message.map(Frame::data)).transpose())
    }
}
