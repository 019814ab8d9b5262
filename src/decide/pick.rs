//! Which candidate is taken, by policy.
//!
//! Of those whose price ties, the one that holds most of the prompt is taken: what it saves is surer than the last
//! percent of an estimate, and sessions stay where they are; then the one that has the adapter on its card and the model in memory. Other ties are broken at random: a fixed order would send
//! everything to the first of several equal workers, and proxies that share a fleet would all agree on it.
//!
//! A price is a belief, and only a worker that is used can correct it. So least time gives the benefit of the doubt: a
//! worker is priced between what is believed of it and the fastest that has shown its speed, the nearer to the latter
//! the fewer samples it has. With none it counts as fast as that one, so it is tried; one that is four times slower
//! looks twice as slow after 8 samples, and 5 % cheaper than it is after 200: no client is sent for long to a worker
//! that is known to be slow. Only its own work is doubted so, the way to it is not. Speeds are compared by the whole prompt, whoever has it cached: who has not is no slower
//! for that. Only idle workers get it: what a busy one holds will tell.
//!
//! Nor is a belief ever exact: times scatter, and only the last of them count. Of equal workers one looks a few percent
//! slower than another, and of a burst it then got a quarter less than its share, since all of its work and its queue are
//! priced by that. So whoever is as fast as the fastest, as far as its samples can tell, is priced as if it were; of such
//! equals whose price ties, one with more requests than another is not taken unless it is cheaper.
//!
//! 2026-11-30: believed that priors of a fast card would get everybody tried often enough. Seen with 8 clients, answers
//! of 8 tokens in one piece and workers of 4:1, in each of 300 simulations: after the four answers of the first burst the
//! slow one was still believed to need 15 ms a token instead of 4, since the prior says 20 and the burst made it wait. It
//! looked like 120 ms instead of 68, the fast one seldom costs more than 80, and the slow one got no fifth request.

use super::cost::Terms;
use crate::rng::Rng;
use crate::units::{Seconds, WorkerId};

/// Prices this close to the least are as good: estimates are no finer.
const TIE: f64 = 1.02;
/// After so many samples, a worker's belief counts for half.
const HALF_BELIEVED: f64 = 8.0;
/// What a speed may be off after one sample, as a share of it: three standard deviations where times scatter by a tenth,
/// which is what the slowest and the fastest of several equals may well be apart …
const SCATTER: f64 = 0.3;
/// … and the most samples that make that less: a line forgets the older ones.
const REMEMBERED: u64 = 20;
/// So many are compared when there are too many to compare all: two would take most of what there is to gain
/// (M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001), a third is cheap.
pub(super) const SAMPLE: usize = 3;

/// How a worker is chosen among those that could serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The least expected completion time in seconds.
    LeastTime,
    /// Each as often as its weight says: smooth weighted round robin, as in nginx, with weights that are learned.
    Weighted,
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
    /// The tokens of the prompt that it is believed to have in its cache.
    pub cached: f64,
    /// The seconds that it would need if it had none of it and nobody waited there.
    pub whole: f64,
    /// From how many samples that is known.
    pub samples: u64,
    /// With how many requests already.
    pub inflight: u32,
    /// The requests that it is owed, for [`Policy::Weighted`].
    pub owed: f64,
}

impl Candidate {
    /// Whether it is as fast as the fastest, as far as can be told. What is typed or believed of all is no measurement.
    #[expect(clippy::cast_precision_loss, reason = "a number up to 20")]
    fn is_as_fast(&self, fastest: f64) -> bool {
        let off = match self.samples.min(REMEMBERED) {
            0 => 0.0,
            samples => SCATTER / (samples as f64).sqrt(),
        };
        self.whole <= fastest * (1.0 + off)
    }

    /// Its price, less the doubt that its work is really slower than that of the fastest.
    #[expect(
        clippy::cast_precision_loss,
        reason = "doubt is gone long before 2^53 samples"
    )]
    fn doubted(&self, fastest: f64) -> f64 {
        if self.is_as_fast(fastest) {
            let way = self.terms.net.0;
            return way + (self.terms.total().0 - way) * (fastest / self.whole).min(1.0);
        }
        if self.inflight > 0 {
            // What it holds will tell; until then it need not be tried again.
            return self.terms.total().0;
        }
        let doubt = HALF_BELIEVED / (HALF_BELIEVED + self.samples as f64);
        let work = self.terms.busy().0;
        let spared = work * (1.0 - (fastest / self.whole).min(1.0).powf(doubt));
        self.terms.total().0 - spared
    }
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
            Policy::Weighted => keep_most_owed(candidates),
            Policy::LeastInflight => keep_idlest(candidates),
            Policy::RoundRobin => keep_next(candidates, last),
            Policy::Random => {}
        }
        candidates.get(rng.below(candidates.len())).copied()
    }
}

fn keep_cheapest(candidates: &mut Vec<Candidate>) {
    let fastest = candidates
        .iter()
        .filter(|candidate| candidate.samples > 0)
        .map(|candidate| candidate.whole)
        .fold(f64::INFINITY, f64::min);
    let least = candidates
        .iter()
        .map(|candidate| candidate.doubted(fastest))
        .fold(f64::INFINITY, f64::min);
    candidates.retain(|candidate| candidate.doubted(fastest) <= least * TIE);
    let most = candidates
        .iter()
        .map(|candidate| candidate.cached)
        .fold(0.0, f64::max);
    candidates.retain(|candidate| candidate.cached >= most);
    let least = candidates
        .iter()
        .map(|candidate| candidate.terms.load())
        .fold(Seconds(f64::INFINITY), Seconds::min);
    candidates.retain(|candidate| candidate.terms.load() <= least);
    keep_idlest_equals(candidates, fastest);
}

/// Of those that are as fast as the fastest, leaves out who has more requests than another and costs more.
fn keep_idlest_equals(candidates: &mut Vec<Candidate>, fastest: f64) {
    let equals = || candidates.iter().filter(|one| one.is_as_fast(fastest));
    let fewest = equals().map(|one| one.inflight).min().unwrap_or_default();
    let least = equals()
        .filter(|one| one.inflight == fewest)
        .map(|one| one.doubted(fastest))
        .fold(f64::INFINITY, f64::min);
    candidates.retain(|one| {
        let is_behind = one.inflight > fewest && one.doubted(fastest) >= least;
        !is_behind || !one.is_as_fast(fastest)
    });
}

fn keep_most_owed(candidates: &mut Vec<Candidate>) {
    let most = candidates
        .iter()
        .map(|candidate| candidate.owed)
        .fold(f64::NEG_INFINITY, f64::max);
    candidates.retain(|candidate| candidate.owed >= most);
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
    use std::collections::BTreeSet;

    use super::*;

    fn candidates(prices: &[f64]) -> Vec<Candidate> {
        let priced = |(id, own): (u32, &f64)| Candidate {
            worker: WorkerId(id),
            terms: Terms {
                own: Seconds(*own),
                ..Terms::default()
            },
            cached: 0.0,
            whole: *own,
            samples: 1_000,
            inflight: 9 - id,
            owed: f64::from(id % 2),
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
        assert_eq!(picked(Policy::LeastTime, &prices), [1]);
        assert_eq!(picked(Policy::Weighted, &prices), [1]);
        assert_eq!(picked(Policy::LeastInflight, &prices), [2]);
        assert_eq!(picked(Policy::Random, &prices), [0, 1, 2]);
        assert!(picked(Policy::LeastTime, &[]).is_empty());
    }

    #[test]
    fn of_equals_the_one_with_the_adapter_is_taken_unless_another_has_the_prompt() {
        let mut pair = candidates(&[10.0, 10.1]);
        pair[0].terms.lora = Seconds(0.1);
        let pick = |pair: &[Candidate]| {
            let mut rng = Rng::seeded(3);
            let picked = Policy::LeastTime.pick(&mut pair.to_vec(), None, &mut rng);
            picked.unwrap().worker.0
        };
        assert_eq!(pick(&pair), 1);
        pair[0].cached = 512.0;
        assert_eq!(pick(&pair), 0);
    }

    /// Whom least time picks of two with these prices, of which each has so many requests and so many samples.
    fn of_two(prices: [f64; 2], inflight: [u32; 2], samples: u64) -> Vec<u32> {
        let mut pair = candidates(&prices);
        for (candidate, inflight) in pair.iter_mut().zip(inflight) {
            (candidate.samples, candidate.inflight) = (samples, inflight);
        }
        let mut rng = Rng::seeded(3);
        let pick = |_| Policy::LeastTime.pick(&mut pair.clone(), None, &mut rng);
        let picked: BTreeSet<u32> = (0..50).filter_map(pick).map(|one| one.worker.0).collect();
        picked.into_iter().collect()
    }

    #[test]
    fn equals_are_told_by_their_requests_and_others_by_their_price() {
        assert_eq!(of_two([1.0, 1.05], [0, 0], 1_000), [0, 1]);
        assert_eq!(of_two([1.0, 1.05], [2, 1], 1_000), [1]);
        assert_eq!(of_two([1.0, 1.1], [2, 1], 1_000), [0]);
        assert_eq!(of_two([1.0, 1.1], [2, 1], 4), [1], "few samples");
        assert_eq!(of_two([1.0, 1.1], [2, 1], 0), [0], "typed");
    }

    /// Whether a worker that is idle and four times as slow is preferred to one with three requests waiting.
    fn slow_is_tried(samples: u64) -> bool {
        let mut pair = candidates(&[1.0, 4.0]);
        pair.iter_mut().for_each(|candidate| candidate.inflight = 0);
        pair[0].terms.wait = Seconds(2.0);
        pair[1].samples = samples;
        let picked = Policy::LeastTime.pick(&mut pair, None, &mut Rng::seeded(3));
        picked.unwrap().worker == WorkerId(1)
    }

    #[test]
    fn a_worker_is_tried_again_until_it_is_known_to_be_slow() {
        assert!(slow_is_tried(0) && slow_is_tried(4));
        assert!(!slow_is_tried(200));
    }

    #[test]
    fn the_way_to_a_worker_is_not_doubted() {
        let mut far = candidates(&[1.0, 2.0]).remove(1);
        (far.samples, far.inflight) = (0, 0);
        let alone = far.doubted(1.0);
        far.terms.net = Seconds(9.0);
        assert!((far.doubted(1.0) - alone - 9.0).abs() < 1e-9);
        assert!(alone < far.terms.busy().0, "its work is");
    }

    #[test]
    fn nobody_looks_faster_than_the_fastest_that_has_shown_it() {
        let mut pair = candidates(&[1.0, 1.5]);
        pair[0].samples = 0;
        pair[1].samples = 1;
        assert_eq!(pair[1].doubted(1.5), 1.5);
        let picked = Policy::LeastTime.pick(&mut pair, None, &mut Rng::seeded(3));
        assert_eq!(picked.unwrap().worker, WorkerId(0));
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
