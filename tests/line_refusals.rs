//! Every refusal that the proxy makes, as a table: its cause, its status and reason, and the headers that tell a client
//! when to come back. One proxy, so that no refusal gets in another's way.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeSet;

use serde_json::json;

use forebay::fault::Kind;
use support::client::{Answer, Client, request};
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::prompt::CHAT;
use support::proxy::{Proxy, Setup};
use support::refusal::openai_error;
use support::tenant::{bearer, tenant};

/// What may be wrong at one worker.
struct Workers {
    good: Engine,
    broken: Engine,
    silent: Engine,
    down: Engine,
}

impl Workers {
    fn start() -> Self {
        let workers = Workers {
            good: Engine::start(),
            broken: Engine::start(),
            silent: Engine::start(),
            down: Engine::start(),
        };
        let forever = |engine: &Engine, failure| engine.tune(|knobs| knobs.fail(failure, u64::MAX));
        forever(&workers.broken, Failure::ResetAfterRequest);
        forever(&workers.silent, Failure::Hang);
        workers.down.refuse();
        workers
    }

    fn before(&self) -> Setup {
        let keys = [
            tenant("app", "fb_app", ""),
            tenant("slow", "fb_slow", "requests_per_minute = 1"),
            tenant("narrow", "fb_narrow", "models = [\"down\"]"),
            tenant("abroad", "fb_abroad", "zones = [\"us\"]"),
        ];
        let places = "[[region]]\nname = \"home\"\nzone = \"eu\"\n[[region]]\nname = \"ohio\"\nzone = \"us\"\n\
                      [[machine]]\nname = \"desk\"\nregion = \"home\"\n[[machine]]\nname = \"far\"\nregion = \"ohio\"\n";
        let limits = "[limits]\nbody = \"4KiB\"\nbuffered = \"6KiB\"\nidle = \"500ms\"\n\
                      [eject]\nerrors = 1000\n";
        Proxy::setup()
            .section(&[limits, places, &keys.concat()].concat())
            .queue("entries = 1\nwait = \"300ms\"\nwait_no_worker = \"0s\"")
            .worker_with("w", &self.good, "machine = \"desk\"\nmax_inflight = 1")
            .worker_with(
                "b",
                &self.broken,
                "machine = \"desk\"\nmodels = [\"broken\"]",
            )
            .worker_with(
                "s",
                &self.silent,
                "machine = \"desk\"\nmodels = [\"silent\"]\n\
                 timeouts = { first_byte = \"150ms\", answer = \"200ms\" }",
            )
            .worker_with("d", &self.down, "machine = \"far\"\nmodels = [\"down\"]")
    }
}

/// A chat, so long that its body has this many bytes at least.
fn chat(model: &str, least: usize) -> Vec<u8> {
    let messages = [json!({"role": "user", "content": "x".repeat(least)})];
    json!({"model": model, "messages": messages})
        .to_string()
        .into()
}

/// What a test sends: a good chat, but for what it says otherwise.
#[derive(Clone, Copy)]
struct Sent<'a> {
    key: &'a str,
    method: &'a str,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a [u8],
}

impl<'a> Sent<'a> {
    fn key(self, key: &'a str) -> Self {
        Sent { key, ..self }
    }

    fn method(self, method: &'a str) -> Self {
        Sent { method, ..self }
    }

    fn path(self, path: &'a str) -> Self {
        Sent { path, ..self }
    }

    fn headers(self, headers: &'a [(&'a str, &'a str)]) -> Self {
        Sent { headers, ..self }
    }

    fn body(self, body: &'a [u8]) -> Self {
        Sent { body, ..self }
    }

    fn by(self, proxy: &Proxy) -> Client {
        let key = bearer(self.key);
        let headers = [&[("authorization", key.as_str())], self.headers].concat();
        let mut client = proxy.connect();
        client.send(&request(self.method, self.path, &headers, self.body));
        client
    }
}

/// What was refused, and whether each refusal looked as it must.
struct Table<'a> {
    proxy: &'a Proxy,
    seen: BTreeSet<Kind>,
}

impl Table<'_> {
    /// Refusals that need not tell when to come back.
    #[track_caller]
    fn rows<const N: usize>(&mut self, rows: [(Kind, Sent<'_>); N]) {
        for (kind, sent) in rows {
            self.check(kind, false, &sent.by(self.proxy).answer());
        }
    }

    /// One that must.
    #[track_caller]
    fn comes_back(&mut self, kind: Kind, sent: Sent<'_>) {
        self.check(kind, true, &sent.by(self.proxy).answer());
    }

    #[track_caller]
    fn check(&mut self, kind: Kind, comes_back: bool, answer: &Answer) {
        openai_error(answer, kind.status().as_u16(), kind.label());
        let wait = answer.header("retry-after");
        let seconds = wait.map(|seconds| seconds.parse::<u64>().unwrap());
        assert_eq!(seconds.is_some(), comes_back, "{kind:?}: {wait:?}");
        assert!(
            seconds.is_none_or(|wait| (1..=60).contains(&wait)),
            "{kind:?}: {wait:?}"
        );
        assert!(answer.header("x-request-id").is_some(), "{kind:?}");
        let again = answer.header("x-should-retry");
        let in_vain = kind == Kind::Deadline;
        assert_eq!(again, in_vain.then_some("false"), "{kind:?}");
        self.seen.insert(kind);
    }
}

#[test]
fn every_refusal_has_its_status_reason_and_headers() {
    let workers = Workers::start();
    let proxy = workers.before().launch();
    let up = |name| proxy.worker(name)["state"] == "up";
    expect_soon("all but one are up", || ["w", "b", "s"].into_iter().all(up));
    expect_soon("one is down", || proxy.worker("d")["state"] == "down");
    let mut table = Table {
        proxy: &proxy,
        seen: BTreeSet::new(),
    };
    let body = chat("m", 0);
    let good = Sent {
        key: "fb_app",
        method: "POST",
        path: CHAT,
        headers: &[],
        body: &body,
    };
    of_clients(&mut table, good);
    of_workers(&mut table, good);
    of_load(&mut table, good, &workers.good);
    // Silence inside an answer and a client that left have no answer of ours.
    let unseen = [Kind::ClientGone, Kind::Stalled];
    let all = Kind::ALL.into_iter().filter(|kind| !unseen.contains(kind));
    assert_eq!(table.seen, all.collect());
}

fn of_clients(table: &mut Table<'_>, good: Sent<'_>) {
    let (unknown, large) = (chat("n", 0), chat("m", 4 << 10));
    let (never, packed) = ([("content-length", "9")], [("content-encoding", "br")]);
    table.rows([
        (Kind::BadRequest, good.body(b"{")),
        (Kind::Unauthorized, good.key("fb_wrong")),
        (Kind::Forbidden, good.key("fb_narrow")),
        (Kind::Residency, good.key("fb_abroad")),
        (Kind::ModelNotFound, good.body(&unknown)),
        (Kind::NoRoute, good.path("/v1/nothing")),
        (Kind::MethodNotAllowed, good.method("PUT")),
        (Kind::RequestTimeout, good.headers(&never).body(b"")),
        (Kind::BodyTooLarge, good.body(&large)),
        (Kind::UnsupportedEncoding, good.headers(&packed)),
    ]);
    let slow = good.key("fb_slow");
    assert_eq!(slow.by(table.proxy).answer().status, 200);
    table.comes_back(Kind::RateLimited, slow);
}

fn of_workers(table: &mut Table<'_>, good: Sent<'_>) {
    let [broken, silent, down] = ["broken", "silent", "down"].map(|model| chat(model, 0));
    let streamed = json!({"model": "silent", "stream": true, "messages": []}).to_string();
    let hasty = [("x-forebay-deadline", "50ms")];
    table.rows([
        (Kind::WorkerFailed, good.body(&broken)),
        (Kind::AnswerTimeout, good.body(&silent)),
        (Kind::FirstByteTimeout, good.body(streamed.as_bytes())),
        (Kind::Deadline, good.headers(&hasty).body(&silent)),
    ]);
    table.comes_back(Kind::NoWorker, good.body(&down));
}

fn of_load(table: &mut Table<'_>, good: Sent<'_>, worker: &Engine) {
    worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    let before = worker.count();
    let large = chat("m", 3 << 10);
    let _held = good.body(&large).by(table.proxy);
    expect_soon("the place is taken", || worker.count() > before);
    table.comes_back(Kind::Overloaded, good.body(&large));
    let mut waiting = good.by(table.proxy);
    let depth = || table.proxy.metric("forebay_queue_depth", &[]);
    expect_soon("one waits", || depth() == 1.0);
    // Another worker may have a place: its body is read first.
    table.comes_back(Kind::QueueFull, good);
    table.check(Kind::QueueTimeout, true, &waiting.answer());
}
