//! Every timer fires when it should, is named with its value and the time that passed, and frees the worker.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use support::client::request;
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::Proxy;
use support::refusal::{message, openai_error};

/// A proxy with one timer set.
fn timed(worker: &Engine, timer: &str) -> Proxy {
    Proxy::setup()
        .worker("w", worker)
        .section(&format!("[timeouts]\n{timer} = \"300ms\""))
        .start()
}

#[test]
fn a_timer_that_fires_is_named_with_its_value_and_the_time_passed() {
    // A worker may fall silent before its head or behind it; as long as nothing was passed on, it is the same to a
    // client.
    for (timer, reason, failure, body) in [
        (
            "first_byte",
            "first_byte_timeout",
            Failure::Hang,
            stream("x", 4),
        ),
        (
            "first_byte",
            "first_byte_timeout",
            Failure::StallAfter(0),
            stream("x", 4),
        ),
        ("answer", "answer_timeout", Failure::Hang, chat("x")),
        (
            "answer",
            "answer_timeout",
            Failure::StallAfter(0),
            chat("x"),
        ),
        // Its head came, so this is silence inside an answer.
        (
            "between_bytes",
            "stalled",
            Failure::StallAfter(0),
            chat("x"),
        ),
        ("total", "deadline", Failure::Hang, chat("x")),
        ("total", "deadline", Failure::Hang, stream("x", 4)),
    ] {
        let worker = Engine::start();
        let proxy = timed(&worker, timer);
        worker.tune(|knobs| knobs.fail(failure, u64::MAX));
        let before = worker.now();
        let answer = proxy.chat(&body);
        let passed = (worker.now() - before).0;
        let error = openai_error(&answer, 504, reason);
        assert!(message(&error).contains(timer), "{error}");
        assert!(message(&error).contains("300ms"), "{error}");
        // The time passed stands beside the limit.
        let numbers = message(&error).matches(char::is_numeric).count();
        assert!(numbers > 3, "{error}");
        assert!(
            (0.3..3.0).contains(&passed),
            "{timer} fired after {passed} s"
        );
        expect_soon("the worker was let go", || {
            worker.requests().iter().all(|seen| seen.gone.is_some())
        });
    }
}

#[test]
fn an_answer_that_is_too_long_under_way_is_cut_and_never_looks_whole() {
    let worker = Engine::start();
    let proxy = timed(&worker, "answer");
    worker.tune(|knobs| knobs.fail(Failure::StallAfter(1), 1));
    let mut client = proxy.connect();
    client.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
    let answer = client.answer();
    assert!(!answer.complete || answer.status == 504);
    assert_eq!(proxy.log_of(1)[0]["reason"], "answer_timeout");
}

#[test]
fn silence_inside_a_stream_ends_it_with_an_error_event() {
    let worker = Engine::start();
    let proxy = timed(&worker, "between_bytes");
    worker.tune(|knobs| knobs.fail(Failure::StallAfter(3), 1));
    let mut client = proxy.connect();
    client.send(&request("POST", CHAT, &[], stream("x", 9).as_bytes()));
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    let events = answer.text();
    let (_, last) = events.rsplit_once("event: error\n").expect(events);
    let error: Value = serde_json::from_str(last.trim().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "stalled");
    assert!(
        message(&error["error"]).contains("between_bytes"),
        "{error}"
    );
    assert!(!events.contains("[DONE]"));
    assert!(client.is_closed());
    let line = &proxy.log_of(1)[0];
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&200.into(), &"stalled".into())
    );
}

#[test]
fn nearer_timeouts_lie_over_farther_ones() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "timeouts = { answer = \"250ms\" }")
        .section("[timeouts]\nanswer = \"1h\"\n[[route]]\npath = \"/raw/*\"\ntimeouts = { answer = \"2h\" }")
        .start();
    worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    for path in [CHAT, "/raw/x"] {
        let answer = proxy.call("POST", path, &chat("x"));
        let error = openai_error(&answer, 504, "answer_timeout");
        assert!(message(&error).contains("250ms"), "{error}");
    }
}

#[test]
fn the_total_time_runs_while_a_request_waits_in_line() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "max_inflight = 1")
        .section("[timeouts]\ntotal = \"300ms\"")
        .section("[[route]]\npath = \"/raw/*\"\ntimeouts = { total = \"off\" }")
        .start();
    worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    let mut held = proxy.connect();
    held.send(&request("POST", "/raw/x", &[], b"x"));
    expect_soon("it arrived", || worker.count() == 1);
    openai_error(&proxy.chat(&chat("x")), 504, "deadline");
    assert_eq!(worker.count(), 1);
    let waiting = proxy.metric("forebay_queue_depth", &[]);
    assert_eq!(waiting, 0.0);
}

#[test]
fn the_total_time_runs_while_a_request_waits_in_line_for_another_try() {
    let (dead, busy) = (Engine::start(), Engine::start());
    let proxy = Proxy::setup()
        .worker("dead", &dead)
        .worker_with("busy", &busy, "max_inflight = 1")
        .section("[timeouts]\ntotal = \"300ms\"")
        .section(
            "[[route]]\npath = \"/raw/*\"\nworkers = [\"busy\"]\ntimeouts = { total = \"off\" }",
        )
        .probe("interval = \"60s\"\nrise = 1")
        .start();
    busy.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    let mut held = proxy.connect();
    held.send(&request("POST", "/raw/x", &[], b"x"));
    expect_soon("it arrived", || busy.count() == 1);
    dead.kill();
    openai_error(&proxy.chat(&chat("x")), 504, "deadline");
    assert_eq!(busy.count(), 1);
}

#[test]
fn a_head_that_never_ends_is_cut_at_the_deadline() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &worker)
        .section("[limits]\nheader_timeout = \"300ms\"")
        .start();
    for start in [
        "",
        "G",
        "GET /v1/models HTTP/1.1\r\nhost: a\r\n",
        "PRI * HTTP/2.0\r\n",
    ] {
        let mut client = proxy.connect();
        client.send(start.as_bytes());
        client.rest();
    }
    assert_eq!(proxy.call("GET", "/v1/models", "").status, 200);
}

#[test]
fn a_body_that_stops_coming_is_408() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &worker)
        .section("[limits]\nidle = \"300ms\"")
        .start();
    let headers = [("content-length", "100")];
    let mut client = proxy.connect();
    client.send(&request("POST", CHAT, &headers, b"{\"model\":"));
    let answer = client.answer();
    openai_error(&answer, 408, "request_timeout");
    assert!(client.is_closed());
    assert_eq!(worker.count(), 0);
}

#[test]
fn a_worker_is_not_late_while_an_upload_comes() {
    let workers = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &workers[0])
        .worker("b", &workers[1])
        .section("[timeouts]\nanswer = \"100ms\"")
        .section("[limits]\nbody = \"1MiB\"\nbuffered = \"1MiB\"")
        .section("[[route]]\npath = \"/raw/*\"")
        .start();
    let upload = |length: usize| {
        let mut client = proxy.connect();
        let told = length.to_string();
        let body = vec![b'x'; length - 1];
        client.send(&request(
            "POST",
            "/raw/x",
            &[("content-length", &told)],
            &body,
        ));
        client
    };
    // It fills the memory, so that the others flow.
    let _fills = upload(1000 << 10);
    expect_soon("it is held", || {
        proxy.metric("forebay_buffered_bytes", &[]) > 900e3
    });
    for _ in 0..4 {
        let mut client = upload(200 << 10);
        let began = workers[0].now();
        let mut fires = 0.0;
        expect_soon("the timer would have fired twice", || {
            fires = (workers[0].now() - began).0 / 0.1;
            fires > 2.0
        });
        client.send(b"x");
        assert_eq!(client.answer().status, 200, "after {fires} spans");
    }
    let late = [("worker", "a"), ("outcome", "answer_timeout")];
    assert_eq!(proxy.metric("forebay_attempts_total", &late), 0.0);
    assert_eq!(proxy.worker("a")["state"], "up");
}

#[test]
fn a_body_that_trickles_is_408_although_it_is_never_silent() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let mut reader = TcpStream::connect(proxy.address()).unwrap();
    let mut writer = reader.try_clone().unwrap();
    let headers = [("content-length", "1000")];
    let began = worker.now();
    writer
        .write_all(&request("POST", CHAT, &headers, b"{"))
        .unwrap();
    let (sender, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // As far as it comes: the connection ends behind the answer.
        let _ = reader.read_to_end(&mut bytes);
        sender
            .send(String::from_utf8_lossy(&bytes).into_owned())
            .unwrap();
    });
    let told = loop {
        match answer.recv_timeout(Duration::from_millis(300)) {
            Ok(told) => break told,
            Err(_) => drop(writer.write_all(b" ")),
        }
        // Far less than limits.idle, which a byte now and then would have outwaited.
        let passed = (worker.now() - began).0;
        assert!(passed < 40.0, "still waited for after {passed} s");
    };
    let passed = (worker.now() - began).0;
    assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
    assert!(told.contains("limits.body_rate = 1KiB"), "{told}");
    assert!(passed >= 10.0, "after {passed} s");
    assert_eq!(worker.count(), 0);
}

#[test]
fn a_connect_that_hangs_everywhere_is_told_with_its_value_and_the_time_passed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let proxy = Proxy::setup()
        .worker_at("deaf", &url, "engine = \"generic\"")
        .section("[timeouts]\nconnect = \"300ms\"")
        .probe("interval = \"1h\"\nrise = 1")
        .start();
    let _deaf = Deaf::new(listener);
    let error = openai_error(&proxy.chat(&chat("x")), 502, "worker_failed");
    let message = message(&error);
    assert!(message.contains("timeouts.connect = 300ms (3"), "{message}");
    assert!(message.contains("passed)"), "{message}");
}

/// A listener that accepts nothing and whose backlog is full: the kernel leaves further connects hanging.
struct Deaf {
    _listener: TcpListener,
    _backlog: Vec<TcpStream>,
}

impl Deaf {
    fn new(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let patience = Duration::from_millis(200);
        let connects = || TcpStream::connect_timeout(&address, patience).ok();
        Deaf {
            _backlog: std::iter::from_fn(connects).collect(),
            _listener: listener,
        }
    }
}

#[test]
fn a_connect_that_hangs_is_given_up_and_another_worker_asked() {
    let worker = Engine::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let proxy = Proxy::setup()
        .worker("good", &worker)
        .worker_at("deaf", &url, "engine = \"generic\"")
        .section("[timeouts]\nconnect = \"300ms\"\n[routing]\npolicy = \"round_robin\"")
        .probe("interval = \"1h\"\nrise = 1")
        .start();
    let _deaf = Deaf::new(listener);
    for _ in 0..2 {
        let answer = proxy.chat(&chat("x"));
        assert_eq!(answer.header("x-forebay-worker"), Some("good"));
    }
    let refused = [("worker", "deaf")];
    assert_eq!(proxy.metric("forebay_attempts_total", &refused), 1.0);
}
