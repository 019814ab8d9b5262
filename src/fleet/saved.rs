//! What was learned of speeds, kept in the state folder: a restarted proxy knows its workers at once.
//!
//! A database is not needed for a page of numbers: `speeds.json` is written whole every minute and at the end
//! (`kept.rs`), and read once, before the first request. It is advice: whatever is wrong with it, the proxy starts,
//! says so once, and learns anew. A worker is known again by its name, its address and its engine together; another
//! machine behind an old name starts afresh. How machines disturb each other is not kept: it is learned within minutes
//! of use.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

use super::Fleet;
use crate::config::Choice;
use crate::config::plan::WorkerPlan;
use crate::decide::SavedSpeeds;
use crate::kept;
use crate::units::{Seconds, WorkerId};

const FILE: &str = "speeds.json";
/// The shape of the file that is understood here.
const VERSION: u32 = 1;
/// Time between two writings.
const PAUSE: Seconds = Seconds(60.0);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    workers: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// Host, port and base path.
    address: String,
    /// As typed; empty when it is to be detected.
    engine: String,
    speeds: SavedSpeeds,
}

/// Keeps what the fleet learns, for as long as the process lives.
pub async fn keep_speeds(fleet: Arc<Fleet>, state: Arc<Path>) {
    let mut ticks = interval(PAUSE.to_duration());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (fleet, state) = (fleet.clone(), state.clone());
        // A disk may block; who waits for it here is nobody else.
        let written = tokio::task::spawn_blocking(move || fleet.save_speeds(&state));
        drop(written.await);
    }
}

impl Fleet {
    /// Writes what was learned. What can't be written is said and no more.
    pub fn save_speeds(&self, state: &Path) {
        let stations = self.stations();
        let mut document = Document {
            version: VERSION,
            workers: Vec::with_capacity(stations.len()),
        };
        let core = self.core.lock();
        for (id, station) in (0..).map(WorkerId).zip(&*stations) {
            if let Some(speeds) = core.state.saved(id).filter(|_| !station.leaves) {
                document.workers.push(entry(&station.plan, speeds));
            }
        }
        drop(core);
        let _alone = self.saving.lock();
        if let Err(error) = kept::write(state, FILE, &document) {
            tracing::warn!("{FILE} can't be written: {error}");
        }
    }

    /// Takes in what an earlier process has learned.
    pub fn recall_speeds(&self, state: &Path) {
        match kept::read::<Document>(state, FILE) {
            Ok(None) => {}
            Ok(Some(document)) if document.version == VERSION => self.recall(&document),
            Ok(Some(Document { version, .. })) => {
                tracing::warn!(
                    "{FILE} is ignored, speeds are learned anew: it is of version {version}"
                );
            }
            Err(error) => {
                tracing::warn!("{FILE} is ignored, speeds are learned anew: {error}");
            }
        }
    }

    fn recall(&self, document: &Document) {
        let stations = self.stations();
        let mut core = self.core.lock();
        let mut unfit = Vec::new();
        for (id, station) in (0..).map(WorkerId).zip(&*stations) {
            let worker = &station.plan;
            let known = document.workers.iter().find(|entry| entry.is_of(worker));
            if known.is_some_and(|entry| !core.state.recall(id, &entry.speeds)) {
                unfit.push(&*worker.name);
            }
        }
        drop(core);
        if !unfit.is_empty() {
            let names = unfit.join(", ");
            tracing::warn!("{FILE} has impossible speeds, which are learned anew: {names}");
        }
    }
}

impl Entry {
    fn is_of(&self, worker: &WorkerPlan) -> bool {
        *self.name == *worker.name
            && self.address == address(worker)
            && self.engine == engine(worker)
    }
}

fn entry(worker: &WorkerPlan, speeds: SavedSpeeds) -> Entry {
    Entry {
        name: worker.name.to_string(),
        address: address(worker),
        engine: engine(worker).to_owned(),
        speeds,
    }
}

fn address(worker: &WorkerPlan) -> String {
    format!(
        "{}:{}{}",
        worker.origin.host, worker.origin.port, worker.origin.base
    )
}

fn engine(worker: &WorkerPlan) -> &'static str {
    worker.engine.map_or("", Choice::word)
}
