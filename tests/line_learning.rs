//! What the proxy learns of its workers' speeds from the traffic alone, and how the shares follow.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::json;

use support::engine::Engine;
use support::engine::knobs::Knobs;
use support::load::Load;
use support::prompt::{CHAT, stream};
use support::proxy::Proxy;

/// What a closed loop asks, again and again.
#[derive(Clone, Copy, Debug)]
enum Asking {
    Embeddings,
    Tensors,
    Chats,
    Streams,
}

impl Asking {
    fn path(self) -> &'static str {
        match self {
            Asking::Embeddings => "/v1/embeddings",
            Asking::Tensors => "/v2/models/m/infer",
            Asking::Chats | Asking::Streams => CHAT,
        }
    }

    /// A prompt of 100 tokens; answers of eight.
    fn body(self) -> String {
        match self {
            Asking::Embeddings => json!({"model": "m", "input": "x".repeat(400)}).to_string(),
            Asking::Tensors => json!({"inputs": [
                {"name": "INPUT0", "datatype": "FP32", "shape": [1, 100], "data": vec![0.5; 100]}
            ]})
            .to_string(),
            Asking::Chats => stream(&"x".repeat(396), 8).replace("true", "false"),
            Asking::Streams => stream(&"x".repeat(396), 8),
        }
    }
}

/// Requests of a closed loop: each client sends its next when it has its last.
fn closed_loop(proxy: &Proxy, clients: usize, requests: usize, asking: Asking) {
    let load = Load {
        clients,
        requests,
        rate: None,
        path: asking.path(),
        body: &asking.body(),
    };
    for ended in load.send(proxy, |_| ()) {
        assert!(ended.is_good(), "{ended:?}");
    }
}

/// A worker that needs so long for a prompt of 100 tokens, one at a time, and a tenth of that for each token.
fn reads_in(seconds: f64) -> Engine {
    Engine::with(Knobs {
        prefill: seconds / 100.0,
        decode: seconds / 10.0,
        ..Knobs::default()
    })
}

/// Enough clients to keep both workers busy: a worker that is never the cheapest is not used, and shows nothing new.
const CLIENTS: usize = 16;

/// The share of `fast` in 300 requests, after 200 from which the proxy could learn.
fn learned_share(fast: f64, slow: f64, asking: Asking) -> f64 {
    let engines = [reads_in(fast), reads_in(slow)];
    let proxy = Proxy::setup()
        .worker("fast", &engines[0])
        .worker("slow", &engines[1])
        .start();
    closed_loop(&proxy, CLIENTS, 200, asking);
    engines.iter().for_each(Engine::forget);
    closed_loop(&proxy, CLIENTS, 300, asking);
    let [fast, slow] = engines.each_ref().map(|engine| engine.count() as f64);
    fast / (fast + slow)
}

#[track_caller]
fn assert_share(fast: f64, slow: f64, asking: Asking) {
    let share = learned_share(fast, slow, asking);
    let fair = slow / (fast + slow);
    assert!(
        (share / fair - 1.0).abs() <= 0.15,
        "{asking:?}: the fast one got {share:.2} instead of {fair:.2}"
    );
}

#[test]
fn speeds_of_four_to_one_are_learned_from_embeddings_alone_and_shares_follow() {
    assert_share(0.010, 0.040, Asking::Embeddings);
}

#[test]
fn speeds_of_four_to_one_are_learned_from_chats_alone_and_shares_follow() {
    assert_share(0.010, 0.040, Asking::Chats);
}

#[test]
fn speeds_of_four_to_one_are_learned_from_streams_alone_and_shares_follow() {
    assert_share(0.010, 0.040, Asking::Streams);
}

#[test]
fn equal_workers_share_equally() {
    for asking in [Asking::Embeddings, Asking::Chats, Asking::Streams] {
        assert_share(0.015, 0.015, asking);
    }
}

#[test]
fn what_was_learned_is_shown() {
    let engines = [reads_in(0.010), reads_in(0.040)];
    let proxy = Proxy::setup()
        .worker("fast", &engines[0])
        .worker("slow", &engines[1])
        .section("[routing]\npolicy = \"round_robin\"")
        .start();
    let speed = |name: &str| proxy.worker(name)["speed"].as_f64().unwrap();
    // What a busy machine has added to some answers wears off.
    let shown = (0..5).map(|_| {
        closed_loop(&proxy, 1, 40, Asking::Embeddings);
        speed("fast") / speed("slow")
    });
    let ratios: Vec<f64> = shown
        .take_while(|ratio| !(2.5..=5.5).contains(ratio))
        .collect();
    assert!(ratios.len() < 5, "{ratios:.2?} instead of 4");
}

/// A worker with an embedder and a classifier is not as fast in the one as in the other.
#[test]
fn texts_and_tensors_are_learned_apart() {
    // A hundred tokens of text, and a tensor that the engine counts as some hundred and thirty.
    let engine = |texts: f64, tensors: f64| {
        Engine::with(Knobs {
            prefill: texts / 100.0,
            tensors: Some(tensors / 100.0),
            ..Knobs::default()
        })
    };
    let engines = [engine(0.010, 0.040), engine(0.040, 0.010)];
    let proxy = Proxy::setup()
        .worker("reader", &engines[0])
        .worker("counter", &engines[1])
        .start();
    let mut ratios = Vec::new();
    for _ in 0..5 {
        for asking in [Asking::Embeddings, Asking::Tensors] {
            closed_loop(&proxy, CLIENTS, 60, asking);
        }
        let speeds = ["reader", "counter"].map(|name| proxy.worker(name)["speeds"].clone());
        let ratio =
            |work: &str| speeds[0][work].as_f64().unwrap() / speeds[1][work].as_f64().unwrap();
        ratios.push([ratio("embed"), ratio("infer")]);
        let [embed, infer] = ratios[ratios.len() - 1];
        if (2.5..=5.5).contains(&embed) && (2.5..=5.5).contains(&infer.recip()) {
            return;
        }
    }
    panic!("{ratios:.2?} instead of 4 and a quarter");
}
