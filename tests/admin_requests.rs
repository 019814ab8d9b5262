//! `GET /api/requests`: finding requests, and where the time of each went, over real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use serde_json::Value;

use support::client::Answer;
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::Proxy;

/// Sends a request under this id.
fn ask(proxy: &Proxy, id: &str, body: &str) -> Answer {
    let headers = [("x-request-id", id)];
    let mut client = proxy.connect();
    client.call_with("POST", CHAT, &headers, body.as_bytes())
}

/// The ids found, in their order.
fn found(proxy: &Proxy, query: &str) -> Vec<String> {
    let shown = proxy.api(&format!("/api/requests{query}"));
    let ids = shown["requests"].as_array().unwrap().iter();
    ids.map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

/// The sentence on a request, and the part that it names, once it has ended.
#[track_caller]
fn culprit(proxy: &Proxy, id: &str) -> (String, String) {
    let path = format!("/api/requests/{id}");
    expect_soon("it has ended", || {
        proxy.ask_admin(&path).status == 200 && proxy.api(&path).get("culprit").is_some()
    });
    let shown = proxy.api(&path);
    let culprit = &shown["culprit"];
    let parts = culprit["parts_s"].as_object().unwrap();
    let sum: f64 = parts.values().filter_map(Value::as_f64).sum();
    let total = shown["total_s"].as_f64().unwrap();
    assert!((sum / total - 1.0).abs() < 1e-3, "{shown}");
    let text = |key: &str| culprit[key].as_str().unwrap().to_owned();
    (text("part"), text("sentence"))
}

#[test]
fn requests_are_found_by_what_became_of_them() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &engine)
        .section("[routing]\nretries = { extra = 0 }")
        .start();
    ask(&proxy, "quick", &chat("x"));
    engine.tune(|knobs| knobs.first_byte_delay = Duration::from_millis(150));
    ask(&proxy, "slow", &chat("x"));
    engine.tune(|knobs| knobs.first_byte_delay = Duration::ZERO);
    engine.tune(|knobs| knobs.fail(Failure::ResetAfterRequest, 1));
    assert_eq!(ask(&proxy, "bad", &chat("x")).status, 502);
    expect_soon("all are remembered", || found(&proxy, "").len() == 3);
    assert_eq!(found(&proxy, ""), ["bad", "slow", "quick"]);
    assert_eq!(found(&proxy, "?slow&limit=1"), ["slow"]);
    assert_eq!(found(&proxy, "?failed"), ["bad"]);
    assert_eq!(found(&proxy, "?tenant=-&since=1h").len(), 3);
    assert_eq!(found(&proxy, "?tenant=nobody").len(), 0);
    let row = &proxy.api("/api/requests?failed")["requests"][0];
    assert_eq!(
        (&row["status"], &row["reason"], &row["worker"]),
        (&502.into(), &"worker_failed".into(), &"w".into())
    );
    assert!(row.get("choices").is_none(), "{row}");
    let flaw = proxy.ask_admin("/api/requests?fast");
    assert_eq!(flaw.json()["error"]["code"], "bad_request");
}

#[test]
fn the_largest_part_of_the_time_is_named_with_its_cause() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "max_inflight = 1")
        .start();
    engine.tune(|knobs| knobs.first_byte_delay = Duration::from_millis(200));
    ask(&proxy, "read", &stream("x", 1));
    let (part, sentence) = culprit(&proxy, "read");
    assert_eq!(part, "prefill", "{sentence}");
    assert!(sentence.contains(": w read "), "{sentence}");

    engine.tune(|knobs| {
        knobs.first_byte_delay = Duration::ZERO;
        knobs.chunk_delay = Duration::from_millis(30);
    });
    ask(&proxy, "write", &stream("x", 10));
    let (part, sentence) = culprit(&proxy, "write");
    assert_eq!(part, "decode", "{sentence}");
    assert!(sentence.ends_with("w wrote the answer"), "{sentence}");

    engine.tune(|knobs| knobs.chunk_delay = Duration::ZERO);
    engine.tune(|knobs| knobs.first_byte_delay = Duration::from_millis(200));
    std::thread::scope(|scope| {
        let before = engine.count();
        scope.spawn(|| ask(&proxy, "first", &stream("x", 1)));
        expect_soon("the first is there", || engine.count() > before);
        engine.tune(|knobs| knobs.first_byte_delay = Duration::ZERO);
        ask(&proxy, "second", &stream("x", 1));
    });
    let (part, sentence) = culprit(&proxy, "second");
    assert_eq!(part, "queue", "{sentence}");
    assert!(sentence.ends_with("in line for a place on w"), "{sentence}");
}

#[test]
fn attempts_that_came_to_nothing_are_named() {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker_with("a", &engines[0], "speed = 4.0")
        .worker("b", &engines[1])
        .section("[timeouts]\nfirst_byte = \"300ms\"")
        .start();
    engines[0].tune(|knobs| knobs.fail(Failure::Hang, 1));
    let answer = ask(&proxy, "again", &stream("x", 1));
    assert_eq!(answer.header("x-forebay-worker"), Some("b"));
    let (part, sentence) = culprit(&proxy, "again");
    assert_eq!(part, "retry", "{sentence}");
    assert!(
        sentence.contains(": attempts came to nothing: a ("),
        "{sentence}"
    );
}
