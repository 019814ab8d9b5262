//! Ends a run from another thread, when nobody waits for its answer any more.
//!
//! A run that is ended before it has begun does not begin: who pulls can't know how far the engine's thread has come.
//! The owner of the engine makes it ready for the next run with [`Halt::rearm`], and orders that against pulls, so that
//! one that comes late ends nobody else's run.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// The lever of one engine. Clones are the same lever.
#[derive(Clone, Default)]
pub struct Halt(Arc<Mutex<Lever>>);

#[derive(Default)]
struct Lever {
    pulled: bool,
    /// What ends the run that is under way.
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Halt {
    /// Ends the run that is under way or about to begin.
    pub fn pull(&self) {
        let mut lever = self.0.lock();
        lever.pulled = true;
        if let Some(end) = lever.end.take() {
            end();
        }
    }

    /// Whether the run was to be ended.
    pub fn pulled(&self) -> bool {
        self.0.lock().pulled
    }

    /// Makes ready for the next run.
    pub fn rearm(&self) {
        *self.0.lock() = Lever::default();
    }

    /// A run begins that this ends; `false` = it was ended already.
    pub fn begins(&self, end: impl FnOnce() + Send + 'static) -> bool {
        let mut lever = self.0.lock();
        if !lever.pulled {
            lever.end = Some(Box::new(end));
        }
        !lever.pulled
    }

    /// The run is over, whichever way.
    pub fn ended(&self) {
        self.0.lock().end = None;
    }
}

impl fmt::Debug for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pulled = self.pulled();
        f.debug_struct("Halt").field("pulled", &pulled).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_run_is_ended_once_and_one_that_has_not_begun_never_begins() {
        let (halt, ends) = (Halt::default(), Arc::new(AtomicUsize::new(0)));
        let end = || {
            let ends = Arc::clone(&ends);
            move || {
                ends.fetch_add(1, Ordering::Relaxed);
            }
        };
        assert!(halt.begins(end()));
        halt.pull();
        halt.pull();
        assert_eq!((halt.pulled(), ends.load(Ordering::Relaxed)), (true, 1));
        assert!(!halt.begins(end()), "it was ended before it began");
        halt.rearm();
        assert!(halt.begins(end()));
        halt.ended();
        halt.pull();
        assert_eq!(ends.load(Ordering::Relaxed), 1, "it was over before");
    }
}
