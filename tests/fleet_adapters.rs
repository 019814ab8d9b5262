//! LoRA adapters over real sockets: found, loaded when they are asked for, unloaded when there is no room, and kept
//! together.
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
use support::engine::knobs::{Dialect, Health, Knobs, Loras};
use support::expect_soon;
use support::proxy::{Proxy, Setup};

/// A worker with these adapters, whose card holds four.
fn engine(lora: Loras) -> Engine {
    Engine::with(Knobs {
        lora: Loras { slots: 4, ..lora },
        ..Knobs::default()
    })
}

/// Lines of a worker that may be told to load these, whose paths are `/srv/NAME`.
fn may_load(names: &[&str]) -> String {
    let adapters: Vec<_> = names
        .iter()
        .map(|name| format!("{name} = \"/srv/{name}\""))
        .collect();
    format!(
        "lora = {{ load = true, adapters = {{ {} }} }}",
        adapters.join(", ")
    )
}

/// A worker that can't load what is at these paths.
fn without(broken: &[(&str, u16)]) -> Engine {
    let broken = broken
        .iter()
        .map(|(path, status)| ((*path).to_owned(), *status));
    engine(Loras {
        broken: broken.collect(),
        ..Loras::default()
    })
}

fn ask(proxy: &Proxy, model: &str) -> Answer {
    let body = format!(
        r#"{{"model":"{model}","max_tokens":2,"messages":[{{"role":"user","content":"hi"}}]}}"#
    );
    proxy.chat(&body)
}

/// Who answered a request that went well.
#[track_caller]
fn served(proxy: &Proxy, model: &str) -> String {
    let answer = ask(proxy, model);
    assert_eq!(answer.status, 200, "{model}: {}", answer.text());
    answer.header("x-forebay-worker").unwrap().to_owned()
}

fn loads(engine: &Engine, name: &str) -> usize {
    let orders = engine.lora_orders();
    orders
        .iter()
        .filter(|order| **order == (true, name.to_owned()))
        .count()
}

/// What `/api/workers` shows under `lora`.
fn shown(proxy: &Proxy, worker: &str, key: &str) -> Value {
    proxy.worker(worker)["lora"][key].clone()
}

fn setup(engine: &Engine, lines: &str) -> Setup {
    Proxy::setup().worker_with("w", engine, lines)
}

#[test]
fn what_a_worker_lists_with_a_parent_is_a_model_and_no_base() {
    let engine = engine(Loras::default().has("sql").has("legal"));
    engine.tune(|knobs| knobs.lora.running = vec!["sql".to_owned()]);
    let proxy = setup(&engine, "models = { chat = \"*\", query = \"sql\" }").start();
    let list = proxy.call("GET", "/v1/models", "").json();
    let names: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].clone())
        .collect();
    assert_eq!(names, ["chat", "query"], "one base, and what was named");
    for (client, worker) in [("chat", "m"), ("query", "sql")] {
        served(&proxy, client);
        let seen: Value = serde_json::from_slice(&engine.only_request().body).unwrap();
        assert_eq!(seen["model"], worker);
        engine.forget();
    }
    expect_soon("the metric was read", || shown(&proxy, "w", "slots") == 4);
    assert_eq!(shown(&proxy, "w", "loaded"), serde_json::json!(["sql"]));
    assert!(engine.lora_orders().is_empty(), "nobody may load here");
}

#[test]
fn which_adapters_run_is_heard_with_the_load() {
    let engine = engine(Loras::default().has("sql").has("legal"));
    let proxy = setup(&engine, "models = [\"sql\", \"legal\"]").start();
    expect_soon("the metric was read", || shown(&proxy, "w", "slots") == 4);
    served(&proxy, "sql");
    engine.tune(|knobs| knobs.lora.running = vec!["legal".to_owned()]);
    let both = serde_json::json!(["sql", "legal"]);
    // What bounds its work is asked again after half a minute only.
    expect_soon("others were seen to use the other one", || {
        shown(&proxy, "w", "loaded") == both
    });
}

#[test]
fn sglang_is_asked_for_an_adapter_by_the_name_of_its_base() {
    let engine = engine(Loras::default().has("sql"));
    engine.tune(|knobs| knobs.dialect = Dialect::Sglang);
    let lines = format!("# engine = models =\n{}", may_load(&["tax"]));
    let proxy = setup(&engine, &lines).start();
    for name in ["sql", "tax"] {
        served(&proxy, name);
        let seen: Value = serde_json::from_slice(&engine.only_request().body).unwrap();
        assert_eq!(seen["model"], format!("m:{name}"));
        engine.forget();
    }
    assert_eq!(loads(&engine, "tax"), 0, "that was forgotten");
    expect_soon("the slots were told", || shown(&proxy, "w", "slots") == 4);
}

#[test]
fn an_adapter_is_loaded_once_however_many_ask_for_it_and_nobody_else_waits() {
    let engine = engine(Loras {
        load: Duration::from_millis(400),
        ..Loras::default()
    });
    let proxy = setup(&engine, &may_load(&["sql"])).start();
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| served(&proxy, "sql")))
            .collect();
        expect_soon("the load was ordered", || loads(&engine, "sql") == 1);
        served(&proxy, "m");
        assert_eq!(engine.count(), 1, "the base did not wait");
        for asked in asking {
            asked.join().unwrap();
        }
    });
    assert_eq!(engine.lora_orders(), [(true, "sql".to_owned())]);
    assert_eq!(shown(&proxy, "w", "loaded"), serde_json::json!(["sql"]));
    let load = shown(&proxy, "w", "load_s").as_f64().unwrap();
    assert!((0.4..0.6).contains(&load), "{load}");
    assert_eq!(
        proxy.metric("forebay_attempts_total", &[("outcome", "ok")]),
        9.0
    );
}

#[test]
fn one_bad_adapter_goes_elsewhere_and_takes_nobody_along() {
    let bad = without(&[("/srv/sql", 404)]);
    let good = engine(Loras::default());
    let lines = may_load(&["sql", "legal"]);
    let proxy = Proxy::setup()
        .worker_with("bad", &bad, &format!("speed = 100\n{lines}"))
        .worker_with("good", &good, &may_load(&["sql"]))
        .start();
    for _ in 0..5 {
        assert_eq!(served(&proxy, "sql"), "good");
    }
    assert_eq!((loads(&bad, "sql"), loads(&good, "sql")), (1, 1));
    assert_eq!(shown(&proxy, "bad", "refused"), serde_json::json!(["sql"]));
    assert_eq!(served(&proxy, "legal"), "bad", "it is as good as before");
    let row = proxy.worker("bad");
    assert_eq!((&row["state"], &row["failures"]), (&"up".into(), &0.into()));
    let lost = [("worker", "bad"), ("outcome", "lora")];
    assert_eq!(proxy.metric("forebay_attempts_total", &lost), 1.0);
    assert!(proxy.stderr().contains("an adapter can't be loaded"));
}

#[test]
fn when_nobody_can_load_it_the_client_is_told_why() {
    for status in [400, 404, 500] {
        let engine = without(&[("/srv/sql", status)]);
        let proxy = setup(&engine, &may_load(&["sql"])).start();
        let first = ask(&proxy, "sql");
        assert_eq!((first.status, first.reason()), (502, Some("worker_failed")));
        let text = first.text();
        assert!(
            text.contains("sql") && text.contains(&status.to_string()),
            "{text}"
        );
        let second = ask(&proxy, "sql");
        assert_eq!((second.status, second.reason()), (503, Some("no_worker")));
        assert!(second.header("retry-after").is_some());
        assert_eq!(
            engine.lora_orders().len(),
            1,
            "it is left alone for a while"
        );
        served(&proxy, "m");
        assert_eq!(proxy.worker("w")["state"], "up");
    }
}

#[test]
fn who_waits_for_a_load_that_fails_fails_with_it() {
    let engine = without(&[("/srv/sql", 404)]);
    engine.tune(|knobs| knobs.lora.load = Duration::from_millis(300));
    let proxy = setup(&engine, &may_load(&["sql"])).start();
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| ask(&proxy, "sql").status))
            .collect();
        for asked in asking {
            let status = asked.join().unwrap();
            assert!(status == 502 || status == 503, "{status}");
        }
    });
    assert_eq!(loads(&engine, "sql"), 1);
}

#[test]
fn a_client_that_leaves_takes_its_load_along_and_nobody_elses() {
    let engine = engine(Loras {
        load: Duration::from_millis(300),
        ..Loras::default()
    });
    let proxy = setup(&engine, &may_load(&["sql"])).start();
    let mut leaving = proxy.connect();
    let request = support::client::request(
        "POST",
        "/v1/chat/completions",
        &[],
        br#"{"model":"sql","messages":[]}"#,
    );
    leaving.send(&request);
    expect_soon("the load was ordered", || loads(&engine, "sql") == 1);
    std::thread::scope(|scope| {
        let stays = scope.spawn(|| served(&proxy, "sql"));
        expect_soon("both are there", || proxy.worker("w")["inflight"] == 2);
        drop(leaving);
        stays.join().unwrap();
    });
    assert_eq!(loads(&engine, "sql"), 2);
}

#[test]
fn a_load_that_hangs_ends_with_the_requests_own_timer_and_holds_up_its_adapter_alone() {
    let engine = without(&[("/srv/sql", 0)]);
    let lines = format!(
        "{}\ntimeouts = {{ answer = \"500ms\" }}",
        may_load(&["sql", "legal"])
    );
    let proxy = setup(&engine, &lines).start();
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| ask(&proxy, "sql"));
        expect_soon("the load was ordered", || loads(&engine, "sql") == 1);
        served(&proxy, "legal");
        let answer = hangs.join().unwrap();
        assert_eq!(answer.status, 502, "{}", answer.text());
        assert!(
            answer.text().contains("timeouts.answer"),
            "{}",
            answer.text()
        );
    });
    for _ in 0..4 {
        assert_eq!(ask(&proxy, "sql").status, 503);
    }
    assert_eq!(proxy.worker("w")["state"], "up");
}

#[test]
fn a_full_engine_unloads_the_idle_one_that_was_used_longest_ago() {
    let engine = engine(Loras {
        room: 2,
        ..Loras::default()
    });
    let proxy = setup(&engine, &may_load(&["a", "b", "c"])).start();
    for name in ["a", "b", "a", "c"] {
        served(&proxy, name);
    }
    let unloaded = |engine: &Engine| -> Vec<String> {
        let orders = engine.lora_orders().into_iter();
        orders
            .filter(|(loads, _)| !loads)
            .map(|(_, name)| name)
            .collect()
    };
    assert_eq!(unloaded(&engine), ["b"]);
    served(&proxy, "b");
    assert_eq!(unloaded(&engine), ["b", "a"]);
}

#[test]
fn an_adapter_in_use_is_never_unloaded() {
    let engine = engine(Loras {
        room: 1,
        ..Loras::default()
    });
    let proxy = setup(&engine, &may_load(&["a", "b"])).start();
    engine.tune(|knobs| knobs.decode = 0.02);
    std::thread::scope(|scope| {
        let body = r#"{"model":"a","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}"#;
        let long = scope.spawn(|| proxy.chat(body));
        expect_soon("it runs", || engine.load().0 == 1);
        assert_eq!(ask(&proxy, "b").status, 502, "there is no room");
        assert_eq!(long.join().unwrap().status, 200);
    });
    assert!(engine.lora_orders().iter().all(|(loads, _)| *loads));
}

#[test]
fn what_a_restarted_worker_has_lost_is_loaded_again() {
    let engine = engine(Loras::default());
    let proxy = setup(&engine, &may_load(&["sql"])).start();
    served(&proxy, "sql");
    engine.tune(|knobs| {
        knobs.lora.there.clear();
        knobs.health = Health::Status(500);
    });
    expect_soon("it is down", || proxy.worker("w")["state"] == "down");
    engine.tune(|knobs| knobs.health = Health::Good);
    expect_soon("it is up again", || proxy.worker("w")["state"] == "up");
    served(&proxy, "sql");
    assert_eq!(loads(&engine, "sql"), 2);
    // And without a probe in between: its 404 tells.
    engine.tune(|knobs| knobs.lora.there.clear());
    assert_eq!(ask(&proxy, "sql").status, 404);
    served(&proxy, "sql");
    assert_eq!(loads(&engine, "sql"), 3);
}

#[test]
fn requests_of_an_adapter_stay_where_it_is_and_the_decision_shows_why() {
    let engines = [(); 2].map(|()| engine(Loras::default().has("sql").has("legal")));
    let mut setup = Proxy::setup();
    for (name, engine) in ["one", "two"].iter().zip(&engines) {
        setup = setup.worker_with(
            name,
            engine,
            "models = [\"sql\", \"legal\"]\nlora = { slots = 1 }",
        );
    }
    let proxy = setup.start();
    let homes = ["sql", "legal"].map(|name| served(&proxy, name));
    assert_ne!(homes[0], homes[1]);
    eprintln!("{:#?} {:#?}", proxy.worker("one"), proxy.worker("two"));
    for turn in 0..20 {
        let (name, home) = [("sql", &homes[0]), ("legal", &homes[1])][turn % 2];
        assert_eq!(served(&proxy, name), *home, "turn {turn}");
    }
    let mut client = proxy.connect();
    let body = br#"{"model":"sql","messages":[{"role":"user","content":"hi"}]}"#;
    let headers = [("x-request-id", "why")];
    client.call_with("POST", "/v1/chat/completions", &headers, body);
    let path = "/api/requests/why";
    expect_soon("it is remembered", || proxy.ask_admin(path).status == 200);
    let choice = proxy.api(path)["choices"][0].clone();
    let lora = |place: usize| {
        choice["candidates"][place]["terms_s"]["lora"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(choice["candidates"][0]["worker"], *homes[0]);
    assert!(lora(0) == 0.0 && lora(1) > 0.0, "{choice}");
}
