//! What a router that is told nothing believes of its workers' caches: what it sent there, until it should be forgotten.

use crate::simulate::cache::Cache;
use crate::simulate::fleet::Fleet;
use crate::units::WorkerId;

/// One believed cache for each worker, of its true size.
#[derive(Debug)]
pub(super) struct Index(Vec<Cache>);

impl Index {
    /// Nothing was sent yet.
    pub(super) fn of(fleet: &Fleet) -> Self {
        let caches = fleet
            .members
            .iter()
            .map(|one| Cache::of(&one.card, fleet.cache));
        Index(caches.collect())
    }

    /// How many of a prompt's first blocks a worker should have.
    #[expect(clippy::cast_precision_loss, reason = "some hundreds of blocks")]
    pub(super) fn matching(&self, worker: WorkerId, prompt: &[u64]) -> f64 {
        self.0[worker.index()].matching(prompt) as f64
    }

    /// The share of a prompt that a worker should have.
    #[expect(clippy::cast_precision_loss, reason = "some hundreds of blocks")]
    pub(super) fn share(&self, worker: WorkerId, prompt: &[u64]) -> f64 {
        self.matching(worker, prompt) / prompt.len().max(1) as f64
    }

    /// How many blocks a worker should have.
    #[expect(clippy::cast_precision_loss, reason = "some thousands of blocks")]
    pub(super) fn size(&self, worker: WorkerId) -> f64 {
        self.0[worker.index()].len() as f64
    }

    /// A prompt was sent to a worker.
    pub(super) fn sent(&mut self, worker: WorkerId, prompt: &[u64]) {
        self.0[worker.index()].keep(prompt);
    }
}
