//! Rules that are not ours, for comparison: each from its published formula, in a file of its own.
//!
//! They pick from the candidates that `decide` offers and are booked, probed, ejected and retried like our own policies,
//! so that what differs is the choice alone. What they may see is exact and of this moment: a real router scrapes it a
//! second late. Where a rule keeps an index of prompts, it is told the true size of each cache. All of that errs in
//! their favour.

mod dynamo;
mod index;
mod llm_d;
mod oracle;
mod p2c;
mod peak_ewma;
mod prefix_hash;
mod sglang;

pub use dynamo::DynamoLike;
pub use llm_d::LlmDLike;
pub use oracle::Oracle;
pub use p2c::P2c;
pub use peak_ewma::PeakEwma;
pub use prefix_hash::PrefixHash;
pub use sglang::SglangLike;

use super::request::Request;
use super::station::Station;
use crate::rng::Rng;
use crate::units::{Seconds, WorkerId};

/// A rule that picks a worker.
pub trait Rival {
    /// Picks one of the candidates, of whom there is at least one.
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, rng: &mut Rng) -> WorkerId;

    /// An answer was completed, so long after its request was sent.
    fn answered(&mut self, _worker: WorkerId, _took: Seconds, _now: Seconds) {}
}

/// A request to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The request.
    pub request: &'a Request,
    /// Who may be given it.
    pub candidates: &'a [WorkerId],
    /// When.
    pub now: Seconds,
}

/// What can be seen of the workers.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// Their engines.
    pub stations: &'a [Station],
    /// What the router itself has given them.
    pub held: &'a [Held],
}

/// What a worker was given and has not completed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Requests.
    pub requests: u32,
    /// Prompt tokens of those without a first token.
    pub unread: f64,
}

impl Arrival<'_> {
    /// The candidate that costs least; the first of several.
    pub fn cheapest(&self, cost: impl Fn(WorkerId) -> f64) -> WorkerId {
        let priced = self
            .candidates
            .iter()
            .map(|worker| (cost(*worker), *worker));
        let least = priced.reduce(|best, other| if other.0 < best.0 { other } else { best });
        least.map_or(WorkerId(0), |(_, worker)| worker)
    }

    /// The candidate that costs least; any of several.
    pub fn cheapest_of_equals(&self, cost: impl Fn(WorkerId) -> f64, rng: &mut Rng) -> WorkerId {
        let costs: Vec<f64> = self.candidates.iter().map(|worker| cost(*worker)).collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let equals: Vec<WorkerId> = (self.candidates.iter().zip(costs))
            .filter(|(_, cost)| *cost <= least)
            .map(|(worker, _)| *worker)
            .collect();
        equals
            .get(rng.below(equals.len()))
            .copied()
            .unwrap_or_else(|| self.any(rng))
    }

    /// Two of the candidates, the same one only when it is alone.
    pub fn two(&self, rng: &mut Rng) -> (WorkerId, WorkerId) {
        let one = self.any(rng);
        let others: Vec<WorkerId> = self
            .candidates
            .iter()
            .copied()
            .filter(|id| *id != one)
            .collect();
        let other = others.get(rng.below(others.len()));
        (one, other.copied().unwrap_or(one))
    }

    /// One of the candidates.
    pub fn any(&self, rng: &mut Rng) -> WorkerId {
        let drawn = self.candidates.get(rng.below(self.candidates.len()));
        drawn.copied().unwrap_or(WorkerId(0))
    }
}

impl Sight<'_> {
    /// A worker.
    #[must_use]
    pub fn station(&self, worker: WorkerId) -> &Station {
        &self.stations[worker.index()]
    }

    /// What it was given.
    #[must_use]
    pub fn held(&self, worker: WorkerId) -> Held {
        self.held[worker.index()]
    }
}
