//! `forebay why --slow`: a slow request whose cause was planted is told with that cause first. Seven causes, over real
//! sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use forebay::clock::Clock;
use forebay::units::Seconds;
use support::client::request;
use support::command::forebay;
use support::engine::Engine;
use support::engine::knobs::{Dialect, Failure, Knobs, Memory};
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::{Proxy, Setup, TOKEN};
use support::queue::{narrow, occupy};
use support::relay::Relay;

/// What is planted takes this long at least.
const PLANTED: Duration = Duration::from_millis(600);

/// Three requests at once that nothing keeps, then the slow one, and what is said of the slowest.
#[track_caller]
fn verdict(proxy: &Proxy, plant: impl FnOnce(&[(&str, &str)])) -> String {
    for _ in 0..3 {
        assert_eq!(proxy.chat(&chat("quick")).status, 200);
    }
    plant(&[("x-request-id", "planted")]);
    let path = "/api/requests/planted";
    expect_soon("it is remembered", || {
        let answer = proxy.ask_admin(path);
        answer.status == 200 && answer.json()["culprit"].is_object()
    });
    let token = [("FOREBAY_ADMIN_TOKEN", TOKEN)];
    let said = forebay(proxy.folder(), &token, &["why", "--slow"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("\nplanted: "), "{}", said.out);
    said.out.lines().next().unwrap().to_owned()
}

fn send(proxy: &Proxy, headers: &[(&str, &str)], body: &str) {
    let answer = proxy
        .connect()
        .call_with("POST", CHAT, headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn setup() -> (Engine, Setup) {
    let engine = Engine::start();
    let setup = Proxy::setup().worker("w", &engine);
    (engine, setup)
}

#[test]
fn a_line_is_named() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "wait_no_worker = \"0s\"").start();
    let first = verdict(&proxy, |headers| {
        // Whoever has the only place leaves; the one who waited for it then takes a while too, so that it is the
        // slowest.
        let held = occupy(&proxy, &engine);
        engine.tune(|knobs| knobs.first_byte_delay = PLANTED / 3);
        let mut waits = proxy.connect();
        waits.send(&request("POST", CHAT, headers, chat("x").as_bytes()));
        expect_soon("it has waited", || {
            let waited = proxy.api("/api/queue")["waiting"][0]["waited_s"].as_f64();
            waited.is_some_and(|waited| waited > PLANTED.as_secs_f64())
        });
        drop(held);
        assert_eq!(waits.answer().status, 200);
    });
    assert!(first.starts_with("queue: "), "{first}");
    assert!(
        first.ends_with(": it waited in line for a place on w"),
        "{first}"
    );
}

#[test]
fn a_swap_is_named() {
    let engine = Engine::with(Knobs {
        dialect: Dialect::Ollama,
        models: vec!["m".into(), "other".into()],
        memory: Memory {
            most: 1,
            swap: PLANTED,
            loaded: vec!["m".into()],
            ..Memory::default()
        },
        ..Knobs::default()
    });
    let lines = "# engine = models =\nresident = 1";
    let proxy = Proxy::setup().worker_with("w", &engine, lines).start();
    let first = verdict(&proxy, |headers| {
        send(&proxy, headers, &chat("x").replace("\"m\"", "\"other\""));
    });
    assert!(first.starts_with("swap: "), "{first}");
    assert!(
        first.ends_with(": w had to bring in the model or its adapter"),
        "{first}"
    );
}

#[test]
fn a_long_prompt_is_named() {
    let (engine, setup) = setup();
    let proxy = setup.start();
    let first = verdict(&proxy, |headers| {
        engine.tune(|knobs| knobs.prefill = PLANTED.as_secs_f64() / 1_000.0);
        send(&proxy, headers, &stream(&"word ".repeat(1_000), 4));
    });
    assert!(first.starts_with("prefill: "), "{first}");
    assert!(first.contains(": w read a prompt of "), "{first}");
}

#[test]
fn a_long_answer_is_named() {
    let (engine, setup) = setup();
    let proxy = setup.start();
    let first = verdict(&proxy, |headers| {
        engine.tune(|knobs| knobs.chunk_delay = PLANTED / 8);
        send(&proxy, headers, &stream("x", 8));
    });
    assert!(
        first.starts_with("decode: ") && first.ends_with(": w wrote the answer"),
        "{first}"
    );
}

#[test]
fn a_long_way_is_named() {
    let engine = Engine::with(Knobs {
        models: vec!["m".into(), "far".into()],
        ..Knobs::default()
    });
    let relay = Relay::to(engine.address(), PLANTED / 2);
    let proxy = Proxy::setup()
        .probe("interval = \"100ms\"\ntimeout = \"5s\"\nrise = 1\nfall = 2")
        .worker_at("near", &engine.url(), "models = [\"m\"]")
        .worker_at("w", &relay.url(), "models = [\"far\"]")
        .start();
    let first = verdict(&proxy, |headers| {
        send(&proxy, headers, &chat("x").replace("\"m\"", "\"far\""));
    });
    assert!(first.starts_with("network: "), "{first}");
    assert!(first.ends_with(": the way to w and back"), "{first}");
}

#[test]
fn an_attempt_in_vain_is_named() {
    let engines = [Engine::start(), Engine::start()];
    let routing =
        "[routing]\npolicy = \"round_robin\"\n[timeouts]\nfirst_byte = \"1s\"\nanswer = \"1s\"";
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .section(routing)
        .start();
    let first = verdict(&proxy, |headers| {
        // Three went before, in turn: this one is b's.
        engines[1].tune(|knobs| knobs.fail(Failure::Hang, 1));
        send(&proxy, headers, &chat("x"));
    });
    assert!(first.starts_with("retry: "), "{first}");
    assert!(
        first.ends_with(": attempts came to nothing: b (answer_timeout)"),
        "{first}"
    );
}

#[test]
fn a_client_that_sends_slowly_is_named() {
    let (_engine, setup) = setup();
    let proxy = setup.start();
    let first = verdict(&proxy, |headers| {
        let body = chat("x");
        let whole = request("POST", CHAT, headers, body.as_bytes());
        let (most, rest) = whole.split_at(whole.len() - 5);
        let mut client = proxy.connect();
        client.send(most);
        let clock = Clock::start();
        expect_soon("time has passed", || clock.now() > Seconds::from(PLANTED));
        assert_eq!(client.send(rest).answer().status, 200);
    });
    assert!(first.starts_with("proxy: "), "{first}");
    assert!(first.contains(": its client took "), "{first}");
}
