//! Which candidate is taken, by policy.
//!
//! Ties are broken at random: a fixed order would send everything to the first of several equal workers, and proxies
//! that share a fleet would all agree on it.

use super::cost::Terms;
use crate::rng::Rng;
use crate::units::WorkerId;

/// Prices this close to the least are as good: estimates are no finer.
const TIE: f64 = 1.02;

/// How a worker is chosen among those that could serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The least expected completion time in seconds.
    LeastTime,
    /// One after the other.
    RoundRobin,
    /// The fewest requests in flight.
    LeastInflight,
    /// Any, evenly.
    Random,
}

/// A worker that could serve the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Who.
    pub worker: WorkerId,
    /// At what price.
    pub terms: Terms,
    /// With how many requests already.
    pub inflight: u32,
}

impl Policy {
    /// Takes one. `last` is whose turn it was before; `candidates` is scratch space afterwards.
    pub(super) fn pick(
        self,
        candidates: &mut Vec<Candidate>,
        last: Option<WorkerId>,
        rng: &mut Rng,
    ) -> Option<Candidate> {
        match self {
            Policy::LeastTime => keep_cheapest(candidates),
            Policy::LeastInflight => keep_idlest(candidates),
            Policy::RoundRobin => keep_next(candidates, last),
            Policy::Random => {}
        }
        candidates.get(rng.below(candidates.len())).copied()
    }
}

fn keep_cheapest(candidates: &mut Vec<Candidate>) {
    let least = candidates
        .iter()
        .map(|candidate| candidate.terms.total().0)
        .fold(f64::INFINITY, f64::min);
    candidates.retain(|candidate| candidate.terms.total().0 <= least * TIE);
}

fn keep_idlest(candidates: &mut Vec<Candidate>) {
    let fewest = candidates.iter().map(|candidate| candidate.inflight).min();
    candidates.retain(|candidate| Some(candidate.inflight) == fewest);
}

fn keep_next(candidates: &mut Vec<Candidate>, last: Option<WorkerId>) {
    let workers = || candidates.iter().map(|candidate| candidate.worker);
    let next = workers()
        .filter(|worker| Some(*worker) > last)
        .min()
        .or_else(|| workers().min());
    candidates.retain(|candidate| Some(candidate.worker) == next);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;

    fn candidates(prices: &[f64]) -> Vec<Candidate> {
        let priced = |(id, own): (u32, &f64)| Candidate {
            worker: WorkerId(id),
            terms: Terms {
                net: Seconds::ZERO,
                wait: Seconds::ZERO,
                own: Seconds(*own),
                decode: Seconds::ZERO,
            },
            inflight: 9 - id,
        };
        (0..).zip(prices).map(priced).collect()
    }

    /// Who is picked at least once in 100 tries.
    fn picked(policy: Policy, prices: &[f64]) -> Vec<u32> {
        let mut rng = Rng::seeded(3);
        let mut picked: Vec<u32> = (0..100)
            .filter_map(|_| policy.pick(&mut candidates(prices), None, &mut rng))
            .map(|candidate| candidate.worker.0)
            .collect();
        picked.sort_unstable();
        picked.dedup();
        picked
    }

    #[test]
    fn each_policy_takes_what_it_says() {
        let prices = [1.01, 1.0, 1.5];
        assert_eq!(picked(Policy::LeastTime, &prices), [0, 1]);
        assert_eq!(picked(Policy::LeastInflight, &prices), [2]);
        assert_eq!(picked(Policy::Random, &prices), [0, 1, 2]);
        assert!(picked(Policy::LeastTime, &[]).is_empty());
    }

    #[test]
    fn round_robin_goes_round_and_skips_who_is_missing() {
        let mut rng = Rng::seeded(3);
        let mut last = None;
        let mut turns = Vec::new();
        for _ in 0..4 {
            let mut present = candidates(&[1.0, 1.0, 1.0]);
            present.remove(1);
            let next = Policy::RoundRobin.pick(&mut present, last, &mut rng);
            last = next.map(|candidate| candidate.worker);
            turns.push(last.unwrap().0);
        }
        assert_eq!(turns, [0, 2, 0, 2]);
    }
}
