//! What the proxy itself refuses, and how it says so: status, reason, shape, and one line and one count each.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use support::client::{Answer, chunked, request};
use support::engine::Engine;
use support::engine::knobs::{Failure, Health, Knobs};
use support::expect_soon;
use support::h2_client::H2Client;
use support::prompt::{CHAT, chat, stream};
use support::proxy::Proxy;

/// The error object of OpenAI's shape, after its other promises were checked.
#[track_caller]
fn openai_error(answer: &Answer, status: u16, reason: &str) -> Value {
    let shown = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(
        (answer.status, answer.reason()),
        (status, Some(reason)),
        "{shown}"
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], reason, "{shown}");
    assert!(error["type"].is_string(), "{shown}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty()),
        "{shown}"
    );
    assert!(error.get("param").is_some(), "{shown}");
    error
}

#[track_caller]
fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap()
}

/// A proxy in front of one worker that serves two models.
fn two_models(worker: &Engine) -> Proxy {
    worker.tune(|knobs| knobs.models = vec!["m".to_owned(), "Qwen2.5-7B".to_owned()]);
    let models = r#"models = ["m", "Qwen2.5-7B"]"#;
    Proxy::setup().worker_with("w", worker, models).start()
}

#[test]
fn a_body_that_cannot_be_read_safely_is_400_and_reaches_no_worker() {
    let worker = Engine::start();
    let proxy = two_models(&worker);
    let bodies: [&[u8]; 8] = [
        b"",
        b"{\"model\":",
        b"not json",
        b"[\"model\"]",
        b"{\"messages\":[]}",
        b"{\"model\":\"m\",\"model\":\"Qwen2.5-7B\"}",
        b"{\"model\":\"m\xff\",\"messages\":[]}",
        b"{\"model\":7,\"messages\":[]}",
    ];
    for body in bodies {
        let answer = proxy.connect().call_with("POST", CHAT, &[], body);
        openai_error(&answer, 400, "bad_request");
    }
    assert_eq!(worker.count(), 0);
}

#[test]
fn a_body_without_a_model_goes_to_the_only_model_there_is() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.canned = Some(support::engine::knobs::Canned::ok("x")));
    let proxy = Proxy::before(&worker);
    let body = r#"{"messages":[]}"#;
    assert_eq!(proxy.chat(body).status, 200);
    assert_eq!(worker.only_request().body, body.as_bytes());
}

#[test]
fn a_missing_or_doubled_host_is_400() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for hosts in ["", "host: a\r\nhost: b\r\n", "host: a\r\nHost: a\r\n"] {
        let bytes = format!("GET /v1/models HTTP/1.1\r\n{hosts}\r\n");
        let answer = proxy.connect().send(bytes.as_bytes()).answer();
        assert_eq!(answer.status, 400, "{hosts:?}");
    }
}

#[test]
fn what_this_version_does_not_carry_is_refused_and_tunnels_nothing() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let websocket = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n";
    for (start, headers, statuses) in [
        ("CONNECT 127.0.0.1:22", "", [400, 405]),
        ("GET http://elsewhere/health", "", [400, 400]),
        ("GET /v1/realtime?model=m", websocket, [400, 404]),
        ("GET /health", websocket, [400, 400]),
    ] {
        let mut client = proxy.connect();
        let head = format!("{start} HTTP/1.1\r\nhost: proxy\r\n{headers}\r\nsmuggled");
        client.send(head.as_bytes());
        let answer = client.answer();
        assert!(
            statuses.contains(&answer.status),
            "{start}: {}",
            answer.status
        );
    }
    let multipart = [("content-type", "multipart/form-data; boundary=x")];
    let answer =
        proxy
            .connect()
            .call_with("POST", "/v1/audio/transcriptions", &multipart, b"--x--");
    openai_error(&answer, 400, "bad_request");
    assert_eq!(worker.count(), 0);
}

#[test]
fn an_offer_to_upgrade_to_http2_is_passed_over() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let offer = [
        ("connection", "upgrade, http2-settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
    ];
    let body = chat("x");
    let answer = proxy
        .connect()
        .call_with("POST", CHAT, &offer, body.as_bytes());
    assert_eq!(answer.status, 200);
    let seen = worker.only_request();
    assert!(seen.all("upgrade").is_empty() && seen.all("http2-settings").is_empty());
}

#[test]
fn an_unknown_model_is_404_and_the_nearest_is_named() {
    let worker = Engine::start();
    let proxy = two_models(&worker);
    let answer = proxy.chat(&chat("x").replace("\"m\"", "\"qwen2.5-7b\""));
    let error = openai_error(&answer, 404, "model_not_found");
    assert!(message(&error).contains("Qwen2.5-7B"), "{error}");
    assert_eq!(error["param"], "model");
    let kserve = proxy.call("POST", "/v2/models/qwen2.5-7b/infer", r#"{"inputs":[]}"#);
    assert_eq!(
        (kserve.status, kserve.reason()),
        (404, Some("model_not_found"))
    );
    assert_eq!(worker.count(), 0);
}

#[test]
fn an_unknown_path_is_404_and_a_wrong_method_405() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for path in [
        "/",
        "/v1",
        "/nope",
        "/v1/chat/completions/",
        "/v1/../health",
    ] {
        openai_error(&proxy.call("GET", path, ""), 404, "no_route");
    }
    for (method, path) in [
        ("GET", CHAT),
        ("DELETE", "/v1/embeddings"),
        ("POST", "/v1/models"),
    ] {
        let answer = proxy.call(method, path, "");
        openai_error(&answer, 405, "method_not_allowed");
        assert!(answer.header("allow").is_some(), "{method} {path}");
    }
    assert_eq!(worker.count(), 0);
}

#[test]
fn a_body_over_the_limit_is_413_whatever_its_framing() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &worker)
        .section("[limits]\nbody = \"1KiB\"\n[[route]]\npath = \"/raw/*\"")
        .start();
    let big = chat(&"x".repeat(2_000));
    let length = big.len().to_string();
    for path in [CHAT, "/raw/x"] {
        // By its announced length, before a byte of the body was sent.
        let announced = request("POST", path, &[("content-length", &length)], b"");
        let answer = proxy.connect().send(&announced).answer();
        openai_error(&answer, 413, "body_too_large");
        let wire = chunked(&[&big.as_bytes()[..900], &big.as_bytes()[900..]]);
        let headers = [("transfer-encoding", "chunked")];
        let answer = proxy.connect().call_with("POST", path, &headers, &wire);
        openai_error(&answer, 413, "body_too_large");
        let answer = H2Client::connect(proxy.address()).call("POST", path, &[], big.as_bytes());
        openai_error(&answer, 413, "body_too_large");
    }
    assert_eq!(worker.count(), 0);
    let fits = chat(&"x".repeat(900));
    assert_eq!(proxy.chat(&fits).status, 200);
}

#[test]
fn a_compressed_inference_body_is_415() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for encoding in ["gzip", "br", "zstd", "gzip, identity"] {
        let headers = [("content-encoding", encoding)];
        let body = chat("x");
        let answer = proxy
            .connect()
            .call_with("POST", CHAT, &headers, body.as_bytes());
        openai_error(&answer, 415, "unsupported_encoding");
    }
    assert_eq!(worker.count(), 0);
}

#[test]
fn a_head_over_the_limit_is_431_and_counts_as_refused() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let long = "x".repeat(70 * 1024);
    let answer = proxy
        .connect()
        .send(&request("GET", "/v1/models", &[("x-long", &long)], b""))
        .answer();
    assert_eq!(answer.status, 431);
    expect_soon("it was counted", || {
        proxy.metric("forebay_connections_refused_total", &[]) >= 1.0
    });
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
fn a_body_that_is_cut_is_nobodys_request() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for (framing, start) in [
        ("content-length: 100", "{"),
        ("transfer-encoding: chunked", "5\r\n{\"mod"),
    ] {
        let mut client = proxy.connect();
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n{start}");
        client.send(head.as_bytes());
        client.half_close();
        client.rest();
    }
    let log = proxy.log_of(2);
    assert!(
        log.iter()
            .all(|line| line["reason"] == "client_gone" || line["reason"] == "bad_request"),
        "{log:#?}"
    );
    assert_eq!(worker.count(), 0);
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
fn a_worker_that_breaks_is_502_and_the_cause_is_named() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for failure in [
        Failure::ResetAfterRequest,
        Failure::Rubbish(bytes::Bytes::from_static(b"\x16\x03\x01 rubbish\r\n\r\n")),
        Failure::Rubbish(bytes::Bytes::from_static(b"HTTP/1.1 200 OK\r\ncontent-le")),
    ] {
        worker.tune(|knobs| knobs.fail(failure.clone(), u64::MAX));
        let answer = proxy.chat(&chat("x"));
        let error = openai_error(&answer, 502, "worker_failed");
        assert!(message(&error).contains('w'), "{failure:?}: {error}");
    }
}

#[test]
fn no_worker_that_is_up_is_503_with_a_time_to_come_back() {
    let worker = Engine::with(Knobs {
        health: Health::Status(503),
        ..Knobs::default()
    });
    let proxy = Proxy::setup().worker("w", &worker).launch();
    expect_soon("it was probed", || worker.probes() > 2);
    let answer = proxy.chat(&chat("x"));
    openai_error(&answer, 503, "no_worker");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait));
    let ready = proxy.call("GET", "/ready", "");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains('w'), "{}", ready.text());
    assert_eq!(proxy.call("GET", "/health", "").status, 200);
    assert_eq!(worker.count(), 0);

    worker.tune(|knobs| knobs.health = Health::Good);
    expect_soon("the worker is back", || {
        proxy.call("GET", "/ready", "").status == 200
    });
    assert_eq!(proxy.chat(&chat("x")).status, 200);
}

/// A proxy with one timer set.
fn timed(worker: &Engine, timer: &str) -> Proxy {
    Proxy::setup()
        .worker("w", worker)
        .section(&format!("[timeouts]\n{timer} = \"300ms\""))
        .start()
}

#[test]
fn a_timer_that_fires_is_named_with_its_value_and_the_time_passed() {
    // A worker may fall silent before its head or behind it; as long as nothing was passed on, it is the same to a client.
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
fn a_stream_that_breaks_resets_an_h2_stream_after_the_error_event() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    worker.tune(|knobs| knobs.fail(Failure::CutAfter(3), 1));
    let body = stream("x", 9);
    let answer = H2Client::connect(proxy.address()).call("POST", CHAT, &[], body.as_bytes());
    assert!(answer.text().contains("event: error\n"));
    assert!(!answer.text().contains("[DONE]"));
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
fn errors_speak_the_paths_own_language() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let unknown = chat("x").replace("\"m\"", "\"other\"");

    let anthropic = proxy.call("POST", "/v1/messages", &unknown);
    assert_eq!(
        (anthropic.status, anthropic.reason()),
        (404, Some("model_not_found"))
    );
    let said = anthropic.json();
    assert_eq!(said["type"], "error");
    assert_eq!(said["error"]["type"], "not_found_error");
    assert!(said["error"]["message"].is_string());

    let kserve = proxy.call("POST", "/v2/models/other/infer", "{}");
    assert_eq!(
        (kserve.status, kserve.reason()),
        (404, Some("model_not_found"))
    );
    assert!(kserve.json()["error"].is_string());

    openai_error(&proxy.chat(&unknown), 404, "model_not_found");
}

#[test]
fn every_error_carries_the_requests_id() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let answer = proxy
        .connect()
        .call_with("GET", "/nope", &[("x-request-id", "mine")], b"");
    assert_eq!(answer.header("x-request-id"), Some("mine"));
}

#[test]
fn a_keep_alive_connection_outlives_a_refusal() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let mut client = proxy.connect();
    assert_eq!(client.call("GET", "/nope", "").status, 404);
    assert_eq!(client.call("POST", CHAT, "not json").status, 400);
    assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
}

/// What one request should leave in the log.
struct Ending {
    status: u16,
    reason: &'static str,
}

/// Runs one request of each kind, one after the other.
fn one_of_each(proxy: &Proxy, worker: &Engine) -> Vec<Ending> {
    let mut endings = Vec::new();
    let mut ended = |status, reason| endings.push(Ending { status, reason });
    proxy.chat(&chat("x"));
    ended(200, "ok");
    proxy.chat(&stream("x", 5));
    ended(200, "ok");
    proxy.chat("not json");
    ended(400, "bad_request");
    proxy.call("GET", "/nope", "");
    ended(404, "no_route");
    worker.tune(|knobs| knobs.fail(Failure::CutAfter(2), 1));
    proxy.chat(&stream("x", 5));
    ended(200, "worker_failed");
    worker.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut leaving = proxy.connect();
    let seen = worker.count();
    leaving.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
    expect_soon("the request arrived", || worker.count() > seen);
    drop(leaving);
    ended(499, "client_gone");
    endings
}

#[test]
fn each_request_is_one_line_and_one_count_however_it_ends() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let endings = one_of_each(&proxy, &worker);
    let log = proxy.log_of(endings.len());
    assert_eq!(log.len(), endings.len(), "{log:#?}");
    for (line, ending) in log.iter().zip(&endings) {
        assert_eq!(line["status"], ending.status, "{line}");
        assert_eq!(line["reason"], ending.reason, "{line}");
        assert_eq!(line["tenant"], "-");
        assert!(
            line["total_s"]
                .as_f64()
                .is_some_and(|seconds| seconds >= 0.0),
            "{line}"
        );
    }
    assert_eq!(proxy.metric("forebay_requests_total", &[]), 6.0);
    for (code, reason, count) in [
        ("200", "ok", 2.0),
        ("499", "client_gone", 1.0),
        ("200", "worker_failed", 1.0),
    ] {
        let labels = [("code", code), ("reason", reason)];
        assert_eq!(
            proxy.metric("forebay_requests_total", &labels),
            count,
            "{code} {reason}"
        );
    }
    expect_soon("nothing is in flight", || {
        proxy.metric("forebay_inflight", &[("worker", "w")]) == 0.0
    });
}

#[test]
fn a_log_line_says_all_that_is_known() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let asked =
        stream("one two", 6).replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1);
    let answer = proxy.call("POST", &format!("{CHAT}?secret=1"), &asked);
    let line = &proxy.log_of(1)[0];
    for (key, value) in [
        ("method", "POST"),
        ("path", CHAT),
        ("route", CHAT),
        ("model", "m"),
        ("worker", "w"),
        ("reason", "ok"),
    ] {
        assert_eq!(line[key], value, "{line}");
    }
    assert_eq!(line["attempts"], 1);
    assert_eq!(line["bytes_in"], asked.len());
    assert_eq!(line["bytes_out"], answer.body.len());
    assert_eq!(line["output_tokens"], 6);
    assert_eq!(line["prompt_tokens"], 3);
    assert_eq!(line["cached_tokens"], 0);
    let times =
        ["queue_s", "route_s", "first_byte_s", "total_s"].map(|key| line[key].as_f64().unwrap());
    assert!(times[2] <= times[3], "{line}");
    assert!(
        line["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
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
    expect_soon("both are up", || {
        ["good", "deaf"]
            .iter()
            .all(|name| proxy.worker(name)["state"] == "up")
    });
    let _deaf = Deaf::new(listener);
    for _ in 0..2 {
        let answer = proxy.chat(&chat("x"));
        assert_eq!(answer.header("x-forebay-worker"), Some("good"));
    }
    let refused = [("worker", "deaf")];
    assert_eq!(proxy.metric("forebay_attempts_total", &refused), 1.0);
}
