//! One request from its head to its end, as the metrics and the access log will tell it.
//!
//! The request path reports facts as they happen and the exchange draws the conclusions in one place, its `Drop`. Two of
//! them need a reason:
//!
//! * Whoever drops an exchange without having said how it ended has lost its client: every other end is a decision of
//!   ours, and deciding says so ([`Exchange::fault`], [`Exchange::broke`], [`Exchange::complete`]). So the silent end is
//!   499 `client_gone`, before the answer's head and inside the answer alike; unless a panic is under way, which is
//!   500 `internal_error`.
//! * The proxy's own time is what passed until the first send, less what it spent waiting for others: the queue, the
//!   client's body, a worker's connection. Retries are not in it; they are a worker's failing, not our slowness.
//!
//! This file is long because an exchange has a method for each fact that it is told, and that is all it has.

mod told;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderValue, Method, StatusCode, Uri};

use super::Observe;
use super::cut::Cut;
use super::decisions::Made;
use super::ending::{AtEnd, End, Listener, Spent, Status};
use super::names::{OTHER, RouteName};
use super::request_id;
use super::series::{ModelSeries, Models, Usage};
use super::tab::Tab;
use super::times::Times;
use crate::clock;
use crate::decide::Shortlist;
use crate::facts::Prefix;
use crate::fault::{Fault, Kind, Quota};
use crate::units::{ModelName, Seconds, WorkerId};

/// The longest model name that is logged; what is longer is no model's name.
const LONGEST_MODEL: usize = 256;

/// A request that is being served. Counts and logs itself once, when dropped.
#[derive(Debug)]
pub struct Exchange {
    observe: Arc<Observe>,
    id: HeaderValue,
    method: Method,
    path: Box<str>,
    /// Wall time of the head, for the log.
    arrived: Seconds,
    started: Seconds,
    kind: Option<&'static str>,
    route: Option<RouteName>,
    /// As the client said it, if it may be repeated.
    model: Option<ModelName>,
    /// Its tenant's, as the metrics know them, and the model's among them.
    models: Arc<Models>,
    series: Arc<ModelSeries>,
    worker: Option<WorkerId>,
    attempts: u32,
    /// Where it stood in line, if it waited.
    position: Option<usize>,
    made: Made,
    times: Times,
    bytes_in: u64,
    bytes_out: u64,
    /// Hashes of its prompt's blocks, where the log tells them.
    prefix: Arc<[u64]>,
    usage: Usage,
    tab: Arc<Tab>,
    quota: Option<Quota>,
    status: Status,
    end: End,
    at_end: AtEnd,
}

impl Exchange {
    pub(super) fn new(
        observe: Arc<Observe>,
        method: &Method,
        uri: &Uri,
        client_id: Option<&HeaderValue>,
    ) -> Self {
        let started = observe.clock.now();
        let models = Arc::clone(&observe.metrics.models);
        let series = Arc::clone(models.none());
        Exchange {
            observe,
            id: request_id::taken_or_made(client_id),
            method: method.clone(),
            path: uri.path().into(),
            arrived: clock::wall(),
            started,
            kind: None,
            route: None,
            model: None,
            models,
            series,
            worker: None,
            attempts: 0,
            position: None,
            made: Made::default(),
            times: Times::default(),
            bytes_in: 0,
            bytes_out: 0,
            prefix: Arc::default(),
            usage: Usage::default(),
            tab: Arc::default(),
            quota: None,
            status: Status::default(),
            end: End::Unsaid,
            at_end: AtEnd::default(),
        }
    }

    /// How many requests live in the whole proxy, this one included.
    #[must_use]
    pub fn live_requests(&self) -> usize {
        self.observe.live.load(Ordering::Relaxed)
    }

    /// The request's id: the client's own if it is plain, else a random one.
    #[must_use]
    pub fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// Whether the answer is to have no body.
    #[must_use]
    pub fn asks_for_the_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// When the head had been read whole.
    #[must_use]
    pub fn started(&self) -> Seconds {
        self.started
    }

    /// What is asked for: `chat`, `embeddings`, …
    pub fn set_kind(&mut self, kind: &'static str) {
        self.kind = Some(kind);
    }

    /// Which pattern or built-in path it was matched to.
    pub fn set_route(&mut self, route: impl Into<RouteName>) {
        self.route = Some(route.into());
    }

    /// Whose it is, by the tenant's series. Said before the model is.
    pub fn set_tenant(&mut self, models: &Arc<Models>) {
        self.models = Arc::clone(models);
        self.series = Arc::clone(models.none());
    }

    /// When it ends, however it ends, this hears what it came to.
    pub fn at_end(&mut self, listener: Listener) {
        self.at_end = AtEnd::of(listener);
    }

    /// How its tenant's tightest limit stands.
    pub fn set_quota(&mut self, quota: Option<Quota>) {
        self.quota = quota;
    }

    /// How its tenant's tightest limit stood when it was let in, if there is one.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        self.quota
    }

    /// Where its places write down what they took.
    #[must_use]
    pub fn tab(&self) -> &Arc<Tab> {
        &self.tab
    }

    /// Which model was asked for; `known` says that it is one of ours, and not only a client's word.
    pub fn set_model(&mut self, model: &ModelName, known: bool) {
        let families = &self.observe.metrics.families;
        self.series = self.models.of(model, known, families);
        let told = model.as_str().len() <= LONGEST_MODEL;
        self.model = told.then(|| model.clone());
    }

    /// Its prompt begins with these blocks.
    pub fn begins_with(&mut self, prefix: &Prefix) {
        if self.observe.replays() {
            self.prefix = Arc::clone(&prefix.blocks);
        }
    }

    /// It waited this long because every fitting worker was at its limit; zero if it did not have to.
    pub fn queued(&mut self, wait: Seconds) {
        self.observe.metrics.queue_wait.observe(wait.0);
        self.times.queue = Some(self.times.queue.unwrap_or_default() + wait);
    }

    /// It stood in line there, if it did.
    pub fn stood_at(&mut self, position: Option<usize>) {
        self.position = position;
    }

    /// Where it stood in line, if it did.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        self.position
    }

    /// Choosing took this long.
    pub fn routed(&mut self, took: Seconds) {
        self.times.route = Some(self.times.route.unwrap_or_default() + took);
    }

    /// The client's body took this long to arrive.
    pub fn body_read(&mut self, took: Seconds) {
        self.times.body += took;
    }

    /// Opening a connection to a worker took this long.
    pub fn connected(&mut self, took: Seconds) {
        self.times.connect += took;
    }

    /// These were considered for an attempt, whether that led to one or not.
    pub fn considered(&mut self, shortlist: Shortlist, now: Seconds) {
        self.made.choice(shortlist, now - self.started);
    }

    /// An attempt begins at this worker.
    pub fn attempt(&mut self, worker: WorkerId) {
        self.attempts += 1;
        self.made.attempt(worker);
        self.worker = Some(worker);
    }

    /// The client gets this worker's answer, whoever was asked after it.
    pub fn answered_by(&mut self, worker: WorkerId) {
        self.worker = Some(worker);
    }

    /// The attempt at this worker ended so: `ok`, `refused`, `reset`, …
    pub fn attempt_ended(&mut self, worker: WorkerId, outcome: &'static str, now: Seconds) {
        self.made.ended(worker, outcome, now - self.started);
        if let Some(name) = self.observe.worker_name(worker) {
            self.observe.metrics.attempts.count([&*name, outcome]);
        }
    }

    /// It is sent again because of this.
    pub fn retried(&mut self, cause: &'static str) {
        self.observe.metrics.retries.count([cause]);
    }

    /// Attempts so far.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The worker of the latest attempt, as a header names it.
    #[must_use]
    pub fn worker(&self) -> Option<HeaderValue> {
        let names = self.observe.workers.load();
        Some(names.get(self.worker?.index())?.field.clone())
    }

    /// The request's body has this many bytes.
    pub fn bytes_in(&mut self, bytes: u64) {
        self.bytes_in = bytes;
    }

    /// So many more bytes of the answer's body were handed to the connection.
    pub fn add_bytes_out(&mut self, bytes: u64) {
        self.bytes_out += bytes;
    }

    /// The whole request was sent to a worker. The first time shows what the proxy itself took.
    pub fn upstream_sent(&mut self, now: Seconds) {
        if self.times.sent.is_none() {
            let elsewhere =
                self.times.queue.unwrap_or_default() + self.times.body + self.times.connect;
            let own = (now - self.started - elsewhere).max(Seconds::ZERO);
            self.observe.metrics.overhead.observe(own.0);
        }
        self.times.sent = Some(now);
        self.made.sent(now - self.started);
    }

    /// The first byte of an answer came from a worker.
    pub fn first_byte(&mut self, now: Seconds) {
        self.times.first_byte = Some(now);
    }

    /// So many tokens came with one read of a streamed answer.
    pub fn token_events(&mut self, count: u32, now: Seconds) {
        if count == 0 {
            return;
        }
        match self.times.last_token {
            None => self.series.first_token.observe((now - self.started).0),
            Some(last) => {
                let each = (now - last) / f64::from(count);
                self.series.inter_token.observe(each.0);
            }
        }
        self.times.last_token = Some(now);
        self.usage.passed += u64::from(count);
    }

    /// Tokens as the worker reports them; what it does not report stays as it was.
    pub fn usage(&mut self, prompt: Option<u64>, cached: Option<u64>, output: Option<u64>) {
        self.usage.update(prompt, cached, output);
    }

    /// The answer's status, on its way to the client.
    pub fn status(&mut self, status: StatusCode) {
        self.status.set(status);
    }

    /// The answer has begun with this status, before it was known what it will be.
    pub fn begun(&mut self, status: StatusCode) {
        self.status(status);
        self.status.goes_out();
    }

    /// The proxy itself refuses or gives up: this is the answer.
    pub fn fault(&mut self, fault: &Fault) {
        self.status(fault.kind.status());
        self.end = End::Fault(fault.kind);
    }

    /// The answer broke after its head had gone out: the status stays what the client saw.
    pub fn broke(&mut self, kind: Kind) {
        self.end = End::Fault(kind);
    }

    /// The whole answer was handed to the connection. What had been refused or had broken stays so.
    pub fn complete(&mut self) {
        if self.end == End::Unsaid {
            self.end = End::Complete;
        }
    }

    /// When a stopping proxy cuts its answer.
    #[must_use]
    pub fn cut(&self) -> Cut {
        self.observe.cutting.watched()
    }

    /// The `Server-Timing` of an answer whose head goes out now: milliseconds in the queue, choosing, and since the
    /// request was sent to the worker.
    #[must_use]
    pub fn server_timing(&self, now: Seconds) -> HeaderValue {
        self.times.server_timing(now)
    }

    fn count(&self, status: StatusCode, reason: &str, total: Seconds) {
        let families = &self.observe.metrics.families;
        let series = match &self.route {
            Some(route) if (status, reason) == (StatusCode::OK, "ok") => {
                self.series.good(route, families)
            }
            route => {
                let route = route.as_ref().map_or(OTHER, RouteName::as_str);
                let (model, tenant) = self.series.labels();
                let labels = [route, model, tenant, status.as_str(), reason];
                families.end(labels).map(Arc::new)
            }
        };
        if let Ok(series) = series {
            series.count(total, self.first_byte_after());
        }
        self.series.count_tokens(self.usage);
        self.series.count_cost(self.tab.sum().money, families);
        self.observe
            .metrics
            .reuse
            .count(&self.made, self.usage.cached);
    }

    fn first_byte_after(&self) -> Option<Seconds> {
        self.times.first_byte.map(|first| first - self.started)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let cutting = self.observe.cutting.has_begun();
        let (status, reason) = self.end.told(self.status, cutting);
        let total = self.observe.clock.now() - self.started;
        self.cut_short(total);
        self.count(status, reason, total);
        if self.observe.log.is_on() {
            self.log(status, reason, total);
        }
        let decision = self.decision(status, reason, total);
        self.observe.decisions.keep(decision);
        self.at_end.tell(Spent::of(
            self.attempts,
            self.status.real().unwrap_or(status),
            self.usage,
            self.tab.sum(),
        ));
        self.observe.live.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::Clock;
    use crate::config::plan::{AccessTarget, LogLevel, LogPlan};
    use crate::decide::Expense;

    struct Seen {
        folder: tempfile::TempDir,
        observe: Arc<Observe>,
    }

    impl Seen {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let observe = Arc::new(observe(AccessTarget::File(file_in(folder.path()))));
            Seen { folder, observe }
        }

        fn open(&self) -> Box<Exchange> {
            let uri = Uri::from_static("/v1/chat/completions");
            self.observe.open(&Method::POST, &uri, None)
        }

        fn lines(&self) -> Vec<serde_json::Value> {
            self.observe.flush();
            let text = std::fs::read_to_string(file_in(self.folder.path())).unwrap();
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        }

        fn line(&self) -> serde_json::Value {
            let mut lines = self.lines();
            assert_eq!(lines.len(), 1, "one exchange, one line");
            lines.remove(0)
        }

        fn has_metric(&self, line: &str) -> bool {
            let text = self.observe.metrics.render();
            text.lines().any(|had| had == line)
        }
    }

    fn file_in(folder: &Path) -> std::path::PathBuf {
        folder.join("access.log")
    }

    fn observe(access: AccessTarget) -> Observe {
        let log = LogPlan {
            level: LogLevel::Info,
            access,
            replay: false,
        };
        let workers = [Arc::from("worker-a"), Arc::from("worker-b")];
        Observe::new(Clock::start(), &log, &workers, &[ModelName::new("chat")]).unwrap()
    }

    #[test]
    fn a_good_answer_is_one_line_and_one_count() {
        let seen = Seen::new();
        let mut exchange = seen.open();
        assert_eq!(seen.observe.live(), 1);
        let start = exchange.started();
        exchange.set_kind("chat");
        exchange.set_route("/v1/chat/completions");
        exchange.set_model(&ModelName::new("chat"), true);
        exchange.bytes_in(100);
        exchange.queued(Seconds(0.5));
        exchange.routed(Seconds(0.000_02));
        exchange.attempt(WorkerId(1));
        exchange.upstream_sent(start + Seconds(0.6));
        exchange.first_byte(start + Seconds(1.0));
        exchange.status(StatusCode::OK);
        exchange.add_bytes_out(10);
        exchange.add_bytes_out(20);
        exchange.usage(Some(12), None, None);
        exchange.usage(None, Some(4), Some(34));
        exchange.attempt_ended(WorkerId(1), "ok", start + Seconds(2.0));
        exchange.complete();
        let id = exchange.id().to_str().unwrap().to_owned();
        drop(exchange);

        assert_eq!(seen.observe.live(), 0);
        let line = seen.line();
        for (key, value) in [
            ("id", id.as_str()),
            ("kind", "chat"),
            ("tenant", "-"),
            ("route", "/v1/chat/completions"),
            ("method", "POST"),
            ("path", "/v1/chat/completions"),
            ("model", "chat"),
            ("worker", "worker-b"),
            ("reason", "ok"),
        ] {
            assert_eq!(line[key], value, "{key}");
        }
        for (key, value) in [
            ("attempts", 1),
            ("status", 200),
            ("bytes_in", 100),
            ("bytes_out", 30),
            ("prompt_tokens", 12),
            ("cached_tokens", 4),
            ("output_tokens", 34),
        ] {
            assert_eq!(line[key], value, "{key}");
        }
        assert_eq!(line["queue_s"], 0.5);
        assert_eq!(line["first_byte_s"], 1.0);
        assert!(seen.has_metric(concat!(
            "forebay_requests_total{code=\"200\",model=\"chat\",reason=\"ok\",",
            "route=\"/v1/chat/completions\",tenant=\"-\"} 1"
        )));
        assert!(seen.has_metric("forebay_attempts_total{outcome=\"ok\",worker=\"worker-b\"} 1"));
        assert!(
            seen.has_metric("forebay_tokens_total{kind=\"output\",model=\"chat\",tenant=\"-\"} 34")
        );
    }

    /// How an exchange ended, and what that is to be called.
    type Ending = (fn(&mut Exchange), u16, &'static str);

    #[test]
    fn every_end_is_told_once_and_by_its_right_name() {
        let endings: [Ending; 8] = [
            (|_| (), 499, "client_gone"),
            (|it| it.status(StatusCode::OK), 499, "client_gone"),
            (
                |it| it.fault(&Fault::new(Kind::QueueFull, "full")),
                429,
                "queue_full",
            ),
            (
                |it| {
                    it.fault(&Fault::new(Kind::NoWorker, "down"));
                    it.complete();
                },
                503,
                "no_worker",
            ),
            (
                |it| {
                    it.status(StatusCode::OK);
                    it.broke(Kind::Stalled);
                },
                200,
                "stalled",
            ),
            (
                |it| {
                    it.status(StatusCode::OK);
                    it.complete();
                },
                200,
                "ok",
            ),
            (
                |it| {
                    it.status(StatusCode::NOT_MODIFIED);
                    it.complete();
                },
                304,
                "ok",
            ),
            (
                |it| {
                    it.status(StatusCode::UNPROCESSABLE_ENTITY);
                    it.complete();
                },
                422,
                "worker_status",
            ),
        ];
        let seen = Seen::new();
        for (end, _, _) in endings {
            end(&mut seen.open());
        }
        let lines = seen.lines();
        assert_eq!(lines.len(), endings.len());
        for (line, (_, status, reason)) in lines.iter().zip(endings) {
            assert_eq!(
                (&line["status"], &line["reason"]),
                (&status.into(), &reason.into())
            );
        }
        let counted: u64 = seen
            .observe
            .metrics
            .render()
            .lines()
            .filter(|line| line.starts_with("forebay_requests_total"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum();
        assert_eq!(counted, endings.len() as u64);
        assert_eq!(seen.observe.live(), 0);
    }

    #[test]
    fn an_attempt_under_way_ends_with_the_client_and_one_that_ended_does_not_end_again() {
        let seen = Seen::new();
        let mut exchange = seen.open();
        for worker in [WorkerId(0), WorkerId(1)] {
            exchange.considered(Shortlist::default(), exchange.started());
            exchange.attempt(worker);
            if worker == WorkerId(0) {
                exchange.attempt_ended(worker, "reset", exchange.started());
            }
        }
        let id = exchange.id().clone();
        drop(exchange);
        for line in [
            "forebay_attempts_total{outcome=\"reset\",worker=\"worker-a\"} 1",
            "forebay_attempts_total{outcome=\"client_gone\",worker=\"worker-b\"} 1",
        ] {
            assert!(seen.has_metric(line), "{line}");
        }
        let decision = seen.observe.decisions.find(id.as_bytes()).unwrap();
        let outcomes = decision
            .choices
            .iter()
            .map(|choice| choice.ended.unwrap().0);
        assert_eq!(outcomes.collect::<Vec<_>>(), ["reset", "client_gone"]);
    }

    #[test]
    fn who_keeps_accounts_is_told_once_what_a_request_came_to() {
        type Life = fn(&mut Exchange);
        let sent: Life = |it| it.attempt(WorkerId(0));
        let spent = |served, prompt, output| Spent {
            served,
            prompt,
            output,
            expense: Expense::default(),
        };
        let lives: [(Life, Spent); 6] = [
            (|_| (), spent(false, None, None)),
            (
                |it| it.fault(&Fault::new(Kind::NoWorker, "down")),
                spent(false, None, None),
            ),
            (sent, spent(true, None, None)),
            (
                |it| {
                    it.attempt(WorkerId(0));
                    it.fault(&Fault::new(Kind::WorkerFailed, "lost"));
                },
                spent(false, None, None),
            ),
            (
                |it| {
                    it.attempt(WorkerId(0));
                    it.status(StatusCode::OK);
                    it.token_events(3, it.started());
                    it.broke(Kind::Stalled);
                },
                spent(true, None, Some(3)),
            ),
            (
                |it| {
                    it.attempt(WorkerId(0));
                    it.status(StatusCode::OK);
                    it.token_events(3, it.started());
                    it.usage(Some(7), None, Some(5));
                    it.complete();
                },
                spent(true, Some(7), Some(5)),
            ),
        ];
        let seen = Seen::new();
        for (number, (live, expected)) in lives.into_iter().enumerate() {
            let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
            let telling = Arc::clone(&told);
            let mut exchange = seen.open();
            exchange.at_end(Box::new(move |spent| telling.lock().push(spent)));
            live(&mut exchange);
            assert!(told.lock().is_empty(), "{number}: it has not ended yet");
            drop(exchange);
            assert_eq!(*told.lock(), [expected], "{number}");
        }
    }

    #[test]
    fn a_defect_of_ours_is_counted_and_not_blamed_on_the_client() {
        let seen = Seen::new();
        let exchange = seen.open();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _held = exchange;
            panic!("a defect");
        }));
        assert!(outcome.is_err());
        assert_eq!(seen.line()["reason"], "internal_error");
        assert_eq!(seen.observe.live(), 0);
    }

    #[test]
    fn text_of_the_request_becomes_no_label_and_its_query_no_log() {
        let seen = Seen::new();
        let uri = Uri::from_static("/v1/canary-path?key=canary-query");
        let mut exchange = seen.observe.open(&Method::GET, &uri, None);
        exchange.set_model(&ModelName::new("canary-model"), false);
        drop(exchange);
        let text = seen.observe.metrics.render();
        assert!(!text.contains("canary"), "{text}");
        let line = seen.line();
        assert_eq!(line["path"], "/v1/canary-path");
        assert!(!line.to_string().contains("canary-query"));
        assert!(seen.has_metric(concat!(
            "forebay_requests_total{code=\"499\",model=\"other\",reason=\"client_gone\",",
            "route=\"other\",tenant=\"-\"} 1"
        )));
    }

    #[test]
    fn the_proxys_own_time_is_what_nobody_else_took() {
        let seen = Seen::new();
        let mut exchange = seen.open();
        let start = exchange.started();
        exchange.queued(Seconds(2.0));
        exchange.body_read(Seconds(1.0));
        exchange.connected(Seconds(0.5));
        exchange.upstream_sent(start + Seconds(3.75));
        exchange.upstream_sent(start + Seconds(30.0));
        assert!(seen.has_metric("forebay_overhead_seconds_sum 0.25"));
        assert!(seen.has_metric("forebay_overhead_seconds_count 1"));
        assert!(seen.has_metric("forebay_queue_wait_seconds_sum 2"));
    }

    #[test]
    fn tokens_are_timed_from_the_head_and_then_from_one_another() {
        let seen = Seen::new();
        let mut exchange = seen.open();
        exchange.set_model(&ModelName::new("chat"), true);
        let start = exchange.started();
        let near = |sum: &str, expected: f64| {
            let text = seen.observe.metrics.render();
            let found = text.lines().find_map(|line| line.strip_prefix(sum));
            let found: f64 = found.unwrap().trim().parse().unwrap();
            assert!((found - expected).abs() < 1e-9, "{sum} {found}");
        };
        exchange.token_events(0, start + Seconds(0.25));
        exchange.token_events(1, start + Seconds(0.5));
        exchange.token_events(4, start + Seconds(1.5));
        near(
            "forebay_time_to_first_token_seconds_sum{model=\"chat\"}",
            0.5,
        );
        near("forebay_inter_token_seconds_sum{model=\"chat\"}", 0.25);
        near("forebay_inter_token_seconds_count{model=\"chat\"}", 1.0);
    }

    #[test]
    fn server_timing_tells_milliseconds() {
        let seen = Seen::new();
        let mut exchange = seen.open();
        let start = exchange.started();
        let nothing = "queue;dur=0.000, route;dur=0.000, upstream;dur=0.000";
        assert_eq!(exchange.server_timing(start), nothing);
        exchange.queued(Seconds(0.1));
        exchange.routed(Seconds(0.000_015));
        exchange.upstream_sent(start);
        assert_eq!(
            exchange.server_timing(start + Seconds(0.25)),
            "queue;dur=100.000, route;dur=0.015, upstream;dur=250.000"
        );
    }

    #[test]
    fn exchanges_on_many_threads_are_all_counted() {
        let seen = Seen::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| drop(seen.open())));
            }
        });
        assert_eq!(seen.lines().len(), 2_000);
        assert_eq!(seen.observe.live(), 0);
    }
}
