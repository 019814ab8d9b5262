//! Bytes are sacred: what a client sends reaches the worker as it was sent, and what the worker answers comes back as
//! it was answered, whatever the framing or the protocol on either side.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use bytes::Bytes;

use support::client::{Answer, Client, chunked, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Framing, Knobs};
use support::engine::record::Seen;
use support::h2_client::H2Client;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;

/// JSON that no serialiser would write: odd spacing, escapes, a tab, key order, a trailing newline.
const ODD: &str = "{ \"z\":1.0e+02 ,\t\"model\" : \"m\",\n \"messages\":[{\"role\":\"user\",\"content\":\"caf\\u00e9 \u{1F40B} \\/ \\\"model\\\":\\\"x\\\"\"}] , \"a\":null}\n";

const RAW_ROUTE: &str = "[[route]]\npath = \"/raw/*\"\n";

/// How a client says where its body ends.
#[derive(Clone, Copy, Debug)]
enum Asking {
    Length,
    Chunked,
    H2,
}

fn ask(proxy: &Proxy, asking: Asking, target: &str, body: &[u8]) -> Answer {
    match asking {
        Asking::Length => proxy.connect().call_with("POST", target, &[], body),
        Asking::Chunked => {
            let (first, second) = body.split_at(body.len() / 3);
            let wire = chunked(&[first, second]);
            let headers = [("transfer-encoding", "chunked")];
            proxy.connect().call_with("POST", target, &headers, &wire)
        }
        Asking::H2 => H2Client::connect(proxy.address()).call("POST", target, &[], body),
    }
}

/// Two readings of one request must be impossible: exactly one framing.
#[track_caller]
fn assert_framed_once(seen: &Seen) {
    let lengths = seen.all("content-length").len();
    let encodings = seen.all("transfer-encoding").len();
    assert_eq!(
        lengths + encodings,
        1,
        "{}",
        String::from_utf8_lossy(&seen.head)
    );
}

#[test]
fn bodies_pass_unchanged_in_every_combination_of_framings_and_protocols() {
    let workers = [Engine::start(), Engine::h2c(Knobs::default())];
    let pieces = [
        "{\"odd\" :",
        " [1,\t2 ],\r\n",
        "\"caf\u{e9}\":\"\\u00e9\"}  ",
    ];
    for worker in &workers {
        let proxy = Proxy::setup()
            .worker("w", worker)
            .section(RAW_ROUTE)
            .start();
        for framing in [Framing::Length, Framing::Chunked] {
            let canned = Canned::ok("").pieces(&pieces).framing(framing);
            worker.tune(|knobs| knobs.canned = Some(canned));
            for asking in [Asking::Length, Asking::Chunked, Asking::H2] {
                for target in [CHAT, "/raw/x?q=1&q=%20"] {
                    let case = format!("{asking:?} → {} → {framing:?}, {target}", worker.url());
                    worker.forget();
                    let answer = ask(&proxy, asking, target, ODD.as_bytes());
                    assert_eq!(answer.text(), pieces.concat(), "{case}");
                    assert!(answer.complete, "{case}");
                    let seen = worker.only_request();
                    assert_eq!(seen.body, ODD.as_bytes(), "{case}");
                    assert_eq!(
                        (seen.method.as_str(), seen.target.as_str()),
                        ("POST", target),
                        "{case}"
                    );
                    if worker.url().starts_with("http:") {
                        assert_framed_once(&seen);
                    }
                }
            }
        }
    }
}

#[test]
fn a_body_of_every_byte_passes_both_ways_on_a_route() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &worker)
        .section(RAW_ROUTE)
        .start();
    let every: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for asking in [Asking::Length, Asking::Chunked, Asking::H2] {
        let answer = ask(&proxy, asking, "/raw/echo", &every);
        assert!(answer.body == every && answer.complete, "{asking:?}");
    }
}

#[test]
fn an_answer_keeps_its_own_framing() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let ask = |framing: Framing| {
        let canned = Canned::ok("").pieces(&["ab", "c"]).framing(framing);
        worker.tune(|knobs| knobs.canned = Some(canned));
        proxy.chat(&chat("x"))
    };
    let by_length = ask(Framing::Length);
    assert_eq!(by_length.header("content-length"), Some("3"));
    assert!(by_length.all("transfer-encoding").is_empty());
    for framing in [Framing::Chunked, Framing::Close] {
        let chunked = ask(framing);
        assert_eq!(
            chunked.header("transfer-encoding"),
            Some("chunked"),
            "{framing:?}"
        );
        assert!(chunked.all("content-length").is_empty(), "{framing:?}");
        assert_eq!(
            (chunked.text(), chunked.complete),
            ("abc", true),
            "{framing:?}"
        );
    }
}

#[test]
fn an_http10_client_gets_no_chunks_and_its_end_by_closing() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let canned = Canned::ok("")
        .pieces(&["ab", "c"])
        .framing(Framing::Chunked);
    worker.tune(|knobs| knobs.canned = Some(canned));
    let body = chat("x");
    let head = format!(
        "POST {CHAT} HTTP/1.0\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut client = proxy.connect();
    client.send(head.as_bytes()).send(body.as_bytes());
    let answer = client.head();
    assert_eq!(answer.status, 200);
    assert!(answer.all("transfer-encoding").is_empty());
    assert_eq!(client.rest(), b"abc");
}

#[test]
fn event_streams_pass_unchanged_even_where_a_piece_ends_inside_a_character() {
    let events = ": comment\r\n\r\nid: 7\nretry: 10\nevent: odd\ndata: a\ndata: b\n\ndata:{\"x\":\"\u{1F40B}\"}\n\ndata: [DONE]\n\n";
    let whale = events.find('\u{1F40B}').unwrap() + 2;
    let (first, second) = events.as_bytes().split_at(whale);
    let pieces = vec![Bytes::from(first.to_vec()), Bytes::from(second.to_vec())];
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        let mut canned = Canned::ok("")
            .header("content-type", "text/event-stream")
            .framing(Framing::Chunked);
        canned.pieces = pieces.clone();
        worker.tune(|knobs| knobs.canned = Some(canned));
        for asking in [Asking::Length, Asking::H2] {
            let answer = ask(&proxy, asking, CHAT, body.as_bytes());
            assert_eq!(answer.text(), events, "{asking:?}");
            assert!(answer.complete);
            assert_eq!(answer.header("content-type"), Some("text/event-stream"));
            assert_eq!(answer.header("x-accel-buffering"), Some("no"));
        }
    }
}

#[test]
fn any_status_of_a_worker_passes_with_its_body_and_headers() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for status in [200, 201, 207, 301, 400, 401, 403, 409, 418, 422, 499] {
        let canned = Canned::ok("its own words")
            .status(status)
            .header("location", "http://elsewhere/")
            .header("retry-after", "17");
        worker.tune(|knobs| knobs.canned = Some(canned));
        let answer = proxy.chat(&chat("x"));
        assert_eq!((answer.status, answer.text()), (status, "its own words"));
        assert_eq!(answer.header("retry-after"), Some("17"));
        assert_eq!(answer.header("location"), Some("http://elsewhere/"));
        assert_eq!(answer.reason(), None);
    }
}

/// Headers that an end says to the other, and their values in order.
const END_TO_END: [(&str, &str); 8] = [
    ("X-Multi", "b, a"),
    ("x-multi", "a"),
    ("X-Odd", "a  b\t c"),
    ("X-Empty", ""),
    ("Accept", "text/event-stream, */*;q=0.1"),
    ("Authorization", "Bearer of-the-client"),
    ("Cookie", "a=1; b=\"2\""),
    ("X-Multi", "c"),
];

#[track_caller]
fn assert_end_to_end(all: impl Fn(&str) -> Vec<String>) {
    assert_eq!(all("x-multi"), ["b, a", "a", "c"]);
    assert_eq!(all("x-odd"), ["a  b\t c"]);
    assert_eq!(all("x-empty"), [""]);
    assert_eq!(all("accept"), ["text/event-stream, */*;q=0.1"]);
    assert_eq!(all("authorization"), ["Bearer of-the-client"]);
    assert_eq!(all("cookie"), ["a=1; b=\"2\""]);
}

fn owned(values: Vec<&str>) -> Vec<String> {
    values.into_iter().map(str::to_owned).collect()
}

#[test]
fn end_to_end_headers_pass_both_ways_with_exact_values_in_order() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        let mut canned = Canned::ok("x");
        for (name, value) in END_TO_END {
            canned = canned.header(name, value);
        }
        canned = canned
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2");
        worker.tune(|knobs| knobs.canned = Some(canned));
        for h2 in [false, true] {
            worker.forget();
            let body = chat("x");
            let answer = if h2 {
                H2Client::connect(proxy.address()).call("POST", CHAT, &END_TO_END, body.as_bytes())
            } else {
                proxy
                    .connect()
                    .call_with("POST", CHAT, &END_TO_END, body.as_bytes())
            };
            let seen = worker.only_request();
            assert_end_to_end(|name| owned(seen.all(name)));
            assert_end_to_end(|name| owned(answer.all(name)));
            assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
        }
    }
}

#[test]
fn hop_by_hop_headers_stop_at_the_proxy_both_ways() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let hops = [
        ("Connection", "keep-alive, X-Named"),
        ("Connection", "x-also-named"),
        ("X-Named", "1"),
        ("X-Also-Named", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("X-Kept", "1"),
    ];
    let mut canned = Canned::ok("x");
    for (name, value) in hops {
        canned = canned.header(name, value);
    }
    worker.tune(|knobs| knobs.canned = Some(canned));
    let answer = proxy
        .connect()
        .call_with("POST", CHAT, &hops, chat("x").as_bytes());
    let seen = worker.only_request();
    for name in [
        "x-named",
        "x-also-named",
        "keep-alive",
        "proxy-connection",
        "te",
    ] {
        assert_eq!(
            seen.all(name),
            Vec::<&str>::new(),
            "{name} reached the worker"
        );
        assert_eq!(
            answer.all(name),
            Vec::<&str>::new(),
            "{name} reached the client"
        );
    }
    assert!(
        seen.all("connection")
            .iter()
            .all(|value| !value.contains("amed"))
    );
    assert!(
        answer
            .all("connection")
            .iter()
            .all(|value| !value.contains("amed"))
    );
    assert_eq!(seen.header("x-kept"), Some("1"));
    assert_eq!(answer.header("x-kept"), Some("1"));
}

#[test]
fn a_client_cannot_strip_what_the_proxy_itself_says() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let named = [(
        "Connection",
        "x-forwarded-for, x-forwarded-proto, x-request-id, host, content-length, authorization",
    )];
    let answer = proxy
        .connect()
        .call_with("POST", CHAT, &named, chat("x").as_bytes());
    assert_eq!(answer.status, 200);
    let seen = worker.only_request();
    for name in [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-request-id",
        "host",
    ] {
        assert!(seen.header(name).is_some(), "{name} was stripped");
    }
    assert_eq!(seen.body, chat("x").as_bytes());
}

#[test]
fn the_worker_hears_its_own_name_and_who_asked() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        let claimed = [
            ("X-Forwarded-For", "6.6.6.6"),
            ("x-forwarded-for", "7.7.7.7"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "bank.example"),
        ];
        proxy
            .connect()
            .call_with("POST", CHAT, &claimed, chat("x").as_bytes());
        let seen = worker.only_request();
        assert_eq!(seen.all("host"), [worker.address().to_string()]);
        assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(seen.all("x-forwarded-proto"), ["http"]);
        assert_eq!(seen.all("x-forwarded-host"), ["proxy"]);
    }
}

#[test]
fn a_request_id_is_passed_on_answered_and_logged_and_made_where_it_is_missing_or_odd() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let too_long = "x".repeat(500);
    for (said, kept) in [
        ("abc-1.2_3", true),
        ("a b", false),
        (too_long.as_str(), false),
    ] {
        worker.forget();
        let headers = [("x-request-id", said), ("traceparent", "00-1-2-01")];
        let answer = proxy
            .connect()
            .call_with("POST", CHAT, &headers, chat("x").as_bytes());
        let seen = worker.only_request();
        let id = answer.header("x-request-id").unwrap();
        assert_eq!(seen.header("x-request-id"), Some(id));
        assert_eq!(id == said, kept, "{said:?} became {id:?}");
        assert_eq!(seen.header("traceparent"), Some("00-1-2-01"));
    }
    worker.forget();
    let answer = proxy.chat(&chat("x"));
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(worker.only_request().header("x-request-id"), Some(id));
    let log = proxy.log_of(4);
    assert_eq!(log[0]["id"], "abc-1.2_3");
    assert_eq!(log[3]["id"], id);
}

#[test]
fn an_answer_says_who_made_it_after_how_many_attempts_and_how_long_it_took() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let answer = proxy.chat(&chat("x"));
    assert_eq!(answer.header("x-forebay-worker"), Some("w"));
    assert_eq!(answer.header("x-forebay-attempts"), Some("1"));
    let timing = answer.header("server-timing").unwrap();
    for part in ["queue;dur=", "route;dur=", "upstream;dur="] {
        assert!(timing.contains(part), "{timing}");
    }
}

/// A proxy whose clients say `good` and `模型` and whose worker hears other names.
fn renaming(worker: &Engine) -> Proxy {
    worker.tune(|knobs| knobs.models = vec!["real/Name".to_owned(), "a\"b\\c".to_owned()]);
    let models = r#"models = { good = "real/Name", "模型" = "a\"b\\c" }"#;
    Proxy::setup().worker_with("w", worker, models).start()
}

#[test]
fn a_rename_changes_the_value_of_model_and_nothing_else() {
    let worker = Engine::start();
    let proxy = renaming(&worker);
    // `@` is the value. Each stands for one place where a careless rewrite would change more, or less.
    let bodies = [
        r#"{"model":@,"messages":[]}"#,
        r#"{"messages":[],"model":@}"#,
        "{ \"a\" : 1 ,\t\"model\"\n:\r\n @  , \"b\":[ ] }\n",
        r#"{"metadata":{"model":"good"},"model":@,"tools":[{"model":"good"}]}"#,
        r#"{"messages":[{"content":"\"model\":\"good\""}],"model":@}"#,
        r#"{"model":@,"a":"caf\u00e9 \ud83d\udc0b","n":1.0e+02,"z":-0.0}"#,
        r#"{"models":"good","_model":"good","model ":"good","model":@}"#,
    ];
    for body in bodies {
        worker.forget();
        let answer = proxy.chat(&body.replace('@', "\"good\""));
        assert_eq!(answer.status, 200, "{body}");
        let seen = worker.only_request();
        let heard = String::from_utf8(seen.body.clone()).unwrap();
        assert_eq!(heard, body.replace('@', "\"real/Name\""));
        let length = heard.len().to_string();
        assert_eq!(seen.header("content-length"), Some(length.as_str()));
    }
}

#[test]
fn a_model_written_in_escapes_is_the_same_model() {
    let worker = Engine::start();
    let proxy = renaming(&worker);
    let escaped = r#"{"model":"g\u006fod","messages":[]}"#;
    assert_eq!(proxy.chat(escaped).status, 200);
    let expected = r#"{"model":"real/Name","messages":[]}"#;
    assert_eq!(worker.only_request().body, expected.as_bytes());
}

#[test]
fn a_name_that_needs_escapes_is_written_with_them() {
    let worker = Engine::start();
    let proxy = renaming(&worker);
    assert_eq!(proxy.chat(r#"{"model":"模型","messages":[]}"#).status, 200);
    let expected = r#"{"model":"a\"b\\c","messages":[]}"#;
    assert_eq!(worker.only_request().body, expected.as_bytes());
}

#[test]
fn a_rename_on_kserve_changes_the_path_and_not_the_body() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.models = vec!["real".to_owned()]);
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "models = { good = \"real\" }")
        .start();
    let body =
        r#"{ "inputs" : [ {"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1.50]} ] }"#;
    for (asked, heard) in [
        ("/v2/models/good/infer", "/v2/models/real/infer"),
        (
            "/v2/models/good/versions/1/infer?a=b",
            "/v2/models/real/versions/1/infer?a=b",
        ),
    ] {
        worker.forget();
        assert_eq!(proxy.call("POST", asked, body).status, 200);
        let seen = worker.only_request();
        assert_eq!(seen.target, heard);
        assert_eq!(seen.body, body.as_bytes());
    }
}

#[test]
fn a_name_on_kserve_is_written_as_a_path_wants_it() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.models = vec!["real one".to_owned()]);
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "models = { good = \"real one\" }")
        .start();
    proxy.call("GET", "/v2/models/good/ready", "");
    assert_eq!(worker.only_request().target, "/v2/models/real%20one/ready");
}

#[test]
fn a_base_path_goes_before_each_target() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.canned = Some(Canned::ok("x")));
    let url = format!("{}/base", worker.url());
    let proxy = Proxy::setup()
        .worker_at("w", &url, "engine = \"generic\"")
        .start();
    proxy.chat(&chat("x"));
    assert_eq!(worker.only_request().target, format!("/base{CHAT}"));
}

#[test]
fn the_head_that_a_worker_gets_is_exactly_this() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let headers = [
        ("user-agent", "golden"),
        ("content-type", "application/json"),
        ("x-request-id", "id-1"),
    ];
    let body = chat("x");
    Client::connect(proxy.address())
        .send(&request("POST", CHAT, &headers, body.as_bytes()))
        .answer();
    let seen = worker.only_request();
    let head = String::from_utf8(seen.head).unwrap();
    let mut lines: Vec<String> = head
        .to_lowercase()
        .split_terminator("\r\n")
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    assert_eq!(lines.remove(0), "post /v1/chat/completions http/1.1");
    lines.sort();
    let expected = [
        format!("content-length: {}", body.len()),
        "content-type: application/json".to_owned(),
        // The first request since vLLM came up asks for its load; the next does a second later.
        "endpoint-load-metrics-format: text".to_owned(),
        format!("host: {}", worker.address()),
        "user-agent: golden".to_owned(),
        "x-forwarded-for: 127.0.0.1".to_owned(),
        "x-forwarded-host: proxy".to_owned(),
        "x-forwarded-proto: http".to_owned(),
        "x-request-id: id-1".to_owned(),
    ];
    assert_eq!(lines, expected);
}
