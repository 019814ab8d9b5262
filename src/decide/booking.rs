//! A place that a request holds on a worker, what is noted on it until the request ends, and the count of all.

use super::ask::{Outcome, Work};
use super::cost::{LEAST_PROMPT, Size};
use super::line_fit::{Line, Sample, is_surprise};
use super::lora::Borrowed;
use super::machine::{Company, Mark};
use super::residents::Stay;
use super::reuse::Belief;
use crate::units::{Seconds, WorkerId};

/// A place that a request holds on a worker, until [`super::FleetState::finish`].
#[derive(Debug)]
#[must_use = "a booking that is dropped occupies its worker for ever"]
pub struct Booking {
    pub(super) worker: WorkerId,
    pub(super) generation: u32,
    pub(super) number: u64,
    pub(super) model: usize,
    pub(super) size: Size,
    /// What its worker was believed to have of its prompt.
    pub(super) belief: Belief,
    /// The adapter that it uses.
    pub(super) lora: Option<Borrowed>,
    /// Its model, where not all of them are in memory.
    pub(super) stay: Option<Stay>,
    /// Its class.
    pub(super) class: u8,
    /// The client's bound on its answer.
    pub(super) max_tokens: Option<u32>,
    pub(super) streamed: bool,
    /// It measures, and serves no client.
    pub(super) is_test: bool,
    pub(super) sent: Seconds,
    pub(super) wait: Seconds,
    /// Requests that its worker held then, itself included.
    pub(super) held: u32,
    /// Whether nobody waited there for a first byte.
    pub(super) alone: bool,
    /// Request-seconds on its worker when it was sent.
    pub(super) sharing_seconds: f64,
    /// The company on its machine when it was sent.
    pub(super) company: Mark,
    pub(super) first_byte: Option<FirstByte>,
}

/// What an answer's first byte shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstByte {
    /// From its arrival at the worker.
    pub took: Seconds,
    /// From when its prefill began, if requests are taken in turn.
    pub prefill: Seconds,
    /// Whether it was there before the worker turned to it.
    pub behind: bool,
    /// The mean of requests that shared the card until then.
    pub sharing: f64,
    /// The company on its machine until then.
    pub company: Company,
    /// Whether the worker's speed was learned from it when it came.
    pub taught: bool,
}

impl FirstByte {
    /// What it shows of the prefill of this many tokens.
    pub(super) fn sample(self, prompt: f64) -> Sample {
        Sample {
            size: prompt,
            took: self.prefill,
            behind: self.behind,
        }
    }
}

impl Booking {
    /// The worker that the place is on.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// What kind of work it is.
    pub(super) fn work(&self) -> Work {
        self.size.work
    }

    /// The row of its model in the roster.
    pub(super) fn model(&self) -> usize {
        self.model
    }

    /// Whether tokens of its answer are timed as they pass.
    pub(super) fn decodes(&self) -> bool {
        self.streamed && self.size.work == Work::Generate
    }

    /// Whether its first byte ends its prefill, and nothing but work delays that.
    pub(super) fn ends_its_prefill(&self) -> bool {
        (self.streamed || self.size.work != Work::Generate) && self.size.toll.turns <= 0.0
    }

    /// Whether a prefill that took so long tells how fast the worker is, by what it was believed to be. Where the time is
    /// a surprise, but would be none if the worker had more of the prompt in its cache, or none of it any more, it tells
    /// of the cache: a worker that was restarted would seem a hundred times slower, and one that was warm before the
    /// proxy began, faster. What a test sends is in no cache. One that waited for its adapter or its model
    /// tells of that.
    pub(super) fn tells_of_speed(&self, line: Line, took: Seconds) -> bool {
        let is_surprise = |reading: f64| is_surprise(took, line.at(reading));
        let may_be_cached = !self.is_test && self.belief.is_about_blocks();
        let is_of_the_card = !may_be_cached
            || !is_surprise(self.size.reading())
            || (is_surprise(LEAST_PROMPT) && is_surprise(self.size.cached(0.0).reading()));
        is_of_the_card && !self.size.clouds()
    }

    /// Whether its whole answer may teach the worker's speed: in doubt only if the worker told what it had in its cache.
    pub(super) fn may_teach(&self, is_told: bool) -> bool {
        let taught = self.first_byte.is_some_and(|first| first.taught);
        (is_told || taught || !self.decodes()) && !self.size.clouds()
    }
}

/// What became of the requests a worker was given, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// Given.
    pub picks: u64,
    /// Given to measure it.
    pub tests: u64,
    /// Answered.
    pub answered: u64,
    /// Failed.
    pub failed: u64,
}

impl Record {
    /// A request ended.
    pub(super) fn ended(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Answered { .. } => self.answered += 1,
            Outcome::Failed | Outcome::Lost => self.failed += 1,
            Outcome::Refused
            | Outcome::Unsent
            | Outcome::Gone
            | Outcome::Doubted
            | Outcome::Busy { .. }
            | Outcome::Rejected => {}
        }
    }
}

/// What the roster knows of a request when it books it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// Its number in the fleet.
    pub number: u64,
    /// The row of its model in the roster.
    pub model: usize,
    /// Its size.
    pub size: Size,
    /// Its class.
    pub class: u8,
    /// The client's bound on its answer.
    pub max_tokens: Option<u32>,
    /// Whether its answer comes token by token.
    pub streamed: bool,
    /// The wait expected here.
    pub wait: Seconds,
    /// Whether it measures, and serves no client.
    pub is_test: bool,
}

impl Order {
    /// The work of reading all of its prompt, if its first byte ends its prefill and nothing but work delays that.
    pub(super) fn timed(&self) -> Option<f64> {
        let ends = self.streamed || self.size.work != Work::Generate;
        (ends && self.size.toll.turns <= 0.0).then(|| self.size.cached(0.0).reading())
    }
}
