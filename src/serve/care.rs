//! What goes on beside requests: names that become addresses, probes, questions for loads, test requests, decode samples,
//! speeds and accounts that are kept, files of keys that change, and ejections that end. And one look before the first request: the admin side opens only once clients are
//! listened to, so that whoever is told `/ready` can connect.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::ServiceReadyNotifier;
use pingora_core::services::background::BackgroundService;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::admission;
use crate::fleet::{self, Calibrator, Scraper};
use crate::line::App;
use crate::units::WorkerId;

/// Time between two decode samples, and the longest that an ejection or a hold is overdue: design §3 asks for 0.1–0.25 s.
const BEAT: Duration = Duration::from_millis(200);

/// Time between two looks whether clients are listened to.
const LOOK: Duration = Duration::from_millis(2);

/// The longest that opening a listener may take: Pingora gives up on an address in use after some 30 s.
const PATIENCE: Duration = Duration::from_secs(40);

/// Looks after the fleet until the process stops.
pub(super) struct Care {
    app: Arc<App>,
}

impl Care {
    pub(super) fn new(app: Arc<App>) -> Self {
        Care { app }
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
                if timeout(PATIENCE, accepting(*address)).await.is_err() {
                    // Whoever bound it in between has it; Pingora's own task has said so and ended.
                    tracing::error!("{address} can't be listened on; stopping");
                    std::process::exit(1);
                }
            }
            listening.notify_ready();
        };
        tokio::join!(opened, self.start(stopping));
    }

    async fn start(&self, mut stopping: ShutdownWatch) {
        let mut tasks = JoinSet::new();
        let plan = self.app.plan.load_full();
        for ((index, worker), upstream) in (0..).zip(&plan.workers).zip(&self.app.upstreams) {
            let (addresses, servers) = (upstream.addresses().clone(), plan.dns.clone());
            tasks.spawn(async move { addresses.follow(&servers).await });
            let watching = fleet::watch(
                self.app.fleet.clone(),
                self.app.clock,
                WorkerId(index),
                worker.clone(),
                upstream.clone(),
            );
            tasks.spawn(watching);
            let scraper = Scraper::new(
                self.app.fleet.clone(),
                self.app.clock,
                WorkerId(index),
                worker,
                upstream.clone(),
            );
            tasks.spawn(scraper.run(plan.dns.clone()));
        }
        let calibrator = Calibrator::new(
            self.app.fleet.clone(),
            self.app.clock,
            self.app.observe.clone(),
            plan.clone(),
            self.app.upstreams.clone(),
        );
        tasks.spawn(calibrator.run());
        let admission = &self.app.admission;
        let state = Arc::from(plan.state.as_path());
        tasks.spawn(admission::keep_accounts(admission.clone(), state));
        tasks.spawn(admission::follow_files(admission.clone()));
        tasks.spawn(fleet::keep_speeds(self.app.fleet.clone(), plan));
        let fleet = self.app.fleet.clone();
        tasks.spawn(async move {
            let mut ticks = interval(BEAT);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                fleet.beat();
            }
        });
        // Probes end with the process, not with the stop: a draining proxy still wants to know who lives.
        let _ = stopping.wait_for(|stop| *stop).await;
        std::future::pending::<()>().await;
    }
}

/// Comes back once somebody accepts there.
async fn accepting(address: SocketAddr) {
    let mut looks = interval(LOOK);
    while TcpStream::connect(address).await.is_err() {
        looks.tick().await;
    }
}
