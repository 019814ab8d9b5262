//! Signals, and how a proxy stops.
//!
//! They are caught first thing, on a thread of their own with a small runtime, and stay caught until the process ends:
//! none of them can kill it by default. SIGTERM and SIGINT: not ready, no new connections, open requests are finished;
//! the process exits with 0 as soon as no connection is open, at the latest after `drain`; a second one ends it at
//! once. SIGHUP reads the configuration again (`reload.rs`). SIGQUIT hands over to a waiting successor (`upgrade.rs`);
//! without one it is refused.

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
use super::notify::Notifier;
use super::reload::{Desk, Reloader};
use super::upgrade::Sockets;
use crate::line::App;
use crate::listener::Gate;

/// The longest that cut connections may take to end.
const CUT: Duration = Duration::from_millis(500);
/// The longest that it may take those who stand in line to be told, and event streams to say that they end.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The time that answers to those who stood in line get to go out.
const FAREWELL: Duration = Duration::from_millis(50);
/// The time in which an idle connection may still bring a request after a successor has taken over.
const PARTING: Duration = Duration::from_secs(2);
/// How often it is looked whether something has come to its end.
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
    /// Who reloads, and where that is ordered, once somebody is there.
    reloads: Option<(Arc<Reloader>, Desk)>,
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
            reloads: None,
        };
        drop(entered);
        Ok(Signals { runtime, caught })
    }

    /// What this comes to, unless the process is told to stop first.
    pub(super) fn unless_stopped<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let Signals { runtime, caught } = self;
        runtime.block_on(async {
            tokio::select! {
                done = what => Some(done),
                _ = caught.term.recv() => None,
                _ = caught.int.recv() => None,
            }
        })
    }

    /// Answers signals for this proxy, and tells Pingora when to stop listening.
    pub(super) fn watch(self, desks: Desks, reloads: (Arc<Reloader>, Desk)) -> StopWatch {
        let (stop, stopped) = watch::channel(false);
        let Signals {
            runtime,
            mut caught,
        } = self;
        caught.reloads = Some(reloads);
        std::thread::spawn(move || runtime.block_on(caught.answer(&desks, &stop)));
        StopWatch(stopped)
    }
}

/// What signals lead to.
#[derive(Clone)]
pub(super) struct Desks {
    /// The proxy.
    pub app: Arc<App>,
    /// Its connections.
    pub gate: Arc<Gate>,
    /// What a successor gets.
    pub sockets: Sockets,
    /// The service manager.
    pub notifier: Arc<Notifier>,
}

/// Why a proxy ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Farewell {
    /// It was told to.
    Stopped,
    /// Another serves.
    HandedOver,
}

impl Caught {
    async fn answer(mut self, desks: &Desks, stop: &watch::Sender<bool>) {
        let farewell = self.farewell(desks).await;
        let Desks { app, gate, .. } = desks;
        let drain = app.plan.load().drain;
        tracing::info!(
            connections = gate.open(),
            "{}: finishing open requests for at most {drain}",
            farewell.word()
        );
        if farewell == Farewell::Stopped {
            desks.notifier.stopping();
        }
        stop.send_replace(true);
        let emptied = timeout(drain.to_duration(), farewell.empty(app, gate));
        tokio::select! {
            emptied = emptied => match emptied {
                Ok(()) => tracing::info!("stopped: nothing was open any more"),
                Err(_) => tracing::warn!(requests = app.observe.live(), "stopped: drain = {drain} is over"),
            },
            _ = self.farewell(desks) => {
                tracing::warn!(requests = app.observe.live(), "stopped at once: told a second time");
            }
        }
        cut(app, gate).await;
        let state = &app.plan.load().state;
        match farewell {
            Farewell::Stopped => {
                app.fleet.save_speeds(state);
                app.admission.close(state);
            }
            Farewell::HandedOver => app.admission.settle_up(state),
        }
        app.observe.flush();
        diagnostics::flush();
        std::process::exit(0);
    }

    /// Waits until this proxy is to end; other signals are answered.
    async fn farewell(&mut self, desks: &Desks) -> Farewell {
        loop {
            tokio::select! {
                _ = self.term.recv() => return Farewell::Stopped,
                _ = self.int.recv() => return Farewell::Stopped,
                _ = self.hup.recv() => self.reloads.iter().for_each(|(_, desk)| desk.ask("SIGHUP")),
                _ = self.quit.recv() => {
                    let handed = tokio::select! {
                        handed = desks.sockets.hand_over(&desks.app) => handed,
                        _ = self.term.recv() => return Farewell::Stopped,
                        _ = self.int.recv() => return Farewell::Stopped,
                    };
                    match handed {
                        Ok(()) => {
                            self.reloads.iter().for_each(|(reloader, _)| reloader.part());
                            return Farewell::HandedOver;
                        }
                        Err(why) => tracing::warn!("SIGQUIT refused: {why}"),
                    }
                }
            }
        }
    }
}

impl Farewell {
    fn word(self) -> &'static str {
        match self {
            Farewell::Stopped => "stopping",
            Farewell::HandedOver => "handed over",
        }
    }

    /// Waits until no connection is open. Where another serves, clients are given time to notice.
    async fn empty(self, app: &App, gate: &Gate) {
        if self == Farewell::HandedOver {
            gate.part();
            let _either_way = timeout(PARTING, gate.emptied()).await;
        }
        app.stopping.store(true, Ordering::Release);
        gate.drain();
        gate.emptied().await;
    }
}

/// Ends what is still open, so that it is counted and logged like every request. Who stands in line yet was promised
/// nothing, and gets an answer that says so; a stream of events says so at its end.
async fn cut(app: &App, gate: &Gate) {
    app.fleet.dismiss();
    let refused = async {
        none(|| app.fleet.waiting()).await;
        sleep(FAREWELL).await;
    };
    let _in_time = timeout(LAST_WORDS, refused).await;
    app.observe.cutting();
    let _in_time = timeout(LAST_WORDS, none(|| app.observe.live())).await;
    gate.cut();
    if timeout(CUT, none(|| app.observe.live())).await.is_err() {
        tracing::warn!(requests = app.observe.live(), "ended without a log line");
    }
}

/// Waits until there are none.
async fn none(count: impl Fn() -> usize) {
    let mut looks = interval(LOOK);
    while count() > 0 {
        looks.tick().await;
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
