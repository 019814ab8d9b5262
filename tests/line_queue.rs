//! Waiting in line through the real proxy: classes, bounds, and workers that are not up yet.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use support::client::{Answer, request};
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;
use support::queue::{join, narrow, occupy, waiting};

/// What the worker was asked, in order.
fn asked(engine: &Engine) -> Vec<String> {
    let said = |body: &[u8]| {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap();
        body["messages"][0]["content"].as_str().unwrap().to_owned()
    };
    let requests = engine.requests();
    requests.iter().map(|seen| said(&seen.body)).collect()
}

fn retry_after(answer: &Answer) -> u64 {
    answer.header("retry-after").unwrap().parse().unwrap()
}

#[test]
fn a_higher_class_goes_first() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "").start();
    let held = occupy(&proxy, &engine);
    let clients = [("batch", "1"), ("free", "2"), ("batch", "3"), ("paid", "4")]
        .map(|(class, said)| join(&proxy, class, said));
    let batch = proxy.metric("forebay_queue_depth", &[("class", "batch")]);
    assert_eq!(batch, 2.0);
    drop(held);
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(asked(&engine), ["held", "4", "2", "1", "3"]);
}

#[test]
fn who_has_waited_long_goes_before_all() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "age_up = \"300ms\"").start();
    let held = occupy(&proxy, &engine);
    let began = engine.now();
    let old = join(&proxy, "batch", "old");
    let is_old = || (engine.now() - began).0 > 0.4;
    expect_soon("it has waited long", is_old);
    let young = join(&proxy, "paid", "young");
    drop(held);
    for mut client in [old, young] {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(asked(&engine), ["held", "old", "young"]);
}

#[test]
fn a_class_that_is_not_there_is_refused_with_those_that_are() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "classes = [\"a\", \"b\"]").start();
    let headers = [("x-forebay-priority", "gold")];
    let mut client = proxy.connect();
    let answer = client.call_with("POST", CHAT, &headers, chat("x").as_bytes());
    assert_eq!((answer.status, answer.reason()), (400, Some("bad_request")));
    assert!(answer.text().contains("a, b"), "{}", answer.text());
}

#[test]
fn the_line_is_bounded_in_entries_and_bytes() {
    for bound in ["entries = 2", "bytes = \"250B\""] {
        let engine = Engine::start();
        let proxy = narrow(&engine, bound).start();
        let held = occupy(&proxy, &engine);
        let long = "x".repeat(40);
        let waiters = [(); 2].map(|()| join(&proxy, "paid", &long));
        let answer = proxy.chat(&chat(&long));
        let refused = (answer.status, answer.reason());
        assert_eq!(refused, (429, Some("queue_full")), "{bound}");
        assert!((1..=60).contains(&retry_after(&answer)));
        drop(held);
        for mut client in waiters {
            assert_eq!(client.answer().status, 200, "{bound}");
        }
        assert_eq!(proxy.chat(&chat(&long)).status, 200, "{bound}");
    }
}

#[test]
fn a_line_full_of_batch_work_makes_room_for_a_higher_class() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "entries = 2").start();
    let held = occupy(&proxy, &engine);
    let [mut first, mut last] = ["1", "2"].map(|said| join(&proxy, "batch", said));
    let mut paid = proxy.connect();
    let headers = [("x-forebay-priority", "paid")];
    paid.send(&request("POST", CHAT, &headers, chat("3").as_bytes()));
    let displaced = last.answer();
    let refused = (displaced.status, displaced.reason());
    assert_eq!(refused, (429, Some("queue_full")));
    assert!(displaced.text().contains("higher classes"));
    assert!((1..=60).contains(&retry_after(&displaced)));
    drop(held);
    for client in [&mut first, &mut paid] {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(asked(&engine), ["held", "3", "1"]);
}

#[test]
fn each_class_waits_as_long_as_it_may() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "wait = { batch = \"100ms\" }").start();
    let held = occupy(&proxy, &engine);
    let mut patient = join(&proxy, "paid", "patient");
    let headers = [("x-forebay-priority", "batch")];
    let mut hasty = proxy.connect();
    let answer = hasty.call_with("POST", CHAT, &headers, chat("hasty").as_bytes());
    let refused = (answer.status, answer.reason());
    assert_eq!(refused, (429, Some("queue_timeout")));
    assert!(retry_after(&answer) >= 1);
    drop(held);
    assert_eq!(patient.answer().status, 200);
}

#[test]
fn requests_wait_for_a_worker_that_is_not_up_yet() {
    let engine = Engine::start();
    engine.refuse();
    let proxy = narrow(&engine, "").launch();
    expect_soon("it listens", || proxy.ask_admin("/health").status == 200);
    let clients: Vec<_> = (0..20)
        .map(|number| join(&proxy, "paid", &number.to_string()))
        .collect();
    engine.accept();
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(engine.count(), 20);
}

#[test]
fn a_model_that_nobody_told_of_yet_is_waited_for_until_all_have() {
    let engine = Engine::start();
    engine.refuse();
    let proxy = Proxy::setup()
        .queue("")
        .worker_with("w", &engine, "# models = as it says")
        .launch();
    expect_soon("it is down", || proxy.worker("w")["state"] == "down");
    let mut known = join(&proxy, "paid", "x");
    let mut unknown = proxy.connect();
    let body = chat("x").replace("\"m\"", "\"n\"");
    unknown.send(&request("POST", CHAT, &[], body.as_bytes()));
    expect_soon("both wait", || waiting(&proxy) == 2.0);
    engine.accept();
    assert_eq!(known.answer().status, 200);
    let answer = unknown.answer();
    assert_eq!(
        (answer.status, answer.reason()),
        (404, Some("model_not_found"))
    );
}

#[test]
fn who_waits_for_a_worker_in_vain_is_told_so() {
    let engine = Engine::start();
    engine.refuse();
    let proxy = narrow(&engine, "wait_no_worker = \"200ms\"").launch();
    expect_soon("it listens", || proxy.ask_admin("/health").status == 200);
    let answer = proxy.chat(&chat("x"));
    assert_eq!((answer.status, answer.reason()), (503, Some("no_worker")));
    let waited = proxy.log_of(1)[0]["total_s"].as_f64().unwrap();
    assert!(waited >= 0.2, "{waited}");
}

#[test]
fn places_are_kept_for_a_higher_class() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "max_inflight = 2")
        .queue("reserve = { paid = 0.1 }")
        .start();
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut held = proxy.connect();
    let free = [("x-forebay-priority", "free")];
    held.send(&request("POST", CHAT, &free, chat("held").as_bytes()));
    expect_soon("one place is taken", || engine.count() == 1);
    let mut waiting = join(&proxy, "free", "second");
    assert_eq!(proxy.chat(&chat("paid")).status, 200);
    assert_eq!(asked(&engine), ["held", "paid"], "the other place was kept");
    drop(held);
    assert_eq!(waiting.answer().status, 200);
}

#[test]
fn a_class_that_uses_its_share_locks_nobody_out() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "max_inflight = 2")
        .queue("reserve = { paid = 0.1 }")
        .start();
    let _paid = occupy(&proxy, &engine);
    let free = [("x-forebay-priority", "free")];
    let mut client = proxy.connect();
    let answer = client.call_with("POST", CHAT, &free, chat("free").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn who_finds_nobody_up_and_a_full_line_is_told_that_nobody_is_up() {
    let engine = Engine::start();
    engine.refuse();
    let proxy = narrow(&engine, "entries = 1").launch();
    expect_soon("it listens", || proxy.ask_admin("/health").status == 200);
    let _waiting = join(&proxy, "paid", "first");
    let answer = proxy.chat(&chat("second"));
    assert_eq!((answer.status, answer.reason()), (503, Some("no_worker")));
}

#[test]
fn those_in_line_outlive_the_only_worker_s_restart() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "").start();
    let held = occupy(&proxy, &engine);
    let clients: Vec<_> = (0..20)
        .map(|number| join(&proxy, "paid", &number.to_string()))
        .collect();
    engine.refuse();
    drop(held);
    expect_soon("it is out", || proxy.worker("w")["state"] != "up");
    engine.accept();
    for mut client in clients {
        let answer = client.answer();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(engine.count(), 21, "nobody was asked twice");
}

#[test]
fn a_wait_follows_what_a_request_waits_for() {
    let engine = Engine::start();
    let queue = "wait = \"60s\"\nwait_no_worker = \"300ms\"";
    let proxy = narrow(&engine, queue).start();
    let _held = occupy(&proxy, &engine);
    let mut waiting = join(&proxy, "paid", "x");
    engine.refuse();
    let answer = waiting.answer();
    assert_eq!((answer.status, answer.reason()), (503, Some("no_worker")));
}

#[test]
fn who_still_waits_when_the_proxy_ends_is_told_so() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "").top("drain = \"300ms\"").start();
    let _held = occupy(&proxy, &engine);
    let mut waiting = join(&proxy, "paid", "x");
    proxy.signal("TERM");
    let answer = waiting.answer();
    assert_eq!((answer.status, answer.reason()), (503, Some("no_worker")));
    assert!(retry_after(&answer) >= 1);
}

#[test]
fn a_request_that_only_a_dead_worker_could_have_is_503_when_its_time_is_over() {
    let engine = Engine::start();
    let queue = "wait_no_worker = \"500ms\"";
    let proxy = narrow(&engine, queue).probe("interval = \"1h\"").start();
    engine.refuse();
    let answer = proxy.chat(&chat("x"));
    let refused = (answer.status, answer.reason());
    assert_eq!(refused, (503, Some("no_worker")), "{}", answer.text());
    assert_eq!(engine.count(), 0);
}

#[test]
fn who_waited_is_told_where_it_stood() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "").start();
    let held = occupy(&proxy, &engine);
    let clients = [
        ("batch", "1"),
        ("batch", "2"),
        ("paid", "1"),
        ("batch", "4"),
    ]
    .map(|(class, position)| (join(&proxy, class, position), position));
    drop(held);
    for (mut client, position) in clients {
        let answer = client.answer();
        assert_eq!(answer.header("x-forebay-queue-position"), Some(position));
    }
    let at_once = proxy.chat(&chat("x"));
    assert_eq!(at_once.header("x-forebay-queue-position"), None);
}

#[test]
fn who_leaves_in_vain_is_told_where_it_was_then() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "wait = { batch = \"300ms\" }").start();
    let _held = occupy(&proxy, &engine);
    let mut hasty = join(&proxy, "batch", "hasty");
    let _before = join(&proxy, "paid", "before");
    let answer = hasty.answer();
    assert_eq!(answer.reason(), Some("queue_timeout"));
    assert_eq!(answer.header("x-forebay-queue-position"), Some("2"));
}

#[test]
fn in_a_line_that_stands_the_newest_go_first() {
    let engine = Engine::start();
    let queue = "newest_first = { paid = \"0s\", batch = \"off\" }";
    let proxy = narrow(&engine, queue).start();
    let overloaded = |class| proxy.metric("forebay_queue_overloaded", &[("class", class)]);
    assert_eq!(overloaded("paid"), 0.0);
    let held = occupy(&proxy, &engine);
    let clients = [("batch", "1"), ("paid", "2"), ("batch", "3"), ("paid", "4")]
        .map(|(class, said)| join(&proxy, class, said));
    assert_eq!((overloaded("paid"), overloaded("batch")), (1.0, 0.0));
    drop(held);
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(asked(&engine), ["held", "4", "2", "1", "3"]);
    assert_eq!(overloaded("paid"), 0.0);
}

#[test]
fn the_admin_side_shows_who_waits_and_what_for() {
    let engine = Engine::start();
    let proxy = narrow(&engine, "newest_first = \"0s\"").start();
    let empty = proxy.api("/api/queue");
    assert_eq!(
        (&empty["entries"], &empty["overloaded"]),
        (&0.into(), &false.into())
    );
    let held = occupy(&proxy, &engine);
    let _batch = join(&proxy, "batch", "later");
    let headers = [("x-request-id", "the-one")];
    let mut client = proxy.connect();
    client.send(&request("POST", CHAT, &headers, chat("x").as_bytes()));
    expect_soon("both wait", || proxy.api("/api/queue")["entries"] == 2);
    let shown = proxy.api("/api/queue");
    assert_eq!(shown["overloaded"], true);
    assert!(shown["bytes"].as_u64().unwrap() > 100, "{shown}");
    let class = &shown["classes"][2];
    assert_eq!(
        (&class["class"], &class["depth"]),
        (&"batch".into(), &1.into())
    );
    assert!(class["oldest_s"].as_f64().unwrap() > 0.0, "{shown}");
    let first = &shown["waiting"][0];
    assert_eq!(
        (&first["id"], &first["class"]),
        (&"the-one".into(), &"paid".into())
    );
    assert_eq!(
        (&first["tenant"], &first["position"]),
        (&"-".into(), &1.into())
    );
    assert_eq!(shown["waiting"][1]["position"], 2);
    let why = "the only worker that serves `m`: w has 1 of 1 places taken";
    assert_eq!(first["waits_for"], why);
    let found = proxy.api("/api/requests/the-one");
    assert_eq!(
        (&found["state"], &found["waits_for"]),
        (&"waiting".into(), &why.into())
    );
    drop(held);
    assert_eq!(client.answer().status, 200);
    expect_soon("it has ended", || {
        proxy.api("/api/requests/the-one")["status"] == 200
    });
}
