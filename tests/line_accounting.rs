//! Ten thousand requests, three in ten of whose clients leave at a random point: metrics, the access log and what the
//! workers themselves have seen agree, and nothing is left behind.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::rng::Rng;
use parking_lot::Mutex;
use serde_json::Value;
use support::client::{Client, request};
use support::engine::Engine;
use support::prompt::{CHAT, chat, stream};
use support::proxy::Proxy;
use support::{expect_soon, wait_until};

const REQUESTS: usize = 10_000;
const CLIENTS: usize = 12;
/// The longest that the whole load may take, on two slow cores.
const LONGEST: Duration = Duration::from_secs(60);

/// Where a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    /// Not before it has its answer.
    Never,
    /// Behind the head of its request.
    BeforeBody,
    /// In the middle of the body.
    InBody,
    /// Behind the whole request.
    Unanswered,
    /// Behind the head of the answer.
    AtHead,
    /// Behind the first piece of a streamed answer.
    InAnswer,
}

impl Leaves {
    fn drawn(rng: &mut Rng) -> Self {
        if rng.below(10) >= 3 {
            return Leaves::Never;
        }
        let all = [
            Leaves::BeforeBody,
            Leaves::InBody,
            Leaves::Unanswered,
            Leaves::AtHead,
            Leaves::InAnswer,
        ];
        all[rng.below(all.len())]
    }
}

/// Sends one request; whether the connection can take another.
fn send(client: &mut Client, id: &str, leaves: Leaves, streamed: bool) -> bool {
    let body = if streamed {
        stream("one two three", 6)
    } else {
        chat("one two three")
    };
    let length = body.len().to_string();
    let headers = [("x-request-id", id), ("content-length", &length)];
    let whole = request("POST", CHAT, &headers, body.as_bytes());
    let head = whole.len() - body.len();
    let sent = match leaves {
        Leaves::BeforeBody => head,
        Leaves::InBody => head + body.len() / 2,
        _ => whole.len(),
    };
    client.send(&whole[..sent]);
    match leaves {
        Leaves::BeforeBody | Leaves::InBody | Leaves::Unanswered => false,
        Leaves::AtHead => {
            client.head();
            false
        }
        Leaves::InAnswer => {
            let mut answer = client.head();
            if streamed {
                client.chunk(&mut answer);
            }
            false
        }
        Leaves::Never => {
            let answer = client.answer();
            assert!(answer.status == 200 && answer.complete, "{answer:?}");
            true
        }
    }
}

/// Sends them all; the ids of those whose clients stayed.
fn load(proxy: &Proxy) -> BTreeSet<String> {
    let (next, stayed) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let (next, stayed) = (&next, &stayed);
            scope.spawn(move || {
                let mut rng = Rng::seeded(seed as u64);
                let mut client = None;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS {
                        return;
                    }
                    let (leaves, streamed) = (Leaves::drawn(&mut rng), rng.below(2) == 0);
                    let id = format!("request-{number}");
                    let connection = client.get_or_insert_with(|| proxy.connect());
                    if send(connection, &id, leaves, streamed) {
                        stayed.lock().insert(id);
                    } else {
                        client = None;
                    }
                }
            });
        }
    });
    stayed.into_inner()
}

/// How many lines of a log there are for each status and reason.
fn endings(log: &[Value]) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for line in log {
        let reason = line["reason"].as_str().unwrap().to_owned();
        *counts
            .entry((line["status"].to_string(), reason))
            .or_default() += 1;
    }
    counts
}

/// The number of a log's line, 0 where it has none.
fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or_default()
}

#[test]
fn every_request_is_counted_once_however_it_ends() {
    let engines = [Engine::start(), Engine::start()];
    engines[1].tune(|knobs| knobs.first_byte_delay = Duration::from_millis(3));
    let proxy = Proxy::setup()
        .section("[routing]\npolicy = \"round_robin\"\nretries = { extra = 0 }")
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .start();
    let stayed = load(&proxy);
    let all = wait_until(LONGEST, || {
        proxy.metric("forebay_requests_total", &[]) >= REQUESTS as f64
    });
    let total = proxy.metric("forebay_requests_total", &[]);
    assert!(all, "{total} of {REQUESTS} were counted");
    expect_soon("all are in the log", || {
        proxy.stdout().lines().count() >= REQUESTS
    });

    // The log has each once, and those who stayed were served.
    let log = proxy.log();
    let ids: BTreeSet<_> = log
        .iter()
        .map(|line| line["id"].as_str().unwrap())
        .collect();
    assert_eq!((log.len(), ids.len()), (REQUESTS, REQUESTS));
    let served = |line: &&Value| line["status"] == 200 && line["reason"] == "ok";
    let ok: BTreeSet<_> = { log.iter() }
        .filter(served)
        .map(|line| line["id"].as_str().unwrap())
        .collect();
    assert!(stayed.iter().all(|id| ok.contains(&**id)));
    assert!(stayed.len() < REQUESTS * 3 / 4, "{} stayed", stayed.len());

    // Metrics tell the same as the log.
    for ((status, reason), count) in endings(&log) {
        let labels = [("code", &*status), ("reason", &*reason)];
        let told = proxy.metric("forebay_requests_total", &labels);
        assert_eq!(told, count as f64, "{status} {reason}");
    }
    assert_eq!(proxy.metric("forebay_requests_total", &[]), REQUESTS as f64);
    let attempts: u64 = log.iter().map(|line| number(line, "attempts")).sum();
    expect_soon("every attempt has ended", || {
        proxy.metric("forebay_attempts_total", &[]) == attempts as f64
    });
    let tokens: u64 = log.iter().map(|line| number(line, "output_tokens")).sum();
    let output = [("kind", "output")];
    assert_eq!(proxy.metric("forebay_tokens_total", &output), tokens as f64);

    // The workers saw each at most once, those who were served exactly once, and none that the log does not know of.
    let mut seen = BTreeMap::new();
    for (name, engine) in ["a", "b"].iter().zip(&engines) {
        for request in engine.requests() {
            let id = request.header("x-request-id").unwrap().to_owned();
            let twice = seen.insert(id, (*name, request.finished.is_some()));
            assert!(twice.is_none(), "{twice:?} was seen twice");
        }
    }
    for line in &log {
        let id = line["id"].as_str().unwrap();
        match seen.get(id) {
            Some((worker, _)) => assert_eq!(line["worker"], *worker, "{line}"),
            None => assert!(!served(&line), "{line}"),
        }
        assert!(
            seen.contains_key(id) || number(line, "attempts") <= 1,
            "{line}"
        );
        assert!(
            !seen.contains_key(id) || number(line, "attempts") == 1,
            "{line}"
        );
    }
    assert!(seen.keys().all(|id| ids.contains(&**id)));

    for metric in ["forebay_inflight", "forebay_queue_depth"] {
        expect_soon("nothing is left behind", || {
            proxy.metric(metric, &[]) == 0.0
        });
    }
}
