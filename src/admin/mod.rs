//! The admin side: the status page, what programs read about the fleet, health and metrics.
//!
//! It has a listener of its own and nothing of it is served on the client port. `/health`, `/ready` and `/metrics` are
//! open to whoever reaches that listener, because orchestrators and Prometheus ask them, under whatever name; the rest
//! is behind the door (`door.rs`). What reads takes `GET` and `HEAD` and no body; what changes takes `POST`, and of a
//! browser a header that only our own page can send (`changes.rs`).
//!
//! Which paths there are stands in one table (`routes.rs`), which the OpenAPI document is written from.
//!
//! The room knows neither fleet nor sockets: it is handed a [`FleetView`] when it asks for one, hands over what an
//! operator wants changed, and turns a request into an answer. Query strings hold the token or the wishes of a search
//! (`search.rs`), and appear in no answer and no log.

pub mod address;
mod answer;
mod changes;
mod culprit;
mod door;
mod dry_run;
mod events;
mod log_level;
mod openapi;
mod queue;
mod reload;
mod requests;
mod routes;
mod search;
mod staff;
mod tenants;
pub mod token;
mod workers;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Body;

pub use answer::Sent;
pub use changes::AUDIT;
pub use events::Events;
pub use log_level::SetLevel;
pub use queue::{ClassRow, QueueView, WaitingRow, waits_for};
pub use reload::{Reload, ReloadResult, Reloaded};
pub use staff::{Staff, Staffing};
pub use workers::{Decode, FleetView, Lora, Memory, Overridden, Prefill, ToldRow, WorkerRow};

use crate::admission::Accounts;
use crate::clock::{self, Clock};
use crate::config::suggest::nearest;
use crate::decide::ByHand;
use crate::observe::Observe;
use crate::observe::decisions::MOST_KEPT;
use crate::queue::Foreseen;
use answer::{Answer, HTML, JSON, METRICS, TEXT};
use changes::Order;
use door::{Door, Shown, Verdict};
use events::Board;
use routes::{Found, View};
use token::TokenSource;

/// The status page. `{nonce}` stands where the nonce of each answer goes, `{style}` and `{script}` where these do.
const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/words.js"),
    include_str!("page/requests.js"),
    include_str!("page/page.js")
);
/// What a browser without the token sees, with `{place}` for where to find it.
const LOCKED: &str = include_str!("page/locked.html");

/// Changes a worker by hand; false when there is none of this name.
pub type Change = dyn Fn(&str, ByHand) -> bool + Send + Sync;
/// Tells what would become of a request to this path, with this body.
pub type DryRun = dyn Fn(&str, &Bytes) -> Foreseen + Send + Sync;
/// Draws the line.
pub type DrawQueue = dyn Fn(Option<&str>) -> QueueView + Send + Sync;

/// What the admin side shows, and what it can change.
pub struct Sights {
    /// By which pictures age.
    pub clock: Clock,
    /// Metrics.
    pub observe: Arc<Observe>,
    /// The plan in force as JSON, its secrets hidden.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
    /// Sets how much is logged.
    pub set_level: Box<SetLevel>,
    /// Reads the configuration again.
    pub reload: Box<Reload>,
    /// What came of that the last time.
    pub reloaded: Box<dyn Fn() -> Option<Reloaded> + Send + Sync>,
    /// Draws the fleet as it is now.
    pub fleet: Box<dyn Fn() -> FleetView + Send + Sync>,
    /// Draws the line as it is now: its first, or those who wait with this id.
    pub queue: Box<DrawQueue>,
    /// How tenants stand now.
    pub tenants: Box<dyn Fn() -> Accounts + Send + Sync>,
    /// Changes a worker.
    pub change: Box<Change>,
    /// Adds or removes one.
    pub staff: Box<Staff>,
    /// Foresees what would become of a request.
    pub dry_run: Box<DryRun>,
    /// Whether the process is to end.
    pub stopping: Box<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for Sights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sights").finish_non_exhaustive()
    }
}

/// The admin side of one proxy.
#[derive(Debug)]
pub struct Admin {
    door: Door,
    sights: Arc<Sights>,
    board: Arc<Board>,
}

impl Admin {
    /// The admin side that listens there and opens to that token.
    #[must_use]
    pub fn new(source: TokenSource, listen: SocketAddr, sights: Sights) -> Self {
        Admin {
            door: Door::new(source, listen),
            sights: Arc::new(sights),
            board: Arc::new(Board::new()),
        }
    }

    /// Answers a request. Its body is read only of somebody who may change something.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Sent>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let found = routes::find(&head.method, head.uri.path());
        let told = match &found {
            Some((route, _)) if route.view.takes_post() && self.lets_change(&head) => {
                changes::read(body, route.view.longest_body()).await
            }
            _ => Ok(Bytes::new()),
        };
        let answer = match told {
            Ok(body) => self.respond(&head, found, &body).await,
            Err(refusal) => refusal,
        };
        answer.into_response(&head.method)
    }

    /// Whether the body of this request is worth reading.
    fn lets_change(&self, head: &Parts) -> bool {
        let verdict = self.door.judge(head);
        matches!(verdict, Verdict::Enter(shown) if shown.may_change(&head.headers))
    }

    async fn respond(&self, head: &Parts, found: Option<Found<'_>>, body: &Bytes) -> Answer {
        match found.as_ref().map(|(route, _)| route.view) {
            Some(View::Health) => self.read(head, |_| Answer::new(StatusCode::OK, TEXT, "ok\n")),
            Some(View::Ready) => self.read(head, Self::ready),
            Some(View::Metrics) => self.read(head, Self::metrics),
            _ => match self.door.judge(head) {
                Verdict::ForeignHost => foreign_host(),
                Verdict::Unauthorized => self.unauthorized(head.uri.path()),
                Verdict::TakeCookie => self.read(head, Self::welcome),
                Verdict::Enter(shown) => self.inside(head, shown, found, body).await,
            },
        }
    }

    async fn inside(
        &self,
        head: &Parts,
        shown: Shown,
        found: Option<Found<'_>>,
        body: &Bytes,
    ) -> Answer {
        let Some((route, name)) = found else {
            return Answer::refusal(StatusCode::NOT_FOUND, "not_found", "there is nothing here");
        };
        if !route.view.takes_post() {
            return self.read(head, |admin| admin.show(route.view, &name, head));
        }
        match Self::refuses_change(head, shown) {
            Some(refusal) => refusal,
            None => self.act(route.view, shown, &name, (head, body)).await,
        }
    }

    /// What is behind the door to look at.
    fn show(&self, view: View, name: &str, head: &Parts) -> Answer {
        match view {
            View::Events => self.board.listen(&self.sights, &head.method),
            View::Workers => {
                let fleet = (self.sights.fleet)();
                let picture = workers::Picture::of(&fleet, clock::wall());
                Answer::json(sonic_rs::to_string(&picture))
            }
            View::Queue => Answer::json(sonic_rs::to_string(&(self.sights.queue)(None))),
            View::Tenants => {
                let accounts = (self.sights.tenants)();
                Answer::json(sonic_rs::to_string(&tenants::Shown::of(&accounts)))
            }
            View::Config => Answer::new(StatusCode::OK, JSON, (self.sights.config)()),
            View::LastReload => self.last_reload(),
            View::Requests => self.search(head.uri.query()),
            View::Request => self.decision(name),
            View::OpenApi => Answer::json(openapi::document()),
            _ => {
                let whole = PAGE.replace("{style}", STYLE).replace("{script}", SCRIPT);
                page(StatusCode::OK, &whole)
            }
        }
    }

    /// Does what was ordered.
    async fn act(
        &self,
        view: View,
        shown: Shown,
        name: &str,
        (head, body): (&Parts, &Bytes),
    ) -> Answer {
        match view {
            View::Change(verb) => self.change(shown, &Order { worker: name, verb }, body),
            View::Add => self.staff(shown, Staffing::add(name, body)).await,
            View::Remove => self.staff(shown, Staffing::remove(name, body)).await,
            View::Reload => self.reload(body).await,
            View::Log => self.set_level(shown, body),
            _ => self.foresee(head.uri.query(), body),
        }
    }

    /// Runs a view, if the method is one that reads.
    fn read(&self, head: &Parts, view: impl FnOnce(&Self) -> Answer) -> Answer {
        if head.method == Method::GET || head.method == Method::HEAD {
            return view(self);
        }
        Answer::refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "this path takes GET and HEAD",
        )
        .with(header::ALLOW, "GET, HEAD")
    }

    /// What speaks against a change before it is looked at: the method, or the sender.
    fn refuses_change(head: &Parts, shown: Shown) -> Option<Answer> {
        if head.method != Method::POST {
            let (code, words) = ("method_not_allowed", "this path takes POST");
            let refusal = Answer::refusal(StatusCode::METHOD_NOT_ALLOWED, code, words);
            return Some(refusal.with(header::ALLOW, "POST"));
        }
        let words = "a browser's change needs the header x-forebay-csrf, with any value";
        (!shown.may_change(&head.headers))
            .then(|| Answer::refusal(StatusCode::FORBIDDEN, "csrf", words))
    }

    fn ready(&self) -> Answer {
        match (self.sights.fleet)().ready {
            Ok(()) => Answer::new(StatusCode::OK, TEXT, "ready\n"),
            Err(why) => Answer::new(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
        }
    }

    fn metrics(&self) -> Answer {
        let metrics = &self.sights.observe.metrics;
        // Asked for before the fleet, so that who joins between the two is not among them. Of one that has a name
        // already and no place yet nothing is counted that could be forgotten.
        let names = self.sights.observe.worker_names();
        let text = metrics.render_with(|metrics| {
            (self.sights.fleet)().show_in(metrics, &names);
            tenants::show_in(&(self.sights.tenants)(), metrics);
        });
        Answer::new(StatusCode::OK, METRICS, text)
    }

    fn search(&self, query: Option<&str>) -> Answer {
        match search::wanted(query.unwrap_or_default()) {
            Ok(wanted) => {
                let observe = &self.sights.observe;
                let found = wanted.among(observe.decisions.newest_first(), clock::wall());
                Answer::json(requests::list_to_json(&found, observe))
            }
            Err(flaw) => Answer::refusal(StatusCode::BAD_REQUEST, "bad_request", &flaw),
        }
    }

    fn change(&self, shown: Shown, order: &Order<'_>, body: &Bytes) -> Answer {
        let change = match order.change(body) {
            Ok(change) => change,
            Err(flaw) => {
                return Answer::refusal(StatusCode::BAD_REQUEST, "bad_request", &flaw);
            }
        };
        if !(self.sights.change)(order.worker, change) {
            return self.unknown_worker(order.worker);
        }
        changes::log(shown, order.worker, change);
        let fleet = (self.sights.fleet)();
        let row = fleet.workers.iter().find(|row| *row.name == *order.worker);
        Answer::json(sonic_rs::to_string(&row))
    }

    fn foresee(&self, query: Option<&str>, body: &Bytes) -> Answer {
        match dry_run::path(query.unwrap_or_default(), body) {
            Ok(path) => {
                let foreseen = (self.sights.dry_run)(&path, body);
                Answer::json(dry_run::to_json(&path, &foreseen, &self.sights.observe))
            }
            Err(flaw) => Answer::refusal(StatusCode::BAD_REQUEST, "bad_request", flaw),
        }
    }

    fn unknown_worker(&self, name: &str) -> Answer {
        let fleet = (self.sights.fleet)();
        let near = nearest(name, fleet.workers.iter().map(|row| &*row.name));
        let near = near.map_or_else(String::new, |near| format!(", did you mean {near}?"));
        let message = format!("there is no worker of this name{near}");
        Answer::refusal(StatusCode::NOT_FOUND, "worker_not_found", &message)
    }

    fn decision(&self, id: &str) -> Answer {
        let observe = &self.sights.observe;
        if let Some(waiting) = (self.sights.queue)(Some(id)).waiting.last() {
            return Answer::json(sonic_rs::to_string(waiting));
        }
        match observe.decisions.find(id.as_bytes()) {
            Some(decision) => Answer::json(requests::to_json(&decision, observe)),
            None => Answer::refusal(
                StatusCode::NOT_FOUND,
                "request_not_found",
                &format!(
                    "no request of this id is remembered: the last {MOST_KEPT} that ended are, and those that wait in line, but none that a worker has"
                ),
            ),
        }
    }

    /// The token was right: the browser gets its cookie, and an address without the token.
    fn welcome(&self) -> Answer {
        Answer::new(StatusCode::SEE_OTHER, TEXT, "")
            .with(header::LOCATION, "/")
            .with(header::SET_COOKIE, &self.door.cookie())
    }

    fn unauthorized(&self, path: &str) -> Answer {
        let place = self.door.origin.to_string();
        let answer = if path == "/" {
            let text = LOCKED.replace("{place}", &html_escaped(&place));
            page(StatusCode::UNAUTHORIZED, &text)
        } else {
            let message = format!("send `Authorization: Bearer TOKEN`; the token is here: {place}");
            Answer::refusal(StatusCode::UNAUTHORIZED, "unauthorized", &message)
        };
        answer.with(header::WWW_AUTHENTICATE, "Bearer")
    }
}

/// A page that runs and shows nothing but what carries this answer's nonce.
fn page(status: StatusCode, text: &str) -> Answer {
    let nonce = token::random_text();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    );
    Answer::new(status, HTML, text.replace("{nonce}", &nonce))
        .with(header::CONTENT_SECURITY_POLICY, &policy)
}

fn foreign_host() -> Answer {
    Answer::refusal(
        StatusCode::FORBIDDEN,
        "foreign_host",
        "open the admin side by the address it listens on, or as localhost (an SSH tunnel does)",
    )
}

fn html_escaped(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
    escaped.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::answer::GUARDS;
    use super::*;
    use crate::config::plan::{AccessTarget, LogLevel, LogPlan, Secret};
    use crate::decide::Ejections;
    use crate::fault::{Fault, Kind};
    use crate::units::Seconds;
    use http_body_util::Either;
    use token::Origin;

    const TOKEN: &str = "canary-token";
    const EVERY_PATH: [&str; 13] = [
        "/",
        "/health",
        "/ready",
        "/metrics",
        "/api/workers",
        "/api/tenants",
        "/api/config",
        "/api/queue",
        "/api/reload",
        "/api/requests",
        "/api/requests/some",
        "/api/openapi.json",
        "/api/nothing",
    ];

    fn worker() -> WorkerRow {
        WorkerRow {
            name: Arc::from("worker-<a>"),
            url: "http://127.0.0.1:7081".into(),
            state: "up",
            reason: None,
            since: Seconds(1_796_006_599.5),
            until: None,
            overridden: None,
            region: None,
            zone: None,
            tier: 0,
            tags: Vec::new(),
            optional: false,
            machine: None,
            held: None,
            slow_start: None,
            fail_timeout: Seconds(600.0),
            ejections: Ejections::default(),
            engine: Some("vllm"),
            models: vec!["chat".into()],
            lora: None,
            inflight: 2,
            max_inflight: Some(64),
            max_inflight_from: Some("learned"),
            max_prompt_tokens: None,
            queue: 1,
            decoding: 1,
            told: None,
            resident: None,
            memory: None,
            prefill: Some(Prefill {
                request_s: 0.01,
                token_s: 0.000_2,
            }),
            decode: None,
            rtt: Some(Seconds(0.001)),
            speed: Some(2.3),
            speeds: [("embed", 2.5)].into(),
            weight: 90.0,
            share: None,
            requests: 7,
            failures: 0,
        }
    }

    fn class((class, depth): (&str, usize)) -> ClassRow {
        ClassRow {
            class: class.into(),
            depth,
            oldest_s: 0.0,
            overloaded: false,
        }
    }

    fn waiting() -> WaitingRow {
        WaitingRow {
            id: "waits".into(),
            state: "waiting",
            class: Some("paid".into()),
            tenant: "-".into(),
            model: Some("chat".into()),
            waited_s: 1.5,
            position: 2,
            waits_for: "a place".into(),
        }
    }

    fn reloaded() -> Reloaded {
        Reloaded {
            result: ReloadResult::Refused,
            by: "admin",
            time: Seconds(1_796_006_599.5),
            changes: Vec::new(),
            lost: Vec::new(),
            remarks: Vec::new(),
            pending: Vec::new(),
            problems: vec!["forebay.toml:3:1: worker: unknown key".into()],
        }
    }

    fn admin(ready: Result<(), String>) -> Admin {
        let log = LogPlan {
            level: LogLevel::Info,
            access: AccessTarget::Off,
            replay: false,
        };
        let source = TokenSource {
            token: Secret::new(TOKEN),
            origin: Origin::File("/state/<b>/admin-token".into()),
        };
        let sights = Sights {
            clock: Clock::start(),
            stopping: Box::new(|| false),
            observe: Arc::new(Observe::new(Clock::start(), &log, &[], &[]).unwrap()),
            config: Box::new(|| r#"{"state":"/state"}"#.into()),
            set_level: Box::new(|_, _| Ok(())),
            reload: Box::new(|_| Box::pin(async { reloaded() })),
            reloaded: Box::new(|| None),
            tenants: Box::new(Accounts::default),
            change: Box::new(|name, _| name == "worker-<a>"),
            staff: Box::new(|_| Box::pin(async { reloaded() })),
            dry_run: Box::new(|_, _| Foreseen::refused(Fault::new(Kind::NoRoute, "no path"))),
            fleet: Box::new(move || FleetView {
                workers: vec![worker()],
                queued: [("paid", 3), ("free", 0)].map(class).to_vec(),
                ready: ready.clone(),
            }),
            queue: Box::new(|id| QueueView {
                waiting: id
                    .is_none_or(|id| id == "waits")
                    .then(waiting)
                    .into_iter()
                    .collect(),
                ..QueueView::default()
            }),
        };
        Admin::new(source, "127.0.0.1:7071".parse().unwrap(), sights)
    }

    struct Seen {
        status: u16,
        headers: http::HeaderMap,
        body: String,
    }

    fn ask(admin: &Admin, method: &str, uri: &str, headers: &[(&str, &str)]) -> Seen {
        let mut request = Request::builder().method(method).uri(uri);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "127.0.0.1:7071");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, body) = request.body(Bytes::new()).unwrap().into_parts();
        let found = routes::find(&head.method, head.uri.path());
        let answer = at_once(admin.respond(&head, found, &body)).into_response(&head.method);
        let (parts, body) = answer.into_parts();
        let Either::Left(whole) = body else {
            panic!("this goes on");
        };
        let bytes = whole.into_inner().unwrap_or_default();
        Seen {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// What nothing has to be waited for.
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => panic!("it waits"),
        }
    }

    const BEARER: (&str, &str) = ("authorization", "Bearer canary-token");

    #[test]
    fn three_paths_are_open_under_any_name_and_the_rest_is_not() {
        let admin = admin(Ok(()));
        for path in EVERY_PATH {
            let open = ["/health", "/ready", "/metrics"].contains(&path);
            let outside = ask(&admin, "GET", path, &[("host", "forebay:7071")]);
            let nobody = ask(&admin, "GET", path, &[]);
            let expected = if open { (200, 200) } else { (403, 401) };
            assert_eq!((outside.status, nobody.status), expected, "{path}");
        }
    }

    #[test]
    fn a_browser_logs_in_once_by_the_address() {
        let admin = admin(Ok(()));
        let welcome = ask(&admin, "GET", "/?token=canary-token", &[]);
        assert_eq!(
            (welcome.status, &welcome.headers["location"]),
            (303, &"/".parse().unwrap())
        );
        let cookie = welcome.headers["set-cookie"].to_str().unwrap();
        let pair = cookie.split(';').next().unwrap();
        let page = ask(&admin, "GET", "/", &[("cookie", pair)]);
        assert_eq!(page.status, 200);
        assert!(page.body.contains("<title>Forebay</title>"));
        let workers = ask(&admin, "GET", "/api/workers", &[("cookie", pair)]);
        assert_eq!(workers.status, 200);
    }

    #[test]
    fn a_wrong_token_is_told_where_the_right_one_is() {
        let page = ask(&admin(Ok(())), "GET", "/?token=wrong", &[]);
        assert_eq!(
            (page.status, &page.headers["www-authenticate"]),
            (401, &"Bearer".parse().unwrap())
        );
        assert!(
            page.body.contains("/state/&lt;b&gt;/admin-token"),
            "{}",
            page.body
        );
        assert!(!page.headers.contains_key("set-cookie"));
        let api = ask(&admin(Ok(())), "GET", "/api/workers", &[]);
        let error: serde_json::Value = serde_json::from_str(&api.body).unwrap();
        assert_eq!(error["error"]["code"], "unauthorized");
    }

    #[test]
    fn workers_are_told_as_json_with_what_is_unknown_left_out() {
        let answer = ask(&admin(Ok(())), "GET", "/api/workers", &[BEARER]);
        let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let expected = serde_json::json!({
            "name": "worker-<a>", "url": "http://127.0.0.1:7081", "state": "up", "tier": 0, "optional": false,
            "since": "2026-11-30T02:43:19.500Z", "engine": "vllm", "models": ["chat"], "inflight": 2, "max_inflight": 64, "max_inflight_from": "learned",
            "queue": 1, "decoding": 1, "prefill": { "request_s": 0.01, "token_s": 0.0002 },
            "rtt_s": 0.001, "speed": 2.3, "speeds": {"embed": 2.5}, "weight": 90.0, "requests": 7, "fail_timeout_s": 600.0, "ejections": {"errors": 0, "lost": 0, "refused": 0}, "failures": 0,
        });
        assert_eq!(json["workers"], serde_json::json!([expected]));
        assert_eq!(json["queued"], 3);
        let config = ask(&admin(Ok(())), "GET", "/api/config", &[BEARER]);
        assert_eq!(config.body, r#"{"state":"/state"}"#);
    }

    #[test]
    fn metrics_show_the_fleet_as_it_is_now() {
        let answer = ask(&admin(Ok(())), "GET", "/metrics", &[]);
        assert_eq!(answer.headers["content-type"], METRICS);
        for line in [
            "forebay_inflight{worker=\"worker-<a>\"} 2",
            "forebay_worker_state{state=\"up\",worker=\"worker-<a>\"} 1",
            "forebay_worker_weight{worker=\"worker-<a>\"} 90",
            "forebay_worker_speed{phase=\"prefill\",worker=\"worker-<a>\"} 5000",
            "forebay_queue_depth{class=\"paid\"} 3",
        ] {
            assert!(answer.body.lines().any(|had| had == line), "{line}");
        }
        assert!(
            !answer.body.contains("phase=\"decode\""),
            "not learned, so absent"
        );
    }

    #[test]
    fn readiness_says_why_not() {
        let answer = ask(&admin(Err("no worker is up".into())), "GET", "/ready", &[]);
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (503, "no worker is up\n")
        );
        assert_eq!(ask(&admin(Ok(())), "GET", "/ready", &[]).status, 200);
    }

    #[test]
    fn head_is_get_without_a_body_and_other_methods_are_refused() {
        let admin = admin(Ok(()));
        for path in EVERY_PATH {
            let get = ask(&admin, "GET", path, &[BEARER]);
            let head = ask(&admin, "HEAD", path, &[BEARER]);
            assert_eq!(
                (head.status, head.body.as_str()),
                (get.status, ""),
                "{path}"
            );
            let same_length = head.headers["content-length"] == get.headers["content-length"];
            assert!(same_length || path == "/api/nothing", "{path}");
            if path == "/api/reload" {
                continue; // this one takes both
            }
            let post = ask(&admin, "POST", path, &[BEARER]);
            let expected = if path == "/api/nothing" { 404 } else { 405 };
            assert_eq!(post.status, expected, "{path}");
            assert_eq!(post.headers.get("allow").is_some(), expected == 405);
        }
    }

    #[test]
    fn every_answer_is_guarded_and_pages_run_only_their_own_code() {
        let admin = admin(Ok(()));
        for path in EVERY_PATH {
            for headers in [&[][..], &[BEARER], &[("host", "evil.example")]] {
                let answer = ask(&admin, "GET", path, headers);
                for (name, value) in GUARDS {
                    assert_eq!(answer.headers[name], value, "{path}");
                }
                let is_page = answer.headers["content-type"] == HTML;
                assert_eq!(
                    answer.headers.contains_key("content-security-policy"),
                    is_page
                );
            }
        }
        let nonce_of = |page: &Seen| {
            let policy = page.headers["content-security-policy"].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none';"));
            let nonce = policy.split("'nonce-").nth(1).unwrap();
            nonce.split('\'').next().unwrap().to_owned()
        };
        let first = ask(&admin, "GET", "/", &[BEARER]);
        let nonce = nonce_of(&first);
        assert_eq!(first.body.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
        assert!(!first.body.contains("{nonce}"));
        assert_ne!(nonce_of(&ask(&admin, "GET", "/", &[BEARER])), nonce);
    }

    #[test]
    fn one_who_waits_is_found_by_its_id() {
        let waiting = ask(&admin(Ok(())), "GET", "/api/requests/waits", &[BEARER]);
        let json: serde_json::Value = serde_json::from_str(&waiting.body).unwrap();
        let told = (&json["state"], &json["position"], &json["waits_for"]);
        assert_eq!(told, (&"waiting".into(), &2.into(), &"a place".into()));
        let other = ask(&admin(Ok(())), "GET", "/api/requests/other", &[BEARER]);
        assert_eq!(other.status, 404);
    }

    #[test]
    fn the_page_uses_nothing_from_elsewhere_and_no_markup_from_data() {
        let whole = [PAGE, STYLE, SCRIPT].concat();
        assert!(!whole.contains("http"), "no outside address");
        let handlers = PAGE
            .split_whitespace()
            .any(|word| word.starts_with("on") && word.contains('='));
        assert!(!handlers && !PAGE.contains("style="), "nothing inline");
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!whole.contains(sink), "{sink}");
        }
    }

    #[test]
    fn the_token_and_queries_appear_in_no_answer() {
        let admin = admin(Ok(()));
        for path in EVERY_PATH {
            for query in ["", "?token=canary-token", "?token=canary-query"] {
                for headers in [&[][..], &[BEARER], &[("host", "canary-host")]] {
                    let answer = ask(&admin, "GET", &format!("{path}{query}"), headers);
                    let all = format!("{:?}{}", answer.headers, answer.body);
                    assert!(!all.contains("canary"), "{path}{query}: {all}");
                }
            }
        }
        assert!(!format!("{admin:?}").contains("canary"));
    }
}
