//! Signals, and how a proxy stops.
//!
//! They are caught first thing, on a thread of their own with a small runtime, and stay caught until the process ends:
//! none of them can kill it by default. SIGTERM and SIGINT: not ready, no new connections, open requests are finished;
//! the process exits with 0 as soon as no connection is open, at the latest after `drain`; a second one ends it at once.
//! SIGHUP (reload) and SIGQUIT (hand-over) are answered with a log line until this version can do them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{interval, sleep, timeout};

use super::diagnostics;
use crate::line::App;
use crate::listener::Gate;

/// The longest that cut connections may take to end, and how often that is looked at.
const CUT: Duration = Duration::from_millis(500);
/// The time that answers to those who stood in line get to go out.
const FAREWELL: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(2);

/// The signals of this process, caught.
pub(super) struct Signals {
    runtime: Runtime,
    caught: Caught,
}

struct Caught {
    term: Signal,
    int: Signal,
    hup: Signal,
    quit: Signal,
}

impl Signals {
    /// From here on no signal ends the process by default.
    pub(super) fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let caught = Caught {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        };
        drop(entered);
        Ok(Signals { runtime, caught })
    }

    /// Answers signals for this proxy, and tells Pingora when to stop listening.
    pub(super) fn watch(self, app: Arc<App>, gate: Arc<Gate>) -> StopWatch {
        let (stop, stopped) = watch::channel(false);
        let Signals { runtime, caught } = self;
        std::thread::spawn(move || runtime.block_on(caught.answer(&app, &gate, &stop)));
        StopWatch(stopped)
    }
}

impl Caught {
    async fn answer(mut self, app: &App, gate: &Gate, stop: &watch::Sender<bool>) {
        self.told_to_stop().await;
        let drain = app.plan.load().drain;
        tracing::info!(
            connections = gate.open(),
            "stopping: finishing open requests for at most {drain}"
        );
        app.stopping.store(true, Ordering::Release);
        gate.drain();
        stop.send_replace(true);
        let emptied = timeout(drain.to_duration(), gate.emptied());
        tokio::select! {
            emptied = emptied => match emptied {
                Ok(()) => tracing::info!("stopped: nothing was open any more"),
                Err(_) => tracing::warn!(requests = app.observe.live(), "stopped: drain = {drain} is over"),
            },
            () = self.told_to_stop() => {
                tracing::warn!(requests = app.observe.live(), "stopped at once: told a second time");
            }
        }
        cut(app, gate).await;
        app.fleet.save_speeds(&app.plan.load());
        app.admission.save(&app.plan.load().state);
        app.observe.flush();
        diagnostics::flush();
        std::process::exit(0);
    }

    /// Waits for SIGTERM or SIGINT; says of the others that they were heard.
    async fn told_to_stop(&mut self) {
        loop {
            tokio::select! {
                _ = self.term.recv() => return,
                _ = self.int.recv() => return,
                _ = self.hup.recv() => tracing::warn!("SIGHUP: this version can't reload; restart to change the plan"),
                _ = self.quit.recv() => tracing::warn!("SIGQUIT refused: this version can't hand over"),
            }
        }
    }
}

/// Ends what is still open, so that it is counted and logged like every request. Who stands in line yet was promised
/// nothing, and gets an answer that says so.
async fn cut(app: &App, gate: &Gate) {
    app.fleet.dismiss();
    let refused = async {
        let mut looks = interval(LOOK);
        while app.fleet.waiting() > 0 {
            looks.tick().await;
        }
        sleep(FAREWELL).await;
    };
    let _in_time = timeout(CUT, refused).await;
    app.observe.cutting();
    gate.cut();
    let ended = async {
        let mut looks = interval(LOOK);
        while app.observe.live() > 0 {
            looks.tick().await;
        }
    };
    if timeout(CUT, ended).await.is_err() {
        tracing::warn!(requests = app.observe.live(), "ended without a log line");
    }
}

/// Tells Pingora to stop.
pub(super) struct StopWatch(watch::Receiver<bool>);

#[async_trait]
impl ShutdownSignalWatch for StopWatch {
    async fn recv(&self) -> ShutdownSignal {
        let mut stopped = self.0.clone();
        // The sender lives as long as its thread, which ends the process.
        let _ = stopped.wait_for(|stop| *stop).await;
        ShutdownSignal::GracefulTerminate
    }
}
