//! Start, signals, stop.
//!
//! The order of the start decides what a person sees: the models folder and the library first (exit 2, all problems
//! together, within a moment), then the port (exit 1), then the graphs, which may take seconds; meanwhile the port
//! answers "loading". A model that can't be loaded is logged and its neighbours are served; exit 2 if none can.
//!
//! SIGTERM and SIGINT: not ready at once, no new connections, what runs is finished, exit 0; a second signal ends at
//! once. "At once" skips exit handlers: ONNX Runtime's own would tear it down under a session that still runs, and the
//! client would be told of a failure that is none.

mod ensembles;
mod keeper;
pub mod load;
mod stock;
pub mod warm_up;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::serve::ListenerExt;
use signal_hook::low_level::exit;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::api;
use crate::clock::Clock;
use crate::engine::library::Search;
use crate::line::{App, Order};
use crate::log::Log;
use crate::repository::{Found, Watch, fingerprints};
use crate::units::{Device, Seconds};
use keeper::Keeper;

/// How long requests may take to finish after the first signal.
const DRAIN: Seconds = Seconds(60.0);

/// How long the last answer may take to leave. The server itself would wait for ever for a connection that has sent
/// half a request.
const FLUSH: Seconds = Seconds(1.0);

/// What the command line asked for.
#[derive(Debug)]
pub struct Settings {
    /// The models folder.
    pub models: PathBuf,
    /// Where to answer HTTP.
    pub http: SocketAddr,
    /// Where to answer gRPC.
    pub grpc: SocketAddr,
    /// Where to tell metrics.
    pub metrics: SocketAddr,
    /// Threads of one inference.
    pub threads: usize,
    /// What computes where a model says nothing of it.
    pub device: Device,
    /// Whether the CPU may stand in for a card where a model says nothing of it.
    pub fallback: bool,
    /// Who changes the models while it serves.
    pub control: Control,
    /// How often the folder is looked at, where it is followed.
    pub poll: Seconds,
    /// The most memory that kept answers take, in bytes.
    pub cache: usize,
    /// Where ONNX Runtime is looked for.
    pub library: Search,
}

/// Who changes the models while the worker serves. All are loaded at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Nobody.
    None,
    /// The folder: what is added, changed or removed there.
    Poll,
    /// Clients, by `/v2/repository/models/NAME/load` and `/unload`.
    Explicit,
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
    /// What was asked for can't be.
    pub fn wrong(message: impl Into<String>) -> Stop {
        Stop {
            exit: 2,
            message: message.into(),
        }
    }

    /// What was asked for went wrong.
    pub fn failed(message: impl Into<String>) -> Stop {
        Stop {
            exit: 1,
            message: message.into(),
        }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::failed(error.to_string())
    }
}

/// Serves until a signal or a failure ends it.
pub fn run(settings: Settings, log: Log) -> Result<(), Stop> {
    let clock = Clock::start();
    // No folder is a problem that `prepare` tells of.
    let watch = Watch::begin(fingerprints(&settings.models).unwrap_or_default());
    let (found, loader) = load::prepare(&settings, clock)?;
    runtime(settings.threads)?.block_on(async {
        let (give, orders) = mpsc::unbounded_channel();
        let give = (settings.control == Control::Explicit).then_some(give);
        let app = Arc::new(App::new(settings.models.clone(), give, clock, log));
        let keeper = Keeper::new(Arc::clone(&app), loader, watch);
        serve(
            &app,
            &settings,
            keep(&app, keeper, found, &settings, orders),
        )
        .await
    })
}

/// What requests are answered on.
pub fn runtime(threads: usize) -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        // Tokenising and pooling: more at once than cores would only make each slower.
        .max_blocking_threads(threads.max(2))
        .enable_all()
        .build()
}

/// Answers until told to stop, while models are kept.
async fn serve(
    app: &Arc<App>,
    settings: &Settings,
    keeping: impl Future<Output = Result<(), Stop>>,
) -> Result<(), Stop> {
    let mut signals = Signals::listen()?;
    let (http, http_address) = bind("--http", settings.http).await?;
    let (grpc, grpc_address) = bind("--grpc", settings.grpc).await?;
    let (metrics, metrics_address) = bind("--metrics", settings.metrics).await?;
    let stop = watch::Sender::new(false);
    let http = axum::serve(http.tap_io(without_delay), api::router(Arc::clone(app)))
        .with_graceful_shutdown(told(stop.subscribe()));
    let grpc = axum::serve(
        grpc.tap_io(without_delay),
        api::grpc_router(Arc::clone(app)),
    )
    .with_graceful_shutdown(told(stop.subscribe()));
    let both = async { tokio::try_join!(http.into_future(), grpc.into_future()).map(|_| ()) };
    // Metrics are told to the end, and end with it.
    let metrics = axum::serve(metrics, api::metrics::router(Arc::clone(app)));
    let server = async {
        tokio::select! {
            ended = both => ended,
            ended = metrics.into_future() => ended,
        }
    };
    let mut server = pin!(server);
    tracing::info!("metrics on http://{metrics_address}/metrics");
    tracing::info!("gRPC on {grpc_address}");
    tracing::info!("listening on http://{http_address}");

    let mut keeping = pin!(keeping);
    loop {
        tokio::select! {
            kept = &mut keeping => kept?,
            ended = &mut server => return Ok(ended?),
            () = signals.next() => break,
        }
    }
    app.stop();
    tracing::info!("stopping: no new connections; a second signal ends at once");
    stop.send_replace(true);
    drain(server, &mut signals, app).await?;
    // A load that runs can't be called off, and nobody needs its outcome any more.
    exit(0)
}

/// Loads the models, then changes them as the settings say, for as long as it is polled.
async fn keep(
    app: &App,
    keeper: Keeper,
    found: Found,
    settings: &Settings,
    orders: mpsc::UnboundedReceiver<Order>,
) -> Result<(), Stop> {
    let first = tokio::task::spawn_blocking(move || (keeper.first(found), keeper));
    let (problems, keeper) = first
        .await
        .map_err(|error| Stop::failed(error.to_string()))?;
    let models = app.registry.served().len();
    if models == 0 && !problems.is_empty() {
        return Err(Stop::wrong(problems.join("\n")));
    }
    app.loaded();
    let (failed, threads) = (problems.len(), settings.threads);
    tracing::info!(models, failed, threads, "ready");
    match settings.control {
        Control::Poll => keeper.follow(settings.poll).await,
        Control::Explicit => keeper.obey(orders).await,
        Control::None => {}
    }
    std::future::pending().await
}

/// Waits for the server to finish what runs, within reason.
async fn drain(
    server: Pin<&mut impl Future<Output = std::io::Result<()>>>,
    signals: &mut Signals,
    app: &App,
) -> Result<(), Stop> {
    tokio::select! {
        ended = server => Ok(ended?),
        () = signals.next() => exit(1),
        () = quiet_for(app, FLUSH) => exit(0),
        () = tokio::time::sleep(DRAIN.to_duration()) => {
            tracing::warn!("some requests were still running after {} s", DRAIN.0);
            exit(0)
        }
    }
}

/// Waits until no request is live, and then this much longer.
async fn quiet_for(app: &App, span: Seconds) {
    app.quiet().await;
    tokio::time::sleep(span.to_duration()).await;
}

/// Waits until the servers are to stop.
async fn told(mut stop: watch::Receiver<bool>) {
    // An error means that nobody is left to tell it, which is as good a reason.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn bind(flag: &str, wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), Stop> {
    let failed = |error: std::io::Error| Stop::failed(format!("{flag} {wanted}: {error}"));
    let listener = TcpListener::bind(wanted).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Only a delay of small answers is at stake if it fails.
pub fn without_delay(stream: &mut TcpStream) {
    let _ = stream.set_nodelay(true);
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
