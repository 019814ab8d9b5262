//! What is known of each model name: who serves it, and what its requests have shown.
//!
//! Rows come and go with what workers report; the header of the roster says why their places never move.

use std::collections::BTreeSet;

use super::super::calibration::Asked;
use super::super::density::Density;
use super::super::lora::AdapterName;
use super::super::residents::EngineName;
use super::super::traffic::Outputs;
use super::Roster;
use crate::units::{ModelName, WorkerId};

/// The most names that are kept, whatever workers report.
pub(super) const MOST_MODELS: usize = 10_000;

/// A known model.
#[derive(Debug)]
pub(super) struct Model {
    /// Who serves it, in order; all workers in the row for requests without a model.
    pub workers: Vec<WorkerId>,
    /// The expected length of its answers.
    pub outputs: Outputs,
    /// The tokens that a byte of its prompts makes.
    pub density: Density,
    /// Who was picked last.
    pub last: Option<WorkerId>,
    /// The requests that each of `workers` is owed by its weight, at most one either way.
    pub owed: Vec<f64>,
    /// What clients last wanted of it.
    pub asked: Option<Asked>,
}

impl Model {
    /// The row of requests that name none.
    pub(super) const NAMELESS: usize = 0;

    /// One that these serve, in order.
    pub(super) fn served_by(workers: Vec<WorkerId>) -> Self {
        Model {
            owed: vec![0.0; workers.len()],
            workers,
            outputs: Outputs::new(),
            density: Density::default(),
            last: None,
            asked: None,
        }
    }

    /// Whether every worker that serves it is owed something, and nobody too much.
    pub(super) fn check(&self) -> Result<(), String> {
        let bounded = self.owed.iter().all(|owed| owed.abs() <= 1.0);
        if bounded && self.owed.len() == self.workers.len() {
            return Ok(());
        }
        let (owed, workers) = (&self.owed, self.workers.len());
        Err(format!("{owed:?} are owed to {workers} workers"))
    }

    pub(super) fn gain(&mut self, worker: WorkerId) {
        if let Err(place) = self.workers.binary_search(&worker) {
            self.workers.insert(place, worker);
            self.owed.insert(place, 0.0);
        }
    }

    pub(super) fn lose(&mut self, worker: WorkerId) {
        if let Ok(place) = self.workers.binary_search(&worker) {
            self.workers.remove(place);
            self.owed.remove(place);
        }
    }
}

impl Roster {
    /// A worker serves these models now and no others.
    pub(in super::super) fn serves(&mut self, worker: WorkerId, models: &[ModelName]) {
        if self.workers.get(worker.index()).is_none() {
            return;
        }
        let served: BTreeSet<_> = models.iter().collect();
        for (name, row) in &self.rows {
            let Some(name) = name else { continue };
            if !served.contains(name) {
                self.models[*row].lose(worker);
            }
        }
        for name in served {
            if let Some(row) = self.know(name) {
                self.models[row].gain(worker);
            }
        }
    }

    /// These of a worker's models are adapters and no others; to be told after what it serves.
    pub(in super::super) fn adapts(&mut self, worker: WorkerId, adapters: &[AdapterName]) {
        let row = |name: &ModelName| self.rows.get(&Some(name.clone())).copied();
        let listed: Vec<_> = adapters
            .iter()
            .filter_map(|adapter| Some((row(&adapter.client)?, adapter.engine.clone())))
            .collect();
        if let Some(worker) = self.worker_mut(worker) {
            worker.loras.are(&listed);
        }
    }

    /// What a worker's engine calls its models; to be told after what it serves.
    pub(in super::super) fn calls(&mut self, worker: WorkerId, names: &[EngineName]) {
        let row = |name: &EngineName| {
            let row = self.rows.get(&Some(name.client.clone())).copied();
            Some((row?, name.engine.clone()))
        };
        let listed: Vec<_> = names.iter().filter_map(row).collect();
        if let Some(worker) = self.worker_mut(worker) {
            worker.residents.are(&listed);
        }
    }

    /// The row of a name, known from now on; `None` when there are too many.
    pub(in super::super) fn know(&mut self, name: &ModelName) -> Option<usize> {
        if let Some(row) = self.rows.get(&Some(name.clone())) {
            return Some(*row);
        }
        if self.rows.len() > MOST_MODELS {
            return None;
        }
        let fresh = Model::served_by(Vec::new());
        let row = match self.spare.pop() {
            Some(row) => {
                self.models[row] = fresh;
                row
            }
            None => {
                self.models.push(fresh);
                self.models.len() - 1
            }
        };
        self.rows.insert(Some(name.clone()), row);
        Some(row)
    }

    /// A name that nobody serves is unknown again.
    pub(in super::super) fn forget(&mut self, name: &ModelName) {
        let key = Some(name.clone());
        if let Some(row) = self.rows.get(&key).copied()
            && self.models[row].workers.is_empty()
        {
            self.rows.remove(&key);
            self.spare.push(row);
        }
    }
}
