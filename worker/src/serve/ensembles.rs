//! Ensembles, which are made of models that come, go and change under them.
//!
//! An ensemble that was loaded is wanted until it is unloaded, whatever becomes of its members meanwhile: each time one
//! of them was loaded or has gone, the ensembles that are made of it are made anew, those made of these after them. One
//! that can't be made goes on as it was while all its members do; else it is out of service, with the reason in the
//! repository's index, and comes back with what it lacked. (In Triton 2.51 an ensemble whose member went stays down
//! when the member is back.) Nothing of a member is loaded again for it: an ensemble holds its members' own threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ensemble::{Graph, Member};
use crate::line::{App, Ensemble, Model, Work, sequences};
use crate::repository::{Engine, EnsemblePlan, Labels, ModelPlan};
use crate::serve::load::{Loader, platform};
use crate::units::ModelName;

/// The ensembles that are wanted.
#[derive(Default)]
pub struct Ensembles {
    wanted: Mutex<Wanted>,
}

/// By name.
type Wanted = BTreeMap<ModelName, ModelPlan>;

/// What became of each ensemble that was made anew.
pub type Settled = BTreeMap<ModelName, Result<(), String>>;

impl Ensembles {
    /// From now on this one is wanted; it is made when it is settled.
    pub fn want(&self, plan: ModelPlan) {
        self.wanted.lock().insert(plan.name.clone(), plan);
    }

    /// This one is wanted no more, if it is one.
    pub fn drop(&self, name: &ModelName) {
        self.wanted.lock().remove(name);
    }

    /// The models that a wanted ensemble is made of, and those that these are made of.
    pub fn members(&self, name: &ModelName) -> BTreeSet<ModelName> {
        below(&self.wanted.lock(), name)
    }

    /// Makes those anew that have changed, or are made of what has. What is served as before has not: a load that
    /// failed costs nobody the answers that are kept.
    pub fn settle(&self, app: &App, loader: &Loader, mut changed: BTreeSet<ModelName>) -> Settled {
        let wanted = self.wanted.lock();
        let mut settled = Settled::new();
        for name in order(&wanted) {
            let Some(plan) = wanted.get(&name) else {
                continue;
            };
            let concerned = plan.members().any(|member| changed.contains(member));
            if !concerned && !changed.contains(&name) {
                continue;
            }
            let before = app.registry.serving(&name);
            let made = make(&wanted, plan, app, loader);
            settled.insert(name.clone(), place(app, plan, made));
            match before.stands(&app.registry, &name) {
                true => changed.remove(&name),
                false => changed.insert(name),
            };
        }
        settled
    }
}

/// Members before what is made of them; those that are made of themselves come last.
fn order(wanted: &Wanted) -> Vec<ModelName> {
    let mut ordered = Vec::with_capacity(wanted.len());
    let mut rest: Vec<&ModelPlan> = wanted.values().collect();
    while !rest.is_empty() {
        let settled = |plan: &&ModelPlan| {
            let waits = |member: &str| rest.iter().any(|other| other.name.as_str() == member);
            !plan.members().any(waits)
        };
        let (ready, waiting): (Vec<_>, Vec<_>) = rest.iter().copied().partition(settled);
        if ready.is_empty() {
            ordered.extend(waiting.iter().map(|plan| plan.name.clone()));
            break;
        }
        ordered.extend(ready.iter().map(|plan| plan.name.clone()));
        rest = waiting;
    }
    ordered
}

/// All that a model is made of, directly or not; itself among them if it is made of itself.
fn below(wanted: &Wanted, name: &ModelName) -> BTreeSet<ModelName> {
    let mut found = BTreeSet::new();
    let mut open = vec![name.clone()];
    while let Some(name) = open.pop() {
        let plan = wanted.get(&name);
        let members = plan
            .into_iter()
            .flat_map(ModelPlan::members)
            .map(ModelName::new);
        let new = members.filter(|member| found.insert(member.clone()));
        let new: Vec<ModelName> = new.collect();
        open.extend(new);
    }
    found
}

/// Puts an ensemble into service, or out of it.
fn place(app: &App, plan: &ModelPlan, made: Result<Model, String>) -> Result<(), String> {
    let name = &plan.name;
    let problem = made.as_ref().err().cloned();
    if let Some(problem) = &problem {
        tracing::error!(model = name.as_str(), "not loaded: {problem}");
        if !stands(app, name) {
            app.registry.remove(name, problem);
        }
    }
    let version = plan.versions.first().map_or(1, |version| version.version);
    app.registry.place(name, vec![(version, made)]);
    problem.map_or(Ok(()), Err)
}

/// Whether an ensemble is served whose members all are the ones that are served.
fn stands(app: &App, name: &ModelName) -> bool {
    let Ok(model) = app.registry.find(name.as_str(), None) else {
        return false;
    };
    let Work::Ensemble(ensemble) = &model.work else {
        return false;
    };
    let current = |member: &Arc<Model>| {
        let version = member.version.to_string();
        let served = app.registry.find(member.name.as_str(), Some(&version));
        served.is_ok_and(|served| Arc::ptr_eq(&served, member))
    };
    ensemble.members().iter().all(current)
}

/// An ensemble of the members that are served now, or why it can't be.
fn make(wanted: &Wanted, plan: &ModelPlan, app: &App, loader: &Loader) -> Result<Model, String> {
    let start = loader.clock.now();
    let Engine::Ensemble(described) = &plan.engine else {
        return Err("it is no ensemble".into());
    };
    let in_file = |problem: String| format!("config.pbtxt: {problem}");
    let graph = Graph::wire(described).map_err(in_file)?;
    let members = members(wanted, plan, described, app).map_err(in_file)?;
    let facts = members.iter().map(|member| Member {
        signature: &member.signature,
        most_rows: member.most_rows,
    });
    let facts: Vec<Member<'_>> = facts.collect();
    let signature = graph.fit(described, &facts).map_err(in_file)?;
    check_sequences(plan, described, &members).map_err(in_file)?;
    let version = plan.versions.first().map_or(1, |version| version.version);
    let created = plan.versions.first().map_or(0, |version| version.created);
    let labels = labels(plan, described, &members);
    let has_rows = described.most_rows > 0;
    tracing::info!(
        model = plan.name.as_str(),
        version,
        members = members.len(),
        "loaded"
    );
    Ok(Model {
        name: plan.name.clone(),
        version,
        created,
        platform: platform(&plan.engine),
        signature,
        most_rows: Some(described.most_rows),
        labels,
        document: plan.config.document.clone(),
        placements: Vec::new(),
        load: loader.clock.now() - start,
        tally: app.ledger.tally(&plan.name, version),
        keeping: loader.keeping(plan),
        work: Work::Ensemble(Ensemble::new(
            graph,
            members,
            has_rows,
            plan.config.limits.clone(),
            loader.clock,
        )),
        embedder: None,
        classifier: None,
    })
}

/// Whether what keeps sequences sees each request once.
fn check_sequences(
    plan: &ModelPlan,
    described: &EnsemblePlan,
    members: &[Arc<Model>],
) -> Result<(), String> {
    let mut seen: Vec<(usize, &Arc<Model>)> = Vec::new();
    for (at, member) in members.iter().enumerate() {
        for model in sequences(member) {
            if let Some((before, _)) = seen.iter().find(|(_, other)| Arc::ptr_eq(other, model)) {
                let before = before + 1;
                let problem = format!(
                    "`{}` keeps sequences, and step {before} runs it too: it would see each request twice",
                    model.name
                );
                return Err(described.in_step(at, ("step", member.name.as_str()), &problem));
            }
            seen.push((at, model));
        }
    }
    if plan.config.cached && !seen.is_empty() {
        let problem = "response_cache: what a sequence answers depends on what came before";
        return Err(described.in_whole(problem));
    }
    Ok(())
}

/// The model of each step, as it is served now.
fn members(
    wanted: &Wanted,
    plan: &ModelPlan,
    described: &EnsemblePlan,
    app: &App,
) -> Result<Vec<Arc<Model>>, String> {
    let own = |at: usize| {
        let step = &described.steps[at];
        let name = ModelName::new(&step.model);
        let word = ("step", step.model.as_str());
        if name == plan.name || below(wanted, &name).contains(&plan.name) {
            let problem = "it is made of this ensemble itself: a circle";
            return Err(described.in_step(at, word, problem));
        }
        let version = step.version.map(|version| version.to_string());
        let found = app.registry.find(&step.model, version.as_deref());
        found.map_err(|fault| described.in_step(at, word, &fault.message))
    };
    (0..described.steps.len()).map(own).collect()
}

/// What the values of its outputs stand for: its own labels, else those of whoever makes the output.
fn labels(plan: &ModelPlan, described: &EnsemblePlan, members: &[Arc<Model>]) -> Labels {
    let mut labels = plan.labels.clone();
    for (step, member) in described.steps.iter().zip(members) {
        for (name, tensor) in &step.outputs {
            if let Some(theirs) = member.labels.get(name) {
                labels
                    .entry(tensor.clone())
                    .or_insert_with(|| theirs.clone());
            }
        }
    }
    labels
}
