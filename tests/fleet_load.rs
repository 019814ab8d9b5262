//! What engines tell of their load, and whether they still load their models: through the real proxy, over real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use support::client::Answer;
use support::engine::Engine;
use support::engine::knobs::{Dialect, Health, Knobs};
use support::prompt::CHAT;
use support::proxy::Proxy;
use support::{PATIENCE, expect_soon, wait_until};

const FORMAT: &str = "endpoint-load-metrics-format";
const REPORT: &str = "endpoint-load-metrics";
const BODY: &str = r#"{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}"#;

fn passing_for(dialect: Dialect) -> Engine {
    Engine::with(Knobs {
        dialect,
        ..Knobs::default()
    })
}

/// How often an engine was asked there.
fn asked(engine: &Engine, path: &str) -> usize {
    let everything = engine.everything();
    everything.iter().filter(|seen| seen.target == path).count()
}

/// Waits until an engine was asked for its life so many times more: a tenth of a second each.
#[track_caller]
fn live_through(engine: &Engine, probes: usize) {
    let probed = || asked(engine, "/health") + asked(engine, "/v2/health/ready");
    let before = probed();
    expect_soon("it was probed for a while", || probed() >= before + probes);
}

fn told(proxy: &Proxy, name: &str) -> Value {
    proxy.worker(name)["told"].clone()
}

#[track_caller]
fn good(answer: &Answer) -> &Answer {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

#[test]
fn what_an_engine_tells_is_shown_with_its_age() {
    for (dialect, word, running, kv_use) in [
        (Dialect::Vllm, "vllm", Some(3.0), true),
        (Dialect::Sglang, "sglang", Some(3.0), true),
        (Dialect::Tgi, "tgi", Some(3.0), false),
        (Dialect::Tei, "tei", None, false),
    ] {
        let engine = passing_for(dialect);
        engine.tune(|knobs| (knobs.foreign_running, knobs.foreign_waiting) = (3, 2));
        let lines = format!("engine = \"{word}\"");
        let proxy = Proxy::setup().worker_with("w", &engine, &lines).start();
        expect_soon("it is told", || told(&proxy, "w")["waiting"] == 2.0);
        let shown = told(&proxy, "w");
        assert_eq!(shown["running"].as_f64(), running, "{word} {shown}");
        assert_eq!(shown.get("kv_use").is_some(), kv_use, "{word} {shown}");
        let foreign = 2.0 + running.unwrap_or_default();
        assert_eq!(shown["foreign"], foreign, "{word} {shown}");
        assert!(shown["age_s"].as_f64().unwrap() < 11.0 && shown["fresh"] == true);
        let gauge = |kind| proxy.metric("forebay_worker_told_requests", &[("kind", kind)]);
        assert_eq!(gauge("waiting"), 2.0);
        assert_eq!(gauge("running"), running.unwrap_or_default());
    }
}

#[test]
fn where_metrics_are_off_other_places_tell() {
    let sglang = passing_for(Dialect::Sglang);
    sglang.tune(|knobs| (knobs.has_metrics, knobs.foreign_running) = (false, 4));
    let ollama = passing_for(Dialect::Ollama);
    let proxy = Proxy::setup()
        .worker_with("s", &sglang, "engine = \"sglang\"")
        .worker_with("o", &ollama, "engine = \"ollama\"")
        .start();
    expect_soon("it tells at another place", || {
        told(&proxy, "s")["running"] == 4.0
    });
    assert_eq!(asked(&sglang, "/metrics"), 1);
    expect_soon("its memory is told", || {
        proxy.worker("o")["resident"] == serde_json::json!(["m"])
    });
    assert!(told(&proxy, "o").is_null());
}

/// Others keep this worker busy, and only this one.
fn crowd(proxy: &Proxy, engines: &[Engine; 2], crowded: usize) {
    for (at, name) in ["a", "b"].iter().enumerate() {
        let load = if at == crowded { (40, 20) } else { (0, 0) };
        engines[at].tune(|knobs| (knobs.foreign_running, knobs.foreign_waiting) = load);
        let foreign = if at == crowded { 60.0 } else { 0.0 };
        expect_soon("the others are seen", || {
            told(proxy, name)["foreign"] == foreign
        });
    }
}

#[test]
fn traffic_goes_where_others_are_not() {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .start();
    expect_soon("both have told", || {
        ["a", "b"]
            .iter()
            .all(|name| told(&proxy, name)["running"] == 0.0)
    });
    // Whichever is used is left for the other, and that one in its turn for the first.
    good(&proxy.chat(BODY));
    let first = usize::from(engines[0].count() == 0);
    for crowded in [first, 1 - first] {
        crowd(&proxy, &engines, crowded);
        engines.iter().for_each(Engine::forget);
        for _ in 0..12 {
            good(&proxy.chat(BODY));
        }
        let counts = [crowded, 1 - crowded].map(|at| engines[at].count());
        assert_eq!(counts, [0, 12]);
    }
}

#[test]
fn requests_of_ours_are_not_taken_for_those_of_others() {
    let engine = Engine::with(Knobs {
        slots: 2,
        decode: 0.05,
        ..Knobs::default()
    });
    let proxy = Proxy::before(&engine);
    let enough = AtomicBool::new(false);
    let foreign = std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    good(&proxy.chat(BODY));
                }
            });
        }
        let (mut waiting, mut foreign) = (0.0_f64, 0.0_f64);
        // One question is for its memory.
        let busy = wait_until(PATIENCE, || {
            let told = told(&proxy, "w");
            let number = |key: &str| told[key].as_f64().unwrap_or_default();
            waiting = waiting.max(number("waiting"));
            foreign = foreign.max(number("foreign"));
            asked(&engine, "/metrics") >= 5 && waiting > 0.0
        });
        enough.store(true, Ordering::Relaxed);
        assert!(busy, "{waiting} waited");
        foreign
    });
    assert_eq!(foreign, 0.0);
}

#[test]
fn metrics_are_read_where_the_operator_says() {
    let (triton, elsewhere) = (passing_for(Dialect::Triton), passing_for(Dialect::Triton));
    elsewhere.tune(|knobs| knobs.foreign_waiting = 5);
    let lines = format!(
        "engine = \"triton\"\nmetrics_url = \"{}/metrics\"\nkey = {{ env = \"KEY\" }}",
        elsewhere.url()
    );
    let proxy = Proxy::setup()
        .variable("KEY", "sesame")
        .worker_with("w", &triton, &lines)
        .start();
    expect_soon("it is told", || told(&proxy, "w")["waiting"] == 5.0);
    assert_eq!(asked(&triton, "/metrics"), 0);
    let question = &elsewhere.everything()[0];
    assert_eq!(question.target, "/metrics");
    assert_eq!(question.header("authorization"), Some("Bearer sesame"));
    let host = elsewhere.address().to_string();
    assert_eq!(question.header("host"), Some(host.as_str()));
}

#[test]
fn a_place_that_is_not_there_is_not_asked_again_until_the_worker_comes_back() {
    let engine = passing_for(Dialect::Tgi);
    engine.tune(|knobs| knobs.has_metrics = false);
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "engine = \"tgi\"")
        .start();
    expect_soon("it is asked", || asked(&engine, "/metrics") == 1);
    good(&proxy.chat(BODY));
    // Were it only a failure, it would be asked again after two seconds.
    live_through(&engine, 25);
    assert_eq!(asked(&engine, "/metrics"), 1, "it was asked again");
    engine.tune(|knobs| knobs.health = Health::Status(500));
    expect_soon("it is down", || proxy.worker("w")["state"] == "down");
    live_through(&engine, 10);
    assert_eq!(
        asked(&engine, "/metrics"),
        1,
        "it was asked while it was down"
    );
    engine.tune(|knobs| (knobs.health, knobs.has_metrics) = (Health::Good, true));
    expect_soon("it is asked anew", || told(&proxy, "w")["waiting"] == 0.0);
}

#[test]
fn one_for_which_a_question_is_use_is_asked_only_while_it_is_used() {
    let engine = passing_for(Dialect::Llamacpp);
    engine.tune(|knobs| (knobs.has_metrics, knobs.slots) = (false, 4));
    engine.tune(|knobs| knobs.foreign_running = 2);
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "engine = \"llamacpp\"")
        .start();
    live_through(&engine, 10);
    assert_eq!(
        [asked(&engine, "/metrics"), asked(&engine, "/slots")],
        [0, 0]
    );
    good(&proxy.chat(BODY));
    expect_soon("its slots are told", || told(&proxy, "w")["running"] == 2.0);
    assert_eq!(asked(&engine, "/metrics"), 1, "it answers 501 there");
}

#[test]
fn answers_are_asked_to_tell_the_load_and_clients_see_nothing_of_it() {
    let engine = Engine::with(Knobs {
        has_metrics: false,
        tells_load: true,
        foreign_waiting: 6,
        ..Knobs::default()
    });
    let proxy = Proxy::before(&engine);
    let answer = proxy.chat(BODY);
    assert_eq!(good(&answer).header(REPORT), None);
    assert_eq!(engine.only_request().header(FORMAT), Some("text"));
    let shown = told(&proxy, "w");
    // One of those that wait may be the request that asked.
    let counts = [&shown["waiting"], &shown["foreign"]];
    assert_eq!(counts, [6.0, 5.0]);
    let quick = engine.now();
    good(&proxy.chat(BODY));
    if (engine.now() - quick).0 < 0.5 {
        assert_eq!(
            engine.requests()[1].header(FORMAT),
            None,
            "asked twice in a second"
        );
    }
    expect_soon("a second later it is asked again", || {
        good(&proxy.chat(BODY));
        engine.requests().last().unwrap().header(FORMAT).is_some()
    });
}

#[test]
fn a_client_that_asks_itself_gets_the_report_as_it_came() {
    let engine = Engine::with(Knobs {
        has_metrics: false,
        tells_load: true,
        foreign_waiting: 6,
        ..Knobs::default()
    });
    let proxy = Proxy::before(&engine);
    let ask = |headers: &[(&str, &str)]| {
        proxy
            .connect()
            .call_with("POST", CHAT, headers, BODY.as_bytes())
    };
    let answer = ask(&[(FORMAT, "json")]);
    assert_eq!(engine.only_request().header(FORMAT), Some("json"));
    let report = good(&answer).header(REPORT).unwrap();
    assert!(report.starts_with("JSON {") && report.contains("num_requests_waiting"));
    assert_eq!(told(&proxy, "w")["waiting"], 6.0);
    let other = ask(&[(FORMAT, "BIN")]);
    assert_eq!(good(&other).header(REPORT), None);
}

#[test]
fn one_whose_answer_tells_nothing_is_not_asked_again() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let asks = || {
        let requests = engine.requests();
        requests
            .iter()
            .filter(|seen| seen.header(FORMAT).is_some())
            .count()
    };
    expect_soon("it is asked for a while", || {
        good(&proxy.chat(BODY));
        engine.now().0 > 2.5
    });
    assert_eq!(asks(), 1);
    engine.tune(|knobs| knobs.health = Health::Status(500));
    expect_soon("it is down", || proxy.worker("w")["state"] == "down");
    engine.tune(|knobs| (knobs.health, knobs.tells_load) = (Health::Good, true));
    expect_soon("it is up", || proxy.worker("w")["state"] == "up");
    good(&proxy.chat(BODY));
    assert_eq!(asks(), 2);
}

#[test]
fn a_worker_that_loads_its_model_is_loading_and_nothing_is_held_against_it() {
    for (dialect, word) in [
        (Dialect::Llamacpp, "llamacpp"),
        (Dialect::Sglang, "sglang"),
        (Dialect::Vllm, "vllm"),
        (Dialect::Forebay, "forebay"),
        (Dialect::Triton, "triton"),
    ] {
        let engine = passing_for(dialect);
        engine.tune(|knobs| knobs.ready_after = Duration::from_secs(3_600));
        let lines = format!("engine = \"{word}\"");
        let proxy = Proxy::setup().worker_with("w", &engine, &lines).launch();
        expect_soon("it is loading", || proxy.worker("w")["state"] == "loading");
        live_through(&engine, 4);
        let row = proxy.worker("w");
        let reason = row["reason"].as_str().unwrap();
        assert_eq!(
            reason,
            "answered 503 Service Unavailable: it is loading its model"
        );
        assert_eq!(row["state"], "loading", "{word}");
        let state = |state| proxy.metric("forebay_worker_state", &[("state", state)]);
        assert_eq!((state("loading"), state("down")), (1.0, 0.0));
        assert_eq!(
            row["fail_timeout_s"], 600.0,
            "{word}: it counts as an outage"
        );
        let refused = proxy.chat(BODY);
        assert_eq!((refused.status, refused.reason()), (503, Some("no_worker")));
        assert_eq!(engine.count(), 0, "{word} was sent a request");
        engine.tune(|knobs| knobs.ready_after = Duration::ZERO);
        expect_soon("it is up", || proxy.worker("w")["state"] == "up");
        assert_eq!(proxy.worker("w")["fail_timeout_s"], 600.0, "{word}");
        good(&proxy.chat(BODY));
    }
}

#[test]
fn one_that_was_up_and_refuses_is_down_unless_it_says_that_it_loads() {
    for (dialect, word, state) in [
        (Dialect::Llamacpp, "llamacpp", "loading"),
        (Dialect::Vllm, "vllm", "down"),
    ] {
        let engine = passing_for(dialect);
        let lines = format!("engine = \"{word}\"");
        let proxy = Proxy::setup().worker_with("w", &engine, &lines).start();
        engine.tune(|knobs| knobs.ready_after = Duration::from_secs(3_600));
        expect_soon("it is not up", || proxy.worker("w")["state"] == state);
    }
}
