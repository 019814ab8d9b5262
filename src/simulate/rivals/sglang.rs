//! In the manner of SGLang's router, "cache-aware": the best match, unless requests are too uneven.
//!
//! ```text
//! max − min > 64 and max > 1.5·min     →  the fewest requests
//! best match > 0.3 of the prompt       →  who has it
//! else                                 →  who has the smallest tree
//! ```
//!
//! Source: SGLang's router documentation (`--cache-threshold` 0.3, `--balance-abs-threshold` 64,
//! `--balance-rel-threshold` 1.5).

use super::index::Index;
use super::{Arrival, Rival, Sight};
use crate::rng::Rng;
use crate::simulate::fleet::Fleet;
use crate::units::WorkerId;

const UNEVEN_BY: f64 = 64.0;
const UNEVEN_TIMES: f64 = 1.5;
const MATCH: f64 = 0.3;

/// A tree of prompts for each worker.
#[derive(Debug)]
pub struct SglangLike(Index);

impl SglangLike {
    /// Nothing was sent yet.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        SglangLike(Index::of(fleet))
    }
}

impl Rival for SglangLike {
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, _rng: &mut Rng) -> WorkerId {
        let prompt = &arrival.request.blocks;
        let held = |worker: WorkerId| f64::from(sight.held(worker).requests);
        let (idlest, fullest) = (arrival.cheapest(held), arrival.cheapest(|one| -held(one)));
        let (least, most) = (held(idlest), held(fullest));
        let best = arrival.cheapest(|worker| -self.0.matching(worker, prompt));
        let picked = if most - least > UNEVEN_BY && most > UNEVEN_TIMES * least {
            idlest
        } else if self.0.share(best, prompt) > MATCH {
            best
        } else {
            arrival.cheapest(|worker| self.0.size(worker))
        };
        self.0.sent(picked, prompt);
        picked
    }
}
