//! What workers have cached of a prompt, through the real proxy: sessions stay, move and are seen.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use serde_json::{Value, json};

use support::client::Answer;
use support::engine::Engine;
use support::engine::knobs::Knobs;
use support::expect_soon;
use support::prompt::CHAT;
use support::proxy::{Proxy, Setup};

/// Tokens a second that a worker reads.
const READS: f64 = 20_000.0;

/// A worker with a prefix cache, which serves `m` and a model of its own.
fn worker(own: &str) -> Engine {
    Engine::with(Knobs {
        models: vec!["m".to_owned(), own.to_owned()],
        prefill: 1.0 / READS,
        prefix_cache: true,
        ..Knobs::default()
    })
}

/// Text of its own for each name, so many bytes long.
fn text(name: &str, bytes: usize) -> String {
    let mut text: String = (0..)
        .map(|word| format!("{name}{word} "))
        .take(bytes)
        .collect();
    text.truncate(bytes);
    text
}

/// A session's turn: what was said so far, some 1,500 tokens and 250 more each turn. A worker's memory holds 20,480.
fn turn(model: &str, session: &str, number: usize) -> String {
    let first = text(session, 6_000);
    let mut messages = vec![json!({"role": "system", "content": first})];
    messages.extend((0..number).map(|turn| {
        let said = text(&format!("{session}-{turn}-"), 1_000);
        json!({"role": "user", "content": said})
    }));
    json!({"model": model, "max_tokens": 1, "messages": messages}).to_string()
}

/// Sends it under this id; its worker.
#[track_caller]
fn ask(proxy: &Proxy, id: &str, body: &str) -> Answer {
    let headers = [("x-request-id", id)];
    let answer = proxy
        .connect()
        .call_with("POST", CHAT, &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{id}");
    answer
}

fn worker_of(answer: &Answer) -> String {
    answer.header("x-forebay-worker").unwrap().to_owned()
}

fn cached_in(answer: &Answer) -> u64 {
    let usage = &answer.json()["usage"]["prompt_tokens_details"];
    usage["cached_tokens"].as_u64().unwrap()
}

/// The first choice made for a request, once it has ended.
#[track_caller]
fn choice(proxy: &Proxy, id: &str) -> Value {
    let path = format!("/api/requests/{id}");
    expect_soon("it is remembered", || proxy.ask_admin(&path).status == 200);
    proxy.api(&path)["choices"][0].clone()
}

/// What the picked worker of a choice was believed to have, and the length of the prompt.
#[track_caller]
fn believed(choice: &Value) -> (f64, f64) {
    let picked = &choice["candidates"][0];
    assert_eq!(picked["fate"], "picked");
    let tokens = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{choice}"));
    (
        tokens(&picked["cached_tokens"]),
        tokens(&choice["prompt_tokens"]),
    )
}

/// Two equal workers.
fn pair() -> ([Engine; 2], Setup) {
    let engines = [worker("only-a"), worker("only-b")];
    let setup = Proxy::setup()
        .worker_with("a", &engines[0], "models = [\"m\", \"only-a\"]")
        .worker_with("b", &engines[1], "models = [\"m\", \"only-b\"]");
    (engines, setup)
}

/// A counter of prompt tokens.
fn counted(proxy: &Proxy, kind: &str) -> f64 {
    let metrics = proxy.ask_admin("/metrics");
    let text = String::from_utf8(metrics.body).unwrap();
    let name = format!("forebay_prefix_tokens_total{{kind=\"{kind}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {kind} in {text}"))
        .parse()
        .unwrap()
}

#[test]
fn a_session_stays_with_its_worker_and_the_reuse_is_seen() {
    let (_engines, setup) = pair();
    let proxy = setup.start();
    for session in ["one", "two", "three"] {
        let home = worker_of(&ask(
            &proxy,
            &format!("{session}-0"),
            &turn("m", session, 0),
        ));
        for number in 1..5 {
            let id = format!("{session}-{number}");
            let answer = ask(&proxy, &id, &turn("m", session, number));
            assert_eq!(worker_of(&answer), home, "{id}");
            assert!(cached_in(&answer) > 1_400, "{id}");
            let (cached, prompt) = believed(&choice(&proxy, &id));
            assert!(
                0.6 * prompt < cached && cached < prompt,
                "{id}: {cached} of {prompt}"
            );
        }
    }
    let [prompt, best, matched, reported] =
        ["prompt", "best", "matched", "reported"].map(|kind| counted(&proxy, kind));
    assert!(
        best >= matched && matched > 0.5 * prompt,
        "{best} {matched} {prompt}"
    );
    assert!(
        (reported / matched - 1.0).abs() < 0.25,
        "{reported} of {matched}"
    );
    let log = proxy.log_of(15);
    let reused = log
        .iter()
        .filter(|line| line["cached_tokens"].as_u64() > Some(1_400));
    assert_eq!(reused.count(), 12);
}

#[test]
fn a_session_moves_when_the_queue_costs_more_than_reading_it_again() {
    let (engines, setup) = pair();
    let proxy = setup.start();
    // Both are known before it matters.
    for (model, session) in [
        ("only-a", "p"),
        ("only-b", "q"),
        ("only-a", "r"),
        ("only-b", "s"),
    ] {
        ask(&proxy, session, &turn(model, session, 0));
    }
    let home = worker_of(&ask(&proxy, "first", &turn("m", "session", 0)));
    assert_eq!(
        worker_of(&ask(&proxy, "second", &turn("m", "session", 1))),
        home
    );
    let (engine, own) = if home == "a" {
        (&engines[0], "only-a")
    } else {
        (&engines[1], "only-b")
    };
    engine.tune(|knobs| knobs.prefill = 25.0 / READS);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let body = turn(own, &format!("other-{number}"), 0);
            let mut client = proxy.connect();
            scope.spawn(move || client.call("POST", CHAT, &body));
        }
        expect_soon("all are there", || engine.load().0 == 6);
        let moved = ask(&proxy, "third", &turn("m", "session", 2));
        let seen = choice(&proxy, "third");
        engine.tune(|knobs| knobs.prefill = 0.0);
        assert_ne!(worker_of(&moved), home, "{seen}");
        let holder = &seen["candidates"][1];
        assert_eq!(
            (&holder["worker"], &holder["fate"]),
            (&home.into(), &"candidate".into())
        );
        assert!(holder["cached_tokens"].as_f64() > Some(1_200.0), "{seen}");
    });
}

#[test]
fn a_worker_that_says_it_reuses_nothing_is_believed() {
    let (engines, setup) = pair();
    let proxy = setup.start();
    engines
        .iter()
        .for_each(|engine| engine.tune(|knobs| knobs.prefix_cache = false));
    let asked = |number: usize| {
        let id = format!("turn-{number}");
        let answer = ask(&proxy, &id, &turn("only-a", "session", 3));
        assert_eq!(cached_in(&answer), 0);
        believed(&choice(&proxy, &id)).0
    };
    let beliefs: Vec<bool> = (0..12).map(|number| asked(number) > 0.0).collect();
    assert!(beliefs.iter().any(|believed| *believed), "{beliefs:?}");
    assert!(beliefs[8..].iter().all(|believed| !believed), "{beliefs:?}");
    engines[0].tune(|knobs| knobs.prefix_cache = true);
    let body = turn("only-a", "session", 3);
    for id in ["cold", "warm"] {
        ask(&proxy, id, &body);
    }
    ask(&proxy, "again", &body);
    assert!(believed(&choice(&proxy, "again")).0 > 1_200.0);
}

#[test]
fn a_log_with_hashes_can_be_played_again() {
    let (_engines, setup) = pair();
    let folder = tempfile::tempdir().unwrap();
    let [log, fleet] = ["access.log", "fleet.toml"].map(|name| folder.path().join(name));
    let toml = format!("[log]\nreplay = true\naccess = {:?}", log.display());
    let proxy = setup.section(&toml).start();
    for number in 1..=8 {
        ask(
            &proxy,
            &format!("turn-{number}"),
            &turn("m", "long", number),
        );
    }
    proxy.call("POST", "/v1/embeddings", r#"{"model":"m","input":"short"}"#);
    proxy.signal("TERM");
    assert!(proxy.wait_exit(Duration::from_secs(5)).success());
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let hashes = |line: &Value| line["prefix"].as_array().map(Vec::len);
    let turns = lines.iter().filter(|line| line["kind"] == "chat");
    let turns: Vec<_> = turns.map(|line| hashes(line).unwrap()).collect();
    assert_eq!((turns.len(), turns.is_sorted()), (8, true), "{turns:?}");
    assert!(turns[0] >= 6 && !text.contains("long"), "{turns:?}");
    let embedding = lines.iter().find(|line| line["kind"] == "embedding");
    assert_eq!(hashes(embedding.unwrap()), None);

    std::fs::write(&fleet, "[[worker]]\nname = \"w\"\ncard = \"RTX4090\"\n").unwrap();
    let simulated = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["simulate", "--json", "--policy", "round_robin", "--trace"])
        .args([&log, &"--fleet".into(), &fleet])
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let hits = told["policies"][0]["hit_ratio"].as_f64().unwrap();
    assert!(hits > 0.5, "each turn begins with the one before: {told}");
}
