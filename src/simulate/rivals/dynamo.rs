//! In the manner of NVIDIA Dynamo's KV router: blocks to read and blocks that are decoded.
//!
//! ```text
//! cost = max(0, (unread prompt tokens there + prompt)/512 − matched blocks) + blocks in use      the least wins
//! ```
//!
//! The weights are its defaults (prefill scale 1, overlap credit 1, temperature 0). Its router is told by engines what
//! is in their caches, so it sees them here. Source: Dynamo's KV router documentation, cost function.

use super::{Arrival, Rival, Sight};
use crate::rng::Rng;
use crate::simulate::card::BLOCK;
use crate::units::WorkerId;

/// Counts blocks.
#[derive(Debug)]
pub struct DynamoLike;

impl Rival for DynamoLike {
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, rng: &mut Rng) -> WorkerId {
        let request = arrival.request;
        let cost = |worker: WorkerId| {
            let station = sight.station(worker);
            let unread = (sight.held(worker).unread + request.prompt) / BLOCK;
            let matched = station.cached(request) / BLOCK;
            (unread - matched).max(0.0) + station.engine.blocks()
        };
        arrival.cheapest_of_equals(cost, rng)
    }
}
