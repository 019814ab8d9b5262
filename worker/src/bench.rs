//! How fast the models of a folder are on this machine, and what of that reaches a client.
//!
//! An owner wants to know two things: what a client gets, and what is lost on the way. So requests come over HTTP on
//! loopback, from a client that keeps a number of them in flight, through the same listener, line and batcher as when
//! serving. A figure taken inside the process would leave out reading and writing, which for a small model is most of
//! what there is. Beside it stands the limit: the engine alone in a loop, at the best batch that so many requests in
//! flight could have made. Tokenising, pooling and the client itself are no part of the limit; the client has the
//! machine's cores in common with the worker, as in a test with any other client on the same machine.
//!
//! A machine is seldom quiet for long, so everything is measured in three rounds, limit and requests in turn: a rate is
//! the median of its rounds, a share is the median of the shares within each, and latencies are those of all.
//!
//! An ensemble is passed over: it has no engine to stand beside it, and its members are measured.
//!
//! Words and grammar of the flags are those of NVIDIA's `perf_analyzer`, which measures a worker that serves.

mod client;
mod load;
mod raw;
pub mod report;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::api;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::line::{App, Model};
use crate::log::Log;
use crate::repository::{self, Found, ModelPlan};
use crate::serve::load::{Loader, prepare};
use crate::serve::warm_up::Sizes;
use crate::serve::{self, Settings, Stop};
use crate::units::{ModelName, Seconds};
use client::Client;
use load::{Load, Way};
use report::{Report, Rounds};
use request::Example;

/// How often everything is measured.
const ROUNDS: u32 = 3;

/// The largest batch that the worker makes by itself.
const ROWS: usize = 32;

/// Why an ensemble is not measured.
const ENSEMBLE: &str =
    "it is an ensemble, which has no engine to compare with: its members are measured";

/// What is to be measured.
#[derive(Debug)]
pub struct Options {
    /// The model; absent = all of the folder.
    pub model: Option<String>,
    /// Rows of a request.
    pub batches: Vec<usize>,
    /// Requests in flight.
    pub concurrencies: Vec<usize>,
    /// Sizes of inputs that take any, without the rows.
    pub sizes: Sizes,
    /// How long each combination is measured, all rounds together.
    pub interval: Seconds,
}

/// What is told while it measures.
pub enum News<'a> {
    /// A round begins: which, of how many.
    Round(&'a ModelName, u32, u32),
    /// A model of the folder is none to measure.
    Passed(&'a ModelName, &'static str),
    /// A model was measured, or could not be.
    Done(&'a ModelName, Result<Report, String>),
}

/// Measures one model after the other. Fails where nothing can be measured at all.
pub fn run(
    options: &Options,
    settings: &Settings,
    log: Log,
    tell: &mut dyn FnMut(News<'_>),
) -> Result<(), Stop> {
    let clock = Clock::start();
    let (found, loader) = prepare(settings, clock)?;
    let chosen = chosen(found, options.model.as_deref())?;
    let app = Arc::new(App::new(settings.models.clone(), None, clock, log));
    app.loaded();
    let server = serve::runtime(settings.threads)?;
    let client = Client::new(listen(&server, &app)?, clock)?;
    let bench = Bench {
        options,
        window: Seconds(options.interval.0 / f64::from(ROUNDS)),
        clock,
        loader,
        app,
        client,
    };
    for (name, plan) in chosen {
        // Who names one and gets no figure has to be told by the exit code as well.
        if options.model.is_none() && plan.as_ref().is_ok_and(is_ensemble) {
            tell(News::Passed(&name, ENSEMBLE));
            continue;
        }
        let measured = plan.and_then(|plan| bench.measure(&plan, tell));
        bench.app.registry.forget(&name);
        tell(News::Done(&name, measured));
    }
    Ok(())
}

/// The model of this name, or all.
fn chosen(mut found: Found, name: Option<&str>) -> Result<Found, Stop> {
    let Some(name) = name else { return Ok(found) };
    match found.remove_entry(name) {
        Some(one) => Ok(Found::from([one])),
        None => {
            let names: Vec<&str> = found.keys().map(ModelName::as_str).collect();
            let names = names.join(", ");
            Err(Stop::wrong(format!(
                "there is no model `{name}` in the models folder; there are: {names}"
            )))
        }
    }
}

fn is_ensemble(plan: &ModelPlan) -> bool {
    matches!(plan.engine, repository::Engine::Ensemble(_))
}

/// Answers on a free port for as long as the runtime lives.
fn listen(runtime: &Runtime, app: &Arc<App>) -> Result<SocketAddr, Stop> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = runtime.block_on(TcpListener::bind(any))?;
    let address = listener.local_addr()?;
    let server = axum::serve(
        listener.tap_io(serve::without_delay),
        api::router(Arc::clone(app)),
    );
    runtime.spawn(server.into_future());
    Ok(address)
}

/// What all models are measured with.
struct Bench<'a> {
    options: &'a Options,
    /// How long each combination is measured in a round.
    window: Seconds,
    clock: Clock,
    loader: Loader,
    app: Arc<App>,
    client: Client,
}

/// A model under measurement.
struct Subject {
    model: Arc<Model>,
    example: Example,
    /// Instances of its engine beside those that serve.
    engines: Vec<Box<dyn Engine>>,
    /// The most rows that run together.
    rows: usize,
}

impl Bench<'_> {
    fn measure(&self, plan: &ModelPlan, tell: &mut dyn FnMut(News<'_>)) -> Result<Report, String> {
        let mut subject = self.subject(plan)?;
        let mut alone: BTreeMap<Way, Vec<f64>> = BTreeMap::new();
        let mut served = self.loads();
        for round in 1..=ROUNDS {
            tell(News::Round(&plan.name, round, ROUNDS));
            self.engine_alone(&mut subject, &mut alone)?;
            for (load, rounds) in &mut served {
                let ways = load.ways(subject.engines.len(), subject.rows);
                let limits = ways.filter_map(|way| alone.get(&way)?.last());
                let limit = limits.copied().fold(0.0, f64::max);
                let request = subject.example.request(load.batch)?;
                let seen = self.client.drive(&request, load.concurrency, self.window)?;
                rounds.add(seen, limit / load.batch as f64);
            }
        }
        subject.report(&alone, served)
    }

    /// One round of every way in which these loads could make the engine run.
    fn engine_alone(
        &self,
        subject: &mut Subject,
        alone: &mut BTreeMap<Way, Vec<f64>>,
    ) -> Result<(), String> {
        let (instances, rows) = (subject.engines.len(), subject.rows);
        let loads = self.loads();
        let ways: BTreeSet<Way> = loads
            .iter()
            .flat_map(|(load, _)| load.ways(instances, rows))
            .collect();
        for way in ways {
            let engines = &mut subject.engines[..way.instances];
            let (inputs, wanted) = subject.example.tensors(way.rows)?;
            let runs = raw::rate(engines, &inputs, &wanted, self.window, self.clock)?;
            alone.entry(way).or_default().push(runs * way.rows as f64);
        }
        Ok(())
    }

    /// A model, loaded and in service.
    fn subject(&self, plan: &ModelPlan) -> Result<Subject, String> {
        if is_ensemble(plan) {
            return Err(ENSEMBLE.into());
        }
        let versions = self.loader.load(plan, &self.app.ledger);
        if let Some(problem) = versions
            .iter()
            .find_map(|(_, loaded)| loaded.as_ref().err())
        {
            return Err(problem.clone());
        }
        self.app.registry.place(&plan.name, versions);
        let model = self
            .app
            .model(plan.name.as_str(), None)
            .map_err(|fault| fault.message)?;
        let most = match model.has_rows() {
            true => model.most_rows.unwrap_or(usize::MAX),
            false => 1,
        };
        if let Some(batch) = self.options.batches.iter().find(|&&batch| batch > most) {
            return Err(format!(
                "-b {batch}: the model takes at most {most} rows a request"
            ));
        }
        self.check_waiting(plan)?;
        let graph = plan
            .versions
            .last()
            .and_then(|version| version.graph.as_deref());
        let instances = plan.config.instances.iter();
        let engines = instances.map(|one| {
            let (engine, _) = self.loader.engine(plan, graph, *one)?;
            Ok::<_, String>(engine)
        });
        Ok(Subject {
            example: Example::of(&model, &self.options.sizes)?,
            engines: engines.collect::<Result<_, _>>()?,
            rows: most.min(plan.config.limits.rows).min(ROWS),
            model,
        })
    }

    /// Whether all that are in flight may wait; of those that were refused there would be no figure.
    fn check_waiting(&self, plan: &ModelPlan) -> Result<(), String> {
        let limits = &plan.config.limits;
        let level = limits.levels.get(limits.default_level);
        let most = level.map_or(0, |policy| policy.waiting);
        let mut concurrencies = self.options.concurrencies.iter();
        match concurrencies.find(|&&many| many > most) {
            None => Ok(()),
            Some(many) => Err(format!(
                "--concurrency-range {many}: no more than {most} requests may wait for the model (max_queue_size)"
            )),
        }
    }

    fn loads(&self) -> Vec<(Load, Rounds)> {
        let of_batch = |&batch: &usize| {
            let loads = self.options.concurrencies.iter();
            loads.map(move |&concurrency| (Load { batch, concurrency }, Rounds::default()))
        };
        self.options.batches.iter().flat_map(of_batch).collect()
    }
}

impl Subject {
    fn report(
        &self,
        alone: &BTreeMap<Way, Vec<f64>>,
        served: Vec<(Load, Rounds)>,
    ) -> Result<Report, String> {
        let (row, _) = self.example.tensors(1)?;
        Ok(Report {
            model: self.model.name.as_str().to_owned(),
            version: self.model.version,
            inputs: row.len(),
            elements_per_row: row.iter().map(|tensor| tensor.elements().len()).sum(),
            instances: self.engines.len(),
            raw: alone.iter().map(report::alone).collect(),
            served: served.into_iter().map(report::served).collect(),
        })
    }
}
