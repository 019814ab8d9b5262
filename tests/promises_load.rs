//! Promises P15 and P17, and what else holds when more comes than the fleet can take.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use forebay::rng::Rng;
use support::client::{Client, request};
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::prompt::{CHAT, chat, stream};
use support::proxy::{Proxy, Setup};
use support::resident::resident;
use support::{PATIENCE, expect_soon, wait_until};

/// One worker with one place, which somebody holds until the connection is dropped.
fn crowded(setup: Setup, engine: &Engine) -> (Proxy, Client) {
    let proxy = setup.worker_with("w", engine, "max_inflight = 1").start();
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let held = send(&proxy, &chat("held"));
    expect_soon("the place is taken", || engine.count() == 1);
    (proxy, held)
}

fn send(proxy: &Proxy, body: &str) -> Client {
    let mut client = proxy.connect();
    client.send(&request("POST", CHAT, &[], body.as_bytes()));
    client
}

fn waiting(proxy: &Proxy) -> f64 {
    proxy.metric("forebay_queue_depth", &[])
}

/// How much of the machine's memory the proxy has, in MiB.
fn mebibytes(proxy: &Proxy) -> f64 {
    resident(proxy.pid()) as f64 / f64::from(1 << 20)
}

#[test]
fn p15_who_is_shed_is_told_so_within_5_ms() {
    const SHED: u32 = 400;
    let engine = Engine::start();
    let setup = Proxy::setup().queue("entries = 1\nwait = \"10m\"");
    let (proxy, _held) = crowded(setup, &engine);
    let _waiting = send(&proxy, &chat("waiting"));
    expect_soon("the line is full", || waiting(&proxy) == 1.0);
    let within = |bound: &str| {
        let bucket = "forebay_request_duration_seconds_bucket";
        proxy.metric(bucket, &[("le", bound)])
    };
    let mut client = proxy.connect();
    // Whoever else is busy on this machine may spoil a round, and hardly three of them.
    let is_quick = (0..3).any(|_| {
        let [quick, all] = ["0.005", "+Inf"].map(within);
        for _ in 0..SHED {
            let answer = client.call("POST", CHAT, &chat("shed"));
            assert_eq!((answer.status, answer.reason()), (429, Some("queue_full")));
            assert!(answer.header("retry-after").is_some());
        }
        assert_eq!(within("+Inf") - all, f64::from(SHED));
        within("0.005") - quick >= 0.99 * f64::from(SHED)
    });
    assert!(is_quick, "more than 1 in 100 took longer");
    assert_eq!(engine.count(), 1);
}

#[test]
fn p17_the_line_takes_no_more_memory_than_its_bound() {
    const BOUND: f64 = 48.0;
    let engine = Engine::start();
    let setup = Proxy::setup().queue("bytes = \"48MiB\"\nwait = \"10m\"");
    let (proxy, _held) = crowded(setup, &engine);
    let before = mebibytes(&proxy);
    let body = chat(&"x".repeat(1 << 20));
    let mut clients = Vec::new();
    for number in 1..=47 {
        clients.push(send(&proxy, &body));
        expect_soon("it waits", || waiting(&proxy) == f64::from(number));
    }
    for _ in 0..20 {
        let answer = proxy.chat(&body);
        assert_eq!((answer.status, answer.reason()), (429, Some("queue_full")));
    }
    // Bodies that were shed are given back a moment after their answers.
    expect_soon("it has grown by no more than the line", || {
        mebibytes(&proxy) - before <= 1.2 * BOUND
    });
    // Who leaves makes room for others.
    clients.clear();
    expect_soon("nobody waits", || waiting(&proxy) == 0.0);
    let _next = send(&proxy, &body);
    expect_soon("another one waits", || waiting(&proxy) == 1.0);
}

#[test]
fn p15_who_can_only_be_shed_need_not_send_a_body_first() {
    let engine = Engine::start();
    let setup = Proxy::setup()
        .queue("entries = 1\nwait = \"10m\"")
        .worker_with("o", &engine, "max_inflight = 1\nmodels = { other = \"m\" }");
    let (proxy, _held) = crowded(setup, &engine);
    let _waiting = send(&proxy, &chat("waiting"));
    expect_soon("the line is full", || waiting(&proxy) == 1.0);
    let begin = || {
        let mut client = proxy.connect();
        let other = chat("x").replace("\"m\"", "\"other\"");
        let length = other.len().to_string();
        let head = request("POST", CHAT, &[("content-length", &length)], b"");
        client.send(&head);
        (client, other)
    };
    // Somebody has a place, and the head does not tell for which model it is.
    let (mut client, body) = begin();
    client.send(body.as_bytes());
    assert_eq!(client.answer().status, 200);
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let (mut held, body) = begin();
    held.send(body.as_bytes());
    expect_soon("the last place is taken", || engine.count() == 3);
    let (mut client, _) = begin();
    let answer = client.answer();
    assert_eq!((answer.status, answer.reason()), (429, Some("queue_full")));
}

#[test]
fn p17_a_thousand_who_leave_at_any_moment_leave_nothing_behind() {
    const CLIENTS: u32 = 1_000;
    let engine = Engine::start();
    engine.tune(|knobs| knobs.decode = 0.002);
    let setup = Proxy::setup().queue("wait = \"10m\"");
    let proxy = setup.worker_with("w", &engine, "max_inflight = 4").start();
    let mut rng = Rng::seeded(17);
    let mut open = Vec::new();
    for _ in 0..CLIENTS {
        open.push(send(&proxy, &stream("a few words", 5)));
        // Somebody leaves: who came just now, who waits, who is being answered, who was answered.
        if open.len() > 40 {
            open.swap_remove(rng.below(open.len()));
        }
    }
    drop(open);
    let gauges = || {
        let names = [
            "forebay_queue_depth",
            "forebay_inflight",
            "forebay_buffered_bytes",
        ];
        names.map(|name| proxy.metric(name, &[]))
    };
    let counted = || proxy.metric("forebay_requests_total", &[]);
    expect_soon("each is counted", || counted() >= f64::from(CLIENTS));
    let settled = wait_until(PATIENCE, || gauges() == [0.0; 3]);
    assert!(settled, "still there: {:?}", gauges());
    assert_eq!(counted(), f64::from(CLIENTS), "each is counted once");
    assert_eq!(proxy.log_of(CLIENTS as usize).len(), CLIENTS as usize);
    expect_soon("the worker is rid of them", || engine.load() == (0, 0));
    assert_eq!(proxy.chat(&chat("after")).status, 200);
}

#[test]
fn a_hundred_who_waited_for_a_worker_are_answered_within_a_second_of_its_coming() {
    let engine = Engine::start();
    engine.refuse();
    let proxy = Proxy::setup()
        .queue("wait_no_worker = \"1m\"")
        .worker("w", &engine)
        .launch();
    let mut clients: Vec<_> = (0..100).map(|_| send(&proxy, &chat("x"))).collect();
    expect_soon("all wait", || waiting(&proxy) == 100.0);
    engine.accept();
    let came = engine.now();
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
    let took = engine.now() - came;
    assert!(took.0 < 1.0, "{took}");
}
