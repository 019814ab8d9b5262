//! Loads models and takes them out of service. Nothing here stops what is served; see `line/registry.rs`. What is made
//! of a model that comes or goes is made anew or goes with it; see [`super::ensembles`].

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::fault::{Fault, Kind, there_are};
use crate::line::App;
use crate::repository::{self, Engine, Found, ModelPlan};
use crate::serve::ensembles::Ensembles;
use crate::serve::load::Loader;
use crate::units::ModelName;

/// The models that are served, and what they are loaded with.
pub struct Stock {
    app: Arc<App>,
    loader: Loader,
    ensembles: Ensembles,
}

impl Stock {
    /// Nothing yet.
    pub fn new(app: Arc<App>, loader: Loader) -> Stock {
        let ensembles = Ensembles::default();
        Stock {
            app,
            loader,
            ensembles,
        }
    }

    /// Loads what was found at the start; the models that failed, each with its reason. A model is its own mistake
    /// only; that none of them loads is the caller's to judge.
    pub fn fill(&self, found: Found) -> Vec<String> {
        let mut problems = Vec::new();
        let mut told = |name: &ModelName, outcome: Result<(), String>| {
            let problem = outcome.err();
            problems.extend(problem.map(|problem| format!("model {name}: {problem}")));
        };
        let mut changed = BTreeSet::new();
        for (name, plan) in found {
            changed.insert(name.clone());
            match plan {
                Ok(plan) if is_ensemble(&plan) => self.ensembles.want(plan),
                Ok(plan) => told(&name, self.place_one(&plan)),
                Err(problem) => {
                    self.app.registry.fail(&name, &problem);
                    told(&name, Err(problem));
                }
            }
        }
        for (name, outcome) in self.ensembles.settle(&self.app, &self.loader, changed) {
            told(&name, outcome);
        }
        problems
    }

    /// Loads a model, or loads it anew. Those that it is made of are loaded first where they are not served, if asked.
    pub fn load(&self, name: &ModelName, members: bool) -> Result<(), Fault> {
        self.check_there(name)?;
        let outcome = self.plan(name).and_then(|plan| {
            if members {
                self.bring(&plan, &mut BTreeSet::from([name.clone()]));
            }
            self.place(plan)
        });
        outcome.map_err(|problem| Fault::bad(format!("model `{name}` can't be loaded: {problem}")))
    }

    /// Takes a model out of service, and those that it is made of, if asked.
    pub fn unload(&self, name: &ModelName, members: bool) -> Result<(), Fault> {
        let mut leaving = BTreeSet::from([name.clone()]);
        if members {
            leaving.extend(self.ensembles.members(name));
        }
        let mut known = false;
        for one in &leaving {
            self.ensembles.drop(one);
            if self.app.registry.remove(one, "unloaded") {
                tracing::info!(model = one.as_str(), "unloaded");
                known |= one == name;
            }
        }
        self.settle(leaving);
        if known {
            return Ok(());
        }
        self.check_there(name)
    }

    /// Forgets a model whose folder is gone.
    pub fn forget(&self, name: &ModelName) {
        tracing::info!(model = name.as_str(), "unloaded: its folder is gone");
        self.ensembles.drop(name);
        self.app.registry.forget(name);
        self.app.ledger.forget(name);
        self.settle(BTreeSet::from([name.clone()]));
    }

    /// Loads what a model is made of and is not served, and before it what that is made of. What fails is in the index,
    /// and in the reason why the whole does.
    fn bring(&self, plan: &ModelPlan, seen: &mut BTreeSet<ModelName>) {
        for member in plan.members().map(ModelName::new) {
            let served = !self.app.registry.versions(&member).is_empty();
            if !seen.insert(member.clone()) || served || self.check_there(&member).is_err() {
                continue;
            }
            if let Ok(plan) = self.plan(&member) {
                self.bring(&plan, seen);
                let _ = self.place(plan);
            }
        }
    }

    /// Reads a model of the folder. A mistake is noted.
    fn plan(&self, name: &ModelName) -> Result<ModelPlan, String> {
        repository::plan(&self.app.folder, name).inspect_err(|problem| {
            self.app.registry.fail(name, problem);
            tracing::error!(model = name.as_str(), "not loaded: {problem}");
        })
    }

    /// Puts a model into service, and what is made of it.
    fn place(&self, plan: ModelPlan) -> Result<(), String> {
        let name = plan.name.clone();
        let (mut outcome, mut changed) = (Ok(()), BTreeSet::from([name.clone()]));
        if is_ensemble(&plan) {
            self.ensembles.want(plan);
        } else {
            self.ensembles.drop(&name);
            let before = self.app.registry.serving(&name);
            outcome = self.place_one(&plan);
            if before.stands(&self.app.registry, &name) {
                changed.clear();
            }
        }
        let mut settled = self.ensembles.settle(&self.app, &self.loader, changed);
        settled.remove(&name).unwrap_or(outcome)
    }

    /// Loads the versions of a model that is made of no others; the problem is that of those that failed.
    fn place_one(&self, plan: &ModelPlan) -> Result<(), String> {
        let versions = self.loader.load(plan, &self.app.ledger);
        let problem = |(version, loaded): &(u64, Result<_, String>)| {
            let problem = loaded.as_ref().err()?;
            Some(format!("version {version}: {problem}"))
        };
        let problems: Vec<String> = versions.iter().filter_map(problem).collect();
        self.app.registry.place(&plan.name, versions);
        if problems.is_empty() {
            return Ok(());
        }
        let problem = problems.join("; ");
        tracing::error!(model = plan.name.as_str(), "not loaded: {problem}");
        Err(problem)
    }

    /// Makes anew what is made of these; what fails is logged and in the index.
    fn settle(&self, changed: BTreeSet<ModelName>) {
        let _ = self.ensembles.settle(&self.app, &self.loader, changed);
    }

    /// A name from outside becomes part of a path only if the folder itself lists it.
    fn check_there(&self, name: &ModelName) -> Result<(), Fault> {
        let names = names(&self.app.folder)?;
        if names.contains(name) {
            return Ok(());
        }
        let there: Vec<&str> = names.iter().map(ModelName::as_str).collect();
        let there = there_are(&there);
        let problem = format!("there is no model `{name}` in the models folder; {there}");
        Err(Fault::new(Kind::ModelNotFound, problem))
    }
}

fn names(folder: &Path) -> Result<Vec<ModelName>, Fault> {
    let failed = |error| Fault::new(Kind::EngineFailed, format!("the models folder: {error}"));
    repository::names(folder).map_err(failed)
}

fn is_ensemble(plan: &ModelPlan) -> bool {
    matches!(plan.engine, Engine::Ensemble(_))
}
