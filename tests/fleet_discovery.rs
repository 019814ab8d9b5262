//! Workers that are asked what they are and what they serve: over real sockets, with the answers that engines give.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::net::{Ipv4Addr, TcpListener};

use forebay::units::Seconds;
use support::engine::Engine;
use support::engine::knobs::{Dialect, Health, Knobs};
use support::proxy::{Proxy, Setup};
use support::{expect_soon, wait_until};

const ENGINES: [(Dialect, &str); 10] = [
    (Dialect::Vllm, "vllm"),
    (Dialect::Sglang, "sglang"),
    (Dialect::Llamacpp, "llamacpp"),
    (Dialect::Ollama, "ollama"),
    (Dialect::Tgi, "tgi"),
    (Dialect::Tei, "tei"),
    (Dialect::Triton, "triton"),
    (Dialect::Forebay, "forebay"),
    (Dialect::Openai, "openai"),
    (Dialect::Generic, "generic"),
];

/// What a worker's table says when it says nothing.
const NOTHING: &str = "# engine = models =\n";

fn passing_for(dialect: Dialect) -> Engine {
    Engine::with(Knobs {
        dialect,
        ..Knobs::default()
    })
}

fn chat(model: &str) -> String {
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#)
}

/// Model names of `/v1/models`.
fn listed(proxy: &Proxy) -> Vec<String> {
    let list = proxy.call("GET", "/v1/models", "").json();
    let models = list["data"].as_array().unwrap().iter();
    models
        .map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Runs at once what would otherwise wait for the next list: the worker goes down and comes back.
fn recover(proxy: &Proxy, engine: &Engine) {
    engine.tune(|knobs| knobs.health = Health::Status(500));
    expect_soon("it is down", || proxy.worker("w")["state"] == "down");
    engine.tune(|knobs| knobs.health = Health::Good);
    expect_soon("it is up again", || proxy.worker("w")["state"] == "up");
}

#[test]
fn every_engine_is_found_out_and_serves_what_it_lists() {
    let engines = ENGINES.map(|(dialect, word)| (passing_for(dialect), word));
    for (engine, word) in &engines {
        let model = format!("model-of-{word}");
        engine.tune(|knobs| knobs.models = vec![model.clone()]);
    }
    let add =
        |setup: Setup, (engine, word): &(Engine, &str)| setup.worker_with(word, engine, NOTHING);
    let proxy = engines.iter().fold(Proxy::setup(), add).start();
    for (engine, word) in &engines {
        let row = proxy.worker(word);
        assert_eq!(row["engine"], *word);
        let model = format!("model-of-{word}");
        if *word == "generic" {
            assert_eq!(row["models"], serde_json::json!([]), "it can't be asked");
            continue;
        }
        assert_eq!(row["models"], serde_json::json!([model]), "{word}");
        let answer = proxy.chat(&chat(&model));
        assert_eq!(
            (answer.status, answer.header("x-forebay-worker")),
            (200, Some(*word))
        );
        assert_eq!(engine.count(), 1, "{word} was asked for work");
    }
    assert_eq!(listed(&proxy).len(), 9);
    let labelled = [("model", "model-of-vllm")];
    assert_eq!(proxy.metric("forebay_requests_total", &labelled), 1.0);
}

#[test]
fn models_are_routable_within_five_seconds_of_the_start() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .probe("interval = \"2s\"\ntimeout = \"2s\"")
        .worker_with("w", &engine, NOTHING)
        .launch();
    let limit = Seconds(5.0).to_duration();
    assert!(wait_until(limit, || proxy.chat(&chat("m")).status == 200));
}

#[test]
fn a_worker_that_stops_listing_a_model_is_no_longer_asked_for_it() {
    let (engine, other) = (Engine::start(), Engine::start());
    engine.tune(|knobs| knobs.models = vec!["a".to_owned(), "b".to_owned()]);
    let proxy = Proxy::setup()
        .worker_with("w", &engine, NOTHING)
        .worker_with("x", &other, "models = [\"a\"]")
        .start();
    other.tune(|knobs| knobs.models = vec!["a".to_owned()]);
    assert_eq!(listed(&proxy), ["a", "b"]);
    engine.tune(|knobs| knobs.models = vec!["c".to_owned()]);
    recover(&proxy, &engine);
    engine.forget();
    for _ in 0..4 {
        assert_eq!(proxy.chat(&chat("a")).header("x-forebay-worker"), Some("x"));
    }
    let gone = proxy.chat(&chat("b"));
    assert_eq!((gone.status, gone.reason()), (503, Some("no_worker")));
    assert_eq!(proxy.chat(&chat("c")).status, 200);
    assert_eq!(listed(&proxy), ["a", "c"]);
    assert_eq!(engine.count(), 1);
}

#[test]
fn after_a_restart_a_known_model_is_503_and_an_unknown_one_404() {
    let engine = Engine::start();
    engine.tune(|knobs| knobs.models = vec!["known".to_owned()]);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("kept");
    let setup = || {
        Proxy::setup()
            .state(&state)
            .worker_with("w", &engine, NOTHING)
    };
    let first = setup().start();
    assert_eq!(first.chat(&chat("known")).status, 200);
    drop(first);
    engine.kill();
    let second = setup().launch();
    expect_soon("it is down", || second.worker("w")["state"] == "down");
    let known = second.chat(&chat("known"));
    assert_eq!((known.status, known.reason()), (503, Some("no_worker")));
    assert!(known.header("retry-after").is_some());
    let unknown = second.chat(&chat("unknown"));
    assert_eq!(
        (unknown.status, unknown.reason()),
        (404, Some("model_not_found"))
    );
}

#[test]
fn a_wrong_key_is_said_and_a_right_one_is_sent_with_every_question() {
    for (dialect, word) in [(Dialect::Openai, "openai"), (Dialect::Vllm, "vllm")] {
        let engine = passing_for(dialect);
        engine.tune(|knobs| knobs.key = Some("right".to_owned()));
        let with_key = |key: &str| {
            let lines = format!("{NOTHING}key = {{ env = \"KEY\" }}");
            Proxy::setup()
                .variable("KEY", key)
                .worker_with("w", &engine, &lines)
        };
        let wrong = with_key("sesame").launch();
        expect_soon("the key is blamed", || {
            let row = wrong.worker("w");
            row["engine"] == word
                && row["reason"]
                    .as_str()
                    .is_some_and(|why| why.contains("key is missing or wrong"))
        });
        assert!(!wrong.stderr().contains("sesame"), "the key was shown");
        drop(wrong);
        let right = with_key("right").start();
        assert_eq!(right.worker("w")["engine"], word);
        assert_eq!(listed(&right), ["m"]);
    }
}

#[test]
fn the_only_model_of_a_worker_has_the_name_that_clients_use() {
    let engine = Engine::start();
    engine.tune(|knobs| knobs.models = vec!["org/Long-Name".to_owned()]);
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "models = { chat = \"*\" }")
        .start();
    assert_eq!(listed(&proxy), ["chat"]);
    assert_eq!(proxy.chat(&chat("chat")).status, 200);
    let seen: serde_json::Value = serde_json::from_slice(&engine.only_request().body).unwrap();
    assert_eq!(seen["model"], "org/Long-Name");
}

#[test]
fn a_worker_that_is_not_itself_yet_is_starting_and_says_why() {
    let engine = passing_for(Dialect::Triton);
    engine.tune(|knobs| knobs.health = Health::Status(503));
    let proxy = Proxy::setup().worker_with("w", &engine, NOTHING).launch();
    let row = || proxy.worker("w");
    expect_soon("it says why", || {
        let row = row();
        let why = row["reason"].as_str().unwrap();
        why.starts_with("its engine is not known yet: /") && why.ends_with(" answered 503")
    });
    assert_eq!(row()["state"], "starting");
    assert!(row().get("engine").is_none());
    engine.tune(|knobs| knobs.health = Health::Good);
    expect_soon("it is up", || proxy.worker("w")["state"] == "up");
    assert_eq!(proxy.worker("w")["engine"], "triton");
}

#[test]
fn a_worker_that_answers_nothing_is_down_and_costs_no_client_its_time() {
    let (mute, other) = (Engine::start(), Engine::start());
    mute.tune(|knobs| knobs.health = Health::Silent);
    let proxy = Proxy::setup()
        .probe("interval = \"50ms\"\ntimeout = \"50ms\"")
        .worker_with("w", &mute, "# engine =\nmodels = [\"m\"]")
        .worker_with("x", &other, "models = [\"m\"]")
        .launch();
    expect_soon("it is down", || proxy.worker("w")["state"] == "down");
    expect_soon("the other is up", || proxy.worker("x")["state"] == "up");
    for _ in 0..4 {
        assert_eq!(proxy.chat(&chat("m")).header("x-forebay-worker"), Some("x"));
    }
}

#[test]
fn a_name_for_the_only_model_of_a_worker_that_has_two_is_known_and_served_by_nobody() {
    let engine = Engine::start();
    engine.tune(|knobs| knobs.models = vec!["a".to_owned(), "b".to_owned()]);
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "models = { chat = \"*\" }")
        .launch();
    expect_soon("it is up", || proxy.worker("w")["state"] == "up");
    let answer = proxy.chat(&chat("chat"));
    assert_eq!((answer.status, answer.reason()), (503, Some("no_worker")));
    assert!(proxy.stderr().contains("\"*\" is its only model"));
}

#[test]
fn slots_that_an_engine_reports_bound_what_it_is_given_unless_the_operator_says_otherwise() {
    let engine = passing_for(Dialect::Llamacpp);
    engine.tune(|knobs| knobs.slots = 3);
    let shows = |lines: &str, slots: u64| {
        let proxy = Proxy::setup().worker_with("w", &engine, lines).start();
        expect_soon("it is asked for its slots", || {
            let asked = engine.everything();
            asked.iter().any(|seen| seen.target == "/props")
        });
        expect_soon("that is what it is given", || {
            proxy.worker("w")["max_inflight"] == slots
        });
        engine.forget();
    };
    shows(NOTHING, 3);
    shows(&format!("{NOTHING}max_inflight = 5"), 5);
}

#[test]
fn a_model_that_a_worker_may_have_is_503_until_the_worker_has_told() {
    let (prompt, late) = (Engine::start(), Engine::start());
    prompt.tune(|knobs| knobs.models = vec!["a".to_owned()]);
    late.tune(|knobs| knobs.models = vec!["b".to_owned()]);
    late.kill();
    let proxy = Proxy::setup()
        .worker_with("prompt", &prompt, NOTHING)
        .worker_with("late", &late, NOTHING)
        .launch();
    expect_soon("one is down", || proxy.worker("late")["state"] == "down");
    expect_soon("the other has told", || {
        proxy.chat(&chat("a")).status == 200
    });
    for answer in [
        proxy.chat(&chat("b")),
        proxy.call("GET", "/v1/models/b", ""),
        proxy.call("POST", "/v2/models/b/infer", "{}"),
    ] {
        let wait = answer.header("retry-after");
        assert_eq!((answer.status, wait), (503, Some("1")), "{answer:?}");
        assert_eq!(answer.reason(), Some("no_worker"));
        assert!(answer.text().contains("`late` has not said yet"));
    }
    late.accept();
    expect_soon("it has told", || proxy.chat(&chat("b")).status == 200);
    let unknown = proxy.chat(&chat("c"));
    assert_eq!(unknown.reason(), Some("model_not_found"));
}

#[test]
fn nobody_is_ready_before_a_worker_has_something_to_serve() {
    let engine = Engine::start();
    engine.tune(|knobs| knobs.models = Vec::new());
    let launch = |toml: &str| {
        let setup = Proxy::setup().worker_with("w", &engine, NOTHING);
        setup.section(toml).launch()
    };
    let proxy = launch("");
    expect_soon("it is up", || proxy.worker("w")["state"] == "up");
    let answer = proxy.call("GET", "/ready", "");
    assert_eq!((answer.status, answer.reason()), (503, Some("no_worker")));
    assert!(answer.text().contains("serves no model"), "{answer:?}");
    assert!(!proxy.is_ready());
    let routed = launch("[[route]]\npath = \"/raw/*\"");
    expect_soon("a route is enough", || routed.is_ready());
    engine.tune(|knobs| knobs.models = vec!["m".to_owned()]);
    recover(&proxy, &engine);
    assert!(proxy.is_ready());
}

#[test]
fn a_worker_that_closes_every_connection_is_down_and_says_why() {
    let closing = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", closing.local_addr().unwrap());
    std::thread::spawn(move || closing.incoming().for_each(drop));
    let proxy = Proxy::setup().worker_at("w", &url, NOTHING).launch();
    expect_soon("it is down", || proxy.worker("w")["state"] == "down");
    let row = proxy.worker("w");
    assert!(
        row["reason"].as_str().unwrap().contains("connection"),
        "{row}"
    );
}

#[test]
fn a_list_of_models_that_is_too_long_is_said() {
    let engine = Engine::start();
    let names = (0..20_000).map(|number| format!("a-model-of-a-rather-long-name-{number}"));
    engine.tune(|knobs| knobs.models = names.collect());
    for (lines, state, why) in [
        (NOTHING, "starting", "its engine is not known yet"),
        ("# models =\n", "down", "what it serves is not known"),
    ] {
        let proxy = Proxy::setup().worker_with("w", &engine, lines).launch();
        let why = format!("{why}: /v1/models: more than 1MiB, or cut");
        expect_soon("it says why", || {
            let row = proxy.worker("w");
            row["state"] == state && row["reason"] == *why
        });
        expect_soon("so does the log", || proxy.stderr().contains(&why[..20]));
    }
}
