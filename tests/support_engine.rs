//! The scripted worker does what it says: later suites trust it, so it is tested first, without a proxy.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use forebay::clock::Clock;
use forebay::simulate::{Card, Member};
use forebay::units::Seconds;
use serde_json::json;

use support::client::{Answer, Client, chunked, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure, Framing, Health, Knobs};
use support::expect_soon;
use support::h2_client::H2Client;

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"one two three"}]}"#;
const STREAM: &str =
    r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}"#;

fn client(engine: &Engine) -> Client {
    Client::connect(engine.address())
}

fn chat(engine: &Engine, body: &str) -> Answer {
    client(engine).call("POST", "/v1/chat/completions", body)
}

/// How long something takes, in seconds.
fn timed(work: impl FnOnce()) -> f64 {
    let clock = Clock::start();
    work();
    clock.now().0
}

#[test]
fn chat_says_the_words_of_the_last_message_and_counts_them() {
    let engine = Engine::start();
    let answer = chat(&engine, CHAT);
    assert_eq!(answer.status, 200);
    let said = answer.json();
    assert_eq!(
        said["choices"][0]["message"]["content"],
        "one two three one"
    );
    assert_eq!(said["usage"]["completion_tokens"], 4);
    assert_eq!(
        said["usage"]["prompt_tokens"],
        "useone two three".len().div_ceil(4) + 1
    );
}

#[test]
fn a_stream_has_the_shape_of_vllms_chunks_and_ends_in_done() {
    let engine = Engine::start();
    let body = STREAM.replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1);
    let answer = chat(&engine, &body);
    assert!(answer.complete);
    let events: Vec<&str> = answer.text().split_terminator("\n\n").collect();
    // The role, four tokens, the reason for the end, the usage, the end: one chunk each.
    assert_eq!(events.len(), 8);
    assert_eq!(answer.chunks.len(), 8);
    assert!(events[0].contains(r#""role":"assistant""#));
    assert!(events[5].contains(r#""finish_reason":"length""#));
    assert!(events[6].contains(r#""choices":[]"#) && events[6].contains("cached_tokens"));
    assert_eq!(events[7], "data: [DONE]");
}

#[test]
fn without_include_usage_no_usage_is_streamed() {
    let engine = Engine::start();
    let answer = chat(&engine, STREAM);
    assert!(!answer.text().contains("usage"));
}

#[test]
fn messages_stream_named_events() {
    let engine = Engine::start();
    let answer = client(&engine).call("POST", "/v1/messages", STREAM);
    let names: Vec<&str> = answer
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 1], "message_stop");
}

#[test]
fn embeddings_are_the_same_in_both_encodings() {
    let engine = Engine::start();
    let ask = |encoding: &str| {
        let body = json!({"model": "m", "input": ["a", "b"], "encoding_format": encoding});
        client(&engine)
            .call("POST", "/v1/embeddings", &body.to_string())
            .json()
    };
    let numbers = ask("float")["data"][1]["embedding"].clone();
    assert_eq!(numbers.as_array().unwrap().len(), 8);
    let packed = ask("base64")["data"][1]["embedding"].clone();
    // 32 bytes in base64, with its one sign of padding.
    assert_eq!(packed.as_str().unwrap().len(), 44);
    assert!(packed.as_str().unwrap().ends_with('='));
}

#[test]
fn kserve_gives_each_input_back() {
    let engine = Engine::start();
    let body = json!({"id": "7", "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}]});
    let answer = client(&engine).call("POST", "/v2/models/m/infer", &body.to_string());
    let said = answer.json();
    assert_eq!(said["id"], "7");
    assert_eq!(said["outputs"][0]["name"], "OUTPUT0");
    assert_eq!(said["outputs"][0]["data"], json!([1.5, 2.5]));
    let unknown = client(&engine).call("POST", "/v2/models/other/infer", "{}");
    assert_eq!(unknown.status, 404);
}

#[test]
fn an_unknown_model_is_vllms_404() {
    let engine = Engine::start();
    let answer = chat(&engine, &CHAT.replace("\"m\"", "\"other\""));
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["error"]["type"], "NotFoundError");
}

#[test]
fn the_record_holds_the_bytes_that_were_sent() {
    let engine = Engine::start();
    let body = chunked(&[b"ab", b"c"]);
    let headers = [("Transfer-Encoding", "chunked"), ("X-Odd", "a  b")];
    let sent = request("POST", "/raw/x", &headers, &body);
    let answer = client(&engine).send(&sent).answer();
    assert_eq!(answer.text(), "abc");
    let seen = engine.only_request();
    assert_eq!([&seen.head[..], &seen.raw_body].concat(), sent);
    assert_eq!(engine.connection(seen.connection).bytes, sent);
    assert_eq!(seen.body, b"abc");
    assert_eq!(seen.header("x-odd"), Some("a  b"));
}

#[test]
fn a_clients_leaving_is_noted_at_once_before_and_inside_an_answer() {
    let engine = Engine::start();
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut waiting = client(&engine);
    waiting.send(&request(
        "POST",
        "/v1/chat/completions",
        &[],
        CHAT.as_bytes(),
    ));
    expect_soon("the request was seen", || engine.count() == 1);
    drop(waiting);
    expect_soon("the leaving was seen", || {
        engine.requests()[0].gone.is_some()
    });

    engine.tune(|knobs| knobs.fail(Failure::StallAfter(2), 1));
    let mut reading = client(&engine);
    reading.send(&request(
        "POST",
        "/v1/chat/completions",
        &[],
        STREAM.as_bytes(),
    ));
    let mut answer = reading.head();
    assert!(reading.chunk(&mut answer) && reading.chunk(&mut answer));
    drop(reading);
    expect_soon("the leaving was seen", || {
        engine.requests()[1].gone.is_some()
    });
    assert_eq!(engine.load(), (0, 0));
}

#[test]
fn prefill_takes_its_time_per_token_one_request_at_a_time() {
    let engine = Engine::start();
    // 40 bytes of role and content are 10 tokens.
    let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x".repeat(36)}]});
    engine.tune(|knobs| knobs.prefill = 0.01);
    let body = body.to_string();
    let both = timed(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| chat(&engine, &body));
            scope.spawn(|| chat(&engine, &body));
        });
    });
    assert!(both >= 0.2, "two prefills of 100 ms took {both} s");
}

#[test]
fn cached_blocks_cost_nothing_and_are_reported() {
    let engine = Engine::start();
    engine.tune(|knobs| knobs.prefix_cache = true);
    let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x".repeat(196)}]});
    let cached =
        |answer: &Answer| answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    assert_eq!(cached(&chat(&engine, &body.to_string())), 0);
    // 200 bytes are 50 tokens: three whole blocks of 16.
    assert_eq!(cached(&chat(&engine, &body.to_string())), 48);
}

#[test]
fn decode_steps_grow_with_the_batch() {
    let engine = Engine::start();
    engine.tune(|knobs| {
        knobs.decode = 0.01;
        knobs.decode_per_stream = 0.04;
        knobs.output_tokens = 6;
    });
    // Five steps after the first token: 50 ms alone, up to 250 ms for two that overlap.
    let alone = timed(|| drop(chat(&engine, CHAT)));
    let together = timed(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| chat(&engine, CHAT));
            scope.spawn(|| chat(&engine, CHAT));
        });
    });
    assert!(alone >= 0.05, "alone took {alone} s");
    assert!(together > 0.2, "together took {together} s");
}

#[test]
fn requests_beyond_the_slots_wait_in_order() {
    let engine = Engine::start();
    engine.tune(|knobs| {
        knobs.slots = 1;
        knobs.decode = 0.01;
    });
    std::thread::scope(|scope| {
        for place in 0..4 {
            let before = engine.count();
            let body = CHAT.replace("one two three", &format!("n{place}"));
            let asked = &engine;
            scope.spawn(move || chat(asked, &body));
            expect_soon("the request arrived", || engine.count() > before);
        }
        expect_soon("three wait", || engine.load() == (1, 3));
        let metrics = client(&engine).call("GET", "/metrics", "");
        assert!(
            metrics
                .text()
                .contains("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1.0")
        );
        assert!(
            metrics
                .text()
                .contains("vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3.0")
        );
    });
    let finished: Vec<f64> = engine
        .requests()
        .iter()
        .map(|seen| seen.finished.unwrap().0)
        .collect();
    assert!(finished.is_sorted(), "{finished:?}");
}

#[test]
fn liveness_says_what_the_knob_says_and_failures_spare_it() {
    let engine = Engine::start();
    let health = || client(&engine).call("GET", "/health", "").status;
    engine.tune(|knobs| knobs.fail(Failure::Status(500), 1));
    assert_eq!(health(), 200);
    assert_eq!(chat(&engine, CHAT).status, 500);
    assert_eq!(chat(&engine, CHAT).status, 200);
    engine.tune(|knobs| knobs.health = Health::Status(503));
    assert_eq!(health(), 503);
    engine.tune(|knobs| {
        knobs.health = Health::Good;
        knobs.ready_after = Duration::from_secs(3600);
    });
    assert_eq!(health(), 503);
    assert_eq!(engine.probes(), 3);
    assert_eq!(engine.count(), 2);
}

#[test]
fn each_failure_looks_like_itself() {
    let engine = Engine::start();
    let chat_request = request("POST", "/v1/chat/completions", &[], CHAT.as_bytes());
    let raw = |failure: Failure| {
        engine.tune(|knobs| knobs.fail(failure, 1));
        let mut client = client(&engine);
        client.send(&chat_request);
        String::from_utf8(client.rest()).unwrap()
    };
    assert_eq!(raw(Failure::ResetBeforeHead), "");
    assert_eq!(raw(Failure::ResetAfterRequest), "");
    assert_eq!(
        raw(Failure::Rubbish(Bytes::from_static(b"\x01rubbish"))),
        "\x01rubbish"
    );
    assert!(raw(Failure::CutAfter(1)).starts_with("HTTP/1.1 200"));

    engine.tune(|knobs| knobs.fail(Failure::CutAfter(1), 1));
    assert!(!chat(&engine, CHAT).complete);
    engine.tune(|knobs| knobs.fail(Failure::CutAfter(3), 1));
    let cut = chat(&engine, STREAM);
    assert_eq!((cut.complete, cut.chunks.len()), (false, 3));
    engine.tune(|knobs| knobs.fail(Failure::Busy(7), 1));
    let busy = chat(&engine, CHAT);
    assert_eq!((busy.status, busy.header("retry-after")), (429, Some("7")));
}

#[test]
fn an_early_answer_comes_before_the_body() {
    let engine = Engine::start();
    let headers = [("content-length", "1000000")];
    for close in [true, false] {
        engine.tune(|knobs| knobs.fail(Failure::Early { status: 413, close }, 1));
        let mut client = client(&engine);
        client.send(&request("POST", "/v1/chat/completions", &headers, b"{"));
        assert_eq!(client.answer().status, 413);
        assert_eq!(close, {
            let rest = vec![b' '; 999_999];
            client.try_send(&rest);
            client.try_send(&request(
                "POST",
                "/v1/chat/completions",
                &[],
                CHAT.as_bytes(),
            ));
            client.is_closed()
        });
    }
}

#[test]
fn stray_bytes_follow_a_good_answer() {
    let engine = Engine::start();
    engine.tune(|knobs| knobs.fail(Failure::Stray(Bytes::from_static(b"stray")), 1));
    let mut client = client(&engine);
    assert_eq!(
        client.call("POST", "/v1/chat/completions", CHAT).status,
        200
    );
    engine.kill();
    assert_eq!(client.rest(), b"stray");
}

#[test]
fn kept_alive_connections_end_as_the_knobs_say() {
    let engine = Engine::start();
    engine.tune(|knobs| knobs.answers_per_connection = Some(2));
    let mut first = client(&engine);
    first.call("POST", "/v1/chat/completions", CHAT);
    first.call("POST", "/v1/chat/completions", CHAT);
    assert!(first.is_closed());

    engine.tune(|knobs| {
        knobs.answers_per_connection = None;
        knobs.reset_on_reuse = true;
    });
    let mut second = client(&engine);
    second.call("POST", "/v1/chat/completions", CHAT);
    second.send(&request(
        "POST",
        "/v1/chat/completions",
        &[],
        CHAT.as_bytes(),
    ));
    assert!(second.is_closed());
    assert_eq!(engine.count(), 3);
}

#[test]
fn refusing_and_dying_are_seen_from_outside_and_end() {
    let engine = Engine::start();
    let mut open = client(&engine);
    open.call("POST", "/v1/chat/completions", CHAT);
    engine.refuse();
    assert!(TcpStream::connect(engine.address()).is_err());
    assert_eq!(open.call("POST", "/v1/chat/completions", CHAT).status, 200);
    engine.accept();
    assert_eq!(chat(&engine, CHAT).status, 200);
    engine.kill();
    assert!(open.is_closed());
    assert!(TcpStream::connect(engine.address()).is_err());
}

#[test]
fn canned_answers_are_sent_to_the_byte_in_each_framing() {
    let engine = Engine::start();
    let canned = Canned::ok("").header("X-A", "1").pieces(&["ab", "cd"]);
    let raw = |framing: Framing| {
        engine.tune(|knobs| knobs.canned = Some(canned.clone().framing(framing)));
        let mut client = client(&engine);
        client.send(&request("GET", "/raw/x", &[("connection", "close")], b""));
        String::from_utf8(client.rest()).unwrap()
    };
    assert_eq!(
        raw(Framing::Length),
        "HTTP/1.1 200 OK\r\nX-A: 1\r\ncontent-length: 4\r\n\r\nabcd"
    );
    assert_eq!(
        raw(Framing::Chunked),
        "HTTP/1.1 200 OK\r\nX-A: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
    );
    assert_eq!(
        raw(Framing::Close),
        "HTTP/1.1 200 OK\r\nX-A: 1\r\nconnection: close\r\n\r\nabcd"
    );
}

#[test]
fn h2c_gives_the_same_answers_and_failures() {
    let engine = Engine::h2c(Knobs::default());
    let mut client = H2Client::connect(engine.address());
    let mut ask = |body: &str| {
        client.call(
            "POST",
            "/v1/chat/completions",
            &[("x-a", "1")],
            body.as_bytes(),
        )
    };
    assert_eq!(ask(CHAT).json()["usage"]["completion_tokens"], 4);
    assert!(ask(STREAM).text().ends_with("data: [DONE]\n\n"));
    engine.tune(|knobs| knobs.fail(Failure::CutAfter(2), 1));
    assert!(!ask(STREAM).complete);
    let seen = engine.requests();
    assert_eq!(seen[0].header("x-a"), Some("1"));
    assert_eq!(seen[0].body, CHAT.as_bytes());

    engine.tune(|knobs| knobs.fail(Failure::StallAfter(1), 1));
    let mut reading = client
        .open("POST", "/v1/chat/completions", &[], STREAM.as_bytes())
        .unwrap();
    assert!(client.piece(&mut reading).unwrap().is_ok());
    drop(reading);
    expect_soon("the leaving was seen", || {
        engine.requests()[3].gone.is_some()
    });
}

/// Reads 10,000 tokens a second, then says one each 10 ms.
fn shaped() -> Engine {
    let card = Card {
        prefill: 10_000.0,
        fixed: Seconds::ZERO,
        step: Seconds(0.01),
        step_per_stream: Seconds::ZERO,
        slots: 2,
        blocks: 8,
        lora_slots: 1,
        lora_load: Seconds::ZERO,
        resident: None,
        swap: Seconds::ZERO,
    };
    let member = Member {
        name: "shaped".into(),
        card,
        max_inflight: Some(8),
        round_trip: Seconds::ZERO,
        tier: 0,
        price: 0.0,
    };
    Engine::shaped(&member, 1.0)
}

#[test]
fn an_engine_shaped_worker_takes_the_time_of_its_card_and_remembers_prompts() {
    let engine = shaped();
    let ask = |text: &str| {
        let body = json!({"model": "m", "min_tokens": 11, "messages": [{"role": "user", "content": text}]});
        let mut answer = None;
        let took = timed(|| answer = Some(chat(&engine, &body.to_string()).json()));
        let usage = answer.unwrap()["usage"].clone();
        (took, usage["completion_tokens"].clone(), usage)
    };
    // 1,536 tokens with the role: three blocks. Read in 153.6 ms and more for its context, then 10 tokens in 100 ms.
    let text = "x".repeat(1_536 * 4 - 4);
    let (first, said, usage) = ask(&text);
    assert!((0.253..0.6).contains(&first), "{first}");
    assert_eq!((said, &usage["prompt_tokens"]), (json!(11), &json!(1_536)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    let (longer, _, usage) = ask(&(text + &"y".repeat(64 * 4)));
    assert!((0.106..first).contains(&longer), "{longer}");
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 1_536);
    let said = client(&engine).call("GET", "/metrics", "");
    assert!(said.text().contains("num_gpu_blocks=\"256\""));
}

#[test]
fn an_engine_shaped_worker_forgets_whoever_left() {
    let engine = shaped();
    let body = json!({"model": "m", "input": "x".repeat(400_000)}).to_string();
    let mut leaving = client(&engine);
    leaving.send(&request("POST", "/v1/embeddings", &[], body.as_bytes()));
    expect_soon("it is read", || engine.load() == (1, 0));
    drop(leaving);
    expect_soon("it is forgotten", || engine.load() == (0, 0));
}
