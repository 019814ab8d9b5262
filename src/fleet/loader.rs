//! Loading LoRA adapters when a client asks for them, where the operator lets us.
//!
//! A load happens on the path of the first request that needs it, which waits for it with its own timers; others of
//! the same adapter wait behind it, and nobody else does: each adapter of each worker has a gate of its own. Who waited
//! while a load failed fails with it and does not try again. A request that leaves takes its load along; the next in
//! the gate orders it anew, and an engine that has it by then says so.
//!
//! When an engine has no room, the adapter that was used longest ago and has no request in flight is unloaded, and only
//! one that can be loaded again: what the operator loaded by hand stays. It is no longer counted as loaded in the same
//! step that finds it idle, so a request for it that comes meanwhile waits at its gate and loads it again.
//!
//! What a failed load means for the adapter is decided in `decide/lora.rs`; for the worker it means nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Fleet;
use super::dialect::lora::{self, Loading};
use super::discover::{Inquirer, Silence};
use crate::config::plan::WorkerPlan;
use crate::decide::LoraNews;
use crate::units::{ModelName, Seconds, WorkerId};
use crate::upstream::{Loss, Upstream};

/// The longest that a load may take.
const LONGEST: Seconds = Seconds(60.0);
/// So much of an engine's own words is written to the log.
const WORDS: usize = 300;

/// The adapters that one worker can be told to load.
#[derive(Debug, Default)]
pub(super) struct Loader {
    adapters: BTreeMap<ModelName, Loadable>,
}

#[derive(Debug)]
struct Loadable {
    path: String,
    is_there: AtomicBool,
    /// Whoever loads or unloads it holds this; it keeps the last failure.
    gate: tokio::sync::Mutex<Option<Failure>>,
}

#[derive(Clone, Debug)]
struct Failure {
    at: Seconds,
    why: String,
}

/// Why an adapter is not there.
#[derive(Debug)]
pub enum NotLoaded {
    /// The worker could not be reached, which is not the adapter's fault.
    Lost(Loss),
    /// It can't be had, in words.
    Refused(String),
}

impl Loader {
    /// None of them is believed to be there.
    pub(super) fn of(plan: &WorkerPlan) -> Self {
        let typed = plan.lora.adapters.iter().filter(|_| plan.lora.load);
        let loadable = |path: &str| Loadable {
            path: path.to_owned(),
            is_there: AtomicBool::new(false),
            gate: tokio::sync::Mutex::default(),
        };
        Loader {
            adapters: typed
                .map(|adapter| (adapter.name.clone(), loadable(&adapter.path)))
                .collect(),
        }
    }

    /// The worker lists these adapters and no others.
    pub(super) fn listed(&self, adapters: &[lora::Listed]) {
        for (name, loadable) in &self.adapters {
            let is_there = adapters.iter().any(|one| one.name == *name);
            loadable.is_there.store(is_there, Ordering::Release);
        }
    }

    /// Those that are there, but for one.
    fn others(&self, than: &ModelName) -> Vec<ModelName> {
        let others = self
            .adapters
            .iter()
            .filter(|(name, loadable)| *name != than && loadable.is_there.load(Ordering::Acquire));
        others.map(|(name, _)| name.clone()).collect()
    }
}

impl Fleet {
    /// The adapter, by its engine's name, that has to be loaded on a worker before a request for this model is sent.
    #[must_use]
    pub fn to_load(&self, worker: WorkerId, model: &ModelName) -> Option<ModelName> {
        let station = self.station(worker)?;
        let loader = &station.loader;
        if loader.adapters.is_empty() {
            return None;
        }
        let catalogue = self.catalogue();
        let name = catalogue.adapter(worker, model)?;
        let is_there = loader.adapters.get(name)?.is_there.load(Ordering::Acquire);
        (!is_there).then(|| name.clone())
    }

    /// Loads an adapter, or waits until whoever does so has.
    ///
    /// # Errors
    /// Why it is not there.
    pub async fn load(
        self: &Arc<Self>,
        worker: WorkerId,
        adapter: &ModelName,
        plan: &WorkerPlan,
        upstream: &Arc<Upstream>,
    ) -> Result<(), NotLoaded> {
        let station = self.station(worker);
        let loader = station.as_ref().map(|station| &station.loader);
        let Some(loadable) = loader.and_then(|loader| loader.adapters.get(adapter)) else {
            return Ok(());
        };
        let came = self.clock.now();
        let mut gate = loadable.gate.lock().await;
        if loadable.is_there.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(failure) = gate.as_ref().filter(|failure| failure.at >= came) {
            return Err(NotLoaded::Refused(failure.why.clone()));
        }
        let inquirer = Inquirer::new(plan, upstream.clone());
        let began = self.clock.now();
        match self.order(worker, adapter, &loadable.path, &inquirer).await {
            Ok(()) => {
                let took = self.clock.now() - began;
                loadable.is_there.store(true, Ordering::Release);
                self.lora_heard(worker, adapter, LoraNews::Loaded(took));
                tracing::info!(worker = &*plan.name, %adapter, seconds = took.0, "loaded an adapter");
                Ok(())
            }
            Err(NotLoaded::Refused(why)) => {
                *gate = Some(Failure {
                    at: self.clock.now(),
                    why: why.clone(),
                });
                self.lora_heard(worker, adapter, LoraNews::Refused);
                Err(NotLoaded::Refused(why))
            }
            Err(lost) => Err(lost),
        }
    }

    /// An adapter was not loaded before a request's own timer fired: it counts as one that can't be.
    pub fn loads_too_slowly(self: &Arc<Self>, worker: WorkerId, adapter: &ModelName) {
        self.lora_heard(worker, adapter, LoraNews::Refused);
    }

    /// A worker does not know a model: if that is an adapter which it can be told to load, it has lost it.
    pub fn has_lost(self: &Arc<Self>, worker: WorkerId, model: &ModelName) {
        let catalogue = self.catalogue();
        let station = self.station(worker);
        let loader = station.as_ref().map(|station| &station.loader);
        if let Some(name) = catalogue.adapter(worker, model)
            && let Some(loadable) = loader.and_then(|loader| loader.adapters.get(name))
        {
            loadable.is_there.store(false, Ordering::Release);
            self.lora_heard(worker, name, LoraNews::Gone);
        }
    }

    fn lora_heard(self: &Arc<Self>, worker: WorkerId, adapter: &ModelName, news: LoraNews) {
        self.change(|core, now| core.state.lora_heard(worker, adapter, news, now));
    }

    /// Orders a load, and a second time if room had to be made for it.
    async fn order(
        self: &Arc<Self>,
        worker: WorkerId,
        adapter: &ModelName,
        path: &str,
        inquirer: &Inquirer,
    ) -> Result<(), NotLoaded> {
        let mut made_room = false;
        loop {
            let engine = self.engine(worker);
            let order = engine.and_then(|engine| lora::load(engine, adapter, path));
            let Some((target, body)) = order else {
                let why = "its engine can't be told to load adapters".to_owned();
                return Err(NotLoaded::Refused(why));
            };
            let reply = inquirer.order(target, body, LONGEST).await;
            let reply = reply.map_err(|silence| not_loaded(adapter, silence))?;
            let words = reply.body.unwrap_or_default();
            match lora::loading(reply.status.is_success(), &words) {
                Loading::Done => return Ok(()),
                Loading::Full if !made_room => {
                    made_room = true;
                    self.make_room(worker, adapter, inquirer).await;
                }
                Loading::Full | Loading::Refused => {
                    let words: String = String::from_utf8_lossy(&words)
                        .chars()
                        .take(WORDS)
                        .collect();
                    tracing::warn!(worker = worker.0, %adapter, status = reply.status.as_u16(), words = words.escape_debug().to_string(), "an adapter can't be loaded");
                    let why = format!(
                        "it answered {} to {target} for the adapter `{adapter}`",
                        reply.status
                    );
                    return Err(NotLoaded::Refused(why));
                }
            }
        }
    }

    /// Unloads whom it can spare.
    async fn make_room(self: &Arc<Self>, worker: WorkerId, than: &ModelName, inquirer: &Inquirer) {
        let Some(station) = self.station(worker) else {
            return;
        };
        let loader = &station.loader;
        let spared = self.change(|core, now| {
            let spared = core.state.lora_to_spare(worker, &loader.others(than))?;
            let loadable = loader.adapters.get(&spared)?;
            // Whoever holds its gate is about to use it.
            let gate = loadable.gate.try_lock().ok()?;
            loadable.is_there.store(false, Ordering::Release);
            core.state.lora_heard(worker, &spared, LoraNews::Gone, now);
            Some((spared, gate))
        });
        let order = spared
            .as_ref()
            .and_then(|(name, _)| lora::unload(self.engine(worker)?, name));
        if let Some((target, body)) = order {
            // One that could not be unloaded is found to be there when it is loaded again.
            let _ = inquirer.order(target, body, LONGEST).await;
        }
    }
}

fn not_loaded(adapter: &ModelName, silence: Silence) -> NotLoaded {
    match silence {
        Silence::Lost(loss) if loss.unsent() => NotLoaded::Lost(loss),
        silence => NotLoaded::Refused(format!("the adapter `{adapter}` was not loaded: {silence}")),
    }
}
