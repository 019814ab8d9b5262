//! Prompts that are too long for some workers, or for all: through the real proxy, to workers that tell their context.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::{Value, json};

use support::client::{Answer, request};
use support::engine::Engine;
use support::engine::knobs::{Failure, Health, Knobs};
use support::expect_soon;
use support::prompt::CHAT;
use support::proxy::{Proxy, Setup};
use support::refusal::{message, openai_error};

const COMPLETION: &str = "/v1/completions";

/// A vLLM worker of this context.
fn worker(context: u64) -> Engine {
    Engine::with(Knobs {
        context,
        ..Knobs::default()
    })
}

/// Starts it and waits until a worker of each name has told how long a prompt it takes.
#[track_caller]
fn started(setup: Setup, bounds: &[(&str, u64)]) -> Proxy {
    let proxy = setup.start();
    for (name, most) in bounds {
        expect_soon("it has told its bounds", || {
            proxy.worker(name)["max_prompt_tokens"] == *most
        });
    }
    proxy
}

/// A small and a large worker; the small one is by far the faster by what is typed, and indeed.
fn pair() -> ([Engine; 2], Proxy) {
    let engines = [worker(1_000), worker(4_000)];
    engines[1].tune(|knobs| knobs.prefill = 0.000_1);
    let setup = Proxy::setup()
        .worker_with("small", &engines[0], "speed = 100.0")
        .worker_with("large", &engines[1], "speed = 1.0");
    let proxy = started(setup, &[("small", 1_000), ("large", 4_000)]);
    (engines, proxy)
}

/// A prompt of so many token ids.
fn ids(tokens: usize, max_tokens: Option<u32>) -> String {
    json!({"model": "m", "prompt": vec![7; tokens], "max_tokens": max_tokens}).to_string()
}

/// A chat of so many words of five letters and a space.
fn words(count: usize) -> String {
    let text = "words ".repeat(count);
    json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": text}]})
        .to_string()
}

fn send(proxy: &Proxy, path: &str, body: &str) -> Answer {
    proxy.call("POST", path, body)
}

#[track_caller]
fn goes_to(answer: &Answer, worker: &str) {
    let to = answer.header("x-forebay-worker");
    assert_eq!(
        (answer.status, to),
        (200, Some(worker)),
        "{}",
        answer.text()
    );
}

#[test]
fn a_long_prompt_goes_to_the_worker_that_takes_it() {
    let (_engines, proxy) = pair();
    goes_to(&send(&proxy, COMPLETION, &ids(1_000, None)), "small");
    goes_to(&send(&proxy, COMPLETION, &ids(1_001, None)), "large");
    goes_to(&send(&proxy, COMPLETION, &ids(900, Some(101))), "large");
    goes_to(&send(&proxy, CHAT, &words(100)), "small");
    goes_to(&send(&proxy, CHAT, &words(1_200)), "large");
}

#[test]
fn a_prompt_that_nobody_takes_is_400_with_the_longest_that_would_fit() {
    let (engines, proxy) = pair();
    for (path, body, most) in [
        (COMPLETION, ids(4_001, None), "at most 4000 tokens fit"),
        (
            COMPLETION,
            ids(3_000, Some(1_500)),
            "at most 2500 tokens fit beside an answer of up to 1500",
        ),
        (CHAT, words(5_000), "at most 3999 tokens fit"),
    ] {
        let error = openai_error(&send(&proxy, path, &body), 400, "bad_request");
        assert!(message(&error).contains(most), "{error}");
    }
    let answer = send(&proxy, "/v1/messages", &words(5_000));
    let shown = answer.json();
    assert_eq!((answer.status, &shown["type"]), (400, &"error".into()));
    assert!(message(&shown["error"]).contains("at most 3999 tokens"));
    assert!(engines.iter().all(|engine| engine.count() == 0));
}

#[test]
fn a_refusal_shows_for_whom_it_was_too_long() {
    let (_engines, proxy) = pair();
    let headers = [("x-request-id", "long")];
    let body = ids(2_000, None);
    let answer = proxy
        .connect()
        .call_with("POST", COMPLETION, &headers, body.as_bytes());
    goes_to(&answer, "large");
    let path = "/api/requests/long";
    expect_soon("it is remembered", || proxy.ask_admin(path).status == 200);
    let shown = proxy.api(path);
    let fates: Vec<_> = shown["choices"][0]["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["worker"].as_str().unwrap(),
                one["fate"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(fates, [("large", "picked"), ("small", "too_long")]);
}

#[test]
fn the_operators_bound_holds_beside_the_engines() {
    let engines = [worker(8_000), worker(2_000)];
    let setup = Proxy::setup()
        .worker_with(
            "typed",
            &engines[0],
            "max_prompt_tokens = 500\nspeed = 100.0",
        )
        .worker_with("told", &engines[1], "max_prompt_tokens = 9000");
    let proxy = started(setup, &[("typed", 500), ("told", 2_000)]);
    goes_to(&send(&proxy, COMPLETION, &ids(500, Some(5_000))), "typed");
    goes_to(&send(&proxy, COMPLETION, &ids(501, None)), "told");
    let error = openai_error(
        &send(&proxy, COMPLETION, &ids(2_001, None)),
        400,
        "bad_request",
    );
    assert!(message(&error).contains("at most 2000 tokens"), "{error}");
}

#[test]
fn pictures_several_prompts_and_what_may_be_cut_are_left_to_the_worker() {
    let engine = worker(1_000);
    let proxy = started(Proxy::setup().worker("w", &engine), &[("w", 1_000)]);
    let picture = format!("data:image/png;base64,{}", "A".repeat(100_000));
    let part = json!({"type": "image_url", "image_url": {"url": picture}});
    let chat =
        json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]});
    let text = "words ".repeat(900);
    let several = json!({"model": "m", "input": [text, text, text]});
    let cut = json!({"model": "m", "prompt": vec![7; 2_000], "truncate_prompt_tokens": -1});
    let escaped = format!(
        r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":"{}"}}]}}"#,
        r"\u0434".repeat(5_000)
    );
    for (path, body) in [
        (CHAT, chat.to_string()),
        (CHAT, escaped),
        ("/v1/embeddings", several.to_string()),
        (COMPLETION, cut.to_string()),
    ] {
        let answer = send(&proxy, path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
}

#[test]
fn a_prompt_that_fits_somebody_who_is_down_is_to_come_back() {
    let (engines, proxy) = pair();
    engines[1].tune(|knobs| knobs.health = Health::Status(500));
    expect_soon("it is down", || proxy.worker("large")["state"] == "down");
    let long = send(&proxy, COMPLETION, &ids(2_000, None));
    openai_error(&long, 503, "no_worker");
    assert!(long.header("retry-after").is_some());
    goes_to(&send(&proxy, COMPLETION, &ids(100, None)), "small");
}

#[test]
fn a_long_prompt_waits_for_room_and_lets_short_ones_pass() {
    let engines = [worker(1_000), worker(4_000)];
    let setup = Proxy::setup()
        .worker_with("small", &engines[0], "max_inflight = 1")
        .worker_with("large", &engines[1], "max_inflight = 1");
    let proxy = started(setup, &[("small", 1_000), ("large", 4_000)]);
    engines[1].tune(|knobs| knobs.fail(Failure::Hang, 1));
    let long = ids(2_000, None);
    std::thread::scope(|scope| {
        let mut first = proxy.connect();
        first.send(&request("POST", COMPLETION, &[], long.as_bytes()));
        expect_soon("the first is there", || engines[1].count() == 1);
        let second = scope.spawn(|| send(&proxy, COMPLETION, &long));
        expect_soon("the second waits", || {
            proxy.api("/api/workers")["queued"] == 1
        });
        for _ in 0..3 {
            goes_to(&send(&proxy, COMPLETION, &ids(10, None)), "small");
        }
        assert_eq!(proxy.api("/api/workers")["queued"], Value::from(1));
        drop(first);
        goes_to(&second.join().unwrap(), "large");
    });
}
