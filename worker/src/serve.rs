//! Start, signals, stop.
//!
//! The order of the start decides what a person sees: the models folder and the library first (exit 2, all problems
//! together, within a moment), then the port (exit 1), then the graphs, which may take seconds; meanwhile the port
//! answers "loading". SIGTERM and SIGINT: not ready at once, no new connections, what runs is finished, exit 0; a
//! second signal ends at once. "At once" skips exit handlers: ONNX Runtime's own would tear it down under a session
//! that still runs, and the client would be told of a failure that is none.

mod load;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::serve::ListenerExt;
use signal_hook::low_level::exit;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::api;
use crate::engine::library::Search;
use crate::line::App;
use crate::units::Seconds;
use load::Prepared;

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

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::failed(error.to_string())
    }
}

/// Serves until a signal or a failure ends it.
pub fn run(settings: Settings) -> Result<(), Stop> {
    let prepared = load::prepare(&settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Tokenising and pooling: more at once than cores would only make each slower.
        .max_blocking_threads(settings.threads.max(2))
        .enable_all()
        .build()?;
    runtime.block_on(serve(settings, prepared))
}

async fn serve(settings: Settings, prepared: Prepared) -> Result<(), Stop> {
    let mut signals = Signals::listen()?;
    let (listener, address) = bind(settings.http).await?;
    let app = Arc::new(App::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(
        listener.tap_io(without_delay),
        api::router(Arc::clone(&app)),
    )
    .with_graceful_shutdown(async { stopped.await.unwrap_or(()) });
    let mut server = pin!(server.into_future());
    tracing::info!("listening on http://{address}");

    let threads = settings.threads;
    let mut loading = pin!(tokio::task::spawn_blocking(move || prepared.load(threads)));
    let mut loaded = false;
    loop {
        tokio::select! {
            models = &mut loading, if !loaded => {
                let models = models.map_err(|error| Stop::failed(error.to_string()))??;
                tracing::info!(models = models.len(), threads, "ready");
                app.loaded(models);
                loaded = true;
            }
            ended = &mut server => return Ok(ended?),
            () = signals.next() => break,
        }
    }
    app.stop();
    tracing::info!("stopping: no new connections; a second signal ends at once");
    // The server holds the other end for as long as it runs.
    let _ = stop.send(());
    drain(server, &mut signals, &app).await?;
    if !loaded {
        // A load can't be called off, and nobody needs its outcome any more.
        exit(0);
    }
    Ok(())
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

async fn bind(http: SocketAddr) -> Result<(TcpListener, SocketAddr), Stop> {
    let failed = |error: std::io::Error| Stop::failed(format!("--http {http}: {error}"));
    let listener = TcpListener::bind(http).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Only a delay of small answers is at stake if it fails.
fn without_delay(stream: &mut TcpStream) {
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
