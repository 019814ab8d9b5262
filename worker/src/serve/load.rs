//! From a model's plan to a model that answers.

use std::path::PathBuf;
use std::sync::Arc;

use ort::environment::Environment;

use crate::batch::Limits;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::declared::View;
use crate::engine::echo::Echo;
use crate::engine::library;
use crate::engine::onnx::Onnx;
use crate::engine::step::BuiltIn;
use crate::line::{Classifier, Device, Embedder, Keeping, Model, Platform, Sequencer, Work};
use crate::observe::Ledger;
use crate::repository::{self, Found, Kind, ModelPlan, VersionPlan};
use crate::runner::Runner;
use crate::serve::warm_up::{first_states, warm_up};
use crate::serve::{Control, Settings, Stop};
use crate::tensor::Signature;
use crate::units::Seconds;

/// What every model is loaded with.
pub struct Loader {
    /// Absent when no model that was found at the start needs a library, and none was named.
    environment: Option<Environment>,
    /// The machine's threads, shared out among a model's instances.
    threads: usize,
    pub(super) clock: Clock,
    /// Where answers are kept; absent where none are to be.
    cache: Option<Arc<Cache>>,
}

/// The one device of this version.
pub const CPU: Device = Device {
    name: "cpu",
    fallback: false,
};

/// The models and the library, or everything that is wrong with either. A folder without graphs needs no library.
pub fn prepare(settings: &Settings, clock: Clock) -> Result<(Found, Loader), Stop> {
    let found = repository::scan(&settings.models);
    let needs_library = match &found {
        Ok(found) => !found.values().flatten().all(has_no_graph) || found.is_empty(),
        Err(_) => true,
    } || settings.library.named.is_some();
    let environment = needs_library
        .then(|| library::open(&settings.library))
        .transpose();
    let mut problems = Vec::new();
    if let Err(problem) = &environment {
        problems.push(problem.to_string());
    }
    match &found {
        Err(problem) => problems.push(problem.clone()),
        Ok(found) if found.is_empty() && settings.control != Control::Poll => {
            let folder = settings.models.display();
            problems.push(format!(
                "--models {folder}: holds no model; expected NAME/1/model.onnx, with or without NAME/config.pbtxt or \
                 NAME/model.toml"
            ));
        }
        Ok(_) => {}
    }
    match (found, environment) {
        (Ok(found), Ok(environment)) if problems.is_empty() => {
            if let Some((_, path)) = &environment {
                // A link's target carries the version in its name.
                let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                tracing::info!(library = %path.display(), "ONNX Runtime loaded");
            }
            let loader = Loader {
                environment: environment.map(|(environment, _)| environment),
                threads: settings.threads,
                clock,
                cache: (settings.cache > 0).then(|| Arc::new(Cache::new(settings.cache))),
            };
            Ok((found, loader))
        }
        _ => Err(Stop::wrong(problems.join("\n"))),
    }
}

fn has_no_graph(plan: &ModelPlan) -> bool {
    plan.versions.iter().all(|version| version.graph.is_none())
}

impl Loader {
    /// Every version of a model, or why it can't be loaded.
    pub fn load(&self, plan: &ModelPlan, ledger: &Ledger) -> Vec<(u64, Result<Model, String>)> {
        let one = |version: &VersionPlan| {
            let loaded = self.load_version(plan, version, ledger);
            (version.version, loaded)
        };
        plan.versions.iter().map(one).collect()
    }

    fn load_version(
        &self,
        plan: &ModelPlan,
        version: &VersionPlan,
        ledger: &Ledger,
    ) -> Result<Model, String> {
        let start = self.clock.now();
        let config = &plan.config;
        let engines = (0..config.instances).map(|_| self.engine(plan, version.graph.as_ref()));
        let mut engines = engines.collect::<Result<Vec<_>, String>>()?;
        let Some(first) = engines.first_mut() else {
            return Err("instance_group: no instance".into());
        };
        let whole = first.signature().clone();
        let embedder = match &plan.kind {
            Kind::Tensor => None,
            Kind::Embedding(text) | Kind::Classifier(repository::Classifier { text, .. }) => {
                Some(Arc::new(Embedder::fit(text, first.as_mut())?))
            }
        };
        let classes = embedder.as_ref().map_or(0, |embedder| embedder.width());
        let classifier = match &plan.kind {
            Kind::Classifier(described) => Some(Classifier::new(described, classes)?),
            Kind::Tensor | Kind::Embedding(_) => None,
        };
        for engine in &mut engines {
            warm_up(engine.as_mut(), plan, embedder.as_deref())?;
        }
        let batches = whole.batches();
        let (sequencer, signature) = self.sequences(plan, whole)?;
        let limits = limits(plan);
        let tally = ledger.tally(&plan.name, version.version);
        let runner = Runner::start(engines, limits, self.clock, Arc::clone(&tally))
            .map_err(|error| error.to_string())?;
        tracing::info!(
            model = plan.name.as_str(),
            version = version.version,
            instances = config.instances,
            batches,
            "loaded"
        );
        Ok(Model {
            name: plan.name.clone(),
            version: version.version,
            created: version.created,
            platform: platform(&plan.engine),
            signature,
            most_rows: config.max_batch_size,
            labels: plan.labels.clone(),
            document: config.document.clone(),
            device: CPU,
            load: self.clock.now() - start,
            keeping: self.keeping(plan),
            tally,
            work: match sequencer {
                Some(sequencer) => Work::Sequences(sequencer, runner),
                None => Work::Engine(runner),
            },
            embedder,
            classifier,
        })
    }

    /// What keeps a model's sequences, if it has any, and what clients see of it then.
    fn sequences(
        &self,
        plan: &ModelPlan,
        whole: Signature,
    ) -> Result<(Option<Sequencer>, Signature), String> {
        let Some(sequence) = &plan.config.sequence else {
            return Ok((None, whole));
        };
        let rows = whole.batches() && plan.config.max_batch_size != Some(0);
        let first = first_states(sequence, rows, &plan.folder)?;
        let (sequencer, seen) = Sequencer::fit(sequence, &whole, rows, first, self.clock)?;
        Ok((Some(sequencer), seen))
    }

    /// Where the answers of this load of a model are kept, if they are.
    pub(super) fn keeping(&self, plan: &ModelPlan) -> Option<Keeping> {
        if !plan.config.cached {
            return None;
        }
        let Some(cache) = &self.cache else {
            let model = plan.name.as_str();
            tracing::warn!(
                model,
                "config.pbtxt: response_cache is ignored: --cache-bytes is 0"
            );
            return None;
        };
        Some(Keeping {
            load: cache.load(),
            cache: Arc::clone(cache),
        })
    }

    /// One instance of a model.
    pub fn engine(
        &self,
        plan: &ModelPlan,
        graph: Option<&PathBuf>,
    ) -> Result<Box<dyn Engine>, String> {
        let config = &plan.config;
        let share = (self.threads / config.instances).max(1);
        let threads = config.threads.unwrap_or(share);
        let engine: Box<dyn Engine> = match (&plan.engine, graph, &self.environment) {
            (repository::Engine::Step(step), ..) => Box::new(BuiltIn::open(step)?),
            (_, None, _) => Box::new(Echo::new()),
            (_, Some(graph), Some(environment)) => {
                Box::new(Onnx::load(environment, graph, threads)?)
            }
            (_, Some(_), None) => {
                return Err(
                    "the worker was started without ONNX Runtime's library, which no model needed \
                     then; start it again"
                        .into(),
                );
            }
        };
        Ok(Box::new(View::fit(engine, config)?))
    }
}

/// How a model's requests wait; those of a built-in step run each by itself (`engine/step.rs`).
fn limits(plan: &ModelPlan) -> Limits {
    let limits = plan.config.limits.clone();
    match plan.engine {
        repository::Engine::Step(_) => Limits {
            rows: 1,
            preferred: Vec::new(),
            delay: Seconds(0.0),
            ..limits
        },
        _ => limits,
    }
}

/// What a model is called by what runs it.
pub fn platform(engine: &repository::Engine) -> Platform {
    let (name, backend) = match engine {
        repository::Engine::Onnx => ("onnxruntime_onnx", "onnxruntime"),
        repository::Engine::Step(_) => ("forebay", "forebay"),
        repository::Engine::Ensemble(_) => ("ensemble", ""),
        repository::Engine::Echo => ("forebay_echo", "forebay"),
    };
    Platform { name, backend }
}
