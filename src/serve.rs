//! Builds a proxy from a plan and runs it: the one room that names Pingora.
//!
//! Pingora keeps the process: runtimes, listening sockets, and how these travel to another (`upgrade.rs`). It hands
//! each accepted stream to `listener::serve`, and that is all it sees of HTTP. Three things of its own habits are
//! replaced (pingora-core 0.9.1, read in its source):
//!
//! - its SIGTERM sleeps a whole grace period; `signals.rs` ends the process as soon as no connection is open;
//! - a failed bind is a panic in a task of a process that lives on; every address is bound once beforehand, so that a
//!   port in use is an error here, and a bind that fails all the same ends the process;
//! - SIGHUP kills and SIGQUIT stops it; both are caught before anything else happens.

mod care;
mod diagnostics;
mod doorway;
mod holder;
mod line;
mod notify;
mod open_files;
mod panics;
mod ports;
mod reload;
mod signals;
mod status;
mod upgrade;
mod zones;

use std::fs::DirBuilder;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pingora_core::listeners::{ListenerConfig, TcpSocketOptions};
use pingora_core::protocols::l4::stream::L4BufferSettings;
use pingora_core::server::configuration::{Opt, ServerConf};
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::background::background_service;
use pingora_core::services::listening::Service;

use crate::admin::address::{ADMIN_FILE, AdminAddress};
use crate::admin::token::{self, TokenSource};
use crate::admin::{Admin, Sights};
use crate::admission::{Admission, Intake};
use crate::clock::Clock;
use crate::config::{Plan, dump};
use crate::fleet::Fleet;
use crate::forward::Forward;
use crate::kept;
use crate::line::App;
use crate::listener::{Gate, Plane};
use crate::observe::Observe;

use care::{Care, Ready};
use doorway::Doorway;
use notify::Notifier;
pub use reload::Environment;
use reload::{Desk, Orders, Reloader};
use signals::{Desks, Signals};
use upgrade::{Keeper, Sockets, Successor};

/// The most of an answer that the system holds before its client has it. Its own choice grows to megabytes, which a
/// worker would write for a client that reads nothing (promise P19).
const UNREAD: usize = 128 << 10;

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

/// What a proxy is started with.
pub struct Start {
    /// The configuration.
    pub plan: Plan,
    /// Where it was read.
    pub file: PathBuf,
    /// What it may refer to.
    pub env: Environment,
    /// Whether it takes over from a running proxy.
    pub upgrade: bool,
}

/// Runs a proxy until it is told to stop; then the process has ended.
///
/// # Errors
/// When a port is in use, or the state folder or the access log can't be written.
pub fn run(start: Start) -> Result<(), StartError> {
    diagnostics::start(start.plan.log.level)
        .map_err(|error| StartError(format!("diagnostics can't be written: {error}")))?;
    panics::end_the_process();
    without_huge_pages();
    let ended = begin(start);
    diagnostics::flush();
    ended
}

/// A proxy's memory is many buffers that come and go. In pages of 2 MiB, which some systems give to every process,
/// those that are gone stay in memory beside those that are there: a line of large bodies then took a quarter more.
fn without_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "huge pages stay on: memory may look larger than it is");
    }
}

/// Takes hold of everything that may be missing, then serves.
fn begin(start: Start) -> Result<(), StartError> {
    let Start {
        plan: typed,
        file,
        env,
        upgrade,
    } = start;
    let mut signals = Signals::catch()
        .map_err(|error| StartError(format!("signals can't be caught: {error}")))?;
    for remark in &typed.remarks {
        tracing::warn!("{remark}");
    }
    let mut successor = None;
    if upgrade {
        successor = Successor::meet(&typed.state, &mut signals)?;
        if successor.is_none() {
            return Ok(());
        }
    }
    let inherited = successor.as_ref().map(|one| &*one.inherited);
    let plan = ports::settled(typed.clone(), inherited.unwrap_or_default())?;
    make_folder(&plan.state)?;
    let token = admin_token(&plan, env)?;
    let clock = Clock::start();
    let app = Arc::new(build(plan, clock)?);
    let plan = app.plan.load_full();
    let (limits, observe) = (plan.limits.clone(), app.observe.clone());
    let gate = Gate::new(clock, limits, observe, open_files::most());
    let notifier = Notifier::to(env(notify::VARIABLE).as_deref());
    let desks = Desks {
        app: app.clone(),
        gate: Arc::new(gate),
        sockets: Sockets::default(),
        notifier: Arc::new(notifier),
    };
    let (reloader, desk, orders) = Reloader::open(&desks, (file, env), typed);
    let sights = sights(&app, &reloader, &desk);
    let admin = Arc::new(Admin::new(token, plan.listen.admin, sights));
    let watch = signals.watch(desks.clone(), (reloader.clone(), desk));
    let server = server(&desks, admin, successor, (reloader, orders))?;
    server.run(RunArgs {
        shutdown_signal: Box::new(watch),
    });
    Ok(())
}

/// The token that opens the admin side; where it is, the log tells.
fn admin_token(plan: &Plan, env: Environment) -> Result<TokenSource, StartError> {
    let source = token::resolve(env(token::VARIABLE), plan.admin_token.as_ref(), &plan.state)
        .map_err(|error| StartError(format!("the admin token can't be had: {error}")))?;
    tracing::info!(
        "{}",
        source.announcement(plan.listen.admin, io::stderr().is_terminal())
    );
    Ok(source)
}

/// What the admin side shows and changes.
fn sights(app: &Arc<App>, reloader: &Arc<Reloader>, desk: &Desk) -> Sights {
    Sights {
        clock: app.clock,
        observe: app.observe.clone(),
        config: {
            let app = app.clone();
            Box::new(move || dump::json(&app.plan.load()))
        },
        set_level: Box::new(diagnostics::set),
        reload: reload::sight(reloader.clone(), desk.clone()),
        reloaded: {
            let reloader = reloader.clone();
            Box::new(move || reloader.last())
        },
        fleet: {
            let app = app.clone();
            Box::new(move || status::view(&app))
        },
        queue: {
            let app = app.clone();
            Box::new(move |id| line::view(&app, id))
        },
        staff: reload::staff(desk.clone()),
        change: {
            let app = app.clone();
            Box::new(move |name, hand| status::change(&app, name, hand))
        },
        dry_run: {
            let app = app.clone();
            Box::new(move |path, body| app.dry_run(path, body))
        },
        tenants: {
            let admission = app.admission.clone();
            Box::new(move || admission.accounts())
        },
        stopping: {
            let app = app.clone();
            Box::new(move || app.stopping.load(Ordering::Acquire))
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
    fleet.recall_speeds(&plan.state);
    let observe = Observe::new(clock, &plan.log, &names, fleet.catalogue().served())
        .map_err(|error| StartError(format!("the access log can't be opened: {error}")))?;
    let observe = Arc::new(observe);
    let admission = Admission::new(&plan, clock, &observe.metrics)
        .map_err(|error| StartError(format!("a tenant's metrics can't be made: {error}")))?;
    admission.recall(&plan.state);
    Ok(App {
        clock,
        admission: Arc::new(admission),
        intake: Intake::new(clock, &plan.limits, observe.clone()),
        forward: Forward::new(clock, fleet.clone()),
        plan: Arc::new(ArcSwap::from_pointee(plan)),
        observe,
        fleet,
        stopping: AtomicBool::new(false),
    })
}

/// What listens, and what goes on beside.
fn server(
    desks: &Desks,
    admin: Arc<Admin>,
    mut successor: Option<Successor>,
    reloads: (Arc<Reloader>, Orders),
) -> Result<Server, StartError> {
    let Desks {
        app,
        gate,
        sockets,
        notifier,
    } = desks;
    let plan = app.plan.load_full();
    let mut server = bootstrapped(&plan, successor.as_mut())?;
    keep_pid(&plan.state)?;
    keep_address(&plan)?;
    let ready = Ready {
        gate: gate.clone(),
        successor: Mutex::new(successor),
        notifier: notifier.clone(),
    };
    let care = Care::new(app.clone(), ready, reloads);
    server.add_service(Keeper(sockets.clone()));
    let clients = Doorway::new(Plane::Client(app.clone()), gate.clone());
    let listeners = &plan.listen.http;
    server.add_service(listening(
        "clients",
        clients,
        listeners,
        available_threads(),
    ));
    let care = server.add_service(background_service("care of the fleet", care));
    let operators = Doorway::new(Plane::Admin(admin), gate.clone());
    server
        .add_service(listening("admin", operators, &[plan.listen.admin], 1))
        .add_dependency(care);
    let listed: Vec<_> = listeners.iter().map(SocketAddr::to_string).collect();
    tracing::info!(
        workers = plan.workers.len(),
        "listening for clients on {}",
        listed.join(", ")
    );
    Ok(server)
}

/// Pingora's server, with the sockets of the one before if there is one.
fn bootstrapped(plan: &Plan, successor: Option<&mut Successor>) -> Result<Server, StartError> {
    let mut options = Opt::default();
    let mut conf = conf(plan);
    if let Some(successor) = &successor {
        options.upgrade = true;
        conf.upgrade_sock = successor.sockets().display().to_string();
        tracing::info!("waiting for the sockets of the running proxy");
    }
    let mut server = Server::new_with_opt_and_conf(options, conf);
    match successor {
        Some(successor) => successor.receive(|| server.bootstrap())?,
        None => server.bootstrap(),
    }
    Ok(server)
}

fn listening(
    name: &str,
    doorway: Doorway,
    addresses: &[SocketAddr],
    threads: usize,
) -> Service<Doorway> {
    let mut service = Service::new(name.to_owned(), doorway);
    service.threads = Some(threads);
    let mut options = TcpSocketOptions::default();
    options.tcp_snd_buf = Some(UNREAD);
    for address in addresses {
        // hyper buffers; a second buffer below it would only copy.
        let listener = ListenerConfig::tcp(address.to_string())
            .tcp_socket_options(options.clone())
            .l4_buffer(L4BufferSettings::unbuffered());
        service.add_listener(listener);
    }
    service
}

fn conf(plan: &Plan) -> ServerConf {
    // The process ends by itself before Pingora's own grace period does.
    let grace = plan.drain.to_duration().as_secs().saturating_add(60);
    ServerConf {
        grace_period_seconds: Some(grace),
        // A connection stays on the thread that accepted it, and so do its requests (`upstream/pool.rs` says why).
        work_stealing: false,
        ..ServerConf::default()
    }
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Where the admin side listens, for the verbs that ask it.
fn keep_address(plan: &Plan) -> Result<(), StartError> {
    let address = AdminAddress::of(plan.listen.admin);
    let kept = kept::write(&plan.state, ADMIN_FILE, &address);
    kept.map_err(|error| unwritable(&plan.state, &error))
}

/// The folder is the process's own: it holds the admin token too.
fn make_folder(state: &Path) -> Result<(), StartError> {
    let mut folder = DirBuilder::new();
    let made = folder.recursive(true).mode(0o700).create(state);
    made.map_err(|error| unwritable(state, &error))
}

/// Whole or not at all: whoever reads it meanwhile finds this process or the one before.
fn keep_pid(state: &Path) -> Result<(), StartError> {
    let fresh = state.join(format!("{PID_FILE}.new"));
    let kept = std::fs::write(&fresh, format!("{}\n", std::process::id()))
        .and_then(|()| std::fs::rename(&fresh, state.join(PID_FILE)));
    kept.map_err(|error| unwritable(state, &error))
}

fn unwritable(state: &Path, error: &io::Error) -> StartError {
    let state = state.display();
    StartError(format!(
        "the state folder {state} can't be written: {error}"
    ))
}
