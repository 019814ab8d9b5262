//! Clients that wait for a stream are told so, through the real proxy.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::json;

use support::client::{Answer, Client, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure};
use support::expect_soon;
use support::h2_client::H2Client;
use support::prompt::{CHAT, chat, said, stream};
use support::proxy::Proxy;
use support::queue::{join_with, narrow, occupy, waiting};

/// Tells every 50 ms, and waits for as long as that says.
fn telling(engine: &Engine, more: &str) -> Proxy {
    narrow(engine, &format!("heartbeat = \"50ms\"\n{more}")).start()
}

/// Reads the head and the first heartbeat.
#[track_caller]
fn begins(client: &mut Client) -> Answer {
    let mut answer = client.head();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("x-forebay-queue-position"), Some("1"));
    assert_eq!(answer.header("x-forebay-worker"), None);
    assert!(client.chunk(&mut answer));
    assert_eq!(answer.text(), ": queued, position 1\n\n");
    answer
}

#[test]
fn a_stream_that_waits_is_told_so_and_follows() {
    let engine = Engine::start();
    let proxy = telling(&engine, "");
    let held = occupy(&proxy, &engine);
    let headers = [("accept-encoding", "gzip"), ("x-request-id", "told")];
    let mut client = join_with(&proxy, &headers, &stream("hello", 3));
    let mut answer = begins(&mut client);
    assert_eq!(answer.header("x-request-id"), Some("told"));
    assert!(client.chunk(&mut answer), "and again");
    drop(held);
    client.finish(&mut answer);
    assert!(answer.complete);
    assert_eq!(
        said(answer.text()).split(' ').count(),
        3,
        "{}",
        answer.text()
    );
    let requests = engine.requests();
    let sent = requests.last().unwrap();
    assert!(
        !sent
            .headers
            .iter()
            .any(|(name, _)| name == "accept-encoding")
    );
    let line = proxy.log_of(2).pop().unwrap();
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&200.into(), &"ok".into())
    );
    assert_eq!(line["bytes_out"], answer.body.len());
    assert!(line["queue_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_wait_in_vain_ends_in_an_event_that_says_so() {
    let engine = Engine::start();
    let proxy = telling(&engine, "wait = \"300ms\"");
    let _held = occupy(&proxy, &engine);
    let mut client = join_with(&proxy, &[], &stream("x", 3));
    let mut answer = begins(&mut client);
    client.finish(&mut answer);
    let text = answer.text();
    let (_, event) = text.split_once("event: error\ndata: ").unwrap();
    let error: serde_json::Value = serde_json::from_str(event.trim_end()).unwrap();
    assert_eq!(error["error"]["code"], "queue_timeout");
    assert!(!text.contains("[DONE]"));
    let line = proxy.log_of(1).pop().unwrap();
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&200.into(), &"queue_timeout".into())
    );
}

#[test]
fn a_worker_s_refusal_comes_as_an_event_too() {
    let engine = Engine::start();
    let proxy = telling(&engine, "");
    let held = occupy(&proxy, &engine);
    let mut client = join_with(&proxy, &[], &stream("x", 3));
    let mut answer = begins(&mut client);
    engine.tune(|knobs| knobs.canned = Some(Canned::ok("{\n\"no\":1}").status(400)));
    drop(held);
    client.finish(&mut answer);
    let event = "event: error\ndata: {\ndata: \"no\":1}\n\n";
    assert!(answer.text().ends_with(event), "{}", answer.text());
    let line = &proxy.log_of(2)[1];
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&json!(200), &json!("worker_status"))
    );
}

#[test]
fn a_client_that_leaves_gives_up_its_place() {
    let engine = Engine::start();
    let proxy = telling(&engine, "");
    let _held = occupy(&proxy, &engine);
    let mut client = join_with(&proxy, &[], &stream("x", 3));
    begins(&mut client);
    drop(client);
    expect_soon("nobody waits", || waiting(&proxy) == 0.0);
    let line = proxy.log_of(1).pop().unwrap();
    assert_eq!(line["reason"], "client_gone");
    assert_eq!(engine.count(), 1, "only who had the place was sent");
}

#[test]
fn who_wants_no_stream_is_answered_whole() {
    let engine = Engine::start();
    let proxy = telling(&engine, "wait = \"200ms\"");
    let _held = occupy(&proxy, &engine);
    let answer = proxy.chat(&chat("x"));
    assert_eq!(
        (answer.status, answer.reason()),
        (429, Some("queue_timeout"))
    );
}

#[test]
fn a_stream_that_need_not_wait_is_the_worker_s_own() {
    let engine = Engine::start();
    let proxy = telling(&engine, "");
    engine.tune(|knobs| {
        knobs.first_byte_delay = std::time::Duration::from_millis(200);
        knobs.head_first = false;
    });
    let answer = proxy.chat(&stream("x", 3));
    assert_eq!(answer.header("x-forebay-worker"), Some("w"));
    let mut lines = answer.text().lines();
    assert!(!lines.any(|line| line.starts_with(':')), "no comments");
}

#[test]
fn it_works_over_http2_as_well() {
    let engine = Engine::start();
    let proxy = telling(&engine, "");
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut held = proxy.connect();
    held.send(&request("POST", CHAT, &[], chat("held").as_bytes()));
    expect_soon("the place is taken", || engine.count() == 1);
    let mut client = H2Client::connect(proxy.address());
    let mut reading = client
        .open("POST", CHAT, &[], stream("hello", 3).as_bytes())
        .unwrap();
    assert_eq!(reading.head().status, 200);
    let first = client.piece(&mut reading).unwrap().unwrap();
    assert_eq!(&first[..], b": queued, position 1\n\n");
    drop(held);
    let mut text = Vec::new();
    while let Some(piece) = client.piece(&mut reading) {
        text.extend_from_slice(&piece.unwrap());
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("data: [DONE]"), "{text}");
}
