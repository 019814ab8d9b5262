//! From a model's plan to a model that answers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use ort::environment::Environment;

use crate::batch::Limits;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::engine::declared::View;
use crate::engine::echo::Echo;
use crate::engine::onnx::Onnx;
use crate::engine::provider::{Means, Unloaded};
use crate::engine::step::BuiltIn;
use crate::engine::{Engine, Placement, library, wheels};
use crate::line::{Classifier, Embedder, Keeping, Model, Platform, Sequencer, Work};
use crate::observe::Ledger;
use crate::repository::{self, Found, Instance, Kind, ModelPlan, VersionPlan};
use crate::runner::Runner;
use crate::serve::warm_up::{first_states, warm_up};
use crate::serve::{Control, Settings, Stop};
use crate::tensor::Signature;
use crate::units::{Device, Seconds};

/// What every model is loaded with.
pub struct Loader {
    /// Absent when no model that was found at the start needs a library, and none was named.
    library: Option<Library>,
    /// What computes where a model says nothing of it.
    device: Device,
    /// Whether the CPU may stand in for a card where a model says nothing of it.
    fallback: bool,
    /// The machine's threads, shared out among a model's instances.
    threads: usize,
    pub(super) clock: Clock,
    /// Where answers are kept; absent where none are to be.
    cache: Option<Arc<Cache>>,
}

/// ONNX Runtime.
struct Library {
    environment: Environment,
    path: PathBuf,
    /// What cards need beside it is opened once, when the first of them is asked for.
    cards: Once,
}

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
            let library = environment.map(|(environment, path)| {
                // A link's target carries the version in its name.
                let path = std::fs::canonicalize(&path).unwrap_or(path);
                tracing::info!(library = %path.display(), "ONNX Runtime loaded");
                Library {
                    environment,
                    path,
                    cards: Once::new(),
                }
            });
            let loader = Loader {
                library,
                device: settings.device,
                fallback: settings.fallback,
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
        let instances = config.instances.iter();
        let engines = instances.map(|one| self.engine(plan, version.graph.as_deref(), *one));
        let engines = engines.collect::<Result<Vec<_>, String>>()?;
        let (mut engines, placements): (Vec<_>, Vec<_>) = engines.into_iter().unzip();
        let Some(first) = engines.first_mut() else {
            return Err("instance_group: no instance".into());
        };
        let whole = first.signature().clone();
        warn_of_accelerator(plan, &placements);
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
            instances = config.instances.len(),
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
            placements,
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

    /// One instance of a model, and where it is.
    pub fn engine(
        &self,
        plan: &ModelPlan,
        graph: Option<&Path>,
        instance: Instance,
    ) -> Result<(Box<dyn Engine>, Placement), String> {
        let config = &plan.config;
        let (engine, placement): (Box<dyn Engine>, _) = match (&plan.engine, graph) {
            (repository::Engine::Step(step), _) => {
                (Box::new(BuiltIn::open(step)?), Placement::default())
            }
            (repository::Engine::Echo, _) => (Box::new(Echo::new()), Placement::default()),
            (repository::Engine::Onnx, Some(graph)) => {
                let (engine, placement) = self.session(plan, graph, self.means(plan, instance))?;
                (Box::new(engine), placement)
            }
            (repository::Engine::Onnx, None) => return Err("there is no graph to load".into()),
            (repository::Engine::Ensemble(_), _) => {
                return Err("an ensemble has no engine: its members have".into());
            }
        };
        Ok((Box::new(View::fit(engine, config)?), placement))
    }

    /// What an instance is to compute by: what it asks for itself, else its model, else the worker.
    fn means(&self, plan: &ModelPlan, instance: Instance) -> Means {
        let config = &plan.config;
        let share = (self.threads / config.instances.len().max(1)).max(1);
        let threads = config.threads.unwrap_or(share);
        let asked = plan.device.unwrap_or(self.device);
        let tensorrt = config.accelerator.tensorrt || asked == Device::TensorRt;
        let device = match instance.device.unwrap_or(asked) {
            Device::Cpu => return Means::cpu(threads),
            Device::Cuda | Device::TensorRt if tensorrt => Device::TensorRt,
            Device::Cuda | Device::TensorRt => Device::Cuda,
        };
        Means {
            threads,
            device,
            card: instance.card,
            options: config.accelerator.options.clone(),
        }
    }

    /// A session by these means, or by the CPU's where it may stand in.
    fn session(
        &self,
        plan: &ModelPlan,
        graph: &Path,
        means: Means,
    ) -> Result<(Onnx, Placement), String> {
        let Some(library) = &self.library else {
            return Err(
                "the worker was started without ONNX Runtime's library, which no model needed then; start it again"
                    .into(),
            );
        };
        if means.device != Device::Cpu {
            library.cards.call_once(|| {
                let opened = wheels::preload(&library.path);
                tracing::info!(opened, "NVIDIA's libraries beside ONNX Runtime's");
            });
        }
        let mut placement = Placement {
            device: means.device,
            card: means.card,
            refused: None,
        };
        let loaded = match Onnx::load(&library.environment, graph, &means) {
            Err(Unloaded::Refused(why)) if plan.fallback.unwrap_or(self.fallback) => {
                tracing::warn!(model = plan.name.as_str(), "computes on the CPU: {why}");
                placement = Placement {
                    refused: Some(format!("computes on the CPU: {why}")),
                    ..Placement::default()
                };
                Onnx::load(&library.environment, graph, &Means::cpu(means.threads))
            }
            loaded => loaded,
        };
        let engine = loaded.map_err(|problem| problem.to_string())?;
        Ok((engine, placement))
    }
}

/// Tells of a wish for an accelerator that comes to nothing. Of a card that was refused it was told already.
fn warn_of_accelerator(plan: &ModelPlan, placements: &[Placement]) {
    let on_cpu = |one: &Placement| one.device == Device::Cpu && one.refused.is_none();
    let unused = plan.config.accelerator.unused.iter();
    for unused in unused.filter(|_| placements.iter().all(on_cpu)) {
        tracing::warn!(model = plan.name.as_str(), "config.pbtxt: {unused}");
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
