//! Budgets of tenants over real sockets: what requests cost, who pays, and that it is kept.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::Value;

use support::client::{Answer, request};
use support::engine::Engine;
use support::engine::knobs::{Failure, Knobs};
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::{Proxy, Setup};
use support::tenant::{ask, bearer, refused, tenant};

const KEY: &str = "fb_of-the-app";

/// A worker whose answers take a tenth of a second.
fn worker() -> Engine {
    Engine::with(Knobs {
        first_byte_delay: std::time::Duration::from_millis(100),
        ..Knobs::default()
    })
}

/// It runs on a machine that costs a cent a second.
fn setup(worker: &Engine, tenants: &str) -> Setup {
    let machine = "[[machine]]\nname = \"desk\"\nprice_per_hour = \"36 EUR\"\n";
    let sections = format!("{machine}{tenants}");
    let setup: Setup = Proxy::setup().section(&sections);
    setup.worker_with("w", worker, "machine = \"desk\"\nmax_inflight = 64")
}

/// The only budget of a tenant, as the admin side shows it.
fn budget(proxy: &Proxy, name: &str) -> Value {
    let tenants = proxy.api("/api/tenants");
    let rows = tenants["tenants"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name).unwrap();
    row["budgets"][0].clone()
}

fn used(proxy: &Proxy, name: &str) -> f64 {
    budget(proxy, name)["used_ratio"].as_f64().unwrap()
}

#[track_caller]
fn is_over_budget(answer: &Answer) -> String {
    refused(answer, CHAT, 429, "rate_limited", "rate_limit_error")
}

#[test]
fn a_budget_of_money_is_used_by_the_busy_time_and_then_nothing_passes_until_the_day_ends() {
    let worker = worker();
    let tenants = [
        tenant("app", KEY, "budget = \"0.005 EUR/day\""),
        tenant("free", "fb_free", ""),
    ];
    let proxy = setup(&worker, &tenants.concat()).start();
    let mut answered = 0;
    let refusal = loop {
        let answer = ask(&proxy, KEY, CHAT, &chat("x"));
        if answer.status != 200 {
            break answer;
        }
        answered += 1;
        expect_soon("it is settled", || {
            budget(&proxy, "app")["reserved"] == "0.00 EUR"
        });
    };
    // Each takes a tenth of a cent and a little more.
    assert!((2..=5).contains(&answered), "{answered} passed");
    let message = is_over_budget(&refusal);
    for part in [
        "0.005 EUR/day is used up",
        "EUR is spent",
        "the next day begins at",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let wait: u32 = refusal.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
    assert_eq!(refusal.header("ratelimit-limit"), None);
    assert_eq!(ask(&proxy, "fb_free", CHAT, &chat("x")).status, 200);

    let spent = [("currency", "EUR"), ("model", "m"), ("tenant", "app")];
    let counted = proxy.metric("forebay_cost_total", &spent);
    assert!((counted / 0.005 - used(&proxy, "app")).abs() < 1e-6);
    let shown = [("tenant", "app"), ("budget", "0.005 EUR/day")];
    let ratio = proxy.metric("forebay_tenant_budget_used_ratio", &shown);
    assert!((1.0..1.5).contains(&ratio), "{ratio}");
}

#[test]
fn of_fifty_parallel_requests_no_more_pass_than_the_budget_is_forecast_to_have_room_for() {
    let worker = worker();
    let tenants = [
        tenant("app", KEY, "budget = \"1s/day\""),
        tenant("free", "fb_free", ""),
    ];
    let proxy = setup(&worker, &tenants.concat()).start();
    // What an answer takes is learned from others' requests: a tenth of a second.
    for _ in 0..30 {
        assert_eq!(ask(&proxy, "fb_free", CHAT, &stream("x", 1)).status, 200);
    }
    worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    let bearer = bearer(KEY);
    let headers = [("authorization", bearer.as_str())];
    let before = worker.count();
    let body = stream("x", 1);
    let mut asking: Vec<_> = (0..50)
        .map(|_| {
            let mut client = proxy.connect();
            client.send(&request("POST", CHAT, &headers, body.as_bytes()));
            client
        })
        .collect();
    let refused = || {
        let log = proxy.log();
        log.iter()
            .filter(|line| line["reason"] == "rate_limited")
            .count()
    };
    expect_soon("each has reached the worker or is refused", || {
        worker.count() - before + refused() == 50
    });
    let (passed, refused) = (worker.count() - before, refused());
    assert!(
        (8..=11).contains(&passed),
        "{passed} passed, {refused} were refused"
    );
    let answer = ask(&proxy, KEY, CHAT, &body);
    let message = is_over_budget(&answer);
    assert!(
        message.contains("put aside for its requests under way"),
        "{message}"
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    asking.clear();
    expect_soon("all that was put aside is back", || {
        budget(&proxy, "app")["reserved"] == "0s"
    });
}

#[test]
fn whoever_leaves_pays_for_what_was_done_and_nobody_for_what_failed() {
    let worker = Engine::with(Knobs {
        decode: 0.01,
        ..Knobs::default()
    });
    let proxy = setup(&worker, &tenant("app", KEY, "budget = \"1h/day\"")).start();
    worker.tune(|knobs| knobs.fail(Failure::Status(500), 9));
    assert_eq!(ask(&proxy, KEY, CHAT, &chat("x")).status, 500);
    worker.tune(|knobs| knobs.failures = 0);
    expect_soon("it is over", || proxy.log().len() == 1);
    assert_eq!(used(&proxy, "app"), 0.0);

    let bearer = bearer(KEY);
    let headers = [("authorization", bearer.as_str())];
    let mut leaving = proxy.connect();
    leaving.send(&request(
        "POST",
        CHAT,
        &headers,
        stream("x", 500).as_bytes(),
    ));
    let mut answer = leaving.head();
    while answer.chunks.len() < 10 {
        assert!(leaving.chunk(&mut answer));
    }
    drop(leaving);
    expect_soon("it is charged", || used(&proxy, "app") * 3_600.0 > 0.09);
    assert!(used(&proxy, "app") * 3_600.0 < 2.0);
}

#[test]
fn what_is_used_survives_a_restart_and_a_kill() {
    let worker = worker();
    let state = tempfile::tempdir().unwrap();
    let start = || {
        let tenants = tenant("app", KEY, "budget = [\"0.1s/day\", \"1h/month\"]");
        setup(&worker, &tenants).state(state.path()).start()
    };
    let proxy = start();
    assert_eq!(ask(&proxy, KEY, CHAT, &chat("x")).status, 200);
    expect_soon("it is settled", || used(&proxy, "app") > 1.0);
    let before = used(&proxy, "app");
    proxy.signal("TERM");
    expect_soon("it has ended", || proxy.has_ended());
    let kept = std::fs::read_to_string(state.path().join("budgets.json")).unwrap();
    assert!(!kept.contains("fb_"), "{kept}");

    std::fs::remove_file(state.path().join("budgets.json")).unwrap();
    let proxy = start();
    assert_eq!(ask(&proxy, KEY, CHAT, &chat("x")).status, 200);
    let nanos = |text: String| {
        let document: Value = serde_json::from_str(&text).unwrap();
        document["budgets"][0]["used"].as_u64().unwrap()
    };
    expect_soon("it is written, long before a minute", || {
        let kept = std::fs::read_to_string(state.path().join("budgets.json"));
        kept.is_ok_and(|text| nanos(text) > 100_000_000)
    });
    proxy.signal("KILL");
    expect_soon("it is killed", || proxy.has_ended());
    let proxy = start();
    assert!(used(&proxy, "app") > 1.0 && before > 1.0);
    is_over_budget(&ask(&proxy, KEY, CHAT, &chat("x")));
    drop(proxy);
    std::fs::write(state.path().join("budgets.json"), "{").unwrap();
    let proxy = start();
    assert!(proxy.stderr().contains("budgets.json is ignored"));
    assert_eq!(ask(&proxy, KEY, CHAT, &chat("x")).status, 200);
}

#[test]
fn what_is_spent_behind_a_hand_over_comes_into_the_successors_book() {
    let worker = Engine::with(Knobs {
        decode: 0.02,
        ..Knobs::default()
    });
    let old = setup(&worker, &tenant("app", KEY, "budget = \"1h/day\"")).start();
    let bearer = bearer(KEY);
    let headers = [("authorization", bearer.as_str())];
    let mut client = old.connect();
    client.send(&request(
        "POST",
        CHAT,
        &headers,
        stream("x", 100).as_bytes(),
    ));
    let mut answer = client.head();
    let new = old.successor();
    old.signal("QUIT");
    expect_soon("the successor serves", || {
        old.serving_pid() == new.pid() && old.stderr().contains("handed over")
    });
    assert_eq!(used(&new, "app"), 0.0);
    client.finish(&mut answer);
    assert!(answer.complete);
    expect_soon("it is charged by who runs now", || {
        used(&new, "app") * 3_600.0 > 1.0
    });
    assert!(used(&new, "app") * 3_600.0 < 60.0, "and once");
    let state = new.folder().join("state");
    let left = format!("budgets.{}.json", old.pid());
    assert!(!state.join(left).exists());
}
