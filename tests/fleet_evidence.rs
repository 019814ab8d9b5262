//! What requests say of a worker takes it out, whatever its probes say (P5, P6), and lets it back in.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;

/// Two workers that take turns, with further tables.
fn a_pair(toml: &str) -> ([Engine; 2], Proxy) {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .section(&format!("[routing]\npolicy = \"round_robin\"\n{toml}"))
        .start();
    (engines, proxy)
}

/// Sends so many chats, one after the other; how many were answered well.
fn good(proxy: &Proxy, requests: usize) -> usize {
    let mut client = proxy.connect();
    (0..requests)
        .filter(|_| client.call("POST", CHAT, &chat("x")).status == 200)
        .count()
}

#[test]
fn p06_a_worker_that_passes_probes_and_fails_requests_gets_no_more_of_them() {
    let (engines, proxy) = a_pair("");
    assert_eq!(good(&proxy, 200), 200);
    let before = engines[0].count();
    assert_eq!(before, 100);
    engines[0].tune(|knobs| knobs.fail(Failure::Status(500), u64::MAX));
    good(&proxy, 200);
    assert!(engines[0].count() - before <= 10);
    let row = proxy.worker("a");
    assert_eq!(
        (&row["state"], &row["reason"]),
        (&"ejected".into(), &"3 errors in a row".into())
    );
    assert!(row["until"].as_str().unwrap() > row["since"].as_str().unwrap());
    let labels = [("worker", "a"), ("cause", "errors")];
    assert_eq!(proxy.metric("forebay_ejections_total", &labels), 1.0);
    assert!(proxy.metric("forebay_worker_fail_timeout_seconds", &labels[..1]) < 400.0);
    assert!(proxy.stderr().contains("3 errors in a row"));
}

#[test]
fn an_ejected_worker_comes_back_and_one_more_error_takes_it_out_again() {
    let (engines, proxy) = a_pair("[eject]\nfirst = \"300ms\"\nmax = \"300ms\"");
    engines[0].tune(|knobs| knobs.fail(Failure::Status(500), 4));
    good(&proxy, 6);
    let state = || proxy.worker("a")["state"].clone();
    assert_eq!(state(), "ejected");
    expect_soon("it is back", || state() == "up");
    good(&proxy, 2);
    assert_eq!((state(), engines[0].count()), ("ejected".into(), 4));
    expect_soon("it is back again", || state() == "up");
    assert_eq!(good(&proxy, 20), 20);
    assert_eq!(engines[0].count(), 14);
}

#[test]
fn a_single_worker_is_never_ejected() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    engine.tune(|knobs| knobs.fail(Failure::Status(500), 10));
    assert_eq!(good(&proxy, 10), 0);
    assert_eq!(good(&proxy, 10), 10);
    assert_eq!(proxy.worker("w")["state"], "up");
}

#[test]
fn a_busy_worker_is_left_alone_while_the_other_serves() {
    let (engines, proxy) = a_pair("");
    engines[0].tune(|knobs| knobs.fail(Failure::Busy(5), u64::MAX));
    assert_eq!(good(&proxy, 20), 20);
    assert_eq!((engines[0].count(), engines[1].count()), (1, 20));
    let row = proxy.worker("a");
    assert_eq!(row["state"], "up");
    assert!(row["held_s"].as_f64().unwrap() > 0.0, "{row}");
}

#[test]
fn p05_a_worker_that_hangs_is_out_after_three_timers() {
    let (engines, proxy) = a_pair("[timeouts]\nanswer = \"300ms\"");
    engines[0].tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    good(&proxy, 10);
    assert_eq!(proxy.worker("a")["state"], "ejected");
    assert_eq!(good(&proxy, 100), 100);
    assert_eq!(engines[0].count(), 3);
}
