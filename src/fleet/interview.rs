//! Asking a worker once what it is, for whoever wants to know before anybody is sent there: `forebay init` and
//! `forebay check --live`.
//!
//! The questions are those of a worker that is watched (`probe.rs`, `discover.rs`), asked in the order in which they
//! tell what is wrong: is somebody there, what is it, does it live, does it take our key, what does it serve, what
//! bounds its work, has it gRPC. None of them loads a model or runs one. Each has `probe.timeout`, so an interview
//! ends, also with one that hangs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Method;

use super::dialect::{self, report};
use super::discover::Inquirer;
use crate::clock::Clock;
use crate::config;
use crate::config::plan::{Engine, Origin, Protocol, WorkerPlan};
use crate::decide::{State, Told};
use crate::units::{ModelName, Seconds};
use crate::upstream::{Addresses, Upstream};

/// What a worker said of itself.
#[derive(Debug)]
pub struct Interview {
    /// How long opening a connection took.
    pub round_trip: Seconds,
    /// What it is, or why that can't be told.
    pub engine: Result<Engine, String>,
    /// The version that it says it is of.
    pub version: Option<String>,
    /// Whether it passes its liveness probe; if not, why.
    pub alive: Result<(), String>,
    /// What it serves, adapters left out; or why it does not say.
    pub models: Result<Vec<ModelName>, String>,
    /// Its LoRA adapters.
    pub adapters: Vec<ModelName>,
    /// What bounds its work, as far as it says.
    pub bounds: Told,
    /// Where it speaks KServe's gRPC.
    pub grpc: Option<Origin>,
}

/// Asks a worker. Names are looked up with these servers, the system's if there are none.
///
/// # Errors
/// Why nobody answers there; one that takes connections and says nothing is nobody.
pub async fn interview(
    plan: &WorkerPlan,
    servers: &[SocketAddr],
    clock: Clock,
) -> Result<Interview, String> {
    let addresses = Arc::new(Addresses::of(&plan.origin, true));
    let upstream = Arc::new(Upstream::new(plan.origin.clone(), addresses.clone(), clock));
    let inquirer = Inquirer::new(plan, upstream);
    let follow = async {
        addresses.follow(servers).await;
        std::future::pending::<Infallible>().await
    };
    let asked = async {
        let mut said = ask(plan, &inquirer).await?;
        if let Some(origin) = grpc_origin(plan, &said) {
            let upstream = Upstream::new(origin.clone(), addresses.clone(), clock);
            let there = Inquirer::new(&known_there(plan), Arc::new(upstream));
            said.grpc = there.speaks_grpc().await.then_some(origin);
        }
        Ok(said)
    };
    tokio::select! {
        told = asked => told,
        never = follow => match never {},
    }
}

async fn ask(plan: &WorkerPlan, inquirer: &Inquirer) -> Result<Interview, String> {
    let knock = inquirer.knock().await;
    let round_trip = knock.map_err(|silence| silence.to_string())?;
    let found = inquirer.engine().await;
    let found =
        found.map_err(|silence| format!("it takes connections and says nothing: {silence}"))?;
    let engine = spoken(plan.engine, &found);
    let listing = inquirer.models(engine).await;
    let bounds = inquirer.bounds(engine).await;
    let adapters = listing
        .as_ref()
        .map_or(&[][..], |listing| &listing.adapters);
    Ok(Interview {
        round_trip,
        version: version(inquirer, engine).await,
        alive: liveness(plan, inquirer, engine).await,
        adapters: adapters
            .iter()
            .map(|adapter| adapter.name.clone())
            .collect(),
        models: listing.map(|listing| listing.bases().cloned().collect()),
        bounds: bounds.map_or_else(|_| Told::default(), |(told, _)| told),
        engine: found,
        grpc: None,
    })
}

/// Where gRPC is looked for: where the plan says, else, of engines that have it, where they have it unless they are
/// told otherwise, one port above HTTP.
fn grpc_origin(plan: &WorkerPlan, said: &Interview) -> Option<Origin> {
    if plan.grpc.is_some() {
        return plan.grpc.clone();
    }
    let has_it = matches!(said.engine, Ok(Engine::Forebay | Engine::Triton));
    let Origin {
        protocol: Protocol::Http1,
        host,
        port,
        ..
    } = &plan.origin
    else {
        return None;
    };
    let port = port.checked_add(1).filter(|_| has_it)?;
    let url = if host.contains(':') {
        format!("h2c://[{host}]:{port}")
    } else {
        format!("h2c://{host}:{port}")
    };
    config::origin(&url)
}

/// The worker, as far as whoever is behind a port may know of it that nobody has typed: without its secrets.
fn known_there(plan: &WorkerPlan) -> WorkerPlan {
    let mut plan = plan.clone();
    if plan.grpc.is_none() {
        plan.key = None;
        plan.headers.clear();
    }
    plan
}

/// In whose dialect it is asked on: what it was found to be, unless that only says what it is not.
fn spoken(typed: Option<Engine>, found: &Result<Engine, String>) -> Engine {
    match (typed, found) {
        (Some(typed), Err(_) | Ok(Engine::Generic | Engine::Openai)) => typed,
        (_, Ok(found)) => *found,
        (None, Err(_)) => Engine::Generic,
    }
}

async fn liveness(plan: &WorkerPlan, inquirer: &Inquirer, engine: Engine) -> Result<(), String> {
    let own = plan.probe.path.as_deref();
    let Some(path) = own.or(engine.liveness_path()) else {
        return Ok(());
    };
    let told = |why: String| format!("{path}: {why}");
    let reply = inquirer.ask(Method::GET, path).await;
    let reply = reply.map_err(|silence| told(silence.to_string()))?;
    if dialect::is_loading(engine, State::Starting, reply.status, reply.body.as_deref()) {
        return Err(told(format!(
            "answered {}: it loads its model",
            reply.status
        )));
    }
    dialect::verdict(engine, reply.status).map_err(told)
}

async fn version(inquirer: &Inquirer, engine: Engine) -> Option<String> {
    let path = report::version_question(engine)?;
    let reply = inquirer.ask(Method::GET, path).await.ok()?;
    report::version(&reply.body?)
}
