//! What is counted of each model, and how it is told: as Triton's statistics (`api/statistics.rs`) and as metrics
//! ([`exposition()`]).
//!
//! Every request that was read and whose model was found is counted exactly once, however it ends for the model. That
//! is a property of a guard, not of care: [`Tally::begin`] gives a [`Count`], and one that is dropped before it was
//! closed was cancelled. What can't be read (no JSON, data of the wrong length, a body that breaks off) is refused
//! before and counted nowhere, as in Triton. (Triton 2.51 counts nothing that it refuses as malformed, nor what it
//! refuses for a full queue, and counts warm-ups as requests.)
//!
//! The numbers outlive a reload: they belong to a model's name and version, not to the session that happens to serve
//! it, so that a request which ends on the old session is not lost. They go when the model's folder does.

mod exposition;
mod host;
mod names;
mod statistics;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::fault::{Fault, Reason};
use crate::units::{ModelName, Seconds};

pub use exposition::{Shown, exposition};
pub use host::Host;
pub use statistics::{Batch, Spans, Spent, Statistics};

/// The numbers of one version of a model, and the clock that they are taken by.
#[derive(Debug)]
pub struct Tally {
    clock: Clock,
    numbers: Mutex<Statistics>,
}

impl Tally {
    /// Nothing counted yet.
    pub fn new(clock: Clock) -> Tally {
        Tally {
            clock,
            numbers: Mutex::default(),
        }
    }

    /// Begins to count a request.
    pub fn begin(self: &Arc<Self>) -> Count {
        Count {
            start: self.clock.now(),
            rows: 0,
            spans: Spans::default(),
            computed: false,
            cache: None,
            open: true,
            tally: Arc::clone(self),
        }
    }

    /// Counts a run of the engine.
    pub fn executed(&self, rows: usize, spans: Spans) {
        self.numbers.lock().executed(rows, spans);
    }

    /// The numbers at this moment.
    pub fn numbers(&self) -> Statistics {
        self.numbers.lock().clone()
    }
}

/// A request on its way. Dropped while open, it counts as cancelled: its client has left.
#[derive(Debug)]
pub struct Count {
    tally: Arc<Tally>,
    start: Seconds,
    rows: usize,
    spans: Spans,
    computed: bool,
    cache: Option<(Looked, Seconds)>,
    open: bool,
}

/// What came of looking for an answer in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// It was there.
    Hit,
    /// It had to be computed.
    Miss,
}

impl Count {
    /// The time, by the clock that it is counted with.
    pub fn now(&self) -> Seconds {
        self.tally.clock.now()
    }

    /// Rows were computed for it; a request may need several runs.
    pub fn ran(&mut self, rows: usize, spans: Spans) {
        self.computed = true;
        self.rows += rows;
        self.spans = self.spans + spans;
    }

    /// Where the time of all its runs went.
    pub fn spans(&self) -> Spans {
        self.spans
    }

    /// The cache was asked, which took so long.
    pub fn looked(&mut self, what: Looked, took: Seconds) {
        self.cache = Some((what, took));
    }

    /// The request has an answer.
    pub fn close<T>(mut self, outcome: &Result<T, Fault>) {
        self.end(outcome.as_ref().err().map(|fault| fault.kind.reason()));
    }

    fn end(&mut self, failure: Option<Reason>) {
        self.open = false;
        let clock = self.tally.clock;
        let took = clock.now() - self.start;
        let mut numbers = self.tally.numbers.lock();
        if let Some(reason) = failure {
            numbers.failed(reason, took);
            return;
        }
        numbers.succeeded(clock.unix_millis().saturating_sub(took.to_millis()), took);
        let spans = self.computed.then_some(self.spans);
        numbers.spent(self.rows, spans);
        match self.cache {
            Some((Looked::Hit, took)) => numbers.hit.add(took),
            Some((Looked::Miss, took)) => numbers.miss.add(took),
            None => {}
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if self.open {
            self.end(Some(Reason::Canceled));
        }
    }
}

/// The tallies of all models, by name and version.
#[derive(Debug)]
pub struct Ledger {
    clock: Clock,
    tallies: Mutex<BTreeMap<(ModelName, u64), Arc<Tally>>>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(clock: Clock) -> Ledger {
        Ledger {
            clock,
            tallies: Mutex::default(),
        }
    }

    /// The tally of a version, which goes on where it stopped if the version was served before.
    pub fn tally(&self, name: &ModelName, version: u64) -> Arc<Tally> {
        let mut tallies = self.tallies.lock();
        let tally = tallies.entry((name.clone(), version));
        Arc::clone(tally.or_insert_with(|| Arc::new(Tally::new(self.clock))))
    }

    /// Drops what was counted of a model.
    pub fn forget(&self, name: &ModelName) {
        self.tallies.lock().retain(|(model, _), _| model != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;

    fn tally() -> Arc<Tally> {
        Arc::new(Tally::new(Clock::start()))
    }

    #[test]
    fn every_ending_counts_once() {
        let tally = tally();
        let mut answered = tally.begin();
        answered.ran(2, Spans::default());
        answered.ran(3, Spans::default());
        answered.close(&Ok(()));
        for kind in [
            Kind::Busy,
            Kind::QueueTimeout,
            Kind::BadRequest,
            Kind::EngineFailed,
        ] {
            tally.begin().close::<()>(&Err(Fault::new(kind, "")));
        }
        drop(tally.begin());
        let numbers = tally.numbers();
        assert_eq!((numbers.success.count, numbers.inferences), (1, 5));
        assert_eq!(numbers.fail().count, 5);
        let of = |reason| numbers.failures[reason as usize].count;
        assert_eq!(of(Reason::Rejected), 2);
        assert_eq!(of(Reason::Canceled), 1);
        assert_eq!(of(Reason::Backend), 1);
        assert_eq!(of(Reason::Other), 1);
    }

    #[test]
    fn what_the_cache_answers_is_a_success_that_was_not_computed() {
        let tally = tally();
        let mut hit = tally.begin();
        hit.looked(Looked::Hit, Seconds(0.5));
        hit.close(&Ok(()));
        let mut miss = tally.begin();
        miss.looked(Looked::Miss, Seconds(0.25));
        miss.ran(1, Spans::default());
        miss.close(&Ok(()));
        let numbers = tally.numbers();
        assert_eq!(numbers.success.count, 2);
        assert_eq!((numbers.queue.count, numbers.infer.count), (2, 1));
        assert_eq!(numbers.inferences, 1);
        assert_eq!((numbers.hit.count, numbers.hit.nanos), (1, 500_000_000));
        assert_eq!((numbers.miss.count, numbers.miss.nanos), (1, 250_000_000));
    }

    #[test]
    fn a_tally_outlives_a_reload_and_goes_with_its_model() {
        let ledger = Ledger::new(Clock::start());
        let name = ModelName::new("m");
        ledger.tally(&name, 1).begin().close(&Ok(()));
        assert_eq!(ledger.tally(&name, 1).numbers().success.count, 1);
        assert_eq!(ledger.tally(&name, 2).numbers().success.count, 0);
        ledger.forget(&name);
        assert_eq!(ledger.tally(&name, 1).numbers().success.count, 0);
    }
}
