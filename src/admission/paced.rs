//! A body at the pace at which its client sends it, which has a lower bound.
//!
//! A limit on silence is outwaited by a byte now and then: 32 MiB, a byte every 59 seconds, would keep their place for
//! sixty years. So the whole counts (`limits.body_rate`): once a body was waited for as long as [`GRACE`], as many
//! bytes must have come as that rate makes of the time; those of a second are due at its end. Silence alone has the
//! bound of an idle connection (`limits.idle`). Only waiting counts. While nobody asks for more, because a worker takes
//! an upload slowly, its client is not the slow one.
//!
//! A stream of messages speaks when it has something to say: it has no rate, and silence is bounded only before its
//! first message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::config::plan::Limits;
use crate::fault::{Fault, Kind};
use crate::units::Seconds;

/// How long a body is waited for before its rate is looked at.
const GRACE: Seconds = Seconds(10.0);

/// What of a second's bytes may still be on its way.
const SLACK: Seconds = Seconds(1.0);

/// A client's body, which fails when it comes too slowly or is cut.
pub struct Paced<B> {
    body: B,
    pace: Pace,
}

impl<B> Paced<B> {
    pub(super) fn new(body: B, clock: Clock, limits: Arc<Limits>) -> Self {
        let pace = Pace {
            clock,
            alarm: Alarm::new(clock),
            limits,
            streams: false,
            came: 0,
            waited: Seconds::ZERO,
            waits_since: None,
        };
        Paced { body, pace }
    }

    /// It is a stream of messages.
    pub(super) fn streams(&mut self) {
        self.pace.streams = true;
    }

    /// The body, without a bound on its pace.
    #[must_use]
    pub fn into_inner(self) -> B {
        self.body
    }
}

/// How fast a body comes.
struct Pace {
    clock: Clock,
    alarm: Alarm,
    limits: Arc<Limits>,
    streams: bool,
    came: u64,
    /// All waits for it that are over.
    waited: Seconds,
    /// When the one that is not over began.
    waits_since: Option<Seconds>,
}

impl Pace {
    /// Something came: these bytes, or the end.
    fn came(&mut self, bytes: usize) {
        self.came += bytes as u64;
        if let Some(since) = self.waits_since.take() {
            self.waited += self.clock.now() - since;
        }
    }

    /// It is waited for: ready when that has taken too long.
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let since = *self.waits_since.get_or_insert_with(|| self.clock.now());
        let silent = since + self.limits.idle;
        let slow = self.patience().map(|all| since + (all - self.waited));
        let due = slow.map_or(silent, |slow| slow.min(silent));
        ready!(self.alarm.poll(cx, due));
        let message = if due == silent {
            format!(
                "nothing of the body came for limits.idle = {}",
                self.limits.idle
            )
        } else {
            format!(
                "the body comes slower than limits.body_rate = {} a second: {} bytes in {}",
                self.limits.body_rate,
                self.came,
                self.waited + (self.clock.now() - since)
            )
        };
        Poll::Ready(Fault::new(Kind::RequestTimeout, message))
    }

    /// The longest that may have been waited when this much has come.
    #[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
    fn patience(&self) -> Option<Seconds> {
        let rate = self.limits.body_rate.0 as f64;
        let bounded = rate > 0.0 && !self.streams;
        bounded.then(|| GRACE.max(Seconds(self.came as f64 / rate) + SLACK))
    }
}

impl<B> Body for Paced<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let Paced { body, pace } = &mut *self;
        let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else {
            return pace.poll_slow(cx).map(|slow| Some(Err(slow)));
        };
        let frame = frame.transpose().map_err(|error| broken(&error));
        let data = frame.as_ref().ok().and_then(Option::as_ref);
        pace.came(data.and_then(Frame::data_ref).map_or(0, Bytes::len));
        Poll::Ready(frame.transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn broken(error: &impl std::fmt::Display) -> Fault {
    Fault::new(Kind::BadRequest, format!("the body can't be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::units::Bytes as ByteCount;

    /// A body that sends this much, then rests, and so on.
    struct Trickle {
        piece: usize,
        rest: Duration,
        sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    }

    impl Body for Trickle {
        type Data = Bytes;
        type Error = String;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
            let rest = self.rest;
            let resting = self.sleep.get_or_insert_with(|| Box::pin(sleep(rest)));
            ready!(resting.as_mut().poll(cx));
            self.sleep = None;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![7; self.piece])))))
        }
    }

    fn trickle(piece: usize, rest: f64, rate: u64) -> Paced<Trickle> {
        let limits = Limits {
            body: ByteCount(1),
            buffered: ByteCount(1),
            header: ByteCount(1),
            header_timeout: Seconds(1.0),
            body_rate: ByteCount(rate),
            idle: Seconds(30.0),
            connections_per_address: 0,
        };
        let body = Trickle {
            piece,
            rest: Duration::from_secs_f64(rest),
            sleep: None,
        };
        Paced::new(body, Clock::start(), Arc::new(limits))
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    /// Reads as if this much had been waited before; why it was cut, or how much came in a tenth of a second.
    fn read(mut body: Paced<Trickle>, waited: f64, came: u64) -> Result<u64, String> {
        body.pace.waited = Seconds(waited);
        body.pace.came = came;
        let reading = async {
            loop {
                if let Err(slow) = body.frame().await.unwrap() {
                    return slow.message;
                }
            }
        };
        let read = block(async { timeout(Duration::from_millis(200), reading).await });
        read.map_or_else(|_| Ok(body.pace.came), Err)
    }

    #[test]
    fn a_byte_now_and_then_is_too_slow_once_the_grace_is_over() {
        let slow = read(trickle(1, 0.01, 1_000), 9.95, 20);
        assert!(slow.unwrap_err().contains("limits.body_rate = 1000B"));
        assert!(read(trickle(1, 0.01, 1_000), 5.0, 20).is_ok());
        assert!(
            read(trickle(1, 0.01, 0), 500.0, 20).is_ok(),
            "none is asked"
        );
    }

    #[test]
    fn what_comes_at_the_rate_may_take_as_long_as_it_takes() {
        assert!(read(trickle(10, 0.01, 1_000), 3_600.0, 3_600_000).is_ok());
        let slow = read(trickle(10, 0.01, 1_000), 3_600.0, 3_598_000);
        assert!(slow.is_err());
    }

    #[test]
    fn silence_is_bounded_and_of_a_stream_nothing_else() {
        let mut silent = trickle(1, 60.0, 0);
        silent.pace.limits = Arc::new(Limits {
            idle: Seconds(0.05),
            ..(*silent.pace.limits).clone()
        });
        let silent = read(silent, 0.0, 0);
        assert!(silent.unwrap_err().contains("limits.idle"));
        let mut stream = trickle(1, 0.01, 1_000);
        stream.streams();
        assert!(read(stream, 9.95, 20).is_ok());
    }

    #[test]
    fn only_waiting_counts() {
        let mut body = trickle(1, 0.01, 1_000);
        block(async { body.frame().await.unwrap().unwrap() });
        assert!(body.pace.waited > Seconds::ZERO);
        assert!(body.pace.waits_since.is_none(), "nobody waits");
    }
}
