//! `GET /api/requests/ID`: a request's decision as an operator reads it, over real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use serde_json::Value;

use support::client::Answer;
use support::engine::Engine;
use support::engine::knobs::{Failure, Health};
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::{Proxy, Setup};

const TERMS: [&str; 9] = [
    "decode", "external", "failure", "lora", "net", "own", "price", "swap", "wait",
];

/// Sends a chat under this id.
fn ask(proxy: &Proxy, id: &str) -> Answer {
    let headers = [("x-request-id", id)];
    let body = chat("canary-prompt");
    let mut client = proxy.connect();
    client.call_with(
        "POST",
        &format!("{CHAT}?q=canary"),
        &headers,
        body.as_bytes(),
    )
}

/// What is remembered of a request, once it has ended.
#[track_caller]
fn why(proxy: &Proxy, id: &str) -> Value {
    let path = format!("/api/requests/{id}");
    expect_soon("it is remembered", || proxy.ask_admin(&path).status == 200);
    proxy.api(&path)
}

/// Who was considered in a choice and what became of them, in the order shown.
fn fates(choice: &Value) -> Vec<(&str, &str)> {
    let candidates = choice["candidates"].as_array().unwrap().iter();
    candidates
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap();
            (text("worker"), text("fate"))
        })
        .collect()
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Two workers, the second four times as fast as typed; which then shows in what they are expected to take.
fn unequal() -> ([Engine; 2], Setup) {
    let engines = [Engine::start(), Engine::start()];
    let setup = Proxy::setup()
        .worker_with("slow", &engines[0], "speed = 1.0")
        .worker_with("fast", &engines[1], "speed = 4.0");
    (engines, setup)
}

#[test]
fn a_decision_shows_both_candidates_with_every_term_the_pick_and_the_timings() {
    let (engines, setup) = unequal();
    let proxy = setup.start();
    engines[1].tune(|knobs| knobs.first_byte_delay = Duration::from_millis(20));
    let answer = ask(&proxy, "one");
    assert_eq!(answer.header("x-forebay-worker"), Some("fast"));
    let shown = why(&proxy, "one");
    for (key, value) in [
        ("id", "one"),
        ("route", CHAT),
        ("model", "m"),
        ("worker", "fast"),
        ("reason", "ok"),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    assert_eq!(
        (&shown["status"], &shown["attempts"]),
        (&200.into(), &1.into())
    );
    assert!(shown["time"].as_str().unwrap().ends_with('Z'), "{shown}");
    let [choice] = &shown["choices"].as_array().unwrap()[..] else {
        panic!("one choice: {shown}");
    };
    assert_eq!(fates(choice), [("fast", "picked"), ("slow", "candidate")]);
    let totals = [0, 1].map(|place| {
        let candidate = &choice["candidates"][place];
        let terms = candidate["terms_s"].as_object().unwrap();
        let mut names: Vec<_> = terms.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, TERMS);
        let sum: f64 = terms.values().map(number).sum();
        let total = number(&candidate["total_s"]);
        assert!((sum / total - 1.0).abs() < 1e-5, "{candidate}");
        total
    });
    assert!(0.0 < totals[0] && totals[0] < totals[1], "{totals:?}");
    assert_eq!(
        (&choice["worker"], &choice["outcome"]),
        (&"fast".into(), &"ok".into())
    );
    let moments = [
        &choice["chosen_s"],
        &choice["sent_s"],
        &shown["first_byte_s"],
        &choice["ended_s"],
        &shown["total_s"],
    ];
    let moments = moments.map(number);
    assert!(moments.is_sorted() && moments[0] > 0.0, "{moments:?}");
    assert!(moments[2] - moments[1] >= 0.02, "{moments:?}");
    assert_eq!(
        (number(&shown["queue_s"]), &choice["left_out"]),
        (0.0, &0.into())
    );
    assert!(!shown.to_string().contains("canary"), "{shown}");
}

#[test]
fn a_retry_shows_whom_it_passed_over_and_why() {
    let engines: [Engine; 3] = std::array::from_fn(|_| Engine::start());
    let proxy = Proxy::setup()
        .worker_with("a", &engines[0], "machine = \"box\"")
        .worker_with("b", &engines[1], "machine = \"box\"")
        .worker("c", &engines[2])
        .section("[routing]\npolicy = \"round_robin\"\n[[machine]]\nname = \"box\"")
        .start();
    for engine in &engines[..2] {
        engine.tune(|knobs| knobs.fail(Failure::ResetAfterRequest, 1));
    }
    let ids = ["one", "two", "three"];
    let retried = ids.iter().map(|id| {
        assert_eq!(ask(&proxy, id).status, 200);
        why(&proxy, id)
    });
    let shown = { retried }.find(|shown| shown["attempts"] == 2).unwrap();
    let [first, second] = &shown["choices"].as_array().unwrap()[..] else {
        panic!("two choices: {shown}");
    };
    let failed = first["worker"].as_str().unwrap();
    let neighbour = if failed == "a" { "b" } else { "a" };
    assert_eq!(first["outcome"], "reset");
    assert_eq!(
        (&second["worker"], &second["outcome"]),
        (&"c".into(), &"ok".into())
    );
    let fates = fates(second);
    assert_eq!(fates[0], ("c", "picked"));
    assert!(fates.contains(&(failed, "tried")), "{fates:?}");
    assert!(fates.contains(&(neighbour, "same_machine")), "{fates:?}");
    assert!(number(&first["ended_s"]) <= number(&second["chosen_s"]));
    assert_eq!(shown["worker"], "c");
}

#[test]
fn a_refusal_shows_why_there_was_nobody() {
    let (engines, setup) = unequal();
    let proxy = setup.start();
    for engine in &engines {
        engine.tune(|knobs| knobs.health = Health::Status(500));
    }
    let down = |name| proxy.worker(name)["state"] == "down";
    expect_soon("both are down", || down("slow") && down("fast"));
    assert_eq!(ask(&proxy, "none").status, 503);
    let shown = why(&proxy, "none");
    assert_eq!(
        (&shown["reason"], &shown["attempts"]),
        (&"no_worker".into(), &0.into())
    );
    let choice = &shown["choices"][0];
    assert_eq!(fates(choice), [("fast", "down"), ("slow", "down")]);
    for key in ["worker", "sent_s", "outcome", "ended_s"] {
        assert!(choice.get(key).is_none(), "{key}");
    }
}

#[test]
fn who_waited_for_a_place_is_shown_the_choice_that_gave_it() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "max_inflight = 1")
        .start();
    engine.tune(|knobs| knobs.first_byte_delay = Duration::from_millis(200));
    std::thread::scope(|scope| {
        let before = engine.count();
        scope.spawn(|| ask(&proxy, "first"));
        expect_soon("the first is there", || engine.count() > before);
        assert_eq!(ask(&proxy, "second").status, 200);
    });
    let shown = why(&proxy, "second");
    let choice = &shown["choices"][0];
    assert_eq!(fates(choice), [("w", "picked")]);
    let waited = number(&shown["queue_s"]);
    assert!(
        waited > 0.0 && number(&choice["chosen_s"]) >= waited,
        "{shown}"
    );
}

#[test]
fn an_id_that_is_not_remembered_is_said_to_be_so() {
    let (_engines, setup) = unequal();
    let proxy = setup.start();
    for id in ["nobody", "", "%22%3Cb%3E", "one/two"] {
        let answer = proxy.ask_admin(&format!("/api/requests/{id}"));
        assert_eq!(answer.status, 404, "{id}");
        assert_eq!(answer.json()["error"]["code"], "request_not_found");
        assert!(!answer.text().contains("<b>") && answer.text().contains("10000"));
    }
    // What reaches no worker is remembered too; an id is found also as browsers write it.
    let headers = [("x-request-id", "a:b.c_d-e")];
    proxy
        .connect()
        .call_with("GET", "/v1/models", &headers, b"");
    let shown = why(&proxy, "a%3Ab.c_d-e");
    assert_eq!(
        (&shown["status"], &shown["choices"]),
        (&200.into(), &Value::Array(Vec::new()))
    );
}
