//! Start, signals, stop.
//!
//! The order of the start decides what a person sees: the models folder and the library first (exit 2, all problems
//! together, within a moment), then the port (exit 1), then the graphs, which may take seconds; meanwhile the port
//! answers "loading". SIGTERM and SIGINT: not ready at once, no new connections, what runs is finished, exit 0; a
//! second signal ends at once. "At once" skips exit handlers: ONNX Runtime's own would tear it down under a session
//! that still runs, and the client would be told of a failure that is none.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use axum::serve::ListenerExt;
use ort::environment::Environment;
use signal_hook::low_level::exit;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::api;
use crate::batch::Limits;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::echo::Echo;
use crate::engine::library::{self, Search};
use crate::engine::onnx::Onnx;
use crate::line::{App, Embedder, Model};
use crate::repository::{self, Kind, ModelPlan};
use crate::runner::Runner;
use crate::units::Seconds;

/// How long requests may take to finish after the first signal.
const DRAIN: Seconds = Seconds(60.0);

/// How long the last answer may take to leave. A connection without a whole request would hold the server open for ever.
const FLUSH: Seconds = Seconds(1.0);

/// The bounds of each model's queue.
const LIMITS: Limits = Limits {
    waiting: 256,
    rows: 32,
    delay: Seconds::ZERO,
};

/// What the command line asked for.
#[derive(Debug)]
pub struct Settings {
    /// The models folder.
    pub models: PathBuf,
    /// Where to answer.
    pub http: SocketAddr,
    /// Threads of one inference.
    pub threads: usize,
    /// Where ONNX Runtime is looked for.
    pub library: Search,
}

/// Why the process ends before it was asked to.
#[derive(Debug)]
pub struct Stop {
    /// 2 = the arguments, the models or the library are wrong; 1 = anything else.
    pub exit: u8,
    /// What happened, for a person.
    pub message: String,
}

impl Stop {
    fn wrong(message: impl Into<String>) -> Stop {
        Stop {
            exit: 2,
            message: message.into(),
        }
    }

    fn failed(message: impl Into<String>) -> Stop {
        Stop {
            exit: 1,
            message: message.into(),
        }
    }
}

/// Serves until a signal or a failure ends it.
pub fn run(settings: Settings) -> Result<(), Stop> {
    let (plans, environment) = prepare(&settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::failed(error.to_string()))?;
    runtime.block_on(serve(settings, plans, environment))
}

/// The models and the library, or everything that is wrong with either. A folder of echoes needs no library.
fn prepare(settings: &Settings) -> Result<(Vec<ModelPlan>, Option<Environment>), Stop> {
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
            Ok((plans, environment.map(|(environment, _)| environment)))
        }
        _ => Err(Stop::wrong(problems.join("\n"))),
    }
}

async fn serve(
    settings: Settings,
    plans: Vec<ModelPlan>,
    environment: Option<Environment>,
) -> Result<(), Stop> {
    let mut signals = Signals::listen().map_err(|error| Stop::failed(error.to_string()))?;
    let (listener, address) = bind(settings.http).await?;
    let app = Arc::new(App::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = listener.tap_io(|stream| {
        // Only a delay of small answers is at stake.
        let _ = stream.set_nodelay(true);
    });
    let server = axum::serve(listener, api::router(Arc::clone(&app)))
        .with_graceful_shutdown(async { stopped.await.unwrap_or(()) });
    let mut server = pin!(server.into_future());
    tracing::info!("listening on http://{address}");

    let threads = settings.threads;
    let mut loading = pin!(tokio::task::spawn_blocking(move || load_all(
        plans,
        environment,
        threads
    )));
    let mut loaded = false;
    loop {
        tokio::select! {
            models = &mut loading, if !loaded => {
                let models = models.map_err(|error| Stop::failed(error.to_string()))??;
                tracing::info!(models = models.len(), threads, "ready");
                app.loaded(models);
                loaded = true;
            }
            ended = &mut server => return ended.map_err(|error| Stop::failed(error.to_string())),
            () = signals.next() => break,
        }
    }
    app.stop();
    tracing::info!("stopping: no new connections; a second signal ends at once");
    // The server holds the other end for as long as it runs.
    let _ = stop.send(());
    let ended = tokio::select! {
        ended = &mut server => ended,
        () = signals.next() => exit(1),
        () = quiet_for(&app, FLUSH) => exit(0),
        () = tokio::time::sleep(DRAIN.to_duration()) => {
            tracing::warn!("some requests were still running after {} s", DRAIN.0);
            exit(0)
        }
    };
    if !loaded {
        // A load can't be called off, and nobody needs its outcome any more.
        exit(0);
    }
    ended.map_err(|error| Stop::failed(error.to_string()))
}

/// Waits until no request is live, and then this much longer.
async fn quiet_for(app: &App, span: Seconds) {
    app.quiet().await;
    tokio::time::sleep(span.to_duration()).await;
}

async fn bind(http: SocketAddr) -> Result<(TcpListener, SocketAddr), Stop> {
    let failed = |error: std::io::Error| Stop::failed(format!("--http {http}: {error}"));
    let listener = TcpListener::bind(http).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Loads every model, or says which can't be, all together.
fn load_all(
    plans: Vec<ModelPlan>,
    environment: Option<Environment>,
    threads: usize,
) -> Result<Vec<Model>, Stop> {
    let clock = Clock::start();
    let (mut models, mut problems) = (Vec::new(), Vec::new());
    for plan in plans {
        let name = plan.name.clone();
        match load(plan, environment.as_ref(), threads, clock) {
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

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
