//! The answer's body on its way to the client: what the listener streams after the line has returned.
//!
//! A [`Relay`] is an answer of our own, whole, or a worker's answer that flows (`flow.rs`). Both own their exchange, so
//! that the request is counted and logged when its body ends, however it ends. The third kind began before it was known
//! which of the two it will be (`heartbeat.rs`), and owns the rest of the request's path, exchange and all.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::flow::Flow;
use super::heartbeat::Beating;
use super::{Begun, headers, tunnel};
use crate::clock::Clock;
use crate::observe::Exchange;

/// An answer's body.
pub struct Relay(Source);

enum Source {
    /// Ours.
    Whole {
        bytes: Option<Bytes>,
        trailers: Option<HeaderMap>,
        /// Ends when the body is dropped.
        _exchange: Box<Exchange>,
    },
    /// A worker's.
    Flow(Box<Flow>),
    /// One that began before there was one.
    Beating(Box<Beating>),
    /// None: the connection goes on as something else.
    Nothing,
}

impl Relay {
    /// An answer that tells its client to wait for it.
    pub(super) fn beating(beating: Box<Beating>) -> Self {
        Relay(Source::Beating(beating))
    }

    /// No body: the connection goes on as something else.
    pub(super) fn nothing() -> Self {
        Relay(Source::Nothing)
    }
}

/// An answer that broke off: hyper closes the connection (HTTP/1) or resets the stream (HTTP/2) when it sees this.
#[derive(Debug)]
pub struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer broke off")
    }
}

impl std::error::Error for Broken {}

/// A worker's answer.
#[must_use]
pub fn response(
    mut begun: Box<Begun>,
    mut exchange: Box<Exchange>,
    clock: Clock,
    http2: bool,
) -> Response<Relay> {
    exchange.status(begun.status());
    if let Some(ends) = begun.begin.ends.take() {
        return tunnel::response(begun, ends, exchange, clock);
    }
    let (head, flow) = Flow::new(begun, exchange, clock, http2);
    Response::from_parts(head, Relay(Source::Flow(flow)))
}

/// An answer of our own that is no refusal: `fields` on top of those that every answer carries, and trailers behind the
/// body where there are any.
#[must_use]
pub fn own(
    status: StatusCode,
    fields: HeaderMap,
    (body, trailers): (Bytes, HeaderMap),
    mut exchange: Box<Exchange>,
) -> Response<Relay> {
    exchange.status(status);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    let mut response = whole(response, exchange);
    if let Source::Whole { trailers: none, .. } = &mut response.body_mut().0 {
        *none = Some(trailers).filter(|trailers| !trailers.is_empty());
    }
    response
}

/// An answer of our own; the exchange is complete with it, unless it ended in a fault before.
pub(super) fn whole(mut response: Response<Bytes>, mut exchange: Box<Exchange>) -> Response<Relay> {
    headers::ours(response.headers_mut(), &exchange);
    if exchange.asks_for_the_head() {
        // The length stays and the body goes; HTTP/2 would send it otherwise.
        let length = HeaderValue::from(response.body().len());
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response.body_mut().clear();
    }
    response.map(|bytes| {
        exchange.add_bytes_out(bytes.len() as u64);
        exchange.complete();
        Relay(Source::Whole {
            bytes: Some(bytes).filter(|bytes| !bytes.is_empty()),
            trailers: None,
            _exchange: exchange,
        })
    })
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.0 {
            Source::Whole {
                bytes, trailers, ..
            } => {
                let data = bytes.take().map(Frame::data);
                let frame = data.or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
            Source::Flow(flow) => flow.poll_frame(cx),
            Source::Beating(beating) => beating.poll_frame(cx),
            Source::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Whole {
                bytes, trailers, ..
            } => bytes.is_none() && trailers.is_none(),
            Source::Flow(flow) => flow.ended(),
            Source::Beating(beating) => beating.ended(),
            Source::Nothing => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Whole { bytes, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Source::Flow(flow) => flow.size_hint(),
            Source::Beating(_) => SizeHint::new(),
            Source::Nothing => SizeHint::with_exact(0),
        }
    }
}
