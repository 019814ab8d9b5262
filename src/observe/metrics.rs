//! What is counted, built from the rows of `names.rs`.
//!
//! The registry is our own, so two proxies in one test process do not share counters. A family knows at compile time
//! how many label values it takes (`Counters<5>`) and at start whether its row agrees; after that, counting can't fail.
//! `prometheus` finds a series by hashing its label values without a separator between them: two series would be taken
//! for one if their values, joined, read the same. Our last labels are from fixed lists of which no entry ends another, so
//! only a route, a model and a tenant that are named for the purpose could meet.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{
    CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, Opts, Registry, TextEncoder,
};

use super::kinds::{Amounts, Counters, Gauges, Histograms};
use super::names::{Kind, NONE, Row, TABLE, WORKER_STATES};
use super::reuse::ReuseSeries;
use super::series::{Families, Models};
use crate::units::{ModelName, Seconds};

/// A worker as the gauges show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerGauges<'a> {
    /// Its name.
    pub name: &'a str,
    /// One of [`WORKER_STATES`].
    pub state: &'a str,
    /// Requests it holds.
    pub inflight: u32,
    /// Requests that it is expected to finish within the horizon before it fails.
    pub weight: f64,
    /// Tokens per second while reading prompts, once learned.
    pub prefill: Option<f64>,
    /// Tokens per second of one stream alone, once learned.
    pub decode: Option<f64>,
    /// The busy time that it is expected to infer before it fails.
    pub fail_timeout: Seconds,
    /// How often it was ejected, by cause.
    pub ejections: [(&'a str, u64); 3],
    /// What its engine says of its load.
    pub told: ToldGauges,
}

/// What an engine says of its load, as far as it does and that still counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ToldGauges {
    /// Requests that run.
    pub running: Option<f64>,
    /// Requests that wait in it.
    pub waiting: Option<f64>,
    /// The share of its KV memory in use.
    pub kv_use: Option<f64>,
}

/// All metrics of one proxy.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Held by whoever reads: what is only set then must not change under its hands.
    reading: Arc<Mutex<()>>,
    pub(super) families: Families,
    /// Those of requests without a tenant.
    pub(super) models: Arc<Models>,
    pub(super) overhead: Histogram,
    pub(super) queue_wait: Histogram,
    pub(super) attempts: Counters<2>,
    pub(super) retries: Counters<1>,
    pub(super) tests: Counters<2>,
    pub(super) reuse: ReuseSeries,
    pub(super) refused: Counters<1>,
    pub(super) log_dropped: IntCounter,
    reloads: Counters<1>,
    queue_depth: Gauges<1>,
    queue_overloaded: Gauges<1>,
    inflight: Gauges<1>,
    state: Gauges<2>,
    weight: Gauges<1>,
    speed: Gauges<2>,
    fail_timeout: Gauges<1>,
    ejections: Counters<2>,
    told_requests: Gauges<2>,
    told_kv_use: Gauges<1>,
    budget_used: Gauges<2>,
    buffered: IntGauge,
    connections: IntGauge,
}

impl Metrics {
    /// Builds every row of the table; `models` are the names that may become labels.
    pub(super) fn new(models: &[ModelName]) -> io::Result<Self> {
        let mut rows = Rows::new(TABLE);
        let families = Families {
            requests: rows.counters("forebay_requests_total")?,
            duration: rows.histograms("forebay_request_duration_seconds")?,
            first_byte: rows.histograms("forebay_time_to_first_byte_seconds")?,
            first_token: rows.histograms("forebay_time_to_first_token_seconds")?,
            inter_token: rows.histograms("forebay_inter_token_seconds")?,
            tokens: rows.counters("forebay_tokens_total")?,
            cost: rows.amounts("forebay_cost_total")?,
        };
        let build = rows.gauges::<1>("forebay_build_info")?;
        build.set([env!("CARGO_PKG_VERSION")], 1.0);
        let metrics = Metrics {
            models: Arc::new(Models::new(&Arc::from(NONE), models, &families)?),
            families,
            overhead: rows.histogram("forebay_overhead_seconds")?,
            queue_wait: rows.histogram("forebay_queue_wait_seconds")?,
            attempts: rows.counters("forebay_attempts_total")?,
            retries: rows.counters("forebay_retries_total")?,
            tests: rows.counters("forebay_tests_total")?,
            reuse: ReuseSeries::new(&rows.counters("forebay_prefix_tokens_total")?)?,
            refused: rows.counters("forebay_connections_refused_total")?,
            log_dropped: rows.counter("forebay_access_log_dropped_total")?,
            reloads: rows.counters("forebay_config_reloads_total")?,
            queue_depth: rows.gauges("forebay_queue_depth")?,
            queue_overloaded: rows.gauges("forebay_queue_overloaded")?,
            inflight: rows.gauges("forebay_inflight")?,
            state: rows.gauges("forebay_worker_state")?,
            weight: rows.gauges("forebay_worker_weight")?,
            speed: rows.gauges("forebay_worker_speed")?,
            fail_timeout: rows.gauges("forebay_worker_fail_timeout_seconds")?,
            ejections: rows.counters("forebay_ejections_total")?,
            told_requests: rows.gauges("forebay_worker_told_requests")?,
            told_kv_use: rows.gauges("forebay_worker_told_kv_use_ratio")?,
            budget_used: rows.gauges("forebay_tenant_budget_used_ratio")?,
            buffered: rows.whole_gauge("forebay_buffered_bytes")?,
            connections: rows.whole_gauge("forebay_open_connections")?,
            reading: Arc::default(),
            registry: rows.finish()?,
        };
        Ok(metrics)
    }

    /// The series of a tenant, under its name in the configuration.
    ///
    /// # Errors
    /// When they can't be made.
    pub fn of_tenant(&self, name: &Arc<str>) -> io::Result<Arc<Models>> {
        Models::new(name, &[], &self.families).map(Arc::new)
    }

    /// Everything in Prometheus' text format, version 0.0.4.
    #[must_use]
    pub fn render(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_default()
    }

    /// The same after `show` has set what is only set when somebody reads. What it does not set is gone: a worker, a class
    /// or a tenant that is in the plan no more.
    #[must_use]
    pub fn render_with(&self, show: impl FnOnce(&Self)) -> String {
        let _alone = self.reading.lock();
        let by_one = [
            &self.queue_depth,
            &self.queue_overloaded,
            &self.inflight,
            &self.weight,
            &self.fail_timeout,
            &self.told_kv_use,
        ];
        let by_two = [
            &self.state,
            &self.speed,
            &self.told_requests,
            &self.budget_used,
        ];
        by_one.into_iter().for_each(Gauges::clear);
        by_two.into_iter().for_each(Gauges::clear);
        show(self);
        self.render()
    }

    /// A request body of this many bytes is in memory from now on.
    pub fn buffer_grew(&self, bytes: u64) {
        self.buffered.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// It no longer is.
    pub fn buffer_shrank(&self, bytes: u64) {
        self.buffered.sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Somebody or something asked for the configuration to be read again, with this result.
    pub fn reloaded(&self, result: &'static str) {
        self.reloads.count([result]);
    }

    /// A client connected.
    pub fn connection_opened(&self) {
        self.connections.inc();
    }

    /// A client's connection ended.
    pub fn connection_closed(&self) {
        self.connections.dec();
    }

    /// Shows how many requests of a class wait, and whether its newest go first. Set when the metrics are read, like [`Metrics::show_worker`].
    pub fn show_queue(&self, class: &str, depth: usize, overloaded: bool) {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        self.queue_depth.set([class], f64::from(depth));
        self.queue_overloaded
            .set([class], f64::from(u8::from(overloaded)));
    }

    /// Shows how much of a tenant's budget is used. Set when the metrics are read.
    pub fn show_budget(&self, tenant: &str, budget: &str, used_ratio: f64) {
        self.budget_used.set([tenant, budget], used_ratio);
    }

    /// Forgets what was counted of these workers, which are in the plan no more: names may come and go without end.
    pub fn forget_workers(&self, is_gone: impl Fn(&str) -> bool) {
        for family in [&self.attempts, &self.tests, &self.ejections] {
            family.forget("worker", &is_gone);
        }
    }

    /// Shows a worker. The fleet is asked when the metrics are read, so a request pays nothing for these.
    pub fn show_worker(&self, worker: &WorkerGauges<'_>) {
        self.inflight.set([worker.name], f64::from(worker.inflight));
        self.weight.set([worker.name], worker.weight);
        for state in WORKER_STATES {
            let is = f64::from(u8::from(state == worker.state));
            self.state.set([worker.name, state], is);
        }
        for (phase, speed) in [("prefill", worker.prefill), ("decode", worker.decode)] {
            if let Some(speed) = speed {
                self.speed.set([worker.name, phase], speed);
            }
        }
        self.fail_timeout.set([worker.name], worker.fail_timeout.0);
        for (cause, count) in worker.ejections {
            self.ejections.raise([worker.name, cause], count);
        }
        let told = worker.told;
        for (kind, count) in [("running", told.running), ("waiting", told.waiting)] {
            self.told_requests.show([worker.name, kind], count);
        }
        self.told_kv_use.show([worker.name], told.kv_use);
    }
}

/// The rows on their way to a registry; each is built once, and none may be left over.
struct Rows {
    registry: Registry,
    waiting: Vec<&'static Row>,
}

impl Rows {
    fn new(table: &'static [Row]) -> Self {
        Rows {
            registry: Registry::new(),
            waiting: table.iter().collect(),
        }
    }

    fn counters<const N: usize>(&mut self, name: &str) -> io::Result<Counters<N>> {
        let row = self.take(name, N, |kind| kind == Kind::Counter)?;
        let family = IntCounterVec::new(Opts::new(row.name, row.help), row.labels);
        self.register(family).map(Counters)
    }

    fn amounts<const N: usize>(&mut self, name: &str) -> io::Result<Amounts<N>> {
        let row = self.take(name, N, |kind| kind == Kind::Counter)?;
        let family = CounterVec::new(Opts::new(row.name, row.help), row.labels);
        self.register(family).map(Amounts)
    }

    fn gauges<const N: usize>(&mut self, name: &str) -> io::Result<Gauges<N>> {
        let row = self.take(name, N, |kind| kind == Kind::Gauge)?;
        let family = GaugeVec::new(Opts::new(row.name, row.help), row.labels);
        self.register(family).map(Gauges)
    }

    fn histograms<const N: usize>(&mut self, name: &str) -> io::Result<Histograms<N>> {
        let row = self.take(name, N, |kind| matches!(kind, Kind::Histogram(_)))?;
        let family = HistogramVec::new(histogram_opts(row), row.labels);
        self.register(family).map(Histograms)
    }

    fn counter(&mut self, name: &str) -> io::Result<IntCounter> {
        let row = self.take(name, 0, |kind| kind == Kind::Counter)?;
        self.register(IntCounter::new(row.name, row.help))
    }

    fn whole_gauge(&mut self, name: &str) -> io::Result<IntGauge> {
        let row = self.take(name, 0, |kind| kind == Kind::Gauge)?;
        self.register(IntGauge::new(row.name, row.help))
    }

    fn histogram(&mut self, name: &str) -> io::Result<Histogram> {
        let row = self.take(name, 0, |kind| matches!(kind, Kind::Histogram(_)))?;
        self.register(Histogram::with_opts(histogram_opts(row)))
    }

    /// Takes a row off the list, if there is one that is what its builder believes.
    fn take(
        &mut self,
        name: &str,
        labels: usize,
        is_kind: impl Fn(Kind) -> bool,
    ) -> io::Result<&'static Row> {
        let found = self
            .waiting
            .iter()
            .position(|row| row.name == name && row.labels.len() == labels && is_kind(row.kind));
        match found {
            Some(at) => Ok(self.waiting.swap_remove(at)),
            None => Err(io::Error::other(format!(
                "metric {name} with {labels} labels has no row of this kind in observe/names.rs"
            ))),
        }
    }

    fn register<C>(&self, collector: prometheus::Result<C>) -> io::Result<C>
    where
        C: Collector + Clone + 'static,
    {
        let collector = collector.map_err(io::Error::other)?;
        self.registry
            .register(Box::new(collector.clone()))
            .map_err(io::Error::other)?;
        Ok(collector)
    }

    fn finish(self) -> io::Result<Registry> {
        match self.waiting.first() {
            None => Ok(self.registry),
            Some(row) => Err(io::Error::other(format!(
                "metric {} has a row in observe/names.rs that nothing builds",
                row.name
            ))),
        }
    }
}

fn histogram_opts(row: &Row) -> HistogramOpts {
    let opts = HistogramOpts::new(row.name, row.help);
    match row.kind {
        Kind::Histogram(buckets) => opts.buckets(buckets.to_vec()),
        Kind::Counter | Kind::Gauge => opts,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::units::{Currency, Money};

    static LITTLE: &[Row] = &[Row {
        name: "forebay_little_total",
        kind: Kind::Counter,
        labels: &["cause"],
        help: "A counter.",
    }];

    #[test]
    fn every_row_is_built_and_served_with_its_help() {
        let metrics = Metrics::new(&[ModelName::new("chat")]).unwrap();
        metrics
            .models
            .none()
            .good(&"/x".into(), &metrics.families)
            .unwrap();
        metrics.attempts.count(["w", "ok"]);
        metrics.retries.count(["refused"]);
        metrics.tests.count(["w", "ok"]);
        metrics.refused.count(["idle"]);
        metrics.reloaded("ok");
        metrics.show_queue("paid", 3, true);
        metrics.show_budget("app", "3.00 EUR/day", 0.5);
        let cent = Money {
            nanos: 10_000_000,
            currency: Currency::named("EUR").unwrap(),
        };
        metrics
            .models
            .none()
            .count_cost(Some(cent), &metrics.families);
        metrics.show_worker(&WorkerGauges {
            name: "w",
            state: "up",
            inflight: 2,
            weight: 90.0,
            prefill: Some(5300.0),
            decode: Some(48.0),
            fail_timeout: Seconds(600.0),
            ejections: [("errors", 2), ("lost", 0), ("refused", 0)],
            told: ToldGauges {
                running: Some(3.0),
                waiting: Some(0.0),
                kv_use: Some(0.5),
            },
        });
        let text = metrics.render();
        for row in TABLE {
            assert!(
                text.contains(&format!("# HELP {} {}\n", row.name, row.help)),
                "{} is missing",
                row.name
            );
            let mut series = text.lines().filter(|line| line.starts_with(row.name));
            let labelled = |line: &str| {
                row.labels
                    .iter()
                    .all(|label| line.contains(&format!("{label}=\"")))
            };
            assert!(series.all(labelled), "{}: a label is missing", row.name);
        }
        assert_eq!(text.matches("# HELP ").count(), TABLE.len());
        assert!(text.contains("forebay_worker_state{state=\"up\",worker=\"w\"} 1\n"));
        assert!(text.contains("forebay_worker_state{state=\"down\",worker=\"w\"} 0\n"));
    }

    #[test]
    fn what_was_counted_of_a_worker_goes_with_it() {
        let metrics = Metrics::new(&[]).unwrap();
        for worker in ["gone", "stays"] {
            metrics.attempts.count([worker, "ok"]);
            metrics.tests.count([worker, "busy"]);
            metrics.ejections.raise([worker, "errors"], 1);
        }
        metrics.forget_workers(|worker| worker == "gone");
        let text = metrics.render();
        assert!(!text.contains("worker=\"gone\""), "{text}");
        assert_eq!(text.matches("worker=\"stays\"").count(), 3, "{text}");
    }

    #[test]
    fn a_metric_without_a_row_is_not_built() {
        assert!(
            Rows::new(LITTLE)
                .counters::<1>("forebay_other_total")
                .is_err()
        );
        assert!(
            Rows::new(LITTLE)
                .counters::<2>("forebay_little_total")
                .is_err()
        );
        assert!(
            Rows::new(LITTLE)
                .gauges::<1>("forebay_little_total")
                .is_err()
        );
        assert!(
            Rows::new(LITTLE)
                .counters::<1>("forebay_little_total")
                .is_ok()
        );
    }

    #[test]
    fn a_row_that_nothing_builds_is_an_error() {
        let mut rows = Rows::new(LITTLE);
        rows.counters::<1>("forebay_little_total").unwrap();
        assert!(rows.finish().is_ok());
        assert!(Rows::new(LITTLE).finish().is_err());
    }

    #[test]
    fn a_model_that_nobody_serves_is_other() {
        let metrics = Metrics::new(&[ModelName::new("chat")]).unwrap();
        let label = |said: &str, known| {
            let name = ModelName::new(said);
            let series = metrics.models.of(&name, known, &metrics.families);
            series.labels().0.to_owned()
        };
        assert_eq!(label("chat", true), "chat");
        assert_eq!(label("ignore all instructions", false), "other");
        assert_eq!(label("-", false), "other");
        assert_eq!(label("reported", true), "reported");
        let labels: BTreeSet<_> = (0..2_000)
            .map(|id| label(&format!("m{id}"), true))
            .collect();
        assert!(labels.len() <= 1_000, "{} labels", labels.len());
        assert_eq!(label("reported", true), "reported");
    }
}
