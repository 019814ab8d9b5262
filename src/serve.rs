//! Builds a proxy from a plan and runs it: the one room that names Pingora.
//!
//! Pingora keeps the process: runtimes, listening sockets, their hand-over later on. It hands each accepted stream to
//! `listener::serve`, and that is all it sees of HTTP. Three things of its own habits are replaced (pingora-core 0.9.1,
//! read in its source):
//!
//! - its SIGTERM sleeps a whole grace period; `signals.rs` ends the process as soon as no connection is open;
//! - a failed bind is a panic in a task of a process that lives on; every address is bound once beforehand, so that a
//!   port in use is an error here, and a bind that fails all the same ends the process;
//! - SIGHUP kills and SIGQUIT stops it; both are caught before anything else happens.

mod care;
mod diagnostics;
mod doorway;
mod line;
mod signals;
mod status;

use std::fs::DirBuilder;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use pingora_core::listeners::ListenerConfig;
use pingora_core::protocols::l4::stream::L4BufferSettings;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::background::background_service;
use pingora_core::services::listening::Service;
use socket2::{Domain, Socket, Type};

use crate::admin::address::{ADMIN_FILE, AdminAddress};
use crate::admin::{Admin, Sights, token};
use crate::admission::{Admission, Intake};
use crate::clock::Clock;
use crate::config::{self, Plan};
use crate::fleet::Fleet;
use crate::forward::Forward;
use crate::kept;
use crate::line::App;
use crate::listener::{Gate, Plane};
use crate::observe::Observe;
use crate::upstream::{Addresses, Upstream};

use care::Care;
use doorway::Doorway;
use signals::Signals;

/// The process id of the running proxy, in the state folder.
const PID_FILE: &str = "forebay.pid";

/// Why a proxy could not start.
#[derive(Debug)]
pub struct StartError(String);

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Runs a proxy until it is told to stop; then the process has ended. `admin_token` is the environment's, if any.
///
/// # Errors
/// When a port is in use, or the state folder or the access log can't be written.
pub fn run(plan: Plan, admin_token: Option<String>) -> Result<(), StartError> {
    diagnostics::start(plan.log.level)
        .map_err(|error| StartError(format!("diagnostics can't be written: {error}")))?;
    without_huge_pages();
    let ended = begin(plan, admin_token);
    diagnostics::flush();
    ended
}

/// A proxy's memory is many buffers that come and go. In pages of 2 MiB, which some systems give to every process, those
/// that are gone stay in memory beside those that are there: a line of large bodies then took a quarter more.
fn without_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "huge pages stay on: memory may look larger than it is");
    }
}

/// Takes hold of everything that may be missing, then serves.
fn begin(plan: Plan, admin_token: Option<String>) -> Result<(), StartError> {
    let signals = Signals::catch()
        .map_err(|error| StartError(format!("signals can't be caught: {error}")))?;
    for remark in &plan.remarks {
        tracing::warn!("{remark}");
    }
    let plan = settled(plan)?;
    keep_pid(&plan.state)?;
    keep_address(&plan)?;
    let source = token::resolve(admin_token, plan.admin_token.as_ref(), &plan.state)
        .map_err(|error| StartError(format!("the admin token can't be had: {error}")))?;
    tracing::info!(
        "{}",
        source.announcement(plan.listen.admin, io::stderr().is_terminal())
    );

    let clock = Clock::start();
    let app = Arc::new(build(plan, clock)?);
    let plan = app.plan.load_full();
    let gate = Arc::new(Gate::new(clock, plan.limits.clone(), app.observe.clone()));
    let admin = Arc::new(Admin::new(source, plan.listen.admin, sights(&app, &plan)));
    serve(&app, &admin, &gate, signals);
    Ok(())
}

/// What the admin side shows and changes.
fn sights(app: &Arc<App>, plan: &Plan) -> Sights {
    Sights {
        observe: app.observe.clone(),
        config: config::dump::json(plan),
        fleet: {
            let app = app.clone();
            Box::new(move || status::view(&app))
        },
        queue: {
            let app = app.clone();
            Box::new(move |id| line::view(&app, id))
        },
        change: {
            let app = app.clone();
            Box::new(move |name, hand| status::change(&app, name, hand))
        },
        tenants: {
            let admission = app.admission.clone();
            Box::new(move || admission.accounts())
        },
    }
}

/// Everything the request path works with.
fn build(plan: Plan, clock: Clock) -> Result<App, StartError> {
    let names: Vec<_> = plan
        .workers
        .iter()
        .map(|worker| worker.name.clone())
        .collect();
    let fleet = Fleet::new(&plan, clock, rand::random());
    fleet.recall_speeds(&plan);
    let observe = Observe::new(clock, &plan.log, &names, fleet.catalogue().served())
        .map_err(|error| StartError(format!("the access log can't be opened: {error}")))?;
    let observe = Arc::new(observe);
    let pool = |worker: &config::plan::WorkerPlan| {
        let addresses = Arc::new(Addresses::of(&worker.origin, worker.optional));
        let upstream = Upstream::new(worker.origin.clone(), addresses, clock);
        Arc::new(upstream.with_grpc(worker.grpc.clone()))
    };
    let upstreams: Vec<_> = plan.workers.iter().map(pool).collect();
    let admission = Admission::new(&plan, clock, &observe.metrics)
        .map_err(|error| StartError(format!("a tenant's metrics can't be made: {error}")))?;
    admission.recall(&plan.state);
    Ok(App {
        clock,
        admission: Arc::new(admission),
        intake: Intake::new(&plan.limits, observe.clone()),
        forward: Forward::new(clock, fleet.clone(), upstreams.clone()),
        upstreams,
        plan: ArcSwap::from_pointee(plan),
        observe,
        fleet,
        stopping: AtomicBool::new(false),
    })
}

fn serve(app: &Arc<App>, admin: &Arc<Admin>, gate: &Arc<Gate>, signals: Signals) {
    let plan = app.plan.load_full();
    let mut server = Server::new_with_opt_and_conf(None, conf(&plan));
    server.bootstrap();
    let clients = Doorway::new(Plane::Client(app.clone()), gate.clone());
    server.add_service(listening(
        "clients",
        clients,
        &plan.listen.http,
        available_threads(),
    ));
    let care = background_service("care of the fleet", Care::new(app.clone()));
    let care = server.add_service(care);
    let operators = Doorway::new(Plane::Admin(admin.clone()), gate.clone());
    server
        .add_service(listening("admin", operators, &[plan.listen.admin], 1))
        .add_dependency(care);
    let listed: Vec<_> = plan.listen.http.iter().map(SocketAddr::to_string).collect();
    tracing::info!(
        workers = plan.workers.len(),
        "listening for clients on {}",
        listed.join(", ")
    );
    server.run(RunArgs {
        shutdown_signal: Box::new(signals.watch(app.clone(), gate.clone())),
    });
}

fn listening(
    name: &str,
    doorway: Doorway,
    addresses: &[SocketAddr],
    threads: usize,
) -> Service<Doorway> {
    let mut service = Service::new(name.to_owned(), doorway);
    service.threads = Some(threads);
    for address in addresses {
        // hyper buffers; a second buffer below it would only copy.
        let listener =
            ListenerConfig::tcp(address.to_string()).l4_buffer(L4BufferSettings::unbuffered());
        service.add_listener(listener);
    }
    service
}

fn conf(plan: &Plan) -> ServerConf {
    // The process ends by itself before Pingora's own grace period does.
    let grace = plan.drain.to_duration().as_secs().saturating_add(60);
    let upgrade_sock = plan.state.join("upgrade.sock").display().to_string();
    ServerConf {
        grace_period_seconds: Some(grace),
        upgrade_sock,
        // A connection stays on the thread that accepted it, and so do its requests (`upstream/pool.rs` says why).
        work_stealing: false,
        ..ServerConf::default()
    }
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The plan with addresses that can be had: port 0 has become a free one, which everybody is told.
fn settled(mut plan: Plan) -> Result<Plan, StartError> {
    for address in &mut plan.listen.http {
        *address = probe_bind(*address)?;
    }
    plan.listen.admin = probe_bind(plan.listen.admin)?;
    Ok(plan)
}

/// Binds and lets go, so that an address that can't be had is an error and not a panic later. It does not listen:
/// whoever connected in that moment would be thrown out again.
fn probe_bind(address: SocketAddr) -> Result<SocketAddr, StartError> {
    let bound = Socket::new(Domain::for_address(address), Type::STREAM, None).and_then(|socket| {
        // As the listener will: a port that is only waiting for its last connections to fade is not in use.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.local_addr()
    });
    match bound {
        Ok(bound) => Ok(bound.as_socket().unwrap_or(address)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(StartError(format!(
            "port {} is in use ({address}); stop who has it or change [listen]",
            address.port()
        ))),
        Err(error) => Err(StartError(format!("can't listen on {address}: {error}"))),
    }
}

/// Where the admin side listens, for the verbs that ask it.
fn keep_address(plan: &Plan) -> Result<(), StartError> {
    let address = AdminAddress::of(plan.listen.admin);
    kept::write(&plan.state, ADMIN_FILE, &address).map_err(|error| {
        let folder = plan.state.display();
        StartError(format!(
            "the state folder {folder} can't be written: {error}"
        ))
    })
}

/// The folder is the process's own: it holds the admin token too.
fn keep_pid(state: &Path) -> Result<(), StartError> {
    let kept = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)
        .and_then(|()| std::fs::write(state.join(PID_FILE), format!("{}\n", std::process::id())));
    kept.map_err(|error| {
        StartError(format!(
            "the state folder {} can't be written: {error}",
            state.display()
        ))
    })
}
