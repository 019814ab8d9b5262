//! When a stopping proxy has waited long enough for what still runs.
//!
//! Answers that can say that they end here are woken for it before their connections are cut. An answer asks each time
//! it would wait, so asking costs no lock but the first time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Whether a process cuts what is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Cutting(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    has_begun: AtomicBool,
    told: Arc<Notify>,
}

impl Cutting {
    pub(super) fn begin(&self) {
        self.0.has_begun.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }

    pub(super) fn has_begun(&self) -> bool {
        self.0.has_begun.load(Ordering::Acquire)
    }

    /// One answer's view of it.
    pub(super) fn watched(&self) -> Cut {
        Cut {
            cutting: self.clone(),
            wakes: None,
        }
    }
}

/// Wakes an answer's task when it is to be cut.
#[derive(Debug)]
pub struct Cut {
    cutting: Cutting,
    /// The task that is woken, and what wakes it.
    wakes: Option<(Waker, Pin<Box<OwnedNotified>>)>,
}

impl Cut {
    /// Ready once the answer is to be cut; else the task is woken then.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleeps = |(waker, _): &(Waker, _)| waker.will_wake(cx.waker());
        if !self.wakes.as_ref().is_some_and(sleeps) {
            let mut told = Box::pin(self.cutting.0.told.clone().notified_owned());
            let _soon = told.as_mut().poll(cx);
            self.wakes = Some((cx.waker().clone(), told));
        }
        // Looked at last: what begins before this is seen here, and what begins later wakes.
        if self.cutting.has_begun() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_asked_last_is_woken_once_and_who_asks_later_is_told_at_once() {
        let cutting = Cutting::default();
        let mut cut = cutting.watched();
        let tasks = [Arc::new(Woken::default()), Arc::new(Woken::default())];
        for task in [&tasks[0], &tasks[0], &tasks[1]] {
            let waker = Waker::from(task.clone());
            assert!(cut.poll(&mut Context::from_waker(&waker)).is_pending());
        }
        cutting.begin();
        let woken = tasks.map(|task| task.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1]);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(cut.poll(&mut cx).is_ready() && cutting.watched().poll(&mut cx).is_ready());
    }
}
