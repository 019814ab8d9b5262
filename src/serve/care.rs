//! What goes on beside requests: names that become addresses, probes, questions for loads, test requests, decode
//! samples, speeds and accounts that are kept, files that change, and ejections that end. And one look before the first
//! request: the admin side opens only once clients are listened to, so that whoever is told `/ready` can connect.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::ServiceReadyNotifier;
use pingora_core::services::background::BackgroundService;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::notify::Notifier;
use super::reload::{Orders, Reloader};
use super::upgrade::Successor;
use crate::admission;
use crate::fleet::{self, Calibrator, Scraper, Station};
use crate::line::App;
use crate::listener::Gate;
use crate::units::WorkerId;

/// Time between two decode samples, and the longest that an ejection or a hold is overdue: design §3 asks for 0.1–0.25
/// s.
const BEAT: Duration = Duration::from_millis(200);

/// Time between two looks whether clients are listened to.
const LOOK: Duration = Duration::from_millis(2);

/// The longest that opening a listener may take: Pingora gives up on an address in use after some 30 s.
const PATIENCE: Duration = Duration::from_secs(40);

/// Looks after the fleet until the process stops.
pub(super) struct Care {
    app: Arc<App>,
    ready: Ready,
    reloader: Arc<Reloader>,
    /// Until they are read.
    orders: Mutex<Option<Orders>>,
}

/// How it is known that clients are listened to, and who is told.
pub(super) struct Ready {
    /// Where they come in.
    pub gate: Arc<Gate>,
    /// Until the proxy before was told.
    pub successor: Mutex<Option<Successor>>,
    /// The service manager.
    pub notifier: Arc<Notifier>,
}

impl Care {
    pub(super) fn new(
        app: Arc<App>,
        ready: Ready,
        (reloader, orders): (Arc<Reloader>, Orders),
    ) -> Self {
        Care {
            app,
            ready,
            reloader,
            orders: Mutex::new(Some(orders)),
        }
    }
}

#[async_trait]
impl BackgroundService for Care {
    async fn start_with_ready_notifier(
        &self,
        stopping: ShutdownWatch,
        listening: ServiceReadyNotifier,
    ) {
        let plan = self.app.plan.load_full();
        let opened = async {
            for address in &plan.listen.http {
                if timeout(PATIENCE, accepting(*address, &self.ready.gate))
                    .await
                    .is_err()
                {
                    // Whoever bound it in between has it; Pingora's own task has said so and ended.
                    tracing::error!("{address} can't be listened on; stopping");
                    std::process::exit(1);
                }
            }
            listening.notify_ready();
            let successor = self.ready.successor.lock().take();
            match successor {
                None => self.ready.notifier.ready(),
                Some(successor) => {
                    self.ready.notifier.took_over();
                    successor.serves();
                }
            }
        };
        tokio::join!(opened, self.start(stopping));
    }

    async fn start(&self, mut stopping: ShutdownWatch) {
        let mut tasks = JoinSet::new();
        let app = &self.app;
        tasks.spawn(tend(app.clone()));
        let calibrator = Calibrator::new(
            app.fleet.clone(),
            app.clock,
            app.observe.clone(),
            app.plan.clone(),
        );
        tasks.spawn(calibrator.run());
        let state: Arc<Path> = Arc::from(app.plan.load().state.as_path());
        let admission = &app.admission;
        tasks.spawn(admission::follow_files(admission.clone()));
        let mut keepers = JoinSet::new();
        keepers.spawn(admission::keep_accounts(admission.clone(), state.clone()));
        keepers.spawn(fleet::keep_speeds(app.fleet.clone(), state));
        if let Some(orders) = self.orders.lock().take() {
            keepers.spawn(self.reloader.clone().run(orders));
        }
        let fleet = app.fleet.clone();
        tasks.spawn(async move {
            let mut ticks = interval(BEAT);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                fleet.beat();
            }
        });
        // Probes end with the process, not with the stop: a draining proxy still wants to know who lives. But the state
        // folder may be a successor's by then.
        let _ = stopping.wait_for(|stop| *stop).await;
        drop(keepers);
        std::future::pending::<()>().await;
    }
}

/// What goes on for one worker: it ends when this is dropped.
struct Tended {
    station: Arc<Station>,
    servers: Vec<SocketAddr>,
    _tasks: JoinSet<()>,
}

/// Looks after every worker that is in the plan, for as long as the process lives. One of which another plan says the
/// same is not looked at anew.
async fn tend(app: Arc<App>) {
    let mut changes = app.fleet.changes();
    let mut tended: BTreeMap<WorkerId, Tended> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let servers = app.plan.load().dns.clone();
        for (id, station) in (0..).map(WorkerId).zip(&*app.fleet.stations()) {
            let is_as = |one: &Tended| Arc::ptr_eq(&one.station, station) && one.servers == servers;
            if station.leaves {
                tended.remove(&id);
            } else if !tended.get(&id).is_some_and(is_as) {
                tended.insert(id, Tended::new(&app, id, station, &servers));
            }
        }
        // The fleet has the other end, and we have the fleet.
        let _ = changes.changed().await;
    }
}

impl Tended {
    fn new(app: &App, id: WorkerId, station: &Arc<Station>, servers: &[SocketAddr]) -> Self {
        let mut tasks = JoinSet::new();
        let Station { plan, upstream, .. } = &**station;
        let (fleet, clock) = (&app.fleet, app.clock);
        let (addresses, asked) = (upstream.addresses().clone(), servers.to_vec());
        tasks.spawn(async move { addresses.follow(&asked).await });
        let watching = fleet::watch(fleet.clone(), clock, id, plan.clone(), upstream.clone());
        tasks.spawn(watching);
        let scraper = Scraper::new(fleet.clone(), clock, id, plan, upstream.clone());
        tasks.spawn(scraper.run(servers.to_vec()));
        Tended {
            station: station.clone(),
            servers: servers.to_vec(),
            _tasks: tasks,
        }
    }
}

/// Comes back once connections are accepted there, and by this process: of two that share a socket it may be either.
async fn accepting(address: SocketAddr, gate: &Gate) {
    let mut looks = interval(LOOK);
    while TcpStream::connect(address).await.is_err() || !gate.was_visited() {
        looks.tick().await;
    }
}
