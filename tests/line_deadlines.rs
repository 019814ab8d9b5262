//! Deadlines of clients through the real proxy: what can't be in time is refused before it is begun.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use support::client::Answer;
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;
use support::queue::{join_with, narrow, occupy};

const INFER: &str = "/v2/models/m/infer";

fn with_deadline(proxy: &Proxy, deadline: &str) -> Answer {
    let headers = [("x-forebay-deadline", deadline)];
    let mut client = proxy.connect();
    client.call_with("POST", CHAT, &headers, chat("hurried").as_bytes())
}

/// Its worker takes 400 ms for every answer, and the proxy has seen it.
fn slow(engine: &Engine, proxy: &Proxy) {
    engine.tune(|knobs| knobs.first_byte_delay = Duration::from_millis(400));
    for _ in 0..8 {
        assert_eq!(proxy.chat(&chat("x")).status, 200);
    }
}

#[track_caller]
fn too_late(answer: &Answer, left_of: &str) {
    assert_eq!((answer.status, answer.reason()), (504, Some("deadline")));
    let text = answer.text();
    assert!(text.contains("the fastest would take about"), "{text}");
    assert!(text.contains(left_of), "{text}");
}

#[test]
fn what_nobody_can_answer_in_time_is_refused_at_once() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "").start();
    slow(&engine, &proxy);
    let before = engine.count();
    too_late(
        &with_deadline(&proxy, "100ms"),
        "are left of x-forebay-deadline = 100ms",
    );
    assert_eq!(engine.count(), before, "it was not begun");
    assert_eq!(with_deadline(&proxy, "30s").status, 200);
}

#[test]
fn a_worker_that_has_shown_nothing_is_given_the_benefit_of_the_doubt() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "").start();
    // 200 tokens are expected of a model that nobody has used, at 20 ms each.
    let answer = with_deadline(&proxy, "2s");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn who_waits_is_let_go_when_it_can_no_longer_be_in_time() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "").start();
    slow(&engine, &proxy);
    let _held = occupy(&proxy, &engine);
    let headers = [("x-forebay-deadline", "3s")];
    let mut waiting = join_with(&proxy, &headers, &chat("x"));
    too_late(&waiting.answer(), "are left of x-forebay-deadline = 3s");
    let line = proxy.log_of(9).pop().unwrap();
    assert_eq!(line["attempts"], 0);
}

#[test]
fn a_kserve_timeout_is_a_deadline_in_microseconds_and_the_shorter_holds() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "").start();
    engine.tune(|knobs| knobs.fail(Failure::Hang, 2));
    let body = r#"{"inputs":[{"name":"a","shape":[1],"datatype":"INT64","data":[1]}],"parameters":{"timeout":300000}}"#;
    for (deadline, name) in [
        ("10s", "parameters.timeout = 300ms"),
        ("200ms", "x-forebay-deadline = 200ms"),
    ] {
        let headers = [("x-forebay-deadline", deadline)];
        let mut client = proxy.connect();
        let answer = client.call_with("POST", INFER, &headers, body.as_bytes());
        assert_eq!((answer.status, answer.reason()), (504, Some("deadline")));
        assert!(answer.text().contains(name), "{}", answer.text());
    }
}
