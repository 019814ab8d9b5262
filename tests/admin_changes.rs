//! `POST /api/workers/NAME/…`: an operator changes a running fleet by hand, over real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use support::client::request;
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::{BEARER, Proxy, TOKEN};

const DRAIN: &str = "/api/workers/a/drain";
const RESUME: &str = "/api/workers/a/resume";

/// Two workers of one kind, `a` and `b`, asked in turn.
fn pair() -> ([Engine; 2], Proxy) {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .section("[routing]\npolicy = \"round_robin\"")
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .start();
    (engines, proxy)
}

#[test]
fn a_drained_worker_ends_what_it_holds_and_gets_nothing_new() {
    let (engines, proxy) = pair();
    engines[0].tune(|knobs| knobs.chunk_delay = Duration::from_millis(100));
    engines[1].tune(|knobs| knobs.chunk_delay = Duration::from_millis(100));
    // In turn: one of the two is a's.
    let mut held = [proxy.connect(), proxy.connect()];
    for client in &mut held {
        client.send(&request("POST", CHAT, &[], stream("x", 10).as_bytes()));
    }
    expect_soon("a has one", || proxy.worker("a")["inflight"] == 1);
    let row = proxy.change(DRAIN, r#"{"within": "10m"}"#).json();
    assert_eq!(
        (&row["name"], &row["state"], &row["reason"]),
        (&"a".into(), &"draining".into(), &"drained by hand".into())
    );
    assert!(row["until"].is_string(), "{row}");
    assert_eq!(row["override"]["state"], "draining");
    for _ in 0..4 {
        assert_eq!(proxy.chat(&chat("x")).header("x-forebay-worker"), Some("b"));
    }
    for mut client in held {
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("[DONE]"), "{}", answer.text());
    }
    expect_soon("it holds nothing", || proxy.worker("a")["inflight"] == 0);
    let state = [("worker", "a"), ("state", "draining")];
    assert_eq!(proxy.metric("forebay_worker_state", &state), 1.0);

    let back = proxy.change(RESUME, "").json();
    assert_eq!(back["state"], "up");
    assert!(back.get("override").is_none(), "{back}");
    expect_soon("it is asked again", || {
        proxy.chat(&chat("x")).header("x-forebay-worker") == Some("a")
    });
}

#[test]
fn who_waits_for_a_drained_worker_is_served_when_it_is_resumed() {
    let engine = Engine::start();
    let setup = Proxy::setup().worker("a", &engine);
    let proxy = setup.queue("wait_no_worker = \"1m\"").start();
    assert_eq!(proxy.change(DRAIN, "").status, 200);
    assert_eq!(proxy.ask_admin("/ready").status, 503);
    assert!(
        proxy
            .ask_admin("/ready")
            .text()
            .contains("a: drained by hand")
    );
    let mut client = proxy.connect();
    let headers = [("x-request-id", "waits")];
    client.send(&request("POST", CHAT, &headers, chat("x").as_bytes()));
    let path = "/api/requests/waits";
    expect_soon("it waits", || proxy.ask_admin(path).status == 200);
    assert_eq!(
        proxy.api(path)["waits_for"],
        "the only worker that serves `m`: a is drained by hand"
    );
    assert_eq!(engine.count(), 0);
    proxy.change(RESUME, "");
    assert_eq!(client.answer().status, 200);
    assert!(proxy.is_ready());
}

#[test]
fn without_a_line_nobody_is_served_by_a_drained_worker() {
    let engine = Engine::start();
    let setup = Proxy::setup().worker("a", &engine);
    let proxy = setup.section("[routing]\nall_down = \"try_all\"").start();
    proxy.change(DRAIN, "");
    let answer = proxy.chat(&chat("x"));
    assert_eq!((answer.status, answer.reason()), (503, Some("no_worker")));
    assert_eq!(engine.count(), 0);
}

#[test]
fn one_that_is_ejected_comes_back_by_itself() {
    let (_engines, proxy) = pair();
    let row = proxy.change("/api/workers/a/eject", r#"{"within": "300ms"}"#);
    let row = row.json();
    assert_eq!(
        (&row["state"], &row["reason"]),
        (&"ejected".into(), &"ejected by hand".into())
    );
    expect_soon("it is back", || proxy.worker("a")["state"] == "up");
    assert_eq!(proxy.worker("a")["slow_start"], 1);
}

#[test]
fn a_speed_moves_requests_before_any_was_measured() {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .start();
    let speed = |name: &str, speed: f64| {
        let path = format!("/api/workers/{name}/speed");
        proxy
            .change(&path, &format!("{{\"speed\": {speed}}}"))
            .json()
    };
    assert_eq!(speed("a", 0.01)["override"]["speed"], 0.01);
    for _ in 0..4 {
        assert_eq!(proxy.chat(&chat("x")).header("x-forebay-worker"), Some("b"));
    }
    speed("a", 1_000.0);
    speed("b", 0.001);
    assert_eq!(proxy.chat(&chat("x")).header("x-forebay-worker"), Some("a"));
}

#[test]
fn a_browser_needs_the_header_and_everybody_else_the_token() {
    let (_engines, proxy) = pair();
    let welcome = proxy.admin_call("GET", &format!("/?token={TOKEN}"), &[], "");
    let cookie = welcome.header("set-cookie").unwrap();
    let cookie = ("cookie", cookie.split(';').next().unwrap());
    let drain = |headers: &[(&str, &str)]| {
        let answer = proxy.admin_call("POST", DRAIN, headers, "");
        let code = || answer.json()["error"]["code"].as_str().unwrap().to_owned();
        match answer.status {
            200 => (200, String::new()),
            status => (status, code()),
        }
    };
    let csrf = ("x-forebay-csrf", "1");
    assert_eq!(drain(&[]), (401, "unauthorized".into()));
    assert_eq!(drain(&[csrf]), (401, "unauthorized".into()));
    assert_eq!(drain(&[cookie]), (403, "csrf".into()));
    let foreign = [("host", "evil.example"), ("authorization", BEARER)];
    assert_eq!(drain(&foreign), (403, "foreign_host".into()));
    assert_eq!(proxy.worker("a")["state"], "up");
    assert_eq!(drain(&[cookie, csrf]).0, 200);
    assert_eq!(proxy.change(RESUME, "").status, 200);
    expect_soon("both are in the log", || {
        let log = proxy.stderr();
        let has = |text: &str, by: &str| {
            let mut lines = log.lines();
            lines.any(|line| line.contains(text) && line.contains(by))
        };
        has("drained by hand by=\"cookie\" worker=\"a\"", "WARN")
            && has("resumed by hand by=\"token\" worker=\"a\"", "WARN")
    });
    let secret = cookie.1.split('=').nth(1).unwrap();
    assert!(!proxy.stderr().contains(TOKEN) && !proxy.stderr().contains(secret));
}

#[test]
fn what_can_not_be_done_is_said_in_the_admin_sides_shape() {
    let (_engines, proxy) = pair();
    let long = format!("{{\"within\": \"{}\"}}", "x".repeat(5_000));
    for (path, body, status, code) in [
        ("/api/workers/c/drain", "", 404, "worker_not_found"),
        ("/api/workers/a/stop", "", 404, "not_found"),
        (DRAIN, r#"{"within": "soon"}"#, 400, "bad_request"),
        (
            "/api/workers/a/speed",
            r#"{"speed": -1}"#,
            400,
            "bad_request",
        ),
        (DRAIN, &long, 413, "body_too_large"),
        ("/api/workers", "", 405, "method_not_allowed"),
    ] {
        let answer = proxy.change(path, body);
        assert_eq!(answer.status, status, "{path} {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], code, "{path}");
    }
    let near = proxy.change("/api/workers/c/drain", "");
    assert!(near.text().contains("did you mean a?"), "{}", near.text());
    let read = proxy.ask_admin(DRAIN);
    assert_eq!((read.status, read.header("allow")), (405, Some("POST")));
    assert!(proxy.all_are_up(), "nothing was changed");
}

#[test]
fn a_drain_outlasts_an_ejection_and_a_second_drain_says_a_new_time() {
    let (_engines, proxy) = pair();
    proxy.change(DRAIN, r#"{"within": "10m"}"#);
    let first = proxy.worker("a");
    let ejected = proxy
        .change("/api/workers/a/eject", r#"{"within": "100ms"}"#)
        .json();
    assert_eq!(
        (&ejected["state"], &ejected["until"]),
        (&"draining".into(), &first["until"])
    );
    let again = proxy.change(DRAIN, r#"{"within": "20m"}"#).json();
    assert_eq!(again["state"], "draining");
    assert_ne!(again["until"], first["until"]);
    let endless = proxy.change(DRAIN, "").json();
    assert!(endless.get("until").is_none(), "{endless}");
}

#[test]
fn one_that_its_errors_took_out_is_let_in_by_hand() {
    let engines = [Engine::start(), Engine::start()];
    let rules = "[eject]\nfirst = \"5m\"\nmax = \"5m\"\n[routing]\npolicy = \"round_robin\"\nretries = { extra = 0 }";
    let proxy = Proxy::setup()
        .section(rules)
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .start();
    engines[0].tune(|knobs| knobs.fail(Failure::Status(500), 3));
    for _ in 0..6 {
        proxy.chat(&chat("x"));
    }
    let row = proxy.worker("a");
    assert_eq!(
        (&row["state"], row.get("override")),
        (&"ejected".into(), None),
        "{row}"
    );
    let back = proxy.change(RESUME, "").json();
    assert_eq!(
        (&back["state"], &back["slow_start"]),
        (&"up".into(), &1.into()),
        "{back}"
    );
    expect_soon("it is asked again", || {
        proxy.chat(&chat("x")).header("x-forebay-worker") == Some("a")
    });
}

#[test]
fn changes_at_the_same_time_leave_one_of_them() {
    let (_engines, proxy) = pair();
    std::thread::scope(|scope| {
        for turn in 0..8 {
            let proxy = &proxy;
            scope.spawn(move || {
                for _ in 0..10 {
                    let answer = match turn % 4 {
                        0 => proxy.change(DRAIN, ""),
                        1 => proxy.change(RESUME, ""),
                        2 => proxy.change("/api/workers/a/eject", r#"{"within": "1m"}"#),
                        _ => proxy.change("/api/workers/a/speed", r#"{"speed": 2}"#),
                    };
                    assert_eq!(answer.status, 200);
                    assert_eq!(answer.json()["name"], "a");
                }
            });
        }
    });
    assert_eq!(proxy.change(RESUME, "").json()["state"], "up");
    expect_soon("each is in the log", || {
        let log = proxy.stderr();
        let lines = |what: &str| log.lines().filter(|line| line.contains(what)).count();
        [
            "drained by hand by",
            "resumed by hand by",
            "ejected by hand by",
            "speed set by hand by",
        ]
        .map(lines)
            == [20, 21, 20, 20]
    });
}

#[test]
fn a_restart_forgets_what_was_changed_by_hand() {
    let engine = Engine::start();
    let state = tempfile::tempdir().unwrap();
    let start = |lines: &str| {
        let setup = Proxy::setup().state(state.path());
        setup.worker_with("a", &engine, lines).start()
    };
    let stop = |proxy: Proxy| {
        proxy.signal("TERM");
        proxy.wait_exit(Duration::from_secs(10));
    };
    let weight = |proxy: &Proxy| proxy.worker("a")["weight"].as_f64().unwrap();
    let proxy = start("");
    let believed = weight(&proxy);
    proxy.change(DRAIN, "");
    proxy.change("/api/workers/a/speed", r#"{"speed": 100}"#);
    assert!(weight(&proxy) > 50.0 * believed);
    stop(proxy);
    let proxy = start("");
    let row = proxy.worker("a");
    assert_eq!(
        (&row["state"], row.get("override")),
        (&"up".into(), None),
        "{row}"
    );
    assert!((weight(&proxy) / believed - 1.0).abs() < 0.5, "{row}");
    stop(proxy);
    // What the configuration says counts too, as long as nothing was learned.
    assert!(weight(&start("speed = 100.0")) > 50.0 * believed);
}

#[test]
fn names_are_taken_as_they_are_written_in_a_path() {
    let (_engines, proxy) = pair();
    for (path, status) in [
        ("/api/workers/%61/resume", 200),
        ("/api/workers/a%2F..%2Fb/resume", 404),
        ("/api/workers/../workers/a/resume", 404),
        ("/api/workers/%C3%A4/resume", 404),
        ("/api/workers/%/resume", 404),
        ("/api/workers//resume", 404),
        ("/api/workers/a/resume/", 404),
        ("/api/workers/a/RESUME", 404),
    ] {
        let answer = proxy.change(path, "");
        assert_eq!(answer.status, status, "{path} {}", answer.text());
    }
}
