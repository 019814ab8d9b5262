//! Promises about the edge: one reading of a request (P23, P24), no tunnel where none was agreed on (P25), rubbish that
//! harms nobody (P26), answers that can't be split (P27), and fields that end at the proxy (P28).
//!
//! Each table is sent byte for byte. What is refused must not have reached the worker, whatever stood behind it on the
//! connection; what is taken must have reached it once, with one framing.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::Read as _;

use bytes::Bytes;
use forebay::rng::Rng;

use support::client::{Client, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure, Framing, Knobs};
use support::expect_soon;
use support::h2_client::H2Client;
use support::h2_frames::{H2Frames, field};
use support::long::times;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;
use support::resident::resident;

/// A route that takes any method, in front of one worker.
fn routed(worker: &Engine) -> Proxy {
    Proxy::setup()
        .worker("w", worker)
        .section("[[route]]\npath = \"/raw/*\"")
        .start()
}

/// What a second request would be, if the first were read in two ways.
const SMUGGLED: &str = "GET /raw/smuggled HTTP/1.1\r\nhost: proxy\r\n\r\n";

/// Sends bytes, says no more, and reads the statuses of all that comes back until the proxy closes.
fn statuses(proxy: &Proxy, bytes: &[u8]) -> Vec<u16> {
    let mut client = proxy.connect();
    client.try_send(bytes);
    let mut statuses = Vec::new();
    while let Some(mut answer) = client.try_head() {
        client.finish(&mut answer);
        statuses.push(answer.status);
        let closes = answer.header("connection") == Some("close");
        if closes || statuses.len() > 2 {
            break;
        }
        client.half_close();
    }
    statuses
}

/// Heads with two readings, or none: after the request line and `host`, before the empty line and what follows.
const TWO_READINGS: [(&str, &str, &str); 27] = [
    (
        "two lengths",
        "content-length: 5\r\ncontent-length: 6",
        "helloX",
    ),
    ("a list of lengths", "content-length: 5, 5", "hello"),
    ("a signed length", "content-length: +5", "hello"),
    ("a negative length", "content-length: -1", ""),
    ("a length in hex", "content-length: 0x5", "hello"),
    (
        "a length that overflows",
        "content-length: 18446744073709551621",
        "hello",
    ),
    ("an empty length", "content-length:", "hello"),
    (
        "a length with a blank inside",
        "content-length: 1 0",
        "hello",
    ),
    (
        "a coding that is not chunked",
        "transfer-encoding: gzip",
        "hello",
    ),
    (
        "chunked under another",
        "transfer-encoding: chunked, gzip",
        "0\r\n\r\n",
    ),
    (
        "chunked twice",
        "transfer-encoding: chunked, chunked",
        "0\r\n\r\n",
    ),
    (
        "chunked on two lines",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "an invented coding",
        "transfer-encoding: xchunked",
        "0\r\n\r\n",
    ),
    (
        "chunked with a vertical tab",
        "transfer-encoding: \x0bchunked",
        "0\r\n\r\n",
    ),
    (
        "chunked in quotes",
        "transfer-encoding: \"chunked\"",
        "0\r\n\r\n",
    ),
    (
        "chunked with a parameter",
        "transfer-encoding: chunked;q=1",
        "0\r\n\r\n",
    ),
    (
        "identity",
        "transfer-encoding: identity\r\ncontent-length: 5",
        "hello",
    ),
    ("a blank before the colon", "content-length : 5", "hello"),
    (
        "a folded line",
        "x-folded: a\r\n b\r\ncontent-length: 5",
        "hello",
    ),
    (
        "a folded framing",
        "transfer-encoding:\r\n chunked",
        "0\r\n\r\n",
    ),
    (
        "a bare CR in a value",
        "x-odd: a\rcontent-length: 9\r\ncontent-length: 5",
        "hello",
    ),
    (
        "a NUL in a value",
        "x-odd: a\0b\r\ncontent-length: 5",
        "hello",
    ),
    (
        "a control in a value",
        "x-odd: a\x01b\r\ncontent-length: 5",
        "hello",
    ),
    (
        "a DEL in a value",
        "x-odd: a\x7fb\r\ncontent-length: 5",
        "hello",
    ),
    ("a NUL in a name", "x\0odd: a\r\ncontent-length: 5", "hello"),
    (
        "a line without a colon",
        "x-odd\r\ncontent-length: 5",
        "hello",
    ),
    ("a nameless line", ": a\r\ncontent-length: 5", "hello"),
];

#[test]
fn p23_a_head_with_two_readings_is_400_and_reaches_nobody() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    for (what, fields, body) in TWO_READINGS {
        for path in [CHAT, "/raw/x"] {
            let head = format!("POST {path} HTTP/1.1\r\nhost: proxy\r\n{fields}\r\n\r\n");
            let bytes = [&head, body, SMUGGLED].concat();
            let told = statuses(&proxy, bytes.as_bytes());
            assert_eq!(told[..1], [400], "{what} on {path}: {told:?}");
        }
    }
    let seen = worker.requests();
    // Where our refusal keeps the framing that was read, what follows is a request of its own, and nothing else is.
    let odd: Vec<_> = seen.iter().filter(|seen| seen.method != "GET").collect();
    assert!(odd.is_empty(), "{odd:#?}");
    assert_eq!(proxy.call("POST", "/raw/good", "x").status, 200);
}

/// Request lines that no two servers read alike.
const ODD_LINES: [(&str, &str, &[u16]); 18] = [
    (
        "HTTP/1.0 with a transfer coding",
        "POST /raw/x HTTP/1.0\r\nhost: proxy\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        &[400],
    ),
    ("no host", "GET /raw/x HTTP/1.1\r\n\r\n", &[400]),
    (
        "two hosts",
        "GET /raw/x HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        &[400],
    ),
    (
        "one host twice",
        "GET /raw/x HTTP/1.1\r\nhost: a\r\nHOST: a\r\n\r\n",
        &[400],
    ),
    (
        "an empty host",
        "GET /raw/x HTTP/1.1\r\nhost:\r\n\r\n",
        &[400],
    ),
    (
        "a user in the host",
        "GET /raw/x HTTP/1.1\r\nhost: u:p@a\r\n\r\n",
        &[400],
    ),
    (
        "a path in the host",
        "GET /raw/x HTTP/1.1\r\nhost: a/b\r\n\r\n",
        &[400],
    ),
    (
        "two names in the host",
        "GET /raw/x HTTP/1.1\r\nhost: a, b\r\n\r\n",
        &[400],
    ),
    (
        "another host in the target",
        "GET http://b/raw/x HTTP/1.1\r\nhost: a\r\n\r\n",
        &[400],
    ),
    (
        "another port in the target",
        "GET http://a:81/raw/x HTTP/1.1\r\nhost: a\r\n\r\n",
        &[400],
    ),
    (
        "CONNECT",
        "CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n",
        &[400, 405],
    ),
    ("TRACE", "TRACE /raw/x HTTP/1.1\r\nhost: a\r\n\r\n", &[405]),
    (
        "a blank in the target",
        "GET /raw/x y HTTP/1.1\r\nhost: a\r\n\r\n",
        &[400],
    ),
    (
        "a control in the target",
        "GET /raw/\x01x HTTP/1.1\r\nhost: a\r\n\r\n",
        &[400],
    ),
    (
        "a NUL in the target",
        "GET /raw/\0x HTTP/1.1\r\nhost: a\r\n\r\n",
        &[400],
    ),
    (
        "a version that is none",
        "GET /raw/x HTTP/9.9\r\nhost: a\r\n\r\n",
        &[400],
    ),
    ("no version", "GET /raw/x\r\nhost: a\r\n\r\n", &[400]),
    (
        "a fragment that hides a path",
        "GET /elsewhere#/raw/x HTTP/1.1\r\nhost: a\r\n\r\n",
        &[404],
    ),
];

#[test]
fn p23_an_odd_request_line_is_refused_and_reaches_nobody() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    for (what, bytes, allowed) in ODD_LINES {
        let told = statuses(&proxy, bytes.as_bytes());
        let first = told.first().expect(what);
        assert!(allowed.contains(first), "{what}: {told:?}");
    }
    assert_eq!(worker.count(), 0);
}

/// Bodies in chunks that are none.
const BAD_CHUNKS: [(&str, &str); 12] = [
    ("no size", "\r\nhello\r\n0\r\n\r\n"),
    ("a size in words", "five\r\nhello\r\n0\r\n\r\n"),
    ("a signed size", "+5\r\nhello\r\n0\r\n\r\n"),
    ("a negative size", "-5\r\nhello\r\n0\r\n\r\n"),
    ("a prefix", "0x5\r\nhello\r\n0\r\n\r\n"),
    (
        "a size that overflows",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    ),
    ("a size that is too short", "4\r\nhello\r\n0\r\n\r\n"),
    ("a bare LF behind the size", "5\nhello\r\n0\r\n\r\n"),
    ("a bare CR behind the size", "5\rhello\r\n0\r\n\r\n"),
    ("a bare LF in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\n"),
    ("a bare LF behind the chunk", "5\r\nhello\n0\r\n\r\n"),
    ("a line that ends nothing", "5\r\nhello\r\n0\r\nx\r\n"),
];

#[test]
fn p23_bad_chunks_are_400_and_reach_nobody() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    for (what, chunks) in BAD_CHUNKS {
        for path in [CHAT, "/raw/x"] {
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: proxy\r\ntransfer-encoding: chunked\r\n\r\n"
            );
            let told = statuses(&proxy, [&head, chunks, SMUGGLED].concat().as_bytes());
            assert_eq!(told, [400], "{what} on {path}");
        }
    }
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(64 << 10));
    let head = "POST /raw/x HTTP/1.1\r\nhost: proxy\r\ntransfer-encoding: chunked\r\n\r\n";
    let told = statuses(&proxy, [head, &long].concat().as_bytes());
    assert_eq!(told, [400], "an extension without end");
    assert_eq!(worker.count(), 0);
}

#[test]
fn p23_two_framings_become_one_and_the_connection_ends() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    for fields in [
        "content-length: 4\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 400",
    ] {
        worker.forget();
        let head = format!("POST /raw/x HTTP/1.1\r\nhost: proxy\r\n{fields}\r\n\r\n");
        let bytes = [&head, "5\r\nhello\r\n0\r\n\r\n", SMUGGLED].concat();
        let told = statuses(&proxy, bytes.as_bytes());
        assert_eq!(told, [200], "{fields}");
        let seen = worker.only_request();
        assert_eq!(seen.body, b"hello");
        let framings = seen.all("content-length").len() + seen.all("transfer-encoding").len();
        assert_eq!(framings, 1, "{:?}", seen.headers);
    }
}

#[test]
fn p23_chunk_extensions_and_trailers_of_a_request_end_at_the_proxy() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    let body = "5;a=b\r\nhello\r\n0\r\nx-trailer: 1\r\nhost: evil\r\ncontent-length: 9\r\n\r\n";
    let head = "POST /raw/x HTTP/1.1\r\nhost: proxy\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut client = proxy.connect();
    assert_eq!(
        client
            .send([head, body].concat().as_bytes())
            .answer()
            .status,
        200
    );
    let seen = worker.only_request();
    assert_eq!(
        (&seen.body[..], seen.header("x-trailer")),
        (&b"hello"[..], None)
    );
    assert!(!String::from_utf8_lossy(&seen.raw_body).contains("evil"));
    assert_eq!(
        client.call("POST", "/raw/next", "in step").text(),
        "in step"
    );
}

/// A stream of HTTP/2: what it is, the fields that it adds, its body.
type Downgrade = (&'static str, Vec<Vec<u8>>, &'static [u8]);

/// Sends one more frame; says whether it was taken.
type Flood = fn(&mut H2Frames) -> bool;

/// Streams that HTTP/1.1 would read otherwise, by the fields that are added to a POST, and its body.
fn downgrades() -> Vec<Downgrade> {
    vec![
        (
            "a line break in a value",
            vec![field(b"x-a", b"1\r\nx-b: 2")],
            b"",
        ),
        (
            "a request in a value",
            vec![field(b"x-a", b"1\r\n\r\nGET /raw/smuggled HTTP/1.1\r\n")],
            b"",
        ),
        (
            "a line break in a name",
            vec![field(b"x-a: 1\r\nx-b", b"2")],
            b"",
        ),
        ("a NUL in a value", vec![field(b"x-a", b"1\0")], b""),
        ("a colon in a name", vec![field(b"x-a:", b"1")], b""),
        ("an upper-case name", vec![field(b"X-A", b"1")], b""),
        (
            "a transfer coding",
            vec![field(b"transfer-encoding", b"chunked")],
            b"0\r\n\r\n",
        ),
        (
            "a connection field",
            vec![field(b"connection", b"close")],
            b"",
        ),
        (
            "a length that is too short",
            vec![field(b"content-length", b"2")],
            b"hello",
        ),
        (
            "a length that is too long",
            vec![field(b"content-length", b"9")],
            b"hello",
        ),
        (
            "two lengths",
            vec![
                field(b"content-length", b"5"),
                field(b"content-length", b"6"),
            ],
            b"hello",
        ),
        (
            "a length that is none",
            vec![field(b"content-length", b"+5")],
            b"hello",
        ),
        ("another host", vec![field(b"host", b"elsewhere")], b""),
        (
            "a pseudo-field behind",
            vec![field(b"x-a", b"1"), field(b":path", b"/raw/other")],
            b"",
        ),
        ("a second path", vec![field(b":path", b"/raw/other")], b""),
        (
            "an invented pseudo-field",
            vec![field(b":forebay", b"1")],
            b"",
        ),
    ]
}

#[test]
fn p24_what_http2_could_inject_into_http1_reaches_nobody() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    for (what, fields, body) in downgrades() {
        let mut frames = H2Frames::connect(proxy.address());
        frames.post("/raw/x", &fields, body);
        let status = frames.outcome();
        assert!(
            status.is_none_or(|status| status == 400),
            "{what}: {status:?}"
        );
    }
    for (what, path) in [
        ("a blank in the path", "/raw/x HTTP/1.1\r\nx-a: 1"),
        ("a line break in the path", "/raw/x\r\nx-a:1"),
        ("an empty path", ""),
    ] {
        let mut frames = H2Frames::connect(proxy.address());
        frames.post(path, &[], b"");
        let status = frames.outcome();
        assert!(
            status.is_none_or(|status| [400, 404].contains(&status)),
            "{what}: {status:?}"
        );
    }
    assert_eq!(worker.count(), 0, "{:#?}", worker.requests());
    let mut frames = H2Frames::connect(proxy.address());
    frames.post("/raw/x", &[field(b"content-length", b"5")], b"hello");
    assert_eq!(frames.outcome(), Some(200));
    assert_eq!(worker.only_request().body, b"hello");
}

#[test]
fn p24_an_empty_last_frame_ends_a_body_once() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    let mut frames = H2Frames::connect(proxy.address());
    frames.begin("/raw/x", &[]);
    for _ in 0..3 {
        frames.data(b"", false);
    }
    frames.data(b"hello", false).data(b"", true);
    assert_eq!(frames.outcome(), Some(200));
    let seen = worker.only_request();
    assert_eq!(seen.body, b"hello");
    assert_eq!(
        seen.header("content-length").is_some(),
        seen.header("transfer-encoding").is_none()
    );
}

#[test]
fn p24_floods_end_their_own_connection_and_nothing_else() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    let before = resident(proxy.pid());
    let floods: [(&str, Flood); 8] = [
        ("resets", |frames| {
            frames.begin("/raw/x", &[]);
            frames.reset()
        }),
        ("continuations", |frames| frames.continuation()),
        ("pings", |frames| frames.ping()),
        ("settings", |frames| frames.settings()),
        ("priorities", |frames| frames.priority()),
        ("windows", |frames| frames.window()),
        ("heads that swell", |frames| frames.bomb()),
        ("pieces of nothing", |frames| {
            frames.nothing() || frames.begin("/raw/x", &[]).nothing()
        }),
    ];
    for (what, send) in floods {
        let mut frames = H2Frames::connect(proxy.address());
        let mut sent = 0;
        while sent < 20_000 && send(&mut frames) {
            sent += 1;
        }
        assert_eq!(
            proxy.call("POST", "/raw/x", "bystander").text(),
            "bystander",
            "{what}"
        );
    }
    let grown = resident(proxy.pid()).saturating_sub(before);
    assert!(grown <= 16 << 20, "{grown} bytes more");
}

#[test]
fn p24_a_hundred_streams_that_nobody_reads_take_little_memory() {
    let piece = Bytes::from(vec![b'x'; 64 << 10]);
    let mut long = Canned::ok("");
    long.pieces = vec![piece; 64];
    let worker = Engine::with(Knobs {
        canned: Some(long),
        ..Knobs::default()
    });
    let proxy = routed(&worker);
    let before = resident(proxy.pid());
    let mut frames = H2Frames::connect(proxy.address());
    frames.read_nothing();
    for _ in 0..100 {
        frames.post("/raw/x", &[], b"x");
    }
    expect_soon("all are asked", || worker.count() == 100);
    let mut written = 0;
    expect_soon("all are being answered, and stand still", || {
        let seen = worker.requests();
        let pieces: Vec<_> = seen.iter().map(|seen| seen.written.len()).collect();
        let last = std::mem::replace(&mut written, pieces.iter().sum());
        pieces.iter().all(|count| *count > 1) && written == last
    });
    let inflight = || proxy.metric("forebay_inflight", &[]);
    assert_eq!(inflight(), 100.0);
    assert_eq!(proxy.call("GET", "/health", "").status, 200);
    let grown = resident(proxy.pid()).saturating_sub(before);
    assert!(grown <= 16 << 20, "{grown} bytes more");
    drop(frames);
    expect_soon("all are over", || inflight() == 0.0);
}

#[test]
fn p25_nothing_is_tunnelled_before_a_worker_has_agreed() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    for (start, fields) in [
        ("CONNECT 127.0.0.1:22", ""),
        ("GET /raw/x", "connection: upgrade\r\nupgrade: tls/1.3\r\n"),
        (
            "GET /raw/x",
            "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
        ),
        (
            "GET /v1/models",
            "connection: upgrade\r\nupgrade: websocket\r\n",
        ),
    ] {
        let host = if start.starts_with("CONNECT") {
            "127.0.0.1:22"
        } else {
            "proxy"
        };
        let head = format!("{start} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\nSSH-2.0-smuggled\r\n");
        let told = statuses(&proxy, head.as_bytes());
        assert!(!told.contains(&101), "{start} {fields}: {told:?}");
    }
    for place in 1.. {
        let all = worker.everything();
        if all.iter().all(|seen| seen.connection < place) {
            break;
        }
        let bytes = worker.connection(place).bytes;
        assert!(!String::from_utf8_lossy(&bytes).contains("smuggled"));
        assert!(
            !String::from_utf8_lossy(&bytes)
                .to_lowercase()
                .contains("upgrade")
        );
    }
}

/// A request with some of its bytes lost, doubled or changed.
fn spoilt(rng: &mut Rng) -> Vec<u8> {
    let body = chat("x");
    let mut bytes = request("POST", CHAT, &[("x-a", "b")], body.as_bytes());
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len());
        match rng.below(4) {
            0 => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
            1 if bytes.len() > 1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, b"\r\n\0: ,;\xff"[rng.below(8)]),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

#[test]
fn p26_malformed_requests_harm_nobody() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    let mut rng = Rng::seeded(26);
    let mut bystander = proxy.connect();
    let mut before = 0;
    let rounds = times(20_000, 100_000);
    for round in 0..rounds {
        let mut client = proxy.connect();
        client.try_send(&spoilt(&mut rng));
        if round % 50 == 0 {
            client.half_close();
            client.rest();
            let answer = bystander.call("POST", "/raw/x", "bystander");
            assert_eq!(answer.text(), "bystander", "round {round}");
        }
        if round == rounds / 5 {
            before = resident(proxy.pid());
        }
    }
    expect_soon("all of them are over", || {
        proxy.metric("forebay_inflight", &[]) == 0.0
    });
    let grown = resident(proxy.pid()).saturating_sub(before);
    assert!(grown <= 8 << 20, "{grown} bytes more");
    assert!(!proxy.stderr().contains("panicked"), "{}", proxy.stderr());
}

#[test]
fn p27_what_a_client_says_of_itself_splits_no_answer() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    for id in ["a\tb", "a;b", "<b>", "é", "a,b", "a=b", "x\u{85}y"] {
        let answer = proxy
            .connect()
            .call_with("POST", "/raw/x", &[("x-request-id", id)], b"x");
        assert_eq!(answer.status, 200, "{id:?}");
        assert_ne!(answer.header("x-request-id"), Some(id));
        assert!(
            worker
                .requests()
                .iter()
                .all(|seen| seen.header("x-request-id") != Some(id))
        );
    }
    let body = r#"{"model":"x\r\nset-cookie: a=b\u0000","messages":[]}"#;
    let answer = proxy.chat(body);
    assert_eq!(
        (answer.status, answer.reason()),
        (404, Some("model_not_found"))
    );
    assert_eq!(answer.header("set-cookie"), None);
    let answer = proxy.call("POST", "/v2/models/x%0d%0aset-cookie:%20a=b/infer", "{}");
    assert_eq!((answer.status, answer.header("set-cookie")), (404, None));
}

/// Answers of a worker that are not HTTP, or not all of it. Each ends with the connection.
const BAD_ANSWERS: [(&str, &str); 12] = [
    (
        "two lengths",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 4\r\n\r\nhello",
    ),
    (
        "a length that is none",
        "HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\nhello",
    ),
    (
        "a bare CR in a value",
        "HTTP/1.1 200 OK\r\nx-a: b\rset-cookie: c=d\r\ncontent-length: 5\r\n\r\nhello",
    ),
    (
        "a NUL in a value",
        "HTTP/1.1 200 OK\r\nx-a: b\0c\r\ncontent-length: 5\r\n\r\nhello",
    ),
    (
        "a folded line",
        "HTTP/1.1 200 OK\r\nx-a: b\r\n c\r\ncontent-length: 5\r\n\r\nhello",
    ),
    (
        "a head that is cut",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n",
    ),
    (
        "a status that is none",
        "HTTP/1.1 2000 OK\r\ncontent-length: 5\r\n\r\nhello",
    ),
    (
        "a version that is none",
        "HTTP/3.7 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    ),
    (
        "only an interim answer",
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
    ),
    (
        "a switch that nobody wanted",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhello",
    ),
    (
        "a body that is cut",
        "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n",
    ),
    (
        "a bad chunk",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    ),
];

#[test]
fn p07_an_answer_that_is_not_http_is_502_and_its_connection_is_not_used_again() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for (what, bytes) in BAD_ANSWERS {
        worker.tune(|knobs| knobs.fail(Failure::Rubbish(Bytes::from_static(bytes.as_bytes())), 9));
        let mut client = proxy.connect();
        let answer = client.call("POST", CHAT, &chat("x"));
        assert_eq!(
            (answer.status, answer.reason()),
            (502, Some("worker_failed")),
            "{what}"
        );
        worker.tune(|knobs| knobs.failures = 0);
        expect_soon("the worker is back", || {
            proxy.chat(&chat("next")).status == 200
        });
    }
}

/// Good answers behind something that is none of theirs.
const ODD_ANSWERS: [(&str, &str, u16, &str); 7] = [
    (
        "an interim answer in the same packet",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        200,
        "hello",
    ),
    (
        "early hints in front",
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        200,
        "hello",
    ),
    (
        "one length twice",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        200,
        "hello",
    ),
    (
        "a body on 204",
        "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello",
        204,
        "",
    ),
    (
        "a body on 304",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\nhello",
        304,
        "",
    ),
    (
        "a second answer",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        200,
        "hello",
    ),
    (
        "a length beside chunks",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        200,
        "hello",
    ),
];

#[test]
fn p07_what_stands_around_an_answer_reaches_no_client() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    for (what, bytes, status, text) in ODD_ANSWERS {
        worker.tune(|knobs| knobs.fail(Failure::Stays(Bytes::from_static(bytes.as_bytes())), 1));
        let mut client = proxy.connect();
        let answer = client.call("GET", "/raw/x", "");
        assert_eq!((answer.status, answer.text()), (status, text), "{what}");
        assert_eq!(answer.header("link"), None, "{what}");
        for _ in 0..3 {
            let next = client.call("POST", "/raw/x", "the next one's own");
            assert_eq!(next.text(), "the next one's own", "{what}");
        }
    }
}

#[test]
fn p07_a_connection_with_two_framings_is_not_used_again() {
    let worker = Engine::start();
    let proxy = routed(&worker);
    let both = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    worker.tune(|knobs| knobs.fail(Failure::Stays(Bytes::from_static(both.as_bytes())), 1));
    let mut client = proxy.connect();
    assert_eq!(client.call("GET", "/raw/x", "").text(), "hello");
    assert_eq!(client.call("POST", "/raw/x", "next").text(), "next");
    let seen = worker.requests();
    assert_ne!(seen[0].connection, seen[1].connection);
}

#[test]
fn p27_trailers_of_an_answer_become_no_fields_and_say_nothing_of_ours() {
    let trailers = "x-forebay-worker: evil\r\nset-cookie: a=b\r\ncontent-length: 1\r\nconnection: close\r\nx-checksum: 7\r\n";
    let bytes = format!(
        "HTTP/1.1 200 OK\r\ntrailer: x-checksum, x-forebay-worker, set-cookie\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n"
    );
    let worker = Engine::start();
    let proxy = routed(&worker);
    for h2 in [false, true] {
        worker.tune(|knobs| knobs.fail(Failure::Stays(Bytes::from(bytes.clone())), 1));
        let trailers = if h2 {
            let mut client = H2Client::connect(proxy.address());
            let (answer, trailers) = client.call_for_trailers("GET", "/raw/x", &[], b"");
            assert_eq!(answer.text(), "hello");
            format!("{trailers:?}")
        } else {
            let mut client = proxy.connect();
            let wish = [("te", "trailers"), ("connection", "te, close")];
            client.send(&request("GET", "/raw/x", &wish, b""));
            String::from_utf8(client.rest()).unwrap()
        };
        let (head, rest) = trailers.split_once("hello").unwrap_or(("", &trailers));
        assert!(
            !rest.contains("evil") && !rest.contains("a=b"),
            "{trailers}"
        );
        assert!(!head.contains("x-checksum: 7"), "{trailers}");
    }
}

#[test]
fn p28_hop_by_hop_fields_end_here_and_connection_takes_nothing_of_ours() {
    let worker = Engine::with(Knobs::default());
    let proxy = routed(&worker);
    let fields = [
        (
            "connection",
            "close, x-named, content-length, host, x-forwarded-for, x-request-id, transfer-encoding",
        ),
        ("x-named", "1"),
        ("keep-alive", "timeout=9"),
        ("proxy-connection", "keep-alive"),
        ("proxy-authorization", "Basic eA=="),
        ("te", "trailers, deflate;q=0.5"),
        ("forwarded", "for=6.6.6.6;host=bank.example"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-prefix", "/admin"),
        ("x-forwarded-port", "443"),
    ];
    let mut client = Client::connect(proxy.address());
    client.send(&request("POST", "/raw/x", &fields, b"hello"));
    assert_eq!(client.answer().status, 200);
    let seen = worker.only_request();
    assert_eq!(seen.body, b"hello");
    for gone in [
        "x-named",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "forwarded",
        "x-forwarded-prefix",
        "x-forwarded-port",
        "connection",
    ] {
        assert_eq!(seen.all(gone), Vec::<&str>::new(), "{gone}");
    }
    assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"]);
    let canned = Canned::ok("x")
        .header(
            "connection",
            "x-named, x-forebay-worker, x-request-id, content-type",
        )
        .header("x-named", "1")
        .header("x-forebay-worker", "evil")
        .header("x-forebay-reason", "evil")
        .header("proxy-authenticate", "Basic")
        .framing(Framing::Length);
    worker.tune(|knobs| knobs.canned = Some(canned));
    let answer = proxy.call("GET", "/raw/x", "");
    assert_eq!(answer.all("x-forebay-worker"), ["w"]);
    for gone in ["x-named", "x-forebay-reason", "proxy-authenticate"] {
        assert!(answer.all(gone).is_empty(), "{gone}");
    }
    assert!(answer.header("x-request-id").is_some());
}

/// Bodies that two readers would not read alike, or that break one.
fn odd_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        (
            "two models",
            text(r#"{"model":"m","model":"n","messages":[]}"#),
        ),
        (
            "two models, one in escapes",
            text(r#"{"model":"m","\u006dodel":"n","messages":[]}"#),
        ),
        (
            "two models but for the case",
            text(r#"{"model":"m","Model":"n","messages":[]}"#),
        ),
        ("a second object", text(r#"{"model":"m"}{"model":"n"}"#)),
        ("something behind the object", text(r#"{"model":"m"} x"#)),
        ("half a pair of surrogates", text(r#"{"model":"m\ud800"}"#)),
        ("a model that is a number", text(r#"{"model":1e400}"#)),
        ("a comment", text("{\"model\":\"m\" /* n */}")),
        ("a key without quotes", text("{model:\"m\"}")),
        ("a comma too many", text(r#"{"model":"m",}"#)),
        ("a byte order mark", text("\u{feff}{\"model\":\"m\"}")),
        (
            "bytes that are no UTF-8",
            b"{\"model\":\"m\",\"messages\":[{\"content\":\"\xff\xfe\"}]}".to_vec(),
        ),
        ("an overlong slash", b"{\"model\":\"m\xc0\xaf\"}".to_vec()),
        (
            "UTF-16",
            "{\"model\":\"m\"}"
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect(),
        ),
        (
            "a nesting bomb",
            [r#"{"model":"m","messages":"#, &"[".repeat(1 << 20)]
                .concat()
                .into_bytes(),
        ),
        (
            "a bomb of objects",
            [r#"{"model":"m","messages":"#, &r#"{"a":"#.repeat(1 << 18)]
                .concat()
                .into_bytes(),
        ),
    ]
}

#[test]
fn p33_a_body_with_two_readings_is_400_and_reaches_nobody() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.models = vec!["m".to_owned(), "n".to_owned()]);
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "models = [\"m\", \"n\"]")
        .start();
    for (what, body) in odd_bodies() {
        let began = worker.now();
        let answer = proxy.connect().call_with("POST", CHAT, &[], &body);
        assert_eq!(
            (answer.status, answer.reason()),
            (400, Some("bad_request")),
            "{what}"
        );
        assert!((worker.now() - began).0 < 2.0, "{what}");
    }
    assert_eq!(worker.count(), 0);
}

#[test]
fn p33_odd_numbers_and_long_strings_pass_as_they_are() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.canned = Some(Canned::ok("{}")));
    let proxy = Proxy::before(&worker);
    for rest in [
        r#""max_tokens":-1"#,
        r#""max_tokens":1e999"#,
        r#""max_tokens":99999999999999999999"#,
        r#""max_tokens":1.5"#,
        r#""max_tokens":"many""#,
        r#""temperature":-0.0e-0"#,
        r#""stream":"yes""#,
        r#""seed":123456789012345678901234567890"#,
        r#""prompt":null,"messages":{}"#,
        r#""":"","\u0000":"\u0000""#,
    ] {
        worker.forget();
        let body = format!("{{{rest},\"model\":\"m\"}}");
        assert_eq!(proxy.chat(&body).status, 200, "{rest}");
        assert_eq!(worker.only_request().body, body.as_bytes(), "{rest}");
    }
}

/// A body, packed.
fn packed(body: &[u8], coding: &str) -> Vec<u8> {
    let mut packed = Vec::new();
    let level = flate2::Compression::fast();
    match coding {
        "gzip" => flate2::bufread::GzEncoder::new(body, level).read_to_end(&mut packed),
        _ => flate2::bufread::ZlibEncoder::new(body, level).read_to_end(&mut packed),
    }
    .unwrap();
    packed
}

#[test]
fn p34_a_packed_body_is_read_for_routing_and_passed_on_as_it_came() {
    let worker = Engine::start();
    worker.tune(|knobs| {
        knobs.models = vec!["m".to_owned(), "n".to_owned()];
        knobs.canned = Some(Canned::ok("{}"));
    });
    let models = "models = { m = \"m\", other = \"n\" }";
    let proxy = Proxy::setup().worker_with("w", &worker, models).start();
    let body = chat(&"a word ".repeat(10_000));
    for coding in ["gzip", "deflate"] {
        worker.forget();
        let sent = packed(body.as_bytes(), coding);
        let fields = [("content-encoding", coding)];
        let answer = proxy.connect().call_with("POST", CHAT, &fields, &sent);
        assert_eq!(answer.status, 200, "{coding}");
        let seen = worker.only_request();
        assert!(seen.body == sent, "{coding}");
        assert_eq!(seen.header("content-encoding"), Some(coding));
        // A rename can't be made inside: what goes out is plain, and says so.
        worker.forget();
        let other = body.replace("\"m\"", "\"other\"");
        let answer =
            proxy
                .connect()
                .call_with("POST", CHAT, &fields, &packed(other.as_bytes(), coding));
        assert_eq!(answer.status, 200, "{coding}");
        let seen = worker.only_request();
        assert!(
            seen.body == body.replace("\"m\"", "\"n\"").as_bytes(),
            "{coding}"
        );
        assert_eq!(seen.header("content-encoding"), None, "{coding}");
    }
    assert_eq!(proxy.log_of(4)[1]["model"], "other");
}

#[test]
fn p34_what_cannot_be_unpacked_within_the_limits_is_refused() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &worker)
        .section("[limits]\nbody = \"8MiB\"")
        .start();
    let before = resident(proxy.pid());
    let bomb = packed(chat(&"x".repeat(200 << 20)).as_bytes(), "gzip");
    assert!(bomb.len() < 2 << 20);
    let fields = [("content-encoding", "gzip")];
    for _ in 0..3 {
        let answer = proxy.connect().call_with("POST", CHAT, &fields, &bomb);
        assert_eq!(
            (answer.status, answer.reason()),
            (413, Some("body_too_large"))
        );
    }
    let grown = resident(proxy.pid()).saturating_sub(before);
    assert!(grown <= 12 << 20, "{grown} bytes more");
    let good = packed(chat("x").as_bytes(), "gzip");
    for (what, body) in [
        ("plain", chat("x").into_bytes()),
        ("cut", good[..good.len() - 9].to_vec()),
        ("two of them", [&good[..], &good].concat()),
        ("something behind it", [&good[..], b"x"].concat()),
        ("zlib and not gzip", packed(chat("x").as_bytes(), "deflate")),
    ] {
        let answer = proxy.connect().call_with("POST", CHAT, &fields, &body);
        assert_eq!(
            (answer.status, answer.reason()),
            (400, Some("bad_request")),
            "{what}"
        );
    }
    assert_eq!(worker.count(), 0);
}
