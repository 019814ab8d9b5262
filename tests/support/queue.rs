//! A line of known length in front of a worker with one place.

use super::client::{Client, request};
use super::engine::Engine;
use super::engine::knobs::Failure;
use super::expect_soon;
use super::prompt::{CHAT, chat};
use super::proxy::{Proxy, Setup};

/// One worker with one place.
pub fn narrow(engine: &Engine, queue: &str) -> Setup {
    let setup = Proxy::setup().worker_with("w", engine, "max_inflight = 1");
    setup.queue(queue)
}

/// Takes the only place until the connection is dropped.
#[track_caller]
pub fn occupy(proxy: &Proxy, engine: &Engine) -> Client {
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let before = engine.count();
    let mut held = proxy.connect();
    held.send(&request("POST", CHAT, &[], chat("held").as_bytes()));
    expect_soon("the place is taken", || engine.count() == before + 1);
    held
}

/// How many wait.
pub fn waiting(proxy: &Proxy) -> f64 {
    proxy.metric("forebay_queue_depth", &[])
}

/// Sends a chat of this class and waits until it stands in line.
#[track_caller]
pub fn join(proxy: &Proxy, class: &str, said: &str) -> Client {
    let headers = [("x-forebay-priority", class)];
    join_with(proxy, &headers, &chat(said))
}

/// Sends this and waits until it stands in line.
#[track_caller]
pub fn join_with(proxy: &Proxy, headers: &[(&str, &str)], body: &str) -> Client {
    let before = waiting(proxy);
    let mut client = proxy.connect();
    client.send(&request("POST", CHAT, headers, body.as_bytes()));
    expect_soon("it waits", || waiting(proxy) == before + 1.0);
    client
}
