//! Where requests go: models, routes, policies, the line before full workers, liveness, and what is sent again.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use support::client::request;
use support::engine::Engine;
use support::engine::knobs::{Dialect, Failure, Health};
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;

/// The worker that an answer names.
fn worker_of(answer: &support::client::Answer) -> String {
    answer
        .header("x-forebay-worker")
        .unwrap_or("none")
        .to_owned()
}

fn policy(name: &str) -> String {
    format!("[routing]\npolicy = \"{name}\"")
}

#[test]
fn the_model_list_merges_all_workers_and_says_clients_names() {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker_with("a", &engines[0], r#"models = ["m", "shared"]"#)
        .worker_with(
            "b",
            &engines[1],
            r#"models = { good = "real/Name", shared = "m" }"#,
        )
        .start();
    let answer = proxy.call("GET", "/v1/models", "");
    assert_eq!(answer.status, 200);
    let list = answer.json();
    assert_eq!(list["object"], "list");
    let mut names: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["good", "m", "shared"]);
    assert!(
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .all(|model| model["object"] == "model")
    );
}

#[test]
fn a_request_goes_only_to_a_worker_that_serves_its_model() {
    let engines = [Engine::start(), Engine::start()];
    engines[1].tune(|knobs| knobs.models = vec!["other".to_owned()]);
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker_with("b", &engines[1], r#"models = ["other"]"#)
        .section(&policy("random"))
        .start();
    for _ in 0..10 {
        assert_eq!(worker_of(&proxy.chat(&chat("x"))), "a");
        let other = chat("x").replace("\"m\"", "\"other\"");
        assert_eq!(worker_of(&proxy.chat(&other)), "b");
    }
}

#[test]
fn the_first_route_that_matches_wins_also_over_built_in_paths() {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .section(
            r#"
            [[route]]
            path = "/raw/exact"
            workers = ["a"]
            [[route]]
            path = "/raw/*"
            workers = ["b"]
            [[route]]
            path = "/v1/embeddings"
            workers = ["b"]
            "#,
        )
        .start();
    for (path, worker) in [
        ("/raw/exact", "a"),
        ("/raw/exact?x=1", "a"),
        ("/raw/exact/more", "b"),
        ("/v1/embeddings", "b"),
    ] {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let answer = proxy.call(method, path, r#"{"model":"m","input":"x"}"#);
            assert_eq!(worker_of(&answer), worker, "{method} {path}");
        }
    }
    assert_eq!(proxy.call("GET", "/raw", "").reason(), Some("no_route"));
}

#[test]
fn a_model_is_found_however_its_name_is_written_in_a_path() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.models = vec!["org/m x".to_owned()]);
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "models = [\"org/m x\"]")
        .start();
    for name in ["org%2Fm%20x", "org%2fm%20x", "org/m%20x"] {
        let answer = proxy.call("GET", &format!("/v1/models/{name}"), "");
        assert_eq!(answer.status, 200, "{name}");
        assert_eq!(answer.json()["id"], "org/m x");
    }
    let ready = proxy.call("GET", "/v2/models/org%2Fm%20x/ready", "");
    assert_eq!(worker_of(&ready), "w");
    assert_eq!(
        worker.only_request().target,
        "/v2/models/org%2Fm%20x/ready",
        "as the client wrote it"
    );
    let unknown = proxy.call("GET", "/v1/models/org%2Fother", "");
    assert_eq!(unknown.reason(), Some("model_not_found"));
}

#[test]
fn the_index_says_which_models_nobody_can_answer_for() {
    let (alive, dead) = (Engine::start(), Engine::start());
    dead.kill();
    let proxy = Proxy::setup()
        .worker("alive", &alive)
        .worker_with("dead", &dead, "models = [\"n\"]")
        .launch();
    let states = || {
        let index = proxy.call("GET", "/v2/repository/index", "").json();
        let states = index.as_array().unwrap().iter();
        states
            .map(|entry| format!("{}:{}", entry["name"], entry["state"]))
            .collect::<Vec<_>>()
    };
    expect_soon("each says its own", || {
        states() == [r#""m":"READY""#, r#""n":"UNAVAILABLE""#]
    });
}

#[test]
fn a_path_of_kserve_speaks_for_the_fleet_or_goes_to_a_worker_or_is_refused() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for path in ["/v2/health/live", "/v2/health/ready"] {
        assert_eq!(proxy.call("GET", path, "").status, 200, "{path}");
    }
    assert!(proxy.call("GET", "/v2", "").json()["version"].is_string());
    let index = proxy.call("POST", "/v2/repository/index", "{}").json();
    assert_eq!(
        index,
        serde_json::json!([{"name": "m", "state": "READY", "reason": ""}])
    );
    assert_eq!(worker.count(), 0);
    for path in [
        "/v2/models/m",
        "/v2/models/m/ready",
        "/v2/models/m/versions/1",
    ] {
        assert_eq!(proxy.call("GET", path, "").status, 200, "{path}");
    }
    assert_eq!(worker.count(), 3);
    for path in [
        "/v2/repository/models/m/load",
        "/v2/repository/models/m/unload",
        "/v2/systemsharedmemory/region/x/register",
        "/v2/cudasharedmemory/status",
        "/v2/trace/setting",
        "/v2/logging",
        "/v2/models/m/trace/setting",
    ] {
        let answer = proxy.call("POST", path, "{}");
        assert!(
            (403..=405).contains(&answer.status),
            "{path}: {}",
            answer.status
        );
        assert!(answer.json()["error"].is_string(), "{path}");
    }
    assert_eq!(worker.count(), 3);
}

/// Three workers that all reset what they have read, and how often a request was sent to any of them.
fn sends(extra: u32, method: &str, path: &str, headers: &[(&str, &str)]) -> usize {
    let engines = [Engine::start(), Engine::start(), Engine::start()];
    let mut setup = Proxy::setup().section(&format!(
        "[routing]\nretries = {{ extra = {extra} }}\n\
         [[route]]\npath = \"/raw/once\"\n\
         [[route]]\npath = \"/raw/again\"\nrepeat = \"safe\""
    ));
    for (name, engine) in ["a", "b", "c"].iter().zip(&engines) {
        setup = setup.worker(name, engine);
    }
    let proxy = setup.start();
    for engine in &engines {
        engine.tune(|knobs| knobs.fail(Failure::ResetAfterRequest, u64::MAX));
    }
    let answer = proxy
        .connect()
        .call_with(method, path, headers, chat("x").as_bytes());
    assert_eq!(answer.status, 502);
    let sent: usize = engines.iter().map(Engine::count).sum();
    assert_eq!(
        answer.header("x-forebay-attempts"),
        Some(&*sent.to_string())
    );
    sent
}

#[test]
fn what_a_worker_may_have_read_is_sent_again_only_where_that_is_safe_and_not_too_often() {
    let never = [("x-forebay-retry", "never")];
    for (extra, method, path, headers, expected) in [
        (2, "POST", CHAT, &[][..], 3),
        (1, "POST", CHAT, &[], 2),
        (0, "POST", CHAT, &[], 1),
        (2, "POST", CHAT, &never, 1),
        (2, "POST", "/raw/once", &[], 1),
        (2, "PUT", "/raw/once", &[], 1),
        (2, "GET", "/raw/once", &[], 3),
        (2, "HEAD", "/raw/once", &[], 3),
        (2, "POST", "/raw/again", &[], 3),
    ] {
        let sent = sends(extra, method, path, headers);
        assert_eq!(sent, expected, "{extra} {method} {path} {headers:?}");
    }
}

#[test]
fn round_robin_takes_turns() {
    let engines = [Engine::start(), Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .worker("c", &engines[2])
        .section(&policy("round_robin"))
        .start();
    let turns: Vec<String> = (0..9).map(|_| worker_of(&proxy.chat(&chat("x")))).collect();
    assert_eq!(turns[..3], turns[3..6]);
    assert_eq!(turns[..3], turns[6..]);
    let mut once = turns[..3].to_vec();
    once.sort();
    assert_eq!(once, ["a", "b", "c"]);
}

#[test]
fn random_takes_all_and_none_much_more_than_another() {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .section(&policy("random"))
        .start();
    let mut client = proxy.connect();
    for _ in 0..200 {
        assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
    }
    // Beyond 100 ± 40 a fair coin falls once in 100 million runs.
    assert!(
        (60..=140).contains(&engines[0].count()),
        "{}",
        engines[0].count()
    );
}

#[test]
fn least_inflight_and_least_time_avoid_a_busy_worker() {
    for name in ["least_inflight", "least_time"] {
        let engines = [Engine::start(), Engine::start()];
        let proxy = Proxy::setup()
            .worker("a", &engines[0])
            .worker("b", &engines[1])
            .section(&policy(name))
            .start();
        for engine in &engines {
            engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
        }
        let mut held = proxy.connect();
        held.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
        expect_soon("one is busy", || {
            engines[0].count() + engines[1].count() == 1
        });
        let free = usize::from(engines[0].count() == 1);
        engines[free].tune(|knobs| knobs.fail(Failure::Hang, 0));
        for _ in 0..5 {
            assert_eq!(proxy.chat(&chat("x")).status, 200, "{name}");
        }
        assert_eq!(engines[free].count(), 5, "{name}");
    }
}

#[test]
fn no_worker_gets_more_than_it_may_hold_and_the_rest_wait_in_order() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "max_inflight = 1")
        .start();
    worker.tune(|knobs| knobs.fail(Failure::StallAfter(0), 1));
    let mut held = proxy.connect();
    held.send(&request("POST", CHAT, &[], chat("first").as_bytes()));
    expect_soon("the first is running", || worker.count() == 1);
    std::thread::scope(|scope| {
        for place in 1..=6 {
            let (proxy, said) = (&proxy, format!("n{place}"));
            scope.spawn(move || assert_eq!(proxy.chat(&chat(&said)).status, 200));
            expect_soon("it waits", || {
                proxy.metric("forebay_queue_depth", &[]) == f64::from(place)
            });
        }
        assert_eq!(worker.count(), 1);
        drop(held);
    });
    let order: Vec<String> = worker.requests()[1..]
        .iter()
        .map(|seen| {
            let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
            body["messages"][0]["content"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(order, ["n1", "n2", "n3", "n4", "n5", "n6"]);
    assert_eq!(proxy.metric("forebay_queue_depth", &[]), 0.0);
    let waited = proxy.log_of(7)[1..].iter().all(|line| {
        line["queue_s"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0)
    });
    assert!(waited, "{:#?}", proxy.log());
}

#[test]
fn a_waiting_request_whose_client_leaves_is_dropped() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "max_inflight = 1")
        .start();
    worker.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut held = proxy.connect();
    held.send(&request("POST", CHAT, &[], chat("first").as_bytes()));
    expect_soon("the first is running", || worker.count() == 1);
    let mut waiting = proxy.connect();
    waiting.send(&request("POST", CHAT, &[], chat("second").as_bytes()));
    expect_soon("the second waits", || {
        proxy.metric("forebay_queue_depth", &[]) == 1.0
    });
    drop(waiting);
    expect_soon("it is dropped", || {
        proxy.metric("forebay_queue_depth", &[]) == 0.0
    });
    assert_eq!(proxy.log_of(1)[0]["reason"], "client_gone");
    drop(held);
    assert_eq!(proxy.chat(&chat("third")).status, 200);
    assert_eq!(worker.count(), 2, "the second reached the worker");
}

#[test]
fn a_worker_goes_and_comes_back_by_its_probes() {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .section(&policy("round_robin"))
        .start();
    engines[0].tune(|knobs| knobs.health = Health::Status(500));
    expect_soon("a is down", || proxy.worker("a")["state"] == "down");
    for _ in 0..6 {
        assert_eq!(worker_of(&proxy.chat(&chat("x"))), "b");
    }
    engines[0].tune(|knobs| knobs.health = Health::Silent);
    assert_eq!(proxy.call("GET", "/ready", "").status, 200);
    engines[0].tune(|knobs| knobs.health = Health::Good);
    expect_soon("a is back", || proxy.worker("a")["state"] == "up");
    expect_soon("a is used", || worker_of(&proxy.chat(&chat("x"))) == "a");
}

#[test]
fn each_engine_is_asked_for_its_life_in_its_own_way() {
    for (dialect, engine, path) in [
        (Dialect::Forebay, "forebay", "/health"),
        (Dialect::Vllm, "vllm", "/health"),
        (Dialect::Sglang, "sglang", "/health"),
        (Dialect::Llamacpp, "llamacpp", "/health"),
        (Dialect::Tgi, "tgi", "/health"),
        (Dialect::Tei, "tei", "/health"),
        (Dialect::Triton, "triton", "/v2/health/ready"),
        (Dialect::Ollama, "ollama", "/api/version"),
        (Dialect::Openai, "openai", "/v1/models"),
    ] {
        let worker = Engine::start();
        worker.tune(|knobs| knobs.dialect = dialect);
        let lines = format!("engine = \"{engine}\"");
        let _proxy = Proxy::setup().worker_with("w", &worker, &lines).start();
        let probe = &worker.everything()[0];
        assert_eq!(
            (probe.method.as_str(), probe.target.as_str()),
            ("GET", path),
            "{engine}"
        );
    }
}

#[test]
fn a_generic_worker_is_asked_by_a_bare_connect() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "engine = \"generic\"")
        .start();
    assert_eq!(worker.probes(), 0);
    worker.refuse();
    expect_soon("it is down", || proxy.worker("w")["state"] == "down");
}
