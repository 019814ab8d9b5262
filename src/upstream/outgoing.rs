//! The body of a request on its way to a worker.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, SizeHint};

/// What is wrong with a stream, in the client's or our words.
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// A body.
pub enum Outgoing {
    /// Whole, so that any attempt can be repeated.
    Whole(Full<Bytes>),
    /// A stream that goes on while the answer comes.
    Flowing(UnsyncBoxBody<Bytes, Broken>),
}

impl Outgoing {
    /// These bytes.
    #[must_use]
    pub fn whole(bytes: Bytes) -> Self {
        Outgoing::Whole(Full::new(bytes))
    }

    /// This stream.
    #[must_use]
    pub fn flowing<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Broken>,
    {
        Outgoing::Flowing(body.map_err(Into::into).boxed_unsync())
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Outgoing::Whole(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Outgoing::Flowing(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Outgoing::Whole(body) => body.is_end_stream(),
            Outgoing::Flowing(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Outgoing::Whole(body) => body.size_hint(),
            Outgoing::Flowing(body) => body.size_hint(),
        }
    }
}
