//! The body of a worker's answer, which gives its connection back once it was read to the end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::Upstream;
use super::connect::Http1;

/// What is given back when the answer ends.
pub(super) enum Keep {
    /// This connection.
    Http1(Http1),
    /// Nothing: the connection is shared, or not to be used again.
    Nothing,
}

/// A worker's answer on its way. Dropped before its end, it closes the connection.
pub struct UpstreamBody {
    body: Incoming,
    keep: Keep,
    pool: Arc<Upstream>,
}

impl UpstreamBody {
    pub(super) fn new(body: Incoming, keep: Keep, pool: Arc<Upstream>) -> Self {
        let mut answer = UpstreamBody { body, keep, pool };
        if answer.body.is_end_stream() {
            answer.give_back();
        }
        answer
    }

    fn give_back(&mut self) {
        if let Keep::Http1(connection) = std::mem::replace(&mut self.keep, Keep::Nothing) {
            self.pool.put_back(connection);
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let ended = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            _ => false,
        };
        if ended {
            self.give_back();
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
