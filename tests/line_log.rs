//! Each request is one line and one count, however it ends, and the line says all that is known.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use support::client::request;
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::Proxy;

/// What one request should leave in the log.
struct Ending {
    status: u16,
    reason: &'static str,
}

/// Runs one request of each kind, one after the other.
fn one_of_each(proxy: &Proxy, worker: &Engine) -> Vec<Ending> {
    let mut endings = Vec::new();
    let mut ended = |status, reason| endings.push(Ending { status, reason });
    proxy.chat(&chat("x"));
    ended(200, "ok");
    proxy.chat(&stream("x", 5));
    ended(200, "ok");
    proxy.chat("not json");
    ended(400, "bad_request");
    proxy.call("GET", "/nope", "");
    ended(404, "no_route");
    worker.tune(|knobs| knobs.fail(Failure::CutAfter(2), 1));
    proxy.chat(&stream("x", 5));
    ended(200, "worker_failed");
    worker.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut leaving = proxy.connect();
    let seen = worker.count();
    leaving.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
    expect_soon("the request arrived", || worker.count() > seen);
    drop(leaving);
    ended(499, "client_gone");
    endings
}

#[test]
fn each_request_is_one_line_and_one_count_however_it_ends() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let endings = one_of_each(&proxy, &worker);
    let log = proxy.log_of(endings.len());
    assert_eq!(log.len(), endings.len(), "{log:#?}");
    for (line, ending) in log.iter().zip(&endings) {
        assert_eq!(line["status"], ending.status, "{line}");
        assert_eq!(line["reason"], ending.reason, "{line}");
        assert_eq!(line["tenant"], "-");
        assert!(
            line["total_s"]
                .as_f64()
                .is_some_and(|seconds| seconds >= 0.0),
            "{line}"
        );
    }
    assert_eq!(proxy.metric("forebay_requests_total", &[]), 6.0);
    for (code, reason, count) in [
        ("200", "ok", 2.0),
        ("499", "client_gone", 1.0),
        ("200", "worker_failed", 1.0),
    ] {
        let labels = [("code", code), ("reason", reason)];
        assert_eq!(
            proxy.metric("forebay_requests_total", &labels),
            count,
            "{code} {reason}"
        );
    }
    expect_soon("nothing is in flight", || {
        proxy.metric("forebay_inflight", &[("worker", "w")]) == 0.0
    });
}

#[test]
fn a_log_line_says_all_that_is_known() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let asked =
        stream("one two", 6).replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1);
    let answer = proxy.call("POST", &format!("{CHAT}?secret=1"), &asked);
    let line = &proxy.log_of(1)[0];
    for (key, value) in [
        ("method", "POST"),
        ("path", CHAT),
        ("route", CHAT),
        ("model", "m"),
        ("worker", "w"),
        ("reason", "ok"),
    ] {
        assert_eq!(line[key], value, "{line}");
    }
    assert_eq!(line["attempts"], 1);
    assert_eq!(line["bytes_in"], asked.len());
    assert_eq!(line["bytes_out"], answer.body.len());
    assert_eq!(line["output_tokens"], 6);
    assert_eq!(line["prompt_tokens"], 3);
    assert_eq!(line["cached_tokens"], 0);
    let times =
        ["queue_s", "route_s", "first_byte_s", "total_s"].map(|key| line[key].as_f64().unwrap());
    assert!(times[2] <= times[3], "{line}");
    assert!(
        line["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
}
