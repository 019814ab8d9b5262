//! Telling a client that it still waits.
//!
//! A streamed request that stands in line shows its client, and every box on the way, a silent connection; some take
//! that for a dead one. So, where the operator wants it (`queue.heartbeat`), it gets the head of an event stream after
//! a while and then a comment line at each interval (server-sent events: a line that begins with a colon is one, and
//! ignored), until its answer comes. The rest of the request's path does not know of it: it is a future that this one
//! drives, first from the service and then from the answer's body. Therefore the request is still counted once, and a
//! client that leaves drops the body, and with it the path and its place in line.
//!
//! The status is out by then. What turns out to be no event stream is told in one event: as `event: error` if its
//! status says so, with the body that it would have had.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::{Body, Frame};
use tokio::time::timeout;

use super::headers::{X_ACCEL_BUFFERING, X_FOREBAY_QUEUE_POSITION, X_REQUEST_ID, is_event_stream};
use super::relay::{Broken, Relay};
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::fleet::Fleet;
use crate::queue::Spot;
use crate::units::Seconds;

/// The rest of a request's path.
pub type Rest = Pin<Box<dyn Future<Output = Response<Relay>> + Send>>;

/// What tells one client that it waits.
pub struct Heart {
    /// How often.
    pub interval: Seconds,
    /// Time.
    pub clock: Clock,
    /// Whose line it stands in.
    pub fleet: Arc<Fleet>,
    /// Where it stands.
    pub spot: Arc<Spot>,
}

impl Heart {
    /// The answer; or, when the request waits for longer than the interval and its client can be told, one that tells
    /// so until the answer comes.
    pub async fn answer(self, mut rest: Rest) -> Response<Relay> {
        loop {
            match timeout(self.interval.to_duration(), &mut rest).await {
                Ok(answer) => return answer,
                Err(_) if self.spot.can_be_told() => return self.begin(rest),
                Err(_) => {}
            }
        }
    }

    fn begin(self, rest: Rest) -> Response<Relay> {
        self.spot.begins();
        let (id, position) = (self.spot.id().clone(), self.spot.position());
        let due = self.clock.now();
        let alarm = Alarm::new(self.clock);
        let mut response = Response::new(Relay::beating(Box::new(Beating {
            heart: self,
            stage: Stage::Waiting(rest),
            due,
            alarm,
        })));
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        fields.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
        fields.insert(X_REQUEST_ID, id);
        if let Some(position) = position {
            fields.insert(X_FOREBAY_QUEUE_POSITION, HeaderValue::from(position));
        }
        response
    }

    /// What is said now.
    fn beat(&self) -> Bytes {
        let position = self.spot.ticket();
        let position = position.and_then(|ticket| self.fleet.position(ticket));
        let said = position.map_or_else(
            || ": sent to a worker\n\n".to_owned(),
            |position| format!(": queued, position {position}\n\n"),
        );
        self.spot.was_told(said.len() as u64);
        said.into()
    }
}

/// An answer that began before there was one.
pub(super) struct Beating {
    heart: Heart,
    stage: Stage,
    /// When the client is told next.
    due: Seconds,
    alarm: Alarm,
}

enum Stage {
    /// The answer has not come.
    Waiting(Rest),
    /// It is an event stream.
    Passing(Box<Relay>),
    /// It is not: its bytes become the data of one event.
    Telling {
        /// What stands before the next byte.
        before: &'static str,
        relay: Box<Relay>,
    },
    /// All was said.
    Ended,
}

impl Stage {
    fn of(answer: Response<Relay>) -> Self {
        let (head, relay) = answer.into_parts();
        let relay = Box::new(relay);
        match head.status.is_success() {
            true if is_event_stream(&head.headers) => Stage::Passing(relay),
            true => Stage::Telling {
                before: "data: ",
                relay,
            },
            false => Stage::Telling {
                before: "event: error\ndata: ",
                relay,
            },
        }
    }
}

impl Beating {
    pub(super) fn ended(&self) -> bool {
        match &self.stage {
            Stage::Passing(relay) => relay.is_end_stream(),
            Stage::Ended => true,
            Stage::Waiting(_) | Stage::Telling { .. } => false,
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            match &mut self.stage {
                Stage::Waiting(rest) => match rest.as_mut().poll(cx) {
                    Poll::Ready(answer) => self.stage = Stage::of(answer),
                    Poll::Pending => {
                        ready!(self.alarm.poll(cx, self.due));
                        self.due = self.heart.clock.now() + self.heart.interval;
                        return Poll::Ready(Some(Ok(Frame::data(self.heart.beat()))));
                    }
                },
                Stage::Passing(relay) => return Pin::new(relay).poll_frame(cx),
                Stage::Telling { before, relay } => {
                    let frame = ready!(Pin::new(relay).poll_frame(cx)).transpose()?;
                    let Some(frame) = frame else {
                        let end = format!("{before}\n\n");
                        self.stage = Stage::Ended;
                        return Poll::Ready(Some(Ok(Frame::data(end.into()))));
                    };
                    if let Ok(piece) = frame.into_data() {
                        let before = std::mem::take(before);
                        return Poll::Ready(Some(Ok(Frame::data(data(before, &piece)))));
                    }
                }
                Stage::Ended => return Poll::Ready(None),
            }
        }
    }
}

/// Bytes as lines of an event's data.
fn data(before: &str, piece: &[u8]) -> Bytes {
    let mut lines = before.as_bytes().to_vec();
    for byte in piece {
        match byte {
            b'\n' => lines.extend_from_slice(b"\ndata: "),
            b'\r' => {}
            byte => lines.push(*byte),
        }
    }
    lines.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_what_is_told_is_a_line_of_data() {
        let told = data("event: error\ndata: ", b"{\r\n \"a\": 1}\n");
        assert_eq!(
            &told[..],
            b"event: error\ndata: {\ndata:  \"a\": 1}\ndata: "
        );
    }
}
