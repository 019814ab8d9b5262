//! What becomes known of the models in workers' memories, and of those who wait for others.

use super::super::residents::EngineName;
use super::FleetState;
use crate::units::{ModelName, Seconds, WorkerId};

impl FleetState {
    /// What a worker's engine calls its models, adapters left out; to be told after what it [serves](Self::serves).
    pub fn calls(&mut self, worker: WorkerId, names: &[EngineName]) {
        self.roster.calls(worker, names);
    }

    /// An engine tells which models are in its memory, by its own names. Call [`grants`](Self::grants) next: a model may
    /// have found a place.
    pub fn hear_resident(&mut self, worker: WorkerId, models: &[ModelName]) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.residents.told(models);
        }
    }

    /// Where workers swap, what waits decides which models stay.
    pub(super) fn heed_line(&mut self, now: Seconds) {
        if self.roster.swaps() {
            let samples = self.line.samples();
            let waiting: Vec<_> = samples.filter_map(|ticket| self.line.get(ticket)).collect();
            self.roster.heed_waiting(&waiting, now);
        }
    }
}
