//! A worker that says it can't just now (429, 503) costs no client anything while another has a place free; else its
//! answer is the answer. And a proxy that is out of files blames nobody for it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use support::client::{Client, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Knobs};
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::{Proxy, Setup};

/// A worker that is never up to it, with its own words.
fn busy(status: u16) -> Engine {
    let said = Canned::ok("{\"mine\":1}")
        .status(status)
        .header("retry-after", "7")
        .header("x-forebay-reason", "none-of-its-business");
    Engine::with(Knobs {
        canned: Some(said),
        ..Knobs::default()
    })
}

/// Taking turns, so that the busy worker is asked first as often as not.
fn in_turns(section: &str) -> Setup {
    Proxy::setup().section(&format!("[routing]\npolicy = \"round_robin\"\n{section}"))
}

#[test]
fn a_busy_worker_s_requests_go_to_another() {
    for status in [429, 503] {
        let (full, free) = (busy(status), Engine::start());
        let proxy = in_turns("")
            .worker("full", &full)
            .worker("free", &free)
            .start();
        for _ in 0..20 {
            let answer = proxy.chat(&chat("x"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.header("x-forebay-worker"), Some("free"));
        }
        assert!(full.count() > 0, "it was asked");
        assert_eq!(free.count(), 20);
        assert!(proxy.metric("forebay_retries_total", &[("cause", "busy")]) > 0.0);
    }
}

#[test]
fn a_busy_worker_s_answer_passes_when_nobody_else_is_there() {
    let full = busy(429);
    let proxy = Proxy::before(&full);
    let answer = proxy.chat(&chat("x"));
    assert_eq!((answer.status, answer.text()), (429, "{\"mine\":1}"));
    assert_eq!(answer.header("retry-after"), Some("7"));
    assert_eq!(answer.header("x-forebay-reason"), None);
}

#[test]
fn what_may_not_be_repeated_and_what_was_repeated_enough_gets_the_busy_answer() {
    let (full, free) = (busy(503), Engine::start());
    let proxy = in_turns("")
        .worker("full", &full)
        .worker("free", &free)
        .start();
    let never = request(
        "POST",
        CHAT,
        &[("x-forebay-retry", "never")],
        chat("x").as_bytes(),
    );
    let mut client = proxy.connect();
    let mut statuses: Vec<u16> = (0..2)
        .map(|_| client.send(&never).answer().status)
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);

    let others = [busy(429), busy(429), Engine::start()];
    let proxy = in_turns("retries = { extra = 1 }")
        .worker("a", &others[0])
        .worker("b", &others[1])
        .worker("c", &others[2])
        .start();
    assert_eq!(proxy.chat(&chat("x")).status, 429);
    assert_eq!(others.map(|worker| worker.count()), [1, 1, 0]);
}

/// As many descriptors as a proxy with two threads takes at rest, and some to spare.
const FILES: u32 = 64;

#[test]
fn a_proxy_without_a_file_to_spare_blames_no_worker() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &worker)
        .open_files(FILES)
        .start();
    let mut client = proxy.connect();
    assert_eq!(client.call("GET", "/health", "").status, 200);
    let mut idle = Vec::new();
    expect_soon("its files are used up", || {
        idle.extend((0..8).filter_map(|_| Client::try_connect(proxy.address()).ok()));
        proxy.stderr().contains("a worker can't be probed")
    });
    // A connection that is kept would serve the next request too.
    worker.tune(|knobs| knobs.answers_per_connection = Some(1));
    let mut refused = None;
    expect_soon("a request finds none", || {
        let answer = client.call("POST", CHAT, &chat("x"));
        refused = Some(answer).filter(|answer| answer.status == 503);
        refused.is_some()
    });
    let refused = refused.unwrap();
    assert_eq!(refused.header("x-forebay-reason"), Some("overloaded"));
    assert!(refused.text().contains("ulimit -n"), "{}", refused.text());
    drop(idle);
    expect_soon("it serves again", || {
        client.call("POST", CHAT, &chat("x")).status == 200
    });
    assert_eq!(proxy.worker("w")["state"], "up");
    assert!(
        !proxy
            .stderr()
            .contains("worker changed state worker=\"w\" from=\"up\"")
    );
}

#[test]
fn port_0_becomes_a_port_that_is_told() {
    let worker = Engine::start();
    let proxy = Proxy::setup().worker("w", &worker).any_port().start();
    assert_ne!(proxy.address().port(), 0);
    assert_eq!(proxy.chat(&chat("x")).status, 200);
}
