//! In the manner of llm-d's default scorers: a weighted sum of queue, free KV memory and prefix match.
//!
//! ```text
//! score = 2·(max − q)/(max − min) + 2·(1 − kv used) + 3·(matched share of the prompt) + adapter      the highest wins
//! adapter = 1 on the card, 0.8 when it has a free slot, 0.6 when requests for it wait there, else 0
//! ```
//!
//! q are the requests that wait in the engine; the first term is 1 for all when all have as many. Source:
//! llm-d-inference-scheduler and the Gateway API inference extension, default plug-ins and weights (queue 2, KV cache
//! utilisation 2, prefix cache 3), scorer documentation. The adapter scorer is in no default set; 1 is what a plug-in
//! counts that is given no weight. It sees who is on the card, where the real one sees who has requests in the batch.

use super::index::Index;
use super::{Arrival, Rival, Sight};
use crate::rng::Rng;
use crate::simulate::engine::Engine;
use crate::simulate::fleet::Fleet;
use crate::units::WorkerId;

const QUEUE: f64 = 2.0;
const MEMORY: f64 = 2.0;
const PREFIX: f64 = 3.0;
/// What the adapter scorer gives for one on the card, for a free slot, and for one that is waited for.
const ADAPTER: [f64; 3] = [1.0, 0.8, 0.6];

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
            let own = QUEUE * free + MEMORY * memory + PREFIX * self.0.share(worker, prompt);
            match arrival.request.adapter {
                Some(adapter) => own + affinity(&sight.station(worker).engine, adapter),
                None => own,
            }
        };
        let picked = arrival.cheapest_of_equals(|worker| -score(worker), rng);
        self.0.sent(picked, prompt);
        picked
    }
}

/// The adapter scorer.
fn affinity(engine: &Engine, adapter: u32) -> f64 {
    let [on_card, free, waited_for] = ADAPTER;
    if engine.has_adapter(adapter) {
        on_card
    } else if engine.has_free_slot() {
        free
    } else if engine.waits_for(adapter) {
        waited_for
    } else {
        0.0
    }
}
