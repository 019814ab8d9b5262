//! Loads that come with answers to clients' requests (`dialect/orca.rs`), between two of the engine's own metrics.
//!
//! A worker is asked only when that can't harm. Making a report costs an engine something before the first byte: vLLM
//! collects all its metrics and writes a line to its log. So at most one request a second asks, and only on paths whose
//! answers can carry a report. An engine that does not know it ignores the field, and Triton writes an error to its log
//! when its backend has nothing to tell; so one whose good answer came without a report is not asked again until it
//! comes up anew.
//!
//! The report is made when an answer begins, so what is ours is what is held when its head is here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Fleet;
use super::dialect::orca;
use crate::decide::Heard;
use crate::units::{Seconds, WorkerId};

/// Time between two questions, and how long an answer holds.
const EVERY: Seconds = Seconds(1.0);

/// It is not to be asked.
const NEVER: u64 = u64::MAX;

/// Whether a worker may be asked, and when next, in milliseconds since the start.
#[derive(Debug)]
pub(super) struct Courtesy(AtomicU64);

impl Default for Courtesy {
    fn default() -> Self {
        Courtesy(AtomicU64::new(NEVER))
    }
}

impl Courtesy {
    /// It is up: what it told before says nothing of what it tells now.
    pub(super) fn renew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// It tells nothing.
    fn end(&self) {
        self.0.store(NEVER, Ordering::Relaxed);
    }

    /// Whether a question is due.
    fn is_due(&self, now: Seconds) -> bool {
        self.0.load(Ordering::Relaxed) <= millis(now)
    }

    /// Whether the question that is due is this caller's to ask.
    fn take(&self, now: Seconds) -> bool {
        let due = self.0.load(Ordering::Relaxed);
        let next = millis(now + EVERY);
        let took = |due| {
            let (order, otherwise) = (Ordering::Relaxed, Ordering::Relaxed);
            self.0.compare_exchange(due, next, order, otherwise).is_ok()
        };
        due <= millis(now) && took(due)
    }
}

impl Fleet {
    /// Whether a request on this path should ask its worker to tell its load.
    #[must_use]
    pub fn asks_load(&self, worker: WorkerId, path: &str, now: Seconds) -> bool {
        let stations = self.stations.load();
        let courtesy = stations.get(worker.index()).map(|one| &one.pulse.courtesy);
        let courtesy = courtesy.filter(|courtesy| courtesy.is_due(now));
        let (Some(courtesy), true) = (courtesy, orca::may_tell(path)) else {
            return false;
        };
        let engine = self.engine(worker);
        engine.is_some_and(|engine| orca::tells(engine, path)) && courtesy.take(now)
    }

    /// A good answer came to a request that asked, or not, with this report.
    pub fn answered_with(self: &Arc<Self>, worker: WorkerId, asked: bool, report: Option<&[u8]>) {
        let Some(report) = report else {
            if let Some(station) = self.station(worker).filter(|_| asked) {
                station.pulse.courtesy.end();
            }
            return;
        };
        let load = self
            .engine(worker)
            .and_then(|engine| orca::report(engine, report));
        if let Some(load) = load {
            let mut core = self.core.lock();
            let heard = Heard {
                load,
                asked: core.state.ours(worker),
                lasts: EVERY,
            };
            core.state.hear_load(worker, &heard, self.clock.now());
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "milliseconds of a process's life"
)]
fn millis(now: Seconds) -> u64 {
    (now.0 * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_asks_until_nothing_is_told() {
        let courtesy = Courtesy::default();
        assert!(!courtesy.take(Seconds(5.0)), "not up yet");
        courtesy.renew();
        let takes = [5.0, 5.0, 5.9, 6.1].map(|at| courtesy.take(Seconds(at)));
        assert_eq!(takes, [true, false, false, true]);
        courtesy.end();
        assert!(!courtesy.take(Seconds(1e6)));
    }
}
