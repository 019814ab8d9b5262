//! What the proxy itself refuses, and how it says so: status, reason, and the shape of the path.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use support::client::{chunked, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure, Health, Knobs};
use support::expect_soon;
use support::h2_client::H2Client;
use support::prompt::{CHAT, chat, stream};
use support::proxy::Proxy;
use support::refusal::{message, openai_error};

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
    let deep = format!(r#"{{"model":"m","messages":{}"#, "[".repeat(1 << 20));
    let bodies: [&[u8]; 9] = [
        b"",
        b"{\"model\":",
        b"not json",
        b"[\"model\"]",
        b"{\"messages\":[]}",
        b"{\"model\":\"m\",\"model\":\"Qwen2.5-7B\"}",
        b"{\"model\":\"m\xff\",\"messages\":[]}",
        b"{\"model\":7,\"messages\":[]}",
        deep.as_bytes(),
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
    worker.tune(|knobs| knobs.canned = Some(Canned::ok("x")));
    let proxy = Proxy::before(&worker);
    let body = r#"{"messages":[]}"#;
    assert_eq!(proxy.chat(body).status, 200);
    assert_eq!(worker.only_request().body, body.as_bytes());
}

#[test]
fn a_missing_doubled_or_odd_host_is_400() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for hosts in [
        "",
        "host: a\r\nhost: b\r\n",
        "host: a\r\nHost: a\r\n",
        "host: u@a\r\n",
    ] {
        let bytes = format!("GET /v1/models HTTP/1.1\r\n{hosts}\r\n");
        let answer = proxy.connect().send(bytes.as_bytes()).answer();
        assert_eq!(answer.status, 400, "{hosts:?}");
    }
}

#[test]
fn a_transfer_coding_besides_chunked_is_400() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for coding in ["gzip, chunked", "chunked, chunked", "identity"] {
        let framing = [("transfer-encoding", coding)];
        let bytes = request("POST", CHAT, &framing, &chunked(&[chat("x").as_bytes()]));
        let answer = proxy.connect().send(&bytes).answer();
        assert_eq!(answer.status, 400, "{coding}");
    }
    assert_eq!(worker.count(), 0);
}

#[test]
fn what_is_carried_nowhere_is_refused_and_tunnels_nothing() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let websocket = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (start, headers, statuses) in [
        ("CONNECT 127.0.0.1:22", "", [400, 405]),
        ("GET http://elsewhere/health", "", [400, 400]),
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
fn a_name_that_is_no_models_is_not_repeated_at_length() {
    let worker = Engine::start();
    let endless = "m".repeat(1 << 20);
    let body = format!("{{\"model\":\"{endless}\"}}");
    let answer = Proxy::before(&worker).chat(&body);
    openai_error(&answer, 404, "model_not_found");
    assert!(answer.body.len() < 1024);
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
    for path in [
        "/chat/completions",
        "/v1/v1/chat/completions",
        "/v1/chat/completions/",
    ] {
        let answer = proxy.call("POST", path, "{}");
        let error = openai_error(&answer, 404, "no_route");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.ends_with("did you mean /v1/chat/completions?"),
            "{message}"
        );
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
fn a_body_in_an_unknown_coding_is_415() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for encoding in ["br", "zstd", "gzip, identity", "gzip, gzip", "x", ""] {
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
