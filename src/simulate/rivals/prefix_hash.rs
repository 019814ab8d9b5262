//! Consistent hashing of a prompt's beginning, with bounded loads.
//!
//! Workers stand on a ring, 256 times each; a request goes to the first after the hash of its beginning that may take one
//! more, which is while `n + 1 ≤ 1.25·(Σn + 1)/N`. Source: V. Mirrokni, M. Thorup and M. Zadimoghaddam, "Consistent Hashing with Bounded Loads",
//! 2016; KubeAI's `PrefixHash` strategy (`meanLoadPercentage` 125, `replication` 256).
//!
//! KubeAI hashes the first 100 characters. The traces' prompts all share their first block, so two blocks are hashed
//! here, as an operator would have to. A prompt of which nothing is known is hashed by chance.

use std::collections::BTreeMap;

use super::{Arrival, Rival, Sight};
use crate::rng::Rng;
use crate::simulate::fleet::Fleet;
use crate::simulate::load::mixed;
use crate::units::WorkerId;

const REPLICAS: u64 = 256;
const BOUND: f64 = 1.25;
const HASHED: usize = 2;

/// The ring.
#[derive(Debug)]
pub struct PrefixHash(BTreeMap<u64, WorkerId>);

impl PrefixHash {
    /// All workers on a ring.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        let ids = (0..).zip(&fleet.members).map(|(id, _)| id);
        let places = ids.flat_map(|id| {
            (0..REPLICAS).map(move |number| (mixed(u64::from(id), number), WorkerId(id)))
        });
        PrefixHash(places.collect())
    }
}

impl Rival for PrefixHash {
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, rng: &mut Rng) -> WorkerId {
        let begin = &arrival.request.blocks;
        let place = match begin.get(HASHED - 1).or(begin.first()) {
            Some(block) => *block,
            None => rng.below(usize::MAX) as u64,
        };
        let place = mixed(place, 0);
        let held = |worker: &WorkerId| f64::from(sight.held(*worker).requests);
        let all: f64 = arrival.candidates.iter().map(held).sum();
        #[expect(clippy::cast_precision_loss, reason = "a number of workers")]
        let most = BOUND * (all + 1.0) / arrival.candidates.len() as f64;
        let ring = self.0.range(place..).chain(self.0.range(..place));
        let mut walk = ring.map(|(_, worker)| worker);
        let found = walk.find(|worker| {
            arrival.candidates.contains(worker) && held(worker) + 1.0 <= most.ceil()
        });
        found.copied().unwrap_or_else(|| arrival.any(rng))
    }
}
