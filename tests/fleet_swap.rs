//! Workers that swap models, over real sockets: requests of a model stay together, nothing is unloaded in the middle of an
//! answer, and nobody waits for ever.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use support::client::{Answer, request};
use support::engine::Engine;
use support::engine::knobs::{Dialect, Knobs, Memory};
use support::expect_soon;
use support::prompt::CHAT;
use support::proxy::{Proxy, Setup};

const MODELS: [&str; 2] = ["a:1b", "b:7b"];

/// A worker of this kind whose memory holds one of its two models, and which takes so many milliseconds to swap.
fn swaps(dialect: Dialect, swap: u64) -> Engine {
    Engine::with(Knobs {
        dialect,
        models: MODELS.map(str::to_owned).into(),
        memory: Memory {
            most: 1,
            swap: Duration::from_millis(swap),
            ..Memory::default()
        },
        decode: 0.01,
        ..Knobs::default()
    })
}

fn setup(engine: &Engine, lines: &str) -> Setup {
    Proxy::setup().worker_with("w", engine, &format!("# engine = models =\n{lines}"))
}

fn body(model: &str) -> String {
    long_body(model, 5)
}

fn long_body(model: &str, tokens: usize) -> String {
    format!(
        r#"{{"model":"{model}","stream":true,"max_tokens":{tokens},"messages":[{{"role":"user","content":"hi"}}]}}"#
    )
}

/// Who answered a request that went well.
#[track_caller]
fn served(proxy: &Proxy, model: &str) -> String {
    let answer: Answer = proxy.chat(&body(model));
    assert_eq!(answer.status, 200, "{model}: {}", answer.text());
    answer.header("x-forebay-worker").unwrap().to_owned()
}

/// How often it swapped, and how many answers were under way then.
fn swapped(engine: &Engine) -> (usize, usize) {
    let mut seen = (0, 0);
    engine.tune(|knobs| seen = (knobs.memory.swaps, knobs.memory.torn));
    seen
}

fn memory(proxy: &Proxy, worker: &str) -> Value {
    proxy.worker(worker)["memory"].clone()
}

/// Forty requests for two models by turns, all sent before one is answered.
fn crowd(proxy: &Proxy) {
    let mut clients: Vec<_> = (0..40)
        .map(|turn| {
            let mut client = proxy.connect();
            let body = body(MODELS[turn % 2]);
            client.send(&request("POST", CHAT, &[], body.as_bytes()));
            client
        })
        .collect();
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn a_crowd_by_turns_makes_two_swaps_and_tears_no_answer() {
    for cap in [2, 64] {
        let engine = swaps(Dialect::Ollama, 400);
        let proxy = setup(&engine, &format!("resident = 1\nmax_inflight = {cap}")).start();
        crowd(&proxy);
        assert_eq!(swapped(&engine), (2, 0), "max_inflight = {cap}");
    }
}

/// Negative control: without the bound it swaps in the middle of answers.
#[test]
fn a_worker_whose_bound_nobody_knows_is_torn() {
    let engine = swaps(Dialect::Ollama, 0);
    let proxy = setup(&engine, "max_inflight = 64").start();
    // One answer is surely under way: those of a crowd may all be asked for before the first begins.
    let mut long = proxy.connect();
    let body = long_body(MODELS[0], 100);
    long.send(&request("POST", CHAT, &[], body.as_bytes()))
        .head();
    crowd(&proxy);
    let (swaps, torn) = swapped(&engine);
    assert!(swaps > 4 && torn > 0, "{swaps} {torn}");
}

#[test]
fn a_model_gets_in_while_another_keeps_coming() {
    let engine = swaps(Dialect::Ollama, 50);
    let proxy = setup(&engine, "resident = 1\nmax_inflight = 64")
        .queue("swap_after = \"400ms\"")
        .start();
    served(&proxy, MODELS[0]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Of different lengths, so that never all of them end at the same moment.
        for tokens in [5, 6, 7, 9, 11, 13] {
            let (proxy, stop) = (&proxy, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let answer = proxy.chat(&long_body(MODELS[0], tokens));
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            });
        }
        expect_soon("they keep it busy", || engine.load().0 > 1);
        let began = engine.now();
        served(&proxy, MODELS[1]);
        let waited = (engine.now() - began).0;
        stop.store(true, Ordering::Relaxed);
        assert!((0.35..3.0).contains(&waited), "{waited}");
    });
    assert_eq!(swapped(&engine).1, 0);
}

#[test]
fn each_model_settles_on_a_worker_of_its_own_and_the_decision_shows_why() {
    let engines = [(); 2].map(|()| swaps(Dialect::Ollama, 200));
    let mut setup = Proxy::setup();
    for (name, engine) in ["one", "two"].iter().zip(&engines) {
        setup = setup.worker_with(name, engine, "# engine = models =\nresident = 1");
    }
    let proxy = setup.start();
    let homes = MODELS.map(|model| served(&proxy, model));
    assert_ne!(homes[0], homes[1]);
    for turn in 0..20 {
        assert_eq!(served(&proxy, MODELS[turn % 2]), homes[turn % 2]);
    }
    assert_eq!(engines.each_ref().map(swapped), [(1, 0), (1, 0)]);
    let mut client = proxy.connect();
    let headers = [("x-request-id", "why")];
    client.call_with("POST", CHAT, &headers, body(MODELS[0]).as_bytes());
    let path = "/api/requests/why";
    expect_soon("it is remembered", || proxy.ask_admin(path).status == 200);
    let choice = proxy.api(path)["choices"][0].clone();
    let swap = |at: usize| {
        choice["candidates"][at]["terms_s"]["swap"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(choice["candidates"][0]["worker"], *homes[0]);
    assert!(swap(0) == 0.0 && swap(1) > 0.0, "{choice}");
}

#[test]
fn what_a_swap_takes_is_learned_and_shown() {
    let engine = swaps(Dialect::Ollama, 1_000);
    let proxy = setup(&engine, "resident = 1").start();
    for turn in 0..5 {
        served(&proxy, MODELS[turn % 2]);
    }
    let shown = memory(&proxy, "w");
    assert_eq!(
        (&shown["most"], &shown["loaded"]),
        (&json!(1), &json!([MODELS[0]]))
    );
    let learned = shown["swap_s"][MODELS[1]].as_f64().unwrap();
    assert!(learned < 7.0, "from 10 s towards 1 s: {learned}");
    assert_eq!(swapped(&engine), (5, 0));
}

#[test]
fn what_engines_tell_of_their_memory_is_heard() {
    for dialect in [Dialect::Ollama, Dialect::Llamacpp] {
        let engine = swaps(dialect, 1);
        engine.tune(|knobs| knobs.memory.loaded = vec![MODELS[1].to_owned()]);
        let proxy = setup(&engine, "").start();
        served(&proxy, MODELS[1]);
        expect_soon("it was heard", || {
            memory(&proxy, "w")["loaded"] == json!([MODELS[1]])
        });
        assert_eq!(proxy.worker("w")["resident"], json!([MODELS[1]]));
        // Somebody past the proxy asks for the other.
        engine.tune(|knobs| knobs.memory.loaded = vec![MODELS[0].to_owned()]);
        expect_soon("it was heard, too", || {
            memory(&proxy, "w")["loaded"] == json!([MODELS[0]])
        });
    }
}
