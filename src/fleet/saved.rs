//! What was learned of speeds, kept in the state folder: a restarted proxy knows its workers at once.
//!
//! A file per process would be read by none and a database is not needed for a page of numbers: `speeds.json` is written
//! whole every minute and at the end, beside the old one and then in its place, so a reader finds one or the other. It is
//! read once, before the first request. It is advice: whatever is wrong with it, the proxy starts, says so once, and
//! learns anew. A worker is known again by its name, its address and its engine together; another machine behind an old
//! name starts afresh. How machines disturb each other is not kept: it is learned within minutes of use.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

use super::Fleet;
use crate::config::plan::WorkerPlan;
use crate::config::{Choice, Plan};
use crate::decide::SavedSpeeds;
use crate::units::{Seconds, WorkerId};

const FILE: &str = "speeds.json";
const FRESH: &str = "speeds.json.new";
/// The shape of the file that is understood here.
const VERSION: u32 = 1;
/// A longer file is not ours.
const LARGEST: u64 = 16 << 20;
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
pub async fn keep_speeds(fleet: Arc<Fleet>, plan: Arc<Plan>) {
    let mut ticks = interval(PAUSE.to_duration());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (fleet, plan) = (fleet.clone(), plan.clone());
        // A disk may block; who waits for it here is nobody else.
        let written = tokio::task::spawn_blocking(move || fleet.save_speeds(&plan));
        drop(written.await);
    }
}

impl Fleet {
    /// Writes what was learned. What can't be written is said and no more.
    pub fn save_speeds(&self, plan: &Plan) {
        let mut document = Document {
            version: VERSION,
            workers: Vec::with_capacity(plan.workers.len()),
        };
        let core = self.core.lock();
        for (id, worker) in (0..).map(WorkerId).zip(&plan.workers) {
            if let Some(speeds) = core.state.saved(id) {
                document.workers.push(entry(worker, speeds));
            }
        }
        drop(core);
        let _alone = self.saving.lock();
        if let Err(error) = write(&plan.state, &document) {
            tracing::warn!("{FILE} can't be written: {error}");
        }
    }

    /// Takes in what an earlier process has learned.
    pub fn recall_speeds(&self, plan: &Plan) {
        match read(&plan.state) {
            Ok(document) => self.recall(plan, &document),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!("{FILE} is ignored, speeds are learned anew: {error}");
            }
        }
    }

    fn recall(&self, plan: &Plan, document: &Document) {
        let mut core = self.core.lock();
        let mut unfit = Vec::new();
        for (id, worker) in (0..).map(WorkerId).zip(&plan.workers) {
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

/// For the owner's eyes: the folder holds the admin token too.
fn write(state: &Path, document: &Document) -> io::Result<()> {
    let text = sonic_rs::to_string(document).map_err(io::Error::other)?;
    let fresh = state.join(FRESH);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&fresh)?.write_all(text.as_bytes())?;
    fs::rename(fresh, state.join(FILE))
}

fn read(state: &Path) -> io::Result<Document> {
    let mut text = String::new();
    let length = File::open(state.join(FILE))?
        .take(LARGEST + 1)
        .read_to_string(&mut text)?;
    if length as u64 > LARGEST {
        return Err(io::Error::other("it is longer than 16 MiB"));
    }
    let document: Document = sonic_rs::from_str(&text)
        .map_err(|_| io::Error::other("it is not what this version writes"))?;
    if document.version != VERSION {
        let version = document.version;
        return Err(io::Error::other(format!("it is of version {version}")));
    }
    Ok(document)
}
