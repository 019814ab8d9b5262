//! What is seen from outside of a running proxy: metrics, the access log, and why requests went where they went.
//!
//! The rest of the house does not count. It tells one [`Exchange`] what happens to its request, and that counts and
//! logs once, when it is dropped; whether a request ends well, in a refusal, in a panic or because its client left, its
//! end is the end of the exchange's life, so it can neither be missed nor be counted twice. What has no request (a
//! connection refused, bytes in memory) is told to [`Metrics`].

mod access_line;
mod access_log;
mod cut;
pub mod decisions;
mod ending;
mod exchange;
mod kinds;
mod metrics;
pub mod names;
mod request_id;
mod reuse;
mod series;
mod tab;
mod tested;
mod times;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use http::{HeaderValue, Method, Uri};

pub use cut::Cut;
pub use ending::Spent;
pub use exchange::Exchange;
pub use metrics::{Metrics, ToldGauges, WorkerGauges};
pub use names::RouteName;
pub use series::Models;
pub use tab::Tab;
pub use tested::Tested;

use crate::clock::Clock;
use crate::config::plan::LogPlan;
use crate::units::{ModelName, WorkerId};
use access_log::AccessLog;
use cut::Cutting;
use decisions::Decisions;

/// The metrics, the access log and the last decisions of one proxy.
#[derive(Debug)]
pub struct Observe {
    /// The counters.
    pub metrics: Metrics,
    /// What was decided for the last requests.
    pub decisions: Decisions,
    log: AccessLog,
    /// Whether its lines name the hashes of prompts.
    replay: AtomicBool,
    clock: Clock,
    /// Names by [`WorkerId`], also of workers that are in the plan no more: what is remembered may be theirs.
    workers: ArcSwap<Vec<Name>>,
    live: AtomicUsize,
    cutting: Cutting,
}

/// A worker's name, ready for every use.
#[derive(Debug)]
struct Name {
    text: Arc<str>,
    field: HeaderValue,
}

impl Name {
    fn all(names: &[Arc<str>]) -> Vec<Self> {
        // A name has no character that a field can't have.
        let unnamed = HeaderValue::from_static("unnamed");
        let named = |name: &Arc<str>| Name {
            text: Arc::clone(name),
            field: HeaderValue::from_str(name).unwrap_or(unnamed.clone()),
        };
        names.iter().map(named).collect()
    }
}

impl Observe {
    /// Builds the metrics and opens the access log.
    ///
    /// `workers` are the names in the plan's order; `models` are the names that clients may say: both become labels.
    pub fn new(
        clock: Clock,
        log: &LogPlan,
        workers: &[Arc<str>],
        models: &[ModelName],
    ) -> io::Result<Self> {
        let metrics = Metrics::new(models)?;
        let file = AccessLog::open(&log.access, metrics.log_dropped.clone())?;
        Ok(Observe {
            metrics,
            decisions: Decisions::default(),
            log: file,
            replay: AtomicBool::new(log.replay),
            clock,
            workers: ArcSwap::from_pointee(Name::all(workers)),
            live: AtomicUsize::new(0),
            cutting: Cutting::default(),
        })
    }

    /// Another plan: these are the names by now, and lines of the log name hashes or not.
    pub fn replan(&self, log: &LogPlan, workers: &[Arc<str>]) {
        self.replay.store(log.replay, Ordering::Relaxed);
        self.workers.store(Arc::new(Name::all(workers)));
    }

    fn replays(&self) -> bool {
        self.replay.load(Ordering::Relaxed)
    }

    /// Begins to watch a request whose head was read whole. Boxed: it goes through many hands.
    #[must_use]
    pub fn open(
        self: &Arc<Self>,
        method: &Method,
        uri: &Uri,
        request_id: Option<&HeaderValue>,
    ) -> Box<Exchange> {
        self.live.fetch_add(1, Ordering::Relaxed);
        Box::new(Exchange::new(Arc::clone(self), method, uri, request_id))
    }

    /// Exchanges that have not ended: what a stopping process waits for.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// From here on a request that ends without a word was cut by the stopping proxy, not left by its client; and streams
    /// that can say so end now.
    pub fn cutting(&self) {
        self.cutting.begin();
    }

    /// Counts a connection that ended before a head was read whole.
    pub fn connection_refused(&self, cause: &'static str) {
        self.metrics.refused.count([cause]);
    }

    /// Returns once the access log is written.
    pub fn flush(&self) {
        self.log.flush();
    }

    /// The names of all workers that there are or were.
    #[must_use]
    pub fn worker_names(&self) -> Vec<Arc<str>> {
        let workers = self.workers.load();
        workers.iter().map(|name| name.text.clone()).collect()
    }

    /// The name of a worker.
    #[must_use]
    pub fn worker_name(&self, worker: WorkerId) -> Option<Arc<str>> {
        let names = self.workers.load();
        Some(Arc::clone(&names.get(worker.index())?.text))
    }
}
