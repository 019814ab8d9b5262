//! Loads models, and changes them while the worker serves: by request, or as the folder changes.
//!
//! One thread does it all, one model after the other: loading takes a core and memory, and two loads of one model at a
//! time would make "the newest" a matter of luck. Nothing here stops what is served; see `line/registry.rs`.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::fault::{Fault, Kind, there_are};
use crate::line::{App, Order};
use crate::repository::{self, Change, Found, Watch, fingerprints};
use crate::serve::load::Loader;
use crate::units::{ModelName, Seconds};

/// The thread's belongings.
pub struct Keeper {
    app: Arc<App>,
    loader: Arc<Loader>,
    /// The folder as it was before the models were first looked for: what changes while they load is a change.
    watch: Watch,
}

impl Keeper {
    /// A keeper of this app's models.
    pub fn new(app: Arc<App>, loader: Loader, watch: Watch) -> Keeper {
        let loader = Arc::new(loader);
        Keeper { app, loader, watch }
    }

    /// Loads what was found at the start; the models that failed, each with its reason. A model is its own mistake
    /// only; that none of them loads is the caller's to judge.
    pub fn first(&self, found: Found) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, plan) in found {
            let outcome = match plan {
                Ok(plan) => place(&self.app, &self.loader, &plan),
                Err(problem) => {
                    self.app.registry.fail(&name, &problem);
                    Err(problem)
                }
            };
            problems.extend(
                outcome
                    .err()
                    .map(|problem| format!("model {name}: {problem}")),
            );
        }
        problems
    }

    /// Carries out orders until nobody can give any more.
    pub async fn obey(self, mut orders: UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            let (name, load, reply) = match order {
                Order::Load(name, reply) => (name, true, reply),
                Order::Unload(name, reply) => (name, false, reply),
            };
            let outcome = self.aside(move |app, loader| match load {
                true => reload(app, loader, &name),
                false => unload(app, &name),
            });
            answer(reply, outcome.await);
        }
    }

    /// Follows the folder for ever, looking at it this often.
    pub async fn follow(mut self, interval: Seconds) {
        loop {
            tokio::time::sleep(interval.to_duration()).await;
            let there = match fingerprints(&self.app.folder) {
                Ok(there) => there,
                Err(error) => {
                    // What is served stays: a folder that is away for a moment is no wish to serve nothing.
                    tracing::warn!("--models {}: {error}", self.app.folder.display());
                    continue;
                }
            };
            for change in self.watch.look(there) {
                // A failure was logged, and is in the index.
                let _ = self
                    .aside(move |app, loader| follow_one(app, loader, change))
                    .await;
            }
        }
    }

    /// Does something slow off the reactor.
    async fn aside(
        &self,
        work: impl FnOnce(&App, &Loader) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let (app, loader) = (Arc::clone(&self.app), Arc::clone(&self.loader));
        let done = tokio::task::spawn_blocking(move || work(&app, &loader)).await;
        done.unwrap_or_else(|_| Err(Fault::new(Kind::EngineFailed, "loading crashed")))
    }
}

fn follow_one(app: &App, loader: &Loader, change: Change) -> Result<(), Fault> {
    match change {
        Change::Load(name) => reload(app, loader, &name),
        Change::Unload(name) => {
            tracing::info!(model = name.as_str(), "unloaded: its folder is gone");
            app.registry.forget(&name);
            app.ledger.forget(&name);
            Ok(())
        }
    }
}

fn reload(app: &App, loader: &Loader, name: &ModelName) -> Result<(), Fault> {
    check_there(&app.folder, name)?;
    let plan = repository::plan(&app.folder, name);
    let outcome = match &plan {
        Ok(plan) => place(app, loader, plan),
        Err(problem) => {
            app.registry.fail(name, problem);
            tracing::error!(model = name.as_str(), "not loaded: {problem}");
            Err(problem.clone())
        }
    };
    outcome.map_err(|problem| Fault::bad(format!("model `{name}` can't be loaded: {problem}")))
}

fn unload(app: &App, name: &ModelName) -> Result<(), Fault> {
    if app.registry.remove(name) {
        tracing::info!(model = name.as_str(), "unloaded");
        return Ok(());
    }
    check_there(&app.folder, name)
}

/// A name from outside becomes part of a path only if the folder itself lists it.
fn check_there(folder: &Path, name: &ModelName) -> Result<(), Fault> {
    let names = repository::names(folder)
        .map_err(|error| Fault::new(Kind::EngineFailed, format!("the models folder: {error}")))?;
    if names.contains(name) {
        return Ok(());
    }
    let there: Vec<&str> = names.iter().map(ModelName::as_str).collect();
    let there = there_are(&there);
    let problem = format!("there is no model `{name}` in the models folder; {there}");
    Err(Fault::new(Kind::ModelNotFound, problem))
}

/// Loads a model and puts it into service; the problem is that of the versions that failed.
fn place(app: &App, loader: &Loader, plan: &repository::ModelPlan) -> Result<(), String> {
    let versions = loader.load(plan, &app.ledger);
    let problem = |(version, loaded): &(u64, Result<_, String>)| {
        let problem = loaded.as_ref().err()?;
        Some(format!("version {version}: {problem}"))
    };
    let problems: Vec<String> = versions.iter().filter_map(problem).collect();
    app.registry.place(&plan.name, versions);
    if problems.is_empty() {
        return Ok(());
    }
    let problem = problems.join("; ");
    tracing::error!(model = plan.name.as_str(), "not loaded: {problem}");
    Err(problem)
}

/// Whoever asked may have left.
fn answer(reply: oneshot::Sender<Result<(), Fault>>, outcome: Result<(), Fault>) {
    let _ = reply.send(outcome);
}
