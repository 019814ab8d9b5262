//! Peak-EWMA: of two workers drawn at random, the one with the lower product of latency and pending requests.
//!
//! ```text
//! cost = rtt                              when it is above the cost so far,
//!        cost·w + rtt·(1 − w)             else, with w = exp(−dt/tau), tau = 10 s
//! load = cost·(pending + 1)               a penalty while nothing is known and something is pending
//! ```
//!
//! The cost decays toward zero while nothing is measured. Source: Twitter Finagle, `com.twitter.finagle.loadbalancer.
//! PeakEwma` (class comment and `decayTime` default).

use super::{Arrival, Held, Rival, Sight};
use crate::rng::Rng;
use crate::simulate::fleet::Fleet;
use crate::units::{Seconds, WorkerId};

const DECAY: f64 = 10.0;
/// The load of a worker that was given requests and has completed none.
const PENALTY: f64 = 1e9;

/// The peak-sensitive mean latency of each worker, and when it was last brought up to date.
#[derive(Debug)]
pub struct PeakEwma(Vec<(f64, Seconds)>);

impl PeakEwma {
    /// Nothing measured yet.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        PeakEwma(vec![(0.0, Seconds::ZERO); fleet.members.len()])
    }

    fn observe(&mut self, worker: WorkerId, rtt: f64, now: Seconds) -> f64 {
        let (cost, at) = &mut self.0[worker.index()];
        let kept = (-(now - *at).0 / DECAY).exp();
        *cost = if rtt > *cost {
            rtt
        } else {
            *cost * kept + rtt * (1.0 - kept)
        };
        *at = now;
        *cost
    }

    fn load(&mut self, worker: WorkerId, held: Held, now: Seconds) -> f64 {
        let pending = f64::from(held.requests);
        match self.observe(worker, 0.0, now) {
            cost if cost == 0.0 && pending > 0.0 => PENALTY + pending,
            cost => cost * (pending + 1.0),
        }
    }
}

impl Rival for PeakEwma {
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, rng: &mut Rng) -> WorkerId {
        let (one, other) = arrival.two(rng);
        let of_one = self.load(one, sight.held(one), arrival.now);
        let of_other = self.load(other, sight.held(other), arrival.now);
        if of_other < of_one { other } else { one }
    }

    fn answered(&mut self, worker: WorkerId, took: Seconds, now: Seconds) {
        self.observe(worker, took.0, now);
    }
}
