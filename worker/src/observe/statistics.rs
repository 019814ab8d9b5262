//! The numbers of one version of a model, as Triton's statistics extension defines them. Pure.
//!
//! `inferences` counts rows, `executions` counts runs of the engine; what the cache answers is in neither, nor in the
//! parts of computing, but it is a success and it has a (zero) time in the queue. Durations of a request that shared a
//! run are those of the whole run, as in Triton.
//!
//! Where Triton ends one part and begins the next, here: `input` gathers the requests of a run into one batch, `infer`
//! is the engine, which lends tensors to the library and copies the outputs out, and `output` cuts them into each
//! request's rows.

use std::collections::BTreeMap;
use std::ops::Add;

use crate::fault::Reason;
use crate::units::Seconds;

/// The largest batch that is counted under its own size; larger ones under the next power of two. A request may bring
/// any number of rows, and a list that grows with what clients think of would have no bound.
const OWN_SIZE: usize = 256;

/// How often, and how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// How often.
    pub count: u64,
    /// How long in all, in nanoseconds.
    pub nanos: u64,
}

impl Spent {
    /// Once more, for so long.
    pub fn add(&mut self, span: Seconds) {
        self.count += 1;
        self.nanos = self.nanos.saturating_add(span.to_nanos());
    }
}

/// Where the time of a run went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spans {
    /// From being submitted to the beginning of the run.
    pub queue: Seconds,
    /// Gathering the batch.
    pub input: Seconds,
    /// The engine.
    pub infer: Seconds,
    /// Cutting the batch apart.
    pub output: Seconds,
}

impl Add for Spans {
    type Output = Spans;
    fn add(self, other: Spans) -> Spans {
        Spans {
            queue: self.queue + other.queue,
            input: self.input + other.input,
            infer: self.infer + other.infer,
            output: self.output + other.output,
        }
    }
}

/// The runs of one batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Gathering.
    pub input: Spent,
    /// The engine.
    pub infer: Spent,
    /// Cutting apart.
    pub output: Spent,
}

/// Everything that is counted of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// When the last answered request began, in milliseconds since 1970; 0 = never.
    pub last: u64,
    /// Rows that were computed for requests which got their answer.
    pub inferences: u64,
    /// Runs of the engine.
    pub executions: u64,
    /// Rows of all runs.
    pub executed_rows: u64,
    /// Requests that got their answer, from beginning to end.
    pub success: Spent,
    /// Those that did not, by [`Reason`].
    pub failures: [Spent; Reason::ALL.len()],
    /// Waiting.
    pub queue: Spent,
    /// Gathering.
    pub input: Spent,
    /// The engine.
    pub infer: Spent,
    /// Cutting apart.
    pub output: Spent,
    /// Looking for an answer in the cache and finding it.
    pub hit: Spent,
    /// Looking for one in vain, and keeping the one that was computed.
    pub miss: Spent,
    /// Runs, by rows.
    pub batches: BTreeMap<usize, Batch>,
}

impl Statistics {
    /// A request got its answer, which began at this time and took so long.
    pub fn succeeded(&mut self, began: u64, took: Seconds) {
        self.last = self.last.max(began);
        self.success.add(took);
    }

    /// What went into an answer; no spans where it was not computed.
    pub fn spent(&mut self, rows: usize, spans: Option<Spans>) {
        self.queue.add(spans.unwrap_or_default().queue);
        if let Some(spans) = spans {
            self.inferences += rows as u64;
            self.input.add(spans.input);
            self.infer.add(spans.infer);
            self.output.add(spans.output);
        }
    }

    /// A request got none.
    pub fn failed(&mut self, reason: Reason, took: Seconds) {
        self.failures[reason as usize].add(took);
    }

    /// The engine ran so many rows.
    pub fn executed(&mut self, rows: usize, spans: Spans) {
        self.executions += 1;
        self.executed_rows = self.executed_rows.saturating_add(rows as u64);
        let size = match rows {
            0..=OWN_SIZE => rows,
            more => more.checked_next_power_of_two().unwrap_or(more),
        };
        let batch = self.batches.entry(size).or_default();
        batch.input.add(spans.input);
        batch.infer.add(spans.infer);
        batch.output.add(spans.output);
    }

    /// All that got no answer.
    pub fn fail(&self) -> Spent {
        let sum = |all: Spent, one: &Spent| Spent {
            count: all.count + one.count,
            nanos: all.nanos.saturating_add(one.nanos),
        };
        self.failures.iter().fold(Spent::default(), sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_kept_by_size_in_a_list_that_stays_short() {
        let mut numbers = Statistics::default();
        for rows in [1, 1, 256, 257, 500, 512, usize::MAX] {
            numbers.executed(rows, Spans::default());
        }
        let sizes: Vec<(usize, u64)> = numbers
            .batches
            .iter()
            .map(|(&size, batch)| (size, batch.infer.count))
            .collect();
        assert_eq!(sizes, [(1, 2), (256, 1), (512, 3), (usize::MAX, 1)]);
        assert_eq!(numbers.executions, 7);
    }

    #[test]
    fn spans_are_kept_to_the_nanosecond() {
        let mut spent = Spent::default();
        spent.add(Seconds(1.5e-6));
        spent.add(Seconds(-1.0));
        assert_eq!((spent.count, spent.nanos), (2, 1500));
    }
}
