//! An engine of which nobody says how much it takes, before a flood of a low class: the flood waits in the proxy.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use forebay::clock::Clock;
use support::engine::Engine;
use support::engine::knobs::Knobs;
use support::expect_soon;
use support::prompt::{CHAT, stream};
use support::proxy::Proxy;

/// The engine runs so many at a time and lets the rest wait.
const SLOTS: usize = 8;
const FLOOD: usize = 40;

/// What paid requests took in seconds, in order, and how many waited in the engine as a rule, once the flood has been
/// served for a while. How much an engine takes is learned by trying, so now and then it is given more.
fn flooded(lines: &str) -> (Vec<f64>, usize) {
    let engine = Engine::with(Knobs {
        decode: 0.02,
        slots: SLOTS,
        ..Knobs::default()
    });
    let proxy = Proxy::setup()
        .worker_with("w", &engine, lines)
        .queue("reserve = { paid = 0.3 }")
        .start();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..FLOOD {
            scope.spawn(|| {
                let mut client = proxy.connect();
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(call(&mut client, "batch"), 200);
                }
            });
        }
        expect_soon("it has served many", || engine.count() > 6 * SLOTS);
        let mut client = proxy.connect();
        let mut waited = Vec::new();
        let mut took: Vec<f64> = (0..15)
            .map(|_| {
                let clock = Clock::start();
                assert_eq!(call(&mut client, "paid"), 200);
                waited.push(engine.load().1);
                clock.now().0
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        took.sort_by(f64::total_cmp);
        waited.sort_unstable();
        (took, waited[waited.len() / 2])
    })
}

/// Ten tokens: 0.18 s.
fn call(client: &mut support::client::Client, class: &str) -> u16 {
    let headers = [("x-forebay-priority", class)];
    let body = stream("x", 10);
    client
        .call_with("POST", CHAT, &headers, body.as_bytes())
        .status
}

#[test]
fn a_flood_waits_in_the_proxy_and_not_before_a_paid_request() {
    let (took, kept) = flooded("");
    assert!(kept < 2 * SLOTS, "{kept}, {took:?}");
}

/// Negative control: an engine that is said to take all of it is given all of it.
#[test]
fn who_waits_in_the_engine_is_overtaken_by_nobody() {
    let (took, kept) = flooded("max_inflight = 1000");
    assert!(took[took.len() / 2] > 0.5, "{took:?}");
    assert!(kept > 2 * SLOTS, "{kept}");
}
