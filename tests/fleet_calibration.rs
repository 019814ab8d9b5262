//! Test requests over real sockets: who gets them, how they are seen, and what a restarted proxy still knows.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};

use support::engine::Engine;
use support::engine::knobs::{Dialect, Knobs};
use support::engine::record::Seen;
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;

const AUTO: &str = "test = \"auto\"";

/// The log's lines about tests of a worker.
fn tests_of(proxy: &Proxy, worker: &str) -> Vec<Value> {
    let is_test = |line: &Value| line["kind"] == "test" && line["worker"] == worker;
    proxy.log().into_iter().filter(is_test).collect()
}

/// Waits until a worker was tested so often.
#[track_caller]
fn expect_tests(proxy: &Proxy, worker: &str, count: usize) -> Vec<Value> {
    expect_soon("tests are logged", || {
        tests_of(proxy, worker).len() >= count
    });
    tests_of(proxy, worker)
}

fn json_of(seen: &Seen) -> Value {
    serde_json::from_slice(&seen.body).unwrap()
}

#[test]
fn an_idle_worker_is_tested_and_no_client_is_counted_for_it() {
    let engine = Engine::start();
    let proxy = Proxy::setup().worker_with("w", &engine, AUTO).start();
    assert_eq!(proxy.chat(&chat("x")).status, 200);
    let lines = expect_tests(&proxy, "w", 2);
    let line = &lines[0];
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&json!(200), &json!("ok"))
    );
    assert_eq!((&line["model"], &line["path"]), (&json!("m"), &json!(CHAT)));
    assert!(
        line["first_byte_s"].is_number() && line["total_s"].is_number(),
        "{line}"
    );

    let sent: Vec<_> = engine.requests().into_iter().skip(1).take(2).collect();
    let bodies: Vec<_> = sent.iter().map(json_of).collect();
    let lengths: Vec<_> = sent.iter().map(|seen| seen.body.len() / 1_024).collect();
    assert_eq!(lengths, [1, 8], "256 and 2,048 tokens");
    let text = |body: &Value| body["messages"][0]["content"].as_str().unwrap().to_owned();
    assert_ne!(
        text(&bodies[0])[..16],
        text(&bodies[1])[..16],
        "no prefix is shared"
    );
    assert!(
        bodies
            .iter()
            .all(|body| body["stream"] == true && body["model"] == "m")
    );

    assert_eq!(proxy.metric("forebay_requests_total", &[]), 1.0);
    assert_eq!(proxy.metric("forebay_attempts_total", &[]), 1.0);
    let counted = proxy.metric("forebay_tests_total", &[("worker", "w"), ("outcome", "ok")]);
    assert!(counted >= 2.0, "{counted}");
}

#[test]
fn embeddings_are_tested_with_embeddings() {
    let engine = Engine::start();
    let proxy = Proxy::setup().worker_with("w", &engine, AUTO).start();
    let asked = json!({"model": "m", "input": "x"}).to_string();
    assert_eq!(proxy.call("POST", "/v1/embeddings", &asked).status, 200);
    let lines = expect_tests(&proxy, "w", 1);
    assert_eq!(lines[0]["path"], "/v1/embeddings");
}

#[test]
fn nobody_is_tested_who_costs_money_or_may_not_be() {
    let engines = [(); 5].map(|()| Engine::start());
    let lines = [
        AUTO,
        "test = \"off\"",
        "engine = \"ollama\"\ntest = \"auto\"",
        "engine = \"openai\"\ntest = \"auto\"",
        "engine = \"generic\"\ntest = \"auto\"",
    ];
    engines[2].tune(|knobs| knobs.dialect = Dialect::Ollama);
    let names = ["vllm", "off", "ollama", "openai", "generic"];
    let mut setup = Proxy::setup();
    for ((name, engine), lines) in names.iter().zip(&engines).zip(lines) {
        setup = setup.worker_with(name, engine, lines);
    }
    let proxy = setup.start();
    assert_eq!(proxy.chat(&chat("x")).status, 200);
    let tested = expect_tests(&proxy, "vllm", 3).len();
    let all = proxy
        .log()
        .iter()
        .filter(|line| line["kind"] == "test")
        .count();
    assert!(all <= tested + 1, "{:#?}", proxy.log());
    assert!(
        names[1..]
            .iter()
            .all(|name| tests_of(&proxy, name).is_empty())
    );
    let elsewhere: usize = engines[1..].iter().map(Engine::count).sum();
    assert!(elsewhere <= 1, "only the client's: {elsewhere}");
}

#[test]
fn a_worker_that_refuses_a_test_is_left_alone() {
    let good = Engine::start();
    let refusing = Engine::with(Knobs {
        models: vec!["other".to_owned()],
        ..Knobs::default()
    });
    let proxy = Proxy::setup()
        .worker_with("good", &good, AUTO)
        .worker_with("refusing", &refusing, AUTO)
        .start();
    proxy.chat(&chat("x"));
    expect_tests(&proxy, "good", 3);
    let refused = expect_tests(&proxy, "refusing", 1);
    assert_eq!(refused.len(), 1, "{refused:#?}");
    assert_eq!(refused[0]["reason"], "rejected");
    assert_eq!(proxy.worker("refusing")["state"], "up");
}

#[test]
fn a_file_is_sent_with_the_workers_own_name_for_the_model() {
    let engine = Engine::with(Knobs {
        models: vec!["own".to_owned()],
        ..Knobs::default()
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body.json");
    std::fs::write(&file, r#"{"input": "of the operator", "model": "any"}"#).unwrap();
    let lines = format!("models = {{ m = \"own\" }}\ntest = {{ file = {file:?} }}");
    let proxy = Proxy::setup().worker_with("w", &engine, &lines).start();
    let asked = json!({"model": "m", "input": "x"}).to_string();
    assert_eq!(proxy.call("POST", "/v1/embeddings", &asked).status, 200);
    let lines = expect_tests(&proxy, "w", 1);
    assert_eq!(
        (&lines[0]["status"], &lines[0]["model"]),
        (&json!(200), &json!("m"))
    );
    let sent = &engine.requests()[1];
    assert_eq!(sent.target, "/v1/embeddings");
    assert_eq!(
        json_of(sent),
        json!({"input": "of the operator", "model": "own"})
    );
}

#[test]
fn a_restarted_proxy_knows_the_speeds_at_once() {
    let engines = [0.000_1, 0.001].map(|prefill| {
        Engine::with(Knobs {
            prefill,
            ..Knobs::default()
        })
    });
    let state = tempfile::tempdir().unwrap();
    let setup = || {
        let setup = Proxy::setup().state(state.path());
        setup
            .worker("fast", &engines[0])
            .worker("slow", &engines[1])
    };
    let known = |proxy: &Proxy| ["fast", "slow"].map(|name| proxy.worker(name)["prefill"].clone());
    let proxy = setup()
        .section("[routing]\npolicy = \"round_robin\"")
        .start();
    let body = json!({"model": "m", "input": "x".repeat(400)}).to_string();
    for _ in 0..20 {
        assert_eq!(proxy.call("POST", "/v1/embeddings", &body).status, 200);
    }
    let learned = known(&proxy);
    let speed = |proxy: &Proxy| proxy.worker("fast")["speed"].as_f64();
    assert!(speed(&proxy) > Some(3.0), "{learned:?}");
    proxy.signal("TERM");
    assert!(proxy.wait_exit(Duration::from_secs(5)).success());
    let file = state.path().join("speeds.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let again = setup().start();
    assert_eq!(known(&again), learned);
    assert!(speed(&again) > Some(3.0));
    drop(again);
    std::fs::write(&file, "{\"version\":1,\"workers\":[{}]}").unwrap();
    let anew = setup().start();
    assert_eq!(known(&anew), [Value::Null, Value::Null]);
    assert_eq!(anew.stderr().matches("speeds.json is ignored").count(), 1);
}
