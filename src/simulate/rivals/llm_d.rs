//! In the manner of llm-d's default scorers: a weighted sum of queue, free KV memory and prefix match.
//!
//! ```text
//! score = 2·(max − q)/(max − min) + 2·(1 − kv used) + 3·(matched share of the prompt)      the highest wins
//! ```
//!
//! q are the requests that wait in the engine; the first term is 1 for all when all have as many. Source:
//! llm-d-inference-scheduler and the Gateway API inference extension, default plug-ins and weights (queue 2, KV cache
//! utilisation 2, prefix cache 3), scorer documentation.

use super::index::Index;
use super::{Arrival, Rival, Sight};
use crate::rng::Rng;
use crate::simulate::fleet::Fleet;
use crate::units::WorkerId;

const QUEUE: f64 = 2.0;
const MEMORY: f64 = 2.0;
const PREFIX: f64 = 3.0;

/// The prompts sent to each worker.
#[derive(Debug)]
pub struct LlmDLike(Index);

impl LlmDLike {
    /// Nothing was sent yet.
    #[must_use]
    pub fn of(fleet: &Fleet) -> Self {
        LlmDLike(Index::of(fleet))
    }
}

impl Rival for LlmDLike {
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, rng: &mut Rng) -> WorkerId {
        let prompt = &arrival.request.blocks;
        #[expect(clippy::cast_precision_loss, reason = "requests in a queue")]
        let queue = |worker: WorkerId| sight.station(worker).engine.waiting() as f64;
        let least = queue(arrival.cheapest(queue));
        let most = queue(arrival.cheapest(|worker| -queue(worker)));
        let score = |worker: WorkerId| {
            let free = if most > least {
                (most - queue(worker)) / (most - least)
            } else {
                1.0
            };
            let memory = 1.0 - sight.station(worker).engine.memory_used();
            QUEUE * free + MEMORY * memory + PREFIX * self.0.share(worker, prompt)
        };
        let picked = arrival.cheapest_of_equals(|worker| -score(worker), rng);
        self.0.sent(picked, prompt);
        picked
    }
}
