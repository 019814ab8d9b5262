//! WebSockets through the line (promise P31): routed, named, held, and ended as either end, a timer or the operator
//! wants.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use forebay::clock::Clock;
use forebay::units::Seconds;
use support::engine::{Engine, knobs::Knobs};
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::{Proxy, Setup};
use support::tls::{Authority, front};
use support::websocket::{CLOSE, EchoWorker, PING, PONG, Socket, TEXT, asking};

const ROUTE: &str = "[[route]]\npath = \"/ws/*\"";

/// A proxy whose only worker speaks WebSocket, and whose clients say `m` for what that calls `real/Name`.
fn setup(worker: &EchoWorker) -> Setup {
    let lines = "engine = \"generic\"\nmodels = { m = \"real/Name\" }";
    Proxy::setup()
        .worker_at("w", &worker.url(), lines)
        .section(ROUTE)
}

#[test]
fn p31_frames_pass_both_ways_as_they_are() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).start();
    let mut socket = Socket::open(proxy.connect(), "/ws/chat?key=secret");
    for length in [0, 1, 125, 126, 70_000, 1 << 20] {
        socket.echo(&"x".repeat(length));
    }
    socket.send(PING, b"are you there");
    assert_eq!(socket.next(), Some((PONG, b"are you there".to_vec())));
    // Many at once, cut anywhere.
    for place in 0..200 {
        socket.send(TEXT, format!("message {place}").as_bytes());
    }
    for place in 0..200 {
        let expected = format!("message {place}").into_bytes();
        assert_eq!(socket.next(), Some((TEXT, expected)));
    }
    assert_eq!(proxy.metric("forebay_inflight", &[("worker", "w")]), 1.0);
    socket.send(CLOSE, &1000_u16.to_be_bytes());
    assert_eq!(socket.closed_with(), 1000);
    assert_eq!(socket.next(), None);
    let line = &proxy.log_of(1)[0];
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&101.into(), &"ok".into())
    );
    assert_eq!(
        (&line["route"], &line["worker"]),
        (&"/ws/*".into(), &"w".into())
    );
    assert!(line["bytes_in"].as_u64().unwrap() > 1 << 20);
    assert!(!line.to_string().contains("secret"));
    expect_soon("its place is free", || {
        proxy.metric("forebay_inflight", &[]) == 0.0
    });
}

#[test]
fn p31_the_worker_is_asked_for_the_switch_and_nothing_else_that_ends_here() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).start();
    let mut client = proxy.connect();
    let head = asking("/ws/x").replace(
        "keep-alive, Upgrade",
        "keep-alive, Upgrade, x-named\r\nx-named: 1\r\nsec-websocket-protocol: a, b",
    );
    assert_eq!(client.send(head.as_bytes()).head().status, 101);
    let seen = &worker.heads()[0];
    for line in [
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-protocol: a, b\r\n",
        "x-forwarded-for: 127.0.0.1\r\n",
    ] {
        assert!(seen.contains(line), "{seen}");
    }
    assert!(!seen.contains("x-named"), "{seen}");
}

#[test]
fn p31_realtime_goes_where_its_model_is_and_a_rename_changes_that_value() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).start();
    let mut socket = Socket::open(proxy.connect(), "/v1/realtime?a=%20&model=m&b");
    socket.echo("hello");
    assert!(
        worker.heads()[0].starts_with("GET /v1/realtime?a=%20&model=real%2FName&b HTTP/1.1\r\n")
    );
    for (target, status, reason) in [
        ("/v1/realtime?model=unknown", 404, "model_not_found"),
        ("/v1/realtime?model=m&model=m", 400, "bad_request"),
        ("/v1/realtime?model=%ff", 400, "bad_request"),
        ("/v1/models", 400, "bad_request"),
        ("/elsewhere", 404, "no_route"),
    ] {
        let answer = proxy.connect().send(asking(target).as_bytes()).answer();
        assert_eq!(
            (answer.status, answer.reason()),
            (status, Some(reason)),
            "{target}"
        );
    }
    let plain = proxy.call("GET", "/v1/realtime?model=m", "");
    assert_eq!((plain.status, plain.reason()), (400, Some("bad_request")));
    assert_eq!(worker.heads().len(), 1);
}

#[test]
fn p31_an_unsound_request_for_a_websocket_is_400() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).start();
    for (what, head) in [
        ("another version", asking("/ws/x").replace("13", "12")),
        (
            "no version",
            asking("/ws/x").replace("sec-websocket-version", "x"),
        ),
        ("a short key", asking("/ws/x").replace("dGhl", "")),
        ("no key", asking("/ws/x").replace("sec-websocket-key", "x")),
        ("POST", asking("/ws/x").replace("GET", "POST")),
        (
            "a body",
            asking("/ws/x").replace("host:", "content-length: 5\r\nhost:") + "hello",
        ),
    ] {
        let answer = proxy.connect().send(head.as_bytes()).answer();
        assert_eq!(
            (answer.status, answer.reason()),
            (400, Some("bad_request")),
            "{what}"
        );
    }
    assert!(worker.heads().is_empty());
}

#[test]
fn p25_a_worker_that_does_not_agree_gives_its_own_answer_and_no_tunnel() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).start();
    let mut client = proxy.connect();
    let early = [
        asking("/ws/refuse"),
        "GET /ready HTTP/1.1\r\nhost: proxy\r\n\r\n".to_owned(),
    ]
    .concat();
    let answer = client.send(early.as_bytes()).answer();
    assert_eq!((answer.status, answer.text()), (403, "no"));
    // What was sent early is a request like any other.
    assert_eq!(client.answer().status, 200);
}

#[test]
fn p31_both_ends_hear_how_the_other_went() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).start();
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    socket.send(TEXT, b"bye");
    assert_eq!(socket.closed_with(), 1000);
    socket.send(CLOSE, &1000_u16.to_be_bytes());
    assert_eq!(socket.next(), None);
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    socket.echo("x");
    socket.send(TEXT, b"die");
    assert_eq!(socket.closed_with(), 1011);
    assert_eq!(socket.next(), None);
    let ended = worker.ended();
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    socket.echo("x");
    drop(socket);
    expect_soon("the worker is let go", || worker.ended() > ended);
    let log = proxy.log_of(3);
    let reasons: Vec<_> = log
        .iter()
        .map(|line| line["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, ["ok", "worker_failed", "client_gone"]);
    expect_soon("every place is free", || {
        proxy.metric("forebay_inflight", &[]) == 0.0
    });
}

#[test]
fn p31_a_tunnel_outlives_idle_and_ends_with_its_own_silence() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker)
        .section("[limits]\nidle = \"200ms\"\n[timeouts]\nbetween_bytes = \"1s\"")
        .start();
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    assert_eq!(socket.closed_with(), 1001);
    let line = &proxy.log_of(1)[0];
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&101.into(), &"stalled".into())
    );
    assert!(line["total_s"].as_f64().unwrap() >= 1.0);
}

#[test]
fn p31_a_stopping_proxy_says_goodbye_in_a_lull_and_waits_for_no_more() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).start();
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    socket.echo("x");
    proxy.signal("TERM");
    assert_eq!(socket.closed_with(), 1001);
    socket.send(CLOSE, &1001_u16.to_be_bytes());
    assert_eq!(proxy.wait_exit(Duration::from_secs(10)).code(), Some(0));
    assert_eq!(proxy.log_of(1)[0]["reason"], "ok");
}

#[test]
fn p13_a_tunnel_inside_a_frame_holds_nobody_up_and_is_closed_in_a_later_lull() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).start();
    // So many that each thread of the proxy has one.
    let mut stuck: Vec<_> = (0..16)
        .map(|_| {
            let mut socket = Socket::open(proxy.connect(), "/ws/x");
            socket.send(TEXT, b"half");
            assert_eq!(socket.bytes(2), [0x81, 4]);
            socket.send_bytes(&[0x81]);
            socket
        })
        .collect();
    let mut lively = Socket::open(proxy.connect(), "/ws/x");
    proxy.signal("TERM");
    let clock = Clock::start();
    while clock.now() < Seconds(2.0) {
        lively.try_send(TEXT, b"x");
        let (opcode, _) = lively.next().expect("it is heard");
        if opcode == CLOSE {
            break;
        }
    }
    // The rest of an empty text, whose echo the worker sends into its own frame; then the close that it was told.
    stuck[0].send_bytes(&[0x80, 1, 2, 3, 4]);
    assert_eq!(stuck[0].bytes(3), [0x81, 0, 0x80 | CLOSE]);
    drop((stuck, lively));
    assert_eq!(proxy.wait_exit(Duration::from_secs(10)).code(), Some(0));
}

#[test]
fn p13_a_tunnel_that_is_never_silent_hears_goodbye_at_the_drain_limit() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).top("drain = \"1500ms\"").start();
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    proxy.signal("TERM");
    // Each answer brings the next question, so that there is no lull.
    let goodbye = loop {
        // Nobody takes it any more when the close is under way.
        socket.try_send(TEXT, b"more");
        let (opcode, payload) = socket.next().expect("a close frame before the end");
        if opcode == CLOSE {
            break payload;
        }
    };
    assert_eq!(goodbye[..2], 1001_u16.to_be_bytes());
    assert_eq!(proxy.wait_exit(Duration::from_secs(10)).code(), Some(0));
    let line = &proxy.log_of(1)[0];
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&101.into(), &"ok".into())
    );
}

#[test]
fn p13_a_tunnel_that_ends_inside_a_frame_is_told_nothing_and_counted_as_cut() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).top("drain = \"1500ms\"").start();
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    socket.send(TEXT, b"half");
    assert_eq!(socket.bytes(2), [0x81, 4]);
    socket.send_bytes(&[0x81]);
    proxy.signal("TERM");
    assert_eq!(socket.next(), None);
    assert_eq!(proxy.wait_exit(Duration::from_secs(10)).code(), Some(0));
    assert_eq!(proxy.log_of(1)[0]["reason"], "overloaded");
}

/// Reads frames, and answers pings for so long, until a close comes; its code, or none when it takes too long.
#[track_caller]
fn closed_in_the_end(socket: &mut Socket, answers_for: Seconds) -> Option<u16> {
    let clock = Clock::start();
    while clock.now() < Seconds(20.0) {
        let (opcode, payload) = socket.next().expect("a close frame before the end");
        match opcode {
            // The close may be under way already, and then nobody takes this any more.
            PING if clock.now() < answers_for => {
                socket.try_send(PONG, &payload);
            }
            CLOSE => return Some(u16::from_be_bytes([payload[0], payload[1]])),
            _ => {}
        }
    }
    None
}

const PINGED: &str = "[timeouts]\nbetween_bytes = \"3s\"\nping = \"300ms\"";

#[test]
fn p31_a_quiet_tunnel_whose_ends_answer_pings_lives_and_a_client_that_answers_none_is_let_go() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).section(PINGED).start();
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    let clock = Clock::start();
    // For longer than the silence that is allowed; then the worker alone goes on answering.
    let code = closed_in_the_end(&mut socket, Seconds(3.5));
    assert_eq!(code, Some(1001));
    assert!(clock.now() > Seconds(6.0));
    assert_eq!(proxy.log_of(1)[0]["reason"], "stalled");
}

#[test]
fn p31_a_worker_that_answers_no_ping_is_let_go_though_its_client_does() {
    let worker = EchoWorker::start();
    let proxy = setup(&worker).section(PINGED).start();
    let mut socket = Socket::open(proxy.connect(), "/ws/x");
    socket.send(TEXT, b"hush");
    let code = closed_in_the_end(&mut socket, Seconds(f64::INFINITY));
    assert_eq!(code, Some(1001));
    assert_eq!(proxy.log_of(1)[0]["reason"], "stalled");
    expect_soon("its place is free", || {
        proxy.metric("forebay_inflight", &[]) == 0.0
    });
}

#[test]
fn p31_a_websocket_goes_out_within_tls_too() {
    let (worker, authority) = (EchoWorker::start(), Authority::new());
    let front = front(&authority.issue("127.0.0.1"), None, worker.address());
    let ca = authority.ca();
    let lines = format!("engine = \"generic\"\nca = \"{}\"", ca.display());
    let proxy = Proxy::setup()
        .worker_at("w", &format!("https://{front}"), &lines)
        .section(ROUTE)
        .start();
    Socket::open(proxy.connect(), "/ws/x").echo("x");
}

#[test]
fn a_worker_that_can_carry_no_websocket_is_passed_over() {
    let worker = EchoWorker::start();
    let h2c = Engine::h2c(Knobs::default());
    let proxy = Proxy::setup()
        .worker("h2c", &h2c)
        .worker_at("w", &worker.url(), "engine = \"generic\"")
        .section(ROUTE)
        .start();
    for _ in 0..6 {
        Socket::open(proxy.connect(), "/ws/x").echo("x");
    }
    assert_eq!(h2c.count(), 0);
    assert_eq!(proxy.worker("h2c")["state"], "up");
    let answer = proxy.connect().call("POST", CHAT, &chat("x"));
    assert_ne!(answer.status, 101);
}
