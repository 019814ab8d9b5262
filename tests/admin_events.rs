//! `GET /api/events` over real sockets: what the status page is told, to how many, and for how long.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::Value;

use support::engine::Engine;
use support::listener::Listener;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;
use support::{PATIENCE, expect_soon};

/// The most who may listen, as the manual says.
const LISTENERS: usize = 16;

#[test]
fn a_listener_is_told_of_what_happens() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let mut listener = Listener::to(&proxy);
    assert_eq!(listener.answer.status, 200);
    assert_eq!(
        listener.answer.header("content-type"),
        Some("text/event-stream")
    );
    assert_eq!(listener.answer.header("cache-control"), Some("no-store"));
    let first = listener.next().unwrap();
    assert_eq!(first["fleet"]["workers"][0]["state"], "up");
    assert_eq!(first["requests"], serde_json::json!([]));
    let headers = [("x-request-id", "seen")];
    let asked = proxy
        .connect()
        .call_with("POST", CHAT, &headers, chat("x").as_bytes());
    assert_eq!(asked.status, 200);
    listener.expect("the request is told", |picture| {
        let request = &picture["requests"][0];
        let terms = request["price"]["terms_s"].as_object();
        request["id"] == "seen"
            && request["culprit"]["sentence"].is_string()
            && terms.is_some_and(|terms| terms.len() == 9)
    });
    engine.kill();
    listener.expect("the worker's end is told", |picture| {
        picture["fleet"]["workers"][0]["state"] == "down" && picture["unready"].is_string()
    });
}

#[test]
fn one_who_comes_later_is_shown_the_picture_that_hangs_there() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let drawn = |picture: Value| picture["fleet"]["now"].clone();
    expect_soon("two are shown one picture", || {
        let shown = drawn(Listener::to(&proxy).next().unwrap());
        // From here on a picture of its own would have another date.
        expect_soon("time passes", || proxy.api("/api/workers")["now"] != shown);
        drawn(Listener::to(&proxy).next().unwrap()) == shown
    });
}

#[test]
fn so_many_may_listen_and_one_more_when_one_leaves() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let mut listeners: Vec<_> = (0..LISTENERS).map(|_| Listener::to(&proxy)).collect();
    assert!(listeners.iter().all(|one| one.answer.status == 200));
    let mut refused = Listener::to(&proxy);
    assert_eq!(refused.answer.status, 503);
    refused.client.finish(&mut refused.answer);
    let error = &refused.answer.json()["error"]["code"];
    assert_eq!(error, "too_many_listeners");
    listeners.pop();
    expect_soon("a place is free again", || {
        Listener::to(&proxy).answer.status == 200
    });
    assert!(listeners.iter_mut().all(|one| one.next().is_some()));
}

#[test]
fn one_who_listens_keeps_no_process_from_ending() {
    let engine = Engine::start();
    // It would wait longer than the test does.
    let proxy = Proxy::setup()
        .top("drain = \"10m\"")
        .worker("w", &engine)
        .start();
    let mut listener = Listener::to(&proxy);
    listener.next().unwrap();
    proxy.signal("TERM");
    expect_soon("the stream ends", || listener.next().is_none());
    assert!(listener.answer.complete, "it was cut");
    assert!(proxy.wait_exit(PATIENCE).success());
}
