//! From a models folder to models that answer.

use std::sync::Arc;

use ort::environment::Environment;

use crate::batch::Limits;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::echo::Echo;
use crate::engine::library;
use crate::engine::onnx::Onnx;
use crate::line::{Embedder, Model};
use crate::repository::{self, Kind, ModelPlan};
use crate::runner::Runner;
use crate::serve::{Settings, Stop};
use crate::units::Seconds;

/// The bounds of each model's queue.
const LIMITS: Limits = Limits {
    waiting: 256,
    rows: 32,
    delay: Seconds::ZERO,
};

/// What was found and can be loaded.
pub struct Prepared {
    plans: Vec<ModelPlan>,
    environment: Option<Environment>,
}

/// The models and the library, or everything that is wrong with either. A folder of echoes needs no library.
pub fn prepare(settings: &Settings) -> Result<Prepared, Stop> {
    let plans = repository::scan(&settings.models);
    let needs_library = match &plans {
        Ok(plans) => plans.iter().any(|plan| plan.graph.is_some()),
        Err(_) => true,
    } || settings.library.named.is_some();
    let environment = needs_library
        .then(|| library::open(&settings.library))
        .transpose();
    let mut problems = Vec::new();
    if let Err(problem) = &environment {
        problems.push(problem.to_string());
    }
    if let Err(more) = &plans {
        problems.extend(more.iter().cloned());
    }
    match (plans, environment) {
        (Ok(plans), Ok(environment)) => {
            if let Some((_, path)) = &environment {
                // A link's target carries the version in its name.
                let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                tracing::info!(library = %path.display(), "ONNX Runtime loaded");
            }
            let environment = environment.map(|(environment, _)| environment);
            Ok(Prepared { plans, environment })
        }
        _ => Err(Stop::wrong(problems.join("\n"))),
    }
}

impl Prepared {
    /// Loads every model, or says which can't be, all together.
    pub fn load(self, threads: usize) -> Result<Vec<Model>, Stop> {
        let clock = Clock::start();
        let (mut models, mut problems) = (Vec::new(), Vec::new());
        for plan in self.plans {
            let name = plan.name.clone();
            match load(plan, self.environment.as_ref(), threads, clock) {
                Ok(model) => models.push(model),
                Err(problem) => problems.push(format!("model {name}: {problem}")),
            }
        }
        if problems.is_empty() {
            Ok(models)
        } else {
            Err(Stop::wrong(problems.join("\n")))
        }
    }
}

fn load(
    plan: ModelPlan,
    environment: Option<&Environment>,
    threads: usize,
    clock: Clock,
) -> Result<Model, String> {
    let (mut engine, platform): (Box<dyn Engine>, _) = match (&plan.graph, environment) {
        (Some(graph), Some(environment)) => (
            Box::new(Onnx::load(environment, graph, threads)?),
            "onnxruntime_onnx",
        ),
        _ => (Box::new(Echo::new()), "forebay_echo"),
    };
    let signature = engine.signature().clone();
    let embedder = match &plan.kind {
        Kind::Tensor => None,
        Kind::Embedding(embedding) => Some(Arc::new(Embedder::fit(embedding, engine.as_mut())?)),
    };
    let runner = Runner::start(engine, LIMITS, clock).map_err(|error| error.to_string())?;
    tracing::info!(
        model = plan.name.as_str(),
        version = plan.version,
        batches = signature.batches(),
        "loaded"
    );
    Ok(Model {
        name: plan.name,
        version: plan.version,
        created: plan.created,
        platform,
        signature,
        runner,
        embedder,
    })
}
