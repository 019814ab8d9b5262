//! A timer for deadlines that move all the time and rarely pass.
//!
//! Arming a tokio timer for every read of a busy connection would cost more than the read. An [`Alarm`] is asked only
//! when something would wait, sleeps towards the deadline it was last told, and goes back to sleep when that has moved
//! on meanwhile. It is armed anew only when the deadline comes nearer, and as long as it sleeps for the same task it is
//! not touched at all; not even the time is read then, because what is due later than it rings lies ahead.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::time::{Sleep, sleep};

use crate::clock::Clock;
use crate::units::Seconds;

/// Wakes its task when a deadline may have passed.
#[derive(Debug)]
pub struct Alarm {
    clock: Clock,
    timer: Option<Pin<Box<Sleep>>>,
    armed_at: Seconds,
    armed_for: Seconds,
    wakes: Option<Waker>,
}

impl Alarm {
    /// An alarm that is not armed.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Alarm {
            clock,
            timer: None,
            armed_at: Seconds::ZERO,
            armed_for: Seconds::ZERO,
            wakes: None,
        }
    }

    /// Ready once `due` has passed; else the task is woken then, or earlier.
    pub fn poll(&mut self, cx: &mut Context<'_>, due: Seconds) -> Poll<()> {
        while !self.sleeps(cx) || due < self.armed_for {
            let now = self.clock.now();
            if due <= now {
                return Poll::Ready(());
            }
            if due < self.armed_for {
                self.timer = None;
            }
            if self.timer.is_none() {
                (self.armed_at, self.armed_for) = (now, due);
            }
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep((due - now).to_duration())));
            self.wakes = Some(cx.waker().clone());
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
        Poll::Pending
    }

    /// Wakes the task after this span at the latest, for a deadline that is not known yet.
    pub fn ring_within(&mut self, cx: &mut Context<'_>, span: Seconds) {
        if self.sleeps(cx) && self.armed_for <= self.armed_at + span {
            return;
        }
        let due = self.clock.now() + span;
        if self.poll(cx, due).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// Whether the timer is armed, has not rung yet, and will wake this task.
    fn sleeps(&self, cx: &Context<'_>) -> bool {
        let armed = self.timer.as_ref().is_some_and(|timer| !timer.is_elapsed());
        let same = |waker: &Waker| waker.will_wake(cx.waker());
        armed && self.wakes.as_ref().is_some_and(same)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Runs a test as a task of its own: the future that a runtime waits for is not known by its waker.
    fn run(test: impl Future<Output = ()> + Send + 'static) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(runtime.spawn(test)).unwrap();
    }

    #[test]
    fn it_rings_when_due_also_when_the_deadline_moves_both_ways() {
        run(async {
            let clock = Clock::start();
            let mut alarm = Alarm::new(clock);
            let mut due = clock.now() + Seconds(60.0);
            // Told a far deadline first, then a near one: the near one counts.
            poll_fn(|cx| {
                let polled = alarm.poll(cx, due);
                if due > clock.now() + Seconds(1.0) {
                    due = clock.now() + Seconds(0.03);
                    return alarm.poll(cx, due);
                }
                polled
            })
            .await;
            assert!(clock.now() >= due);
        });
    }

    #[test]
    fn it_rings_within_a_span_whatever_it_was_armed_for() {
        run(async {
            let clock = Clock::start();
            let mut alarm = Alarm::new(clock);
            let mut rang = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut rang, true) {
                    return Poll::Ready(());
                }
                assert!(alarm.poll(cx, Seconds(60.0)).is_pending());
                alarm.ring_within(cx, Seconds(0.03));
                Poll::Pending
            })
            .await;
            assert!(clock.now() < Seconds(30.0));
        });
    }
}
