//! Promise P9: a name that can't be resolved any more keeps its addresses, all of them are used, and nobody's request
//! waits for a name server.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::net::Ipv4Addr;

use support::dns::{NameServer, Says};
use support::engine::Engine;
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::{Proxy, Setup};

/// Two loopback addresses of which a name can have one or both.
const FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A proxy with one worker, known by a name that this server resolves, on this engine's port.
fn named(server: &NameServer, engine: &Engine) -> Setup {
    let url = format!("http://gpu.test:{}", engine.address().port());
    Proxy::setup()
        .section(&format!("[dns]\nservers = [\"{}\"]", server.address))
        .worker_at("named", &url, "")
}

/// Asks this many times, each time over a new connection to the worker.
fn ask(proxy: &Proxy, engines: &[&Engine], times: usize) {
    let mut client = proxy.connect();
    for engine in engines {
        engine.tune(|knobs| knobs.answers_per_connection = Some(1));
    }
    for _ in 0..times {
        assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
    }
}

#[test]
fn p09_a_name_that_stops_resolving_keeps_its_addresses() {
    let engine = Engine::start();
    let server = NameServer::start(Says::Addresses(vec![FIRST]));
    let proxy = named(&server, &engine).start();
    for outage in [Says::NoSuchName, Says::ServFail, Says::Empty, Says::Silence] {
        server.say(outage);
        ask(&proxy, &[&engine], 20);
    }
    assert_eq!(engine.count(), 80);
    assert!(proxy.stderr().contains("its last addresses are kept"));
}

#[test]
fn p09_a_name_that_was_never_resolved_is_said_and_followed() {
    let engine = Engine::start();
    let server = NameServer::start(Says::ServFail);
    let proxy = named(&server, &engine).launch();
    expect_soon("the log tells", || {
        proxy.stderr().contains("a worker's name can't be resolved")
    });
    let answer = proxy.connect().call("POST", CHAT, &chat("x"));
    assert!(
        answer.text().contains("gpu.test is not resolved yet"),
        "{}",
        answer.text()
    );
    server.say(Says::Addresses(vec![FIRST]));
    expect_soon("the worker is up", || proxy.all_are_up());
    ask(&proxy, &[&engine], 1);
}

#[test]
fn a_name_that_is_gone_is_a_warning_unless_its_worker_comes_and_goes() {
    for (lines, level) in [("", "WARN"), ("optional = true", "INFO")] {
        let server = NameServer::start(Says::NoSuchName);
        let proxy = Proxy::setup()
            .section(&format!("[dns]\nservers = [\"{}\"]", server.address))
            .worker_at("named", "http://gpu.test:1", lines)
            .launch();
        let said = || {
            let log = proxy.stderr();
            let line = log.lines().find(|line| line.contains("can't be resolved"));
            line.map(str::to_owned)
        };
        expect_soon("the log tells", || said().is_some());
        assert!(said().unwrap().contains(level), "{lines}: {:?}", said());
    }
}

#[test]
fn p09_all_addresses_are_used_and_a_dead_one_costs_nothing() {
    let first = Engine::start();
    let second = Engine::beside(&first, SECOND);
    let server = NameServer::start(Says::Addresses(vec![SECOND, FIRST]));
    let proxy = named(&server, &first).start();
    ask(&proxy, &[&first, &second], 40);
    assert!(first.count() >= 10 && second.count() >= 10);
    second.kill();
    ask(&proxy, &[&first], 40);
}

#[test]
fn p09_a_name_that_moves_takes_its_connections_along() {
    let first = Engine::start();
    let second = Engine::beside(&first, SECOND);
    let server = NameServer::start(Says::Addresses(vec![FIRST]));
    let proxy = named(&server, &first).start();
    let mut client = proxy.connect();
    assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
    assert_eq!(first.count(), 1);
    server.say(Says::Addresses(vec![SECOND]));
    expect_soon("the second is asked over a kept connection's place", || {
        assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
        second.count() > 0
    });
    let before = first.count();
    for _ in 0..10 {
        assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
    }
    assert_eq!(first.count(), before);
}
