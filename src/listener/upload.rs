//! A request's body as it arrives: says until when the connection still belongs to it.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};

use super::guard::Arriving;

/// A body that is arriving until its end was seen, or nobody wants it any more.
pub(super) struct Upload<B> {
    body: B,
    arriving: Option<Arriving>,
}

impl<B: Body> Upload<B> {
    /// A body, and what is to be dropped at its end.
    pub(super) fn new(body: B, arriving: Arriving) -> Self {
        let arriving = (!body.is_end_stream()).then_some(arriving);
        Upload { body, arriving }
    }
}

impl<B: Body + Unpin> Body for Upload<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let is_over = match &polled {
            Poll::Pending => false,
            Poll::Ready(frame) => !matches!(frame, Some(Ok(_))) || self.body.is_end_stream(),
        };
        if is_over {
            self.arriving = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
