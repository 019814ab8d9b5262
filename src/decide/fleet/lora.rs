//! What becomes known of the LoRA adapters of workers.

use super::super::lora::{AdapterName, LoraNews, LoraTold};
use super::FleetState;
use crate::units::{ModelName, Seconds, WorkerId};

impl FleetState {
    /// These of a worker's models are LoRA adapters and no others; to be told after what it [serves](Self::serves).
    pub fn adapts(&mut self, worker: WorkerId, adapters: &[AdapterName]) {
        self.roster.adapts(worker, adapters);
    }

    /// An engine tells of its adapters.
    pub fn lora_told(&mut self, worker: WorkerId, told: &LoraTold) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.loras.told(told);
        }
    }

    /// Something became known of one adapter, by the engine's name. Call [`grants`](Self::grants) next: nobody may be
    /// left who can load it.
    pub fn lora_heard(
        &mut self,
        worker: WorkerId,
        adapter: &ModelName,
        news: LoraNews,
        now: Seconds,
    ) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.loras.heard(adapter, news, now);
        }
    }

    /// The one of these adapters that could be unloaded: not in use, and used longest ago.
    #[must_use]
    pub fn lora_to_spare(&self, worker: WorkerId, among: &[ModelName]) -> Option<ModelName> {
        let worker = self.roster.workers().get(worker.index())?;
        worker.loras.idlest(among).cloned()
    }
}
