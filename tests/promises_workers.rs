//! Promises about workers that fail and clients that leave (P1, P2, P4, P7, P8), with peers that misbehave on purpose.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay::units::Seconds;

use support::client::request;
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure, Framing, Knobs};
use support::expect_soon;
use support::h2_client::H2Client;
use support::prompt::{CHAT, chat, said, stream};
use support::proxy::Proxy;

/// The longest a worker may go on after its client left (P8).
const LET_GO: f64 = 0.5;

/// Quick probes that let a worker back in and never take one out: a death is learned from requests alone.
const RETURNS_ONLY: &str = "interval = \"20ms\"\nrise = 1\nfall = 1000";

/// Two workers that take turns, both up. No request may be sent twice; what was never sent may be tried again.
fn a_pair() -> ([Engine; 2], Proxy) {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .section("[routing]\npolicy = \"round_robin\"\nretries = { extra = 0 }\n[[route]]\npath = \"/raw/*\"")
        .probe(RETURNS_ONLY)
        .start();
    (engines, proxy)
}

#[test]
fn p01_a_refused_connect_goes_to_another_worker_whatever_the_method() {
    let (engines, proxy) = a_pair();
    let mut client = proxy.connect();
    for _ in 0..10 {
        assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
    }
    engines[0].kill();
    for _ in 0..100 {
        assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
        for method in ["GET", "POST", "DELETE"] {
            let answer = client.call(method, "/raw/x", "body");
            assert_eq!((answer.status, answer.text()), (200, "body"), "{method}");
        }
    }
    assert_eq!(engines[1].count() + engines[0].count(), 410);
}

#[test]
fn p01_no_request_fails_while_idle_workers_die_and_come_back() {
    let (engines, proxy) = a_pair();
    let mut client = proxy.connect();
    for round in 0..12 {
        let dying = &engines[round % 2];
        dying.kill();
        for _ in 0..10 {
            assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200, "{round}");
        }
        dying.accept();
        expect_soon("it is back", || proxy.all_are_up());
    }
}

#[test]
fn p01_a_worker_killed_again_and_again_is_back_as_soon_as_its_probes_pass() {
    let engines = [Engine::start(), Engine::start()];
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        .section("[routing]\npolicy = \"round_robin\"\n[eject]\nfirst = \"10m\"\nmax = \"10m\"")
        .probe(RETURNS_ONLY)
        .start();
    let dying = &engines[0];
    let good = || assert_eq!(proxy.chat(&chat("x")).status, 200);
    for round in 1..=4 {
        // It has proved itself since it came back, and may be given several at a time.
        (0..8).for_each(|_| good());
        let before = dying.count();
        dying.tune(|knobs| knobs.fail(Failure::Hang, 3));
        std::thread::scope(|scope| {
            (0..6).for_each(|_| drop(scope.spawn(good)));
            expect_soon("it has three", || dying.count() == before + 3);
            dying.kill();
        });
        assert_eq!(proxy.worker("a")["state"], "ejected");
        let lost = [("worker", "a"), ("cause", "lost")];
        assert_eq!(
            proxy.metric("forebay_ejections_total", &lost),
            f64::from(round)
        );
        let killed = dying.now();
        expect_soon("ten probes have failed", || {
            dying.now() - killed > Seconds(0.2)
        });
        dying.accept();
        expect_soon("it is back", || proxy.worker("a")["state"] == "up");
    }
}

/// A load of chats from 16 clients; it fails at the first that is not answered whole.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    answered: AtomicUsize,
}

impl Load {
    fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// One client's part.
    fn run(&self, proxy: &Proxy) {
        let _ends_with_the_first = Ending(&self.over);
        let mut client = proxy.connect();
        while !self.over.load(Ordering::Relaxed) {
            let answer = client.call("POST", CHAT, &chat("x"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.complete);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ends a load on drop, also when a test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills a worker under load and brings it back; over once all that its death touched is over.
fn kill_once(dying: &Engine, load: &Load) {
    let before = load.answered();
    dying.kill();
    let killed = dying.now();
    expect_soon("the load goes on and probes have failed", || {
        load.answered() > before + 150 && dying.now() - killed > Seconds(0.2)
    });
    dying.accept();
    let (seen, before) = (dying.count(), load.answered());
    expect_soon("it works again", || {
        dying.count() > seen + 20 && load.answered() > before + 100
    });
}

#[test]
fn p01_no_request_fails_over_twelve_kills_under_load() {
    let engines = [Engine::start(), Engine::start()];
    for engine in &engines {
        engine.tune(|knobs| knobs.first_byte_delay = Duration::from_millis(5));
    }
    let proxy = Proxy::setup()
        .worker("a", &engines[0])
        .worker("b", &engines[1])
        // Uses a worker that came back, whatever was learned of the two meanwhile.
        .section("[routing]\npolicy = \"least_inflight\"")
        .probe("interval = \"20ms\"")
        .start();
    let load = Load::default();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| load.run(&proxy));
        }
        let _over = Ending(&load.over);
        for kill in 0..12 {
            kill_once(&engines[kill % 2], &load);
        }
    });
    assert!(load.answered() >= 3_000);
}

#[test]
fn p01_a_worker_that_dies_between_head_and_first_event_has_given_nothing_yet() {
    let engines = [
        Engine::start(),
        Engine::h2c(Knobs::default()),
        Engine::start(),
    ];
    let mut setup = Proxy::setup().section("[routing]\npolicy = \"round_robin\"");
    for (name, engine) in ["a", "b", "c"].iter().zip(&engines) {
        setup = setup.worker(name, engine);
    }
    let proxy = setup.start();
    for engine in &engines[..2] {
        engine.tune(|knobs| knobs.fail(Failure::CutAfter(0), u64::MAX));
    }
    for _ in 0..6 {
        let answer = proxy.chat(&stream("one two", 2));
        assert_eq!(answer.header("x-forebay-worker"), Some("c"));
        assert_eq!(said(answer.text()), "one two");
        assert!(answer.complete && answer.text().ends_with("data: [DONE]\n\n"));
    }
}

#[test]
fn p02_a_worker_killed_inside_a_stream_is_a_visible_break_and_nothing_is_made_up() {
    for _ in 0..5 {
        let (engines, proxy) = a_pair();
        for engine in &engines {
            engine.tune(|knobs| knobs.fail(Failure::StallAfter(4), 1));
        }
        let mut client = proxy.connect();
        let body = stream("one two three four five six", 6);
        client.send(&request("POST", CHAT, &[], body.as_bytes()));
        let mut answer = client.head();
        // The role and three tokens; then the worker dies.
        while !answer.body.windows(5).any(|window| window == b"three") {
            assert!(client.chunk(&mut answer));
        }
        let (running, other) = if engines[0].count() == 1 {
            (&engines[0], &engines[1])
        } else {
            (&engines[1], &engines[0])
        };
        running.kill();
        while client.chunk(&mut answer) {}
        let events = answer.text();
        assert!(
            events.contains("event: error\n") || !answer.complete,
            "{events}"
        );
        assert!(!events.contains("[DONE]"), "{events}");
        let tokens = events.split("event: error").next().unwrap();
        assert_eq!(said(tokens), "one two three");
        assert!(client.is_closed());
        assert_eq!(other.count(), 0, "another worker was asked");
        assert_eq!(proxy.log_of(1)[0]["attempts"], 1);
    }
}

#[test]
fn p04_a_kept_alive_connection_that_dies_on_reuse_is_never_a_clients_problem() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &worker)
        .section("[[route]]\npath = \"/raw/*\"")
        .start();
    worker.tune(|knobs| knobs.reset_on_reuse = true);
    let mut client = proxy.connect();
    for place in 0..100 {
        assert_eq!(client.call("GET", "/raw/x", "").status, 200, "GET {place}");
    }
    for place in 0..100 {
        let answer = client.call("POST", CHAT, &chat("x"));
        assert_eq!(answer.status, 200, "POST {place}");
    }
    assert_eq!(worker.count(), 200);
}

#[test]
fn p04_a_connection_that_its_worker_closed_in_silence_is_not_used_again() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    worker.tune(|knobs| knobs.answers_per_connection = Some(1));
    let mut client = proxy.connect();
    for place in 0..100 {
        let answer = client.call("POST", CHAT, &chat("x"));
        assert_eq!(answer.status, 200, "{place}");
    }
    assert_eq!(worker.count(), 100);
}

#[test]
fn p04_a_shared_h2c_connection_that_died_is_replaced() {
    let worker = Engine::h2c(Knobs::default());
    let proxy = Proxy::setup()
        .worker("w", &worker)
        .probe("interval = \"60s\"\nrise = 1")
        .start();
    let mut client = proxy.connect();
    for place in 0..50 {
        assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200, "{place}");
        worker.kill();
        worker.accept();
    }
}

#[test]
fn p04_connections_to_a_worker_are_kept_and_used_again() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        let mut client = proxy.connect();
        for _ in 0..50 {
            assert_eq!(client.call("POST", CHAT, &chat("x")).status, 200);
        }
        let first = worker.requests()[0].connection;
        assert!(
            worker
                .requests()
                .iter()
                .all(|seen| seen.connection == first)
        );
    }
}

#[test]
fn p07_a_cut_answer_never_looks_whole() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    for framing in [Framing::Length, Framing::Chunked] {
        for pieces in 0..2 {
            worker.tune(|knobs| {
                knobs.framing = framing;
                knobs.fail(Failure::CutAfter(pieces), 1);
            });
            let mut client = proxy.connect();
            client.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
            let answer = client.answer();
            let refused = answer.status == 502 && answer.reason() == Some("worker_failed");
            assert!(
                refused || !answer.complete,
                "{framing:?} {pieces}: {answer:?}"
            );
            assert!(refused || client.is_closed());
        }
    }
    for line in proxy.log_of(4) {
        assert_eq!(line["reason"], "worker_failed", "{line}");
    }
}

#[test]
fn p07_a_cut_answer_never_looks_whole_over_h2() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        worker.tune(|knobs| knobs.fail(Failure::CutAfter(1), 1));
        let mut client = H2Client::connect(proxy.address());
        let body = chat("x");
        // A reset may overtake the head; then there is no answer at all.
        let Ok(mut reading) = client.open("POST", CHAT, &[], body.as_bytes()) else {
            continue;
        };
        let mut broken = reading.head().status == 502;
        while let Some(piece) = client.piece(&mut reading) {
            broken |= piece.is_err();
            if broken {
                break;
            }
        }
        assert!(broken, "{}", worker.url());
    }
}

#[test]
fn p07_an_answer_that_breaks_at_its_first_byte_still_shows_its_head() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &engine)
        .section("[[route]]\npath = \"/raw/*\"")
        .start();
    let odd_chunk = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nrubbish\r\n";
    engine.tune(|knobs| knobs.fail(Failure::Rubbish(odd_chunk.into()), u64::MAX));
    for _ in 0..20 {
        let answer = proxy.call("POST", "/raw/x", "body");
        assert_eq!((answer.status, answer.complete), (200, false));
        assert_eq!(answer.header("x-forebay-worker"), Some("w"));
        let mut client = H2Client::connect(proxy.address());
        let answer = client.try_call("POST", "/raw/x", &[], b"body");
        assert!(answer.is_ok_and(|answer| answer.status == 200 && !answer.complete));
    }
}

#[test]
fn p07_a_cut_stream_says_so_and_invents_no_end() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        for pieces in [1, 3, 5] {
            worker.tune(|knobs| knobs.fail(Failure::CutAfter(pieces), 1));
            let mut client = proxy.connect();
            client.send(&request("POST", CHAT, &[], stream("x", 9).as_bytes()));
            let answer = client.answer();
            let events = answer.text();
            let (before, after) = events.split_once("event: error\n").expect(events);
            assert_eq!(before.matches("data: ").count(), pieces);
            assert!(after.starts_with("data: {\"error\":"), "{after}");
            assert!(!events.contains("[DONE]"));
            assert!(client.is_closed());
        }
    }
}

#[test]
fn p07_a_break_inside_an_event_does_not_glue_the_error_to_it() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let canned = Canned::ok("")
        .header("content-type", "text/event-stream")
        .pieces(&["data: {\"whole\":1}\n\n", "data: {\"ha"])
        .framing(Framing::Chunked);
    worker.tune(|knobs| {
        knobs.canned = Some(canned);
        knobs.fail(Failure::CutAfter(2), 1);
    });
    let answer = proxy.chat(&stream("x", 9));
    let events = answer.text();
    assert!(
        events.starts_with("data: {\"whole\":1}\n\ndata: {\"ha"),
        "{events}"
    );
    assert!(
        events.contains("\n\nevent: error\ndata: {\"error\":"),
        "{events}"
    );
}

#[test]
fn p07_a_length_beside_chunks_does_not_cut_the_answer_short() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let both = Bytes::from_static(
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
          b\r\nhello world\r\n0\r\n\r\n",
    );
    worker.tune(|knobs| knobs.fail(Failure::Rubbish(both), u64::MAX));
    let answer = proxy.chat(&chat("x"));
    assert_eq!((answer.status, answer.text()), (200, "hello world"));
    assert_eq!(answer.header("content-length"), None);
}

#[test]
fn p07_rubbish_is_no_answer() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let rubbish: [&[u8]; 6] = [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"HTTP/1.1 abc OK\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\n bad: fold\r\n\r\n",
        b"220 smtp.example ESMTP\r\n",
    ];
    for bytes in rubbish {
        let bytes = Bytes::from_static(bytes);
        worker.tune(|knobs| knobs.fail(Failure::Rubbish(bytes.clone()), u64::MAX));
        let answer = proxy.chat(&chat("x"));
        assert_eq!(
            (answer.status, answer.reason()),
            (502, Some("worker_failed")),
            "{bytes:?}"
        );
    }
    let bad_chunks = Bytes::from_static(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\nxx\r\n",
    );
    worker.tune(|knobs| knobs.fail(Failure::Rubbish(bad_chunks), u64::MAX));
    assert!(!proxy.chat(&chat("x")).complete);
}

#[test]
fn p07_an_answer_that_ends_with_its_connection_gets_a_framing_that_shows_a_cut() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let old = Bytes::from_static(b"HTTP/1.0 200 OK\r\n\r\n{}");
    worker.tune(|knobs| knobs.fail(Failure::Rubbish(old), 1));
    let answer = proxy.chat(&chat("x"));
    assert!(answer.head.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    assert_eq!((answer.text(), &answer.chunks[..]), ("{}", &[2][..]));
}

#[test]
fn p07_stray_bytes_never_reach_the_next_client() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let second_answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray";
    for stray in [second_answer, "stray", "\r\n\r\n", "0\r\n\r\n"] {
        let stray = Bytes::copy_from_slice(stray.as_bytes());
        worker.tune(|knobs| knobs.fail(Failure::Stray(stray), 50));
        let mut client = proxy.connect();
        for place in 0..50 {
            let word = format!("word{place}");
            let answer = client.call("POST", CHAT, &chat(&word));
            assert_eq!(answer.status, 200);
            let text = answer.json()["choices"][0]["message"]["content"].clone();
            assert!(text.as_str().unwrap().starts_with(&word), "{word}: {text}");
            // The stray bytes are out before the next request is: what comes later nobody could tell from an answer.
            expect_soon("the worker has said everything", || {
                worker.requests().iter().all(|seen| seen.finished.is_some())
            });
        }
        worker.forget();
    }
}

/// How long after `left` the worker saw the request's client gone.
#[track_caller]
fn let_go(worker: &Engine, place: usize, left: f64) -> f64 {
    expect_soon("the worker was let go", || {
        worker.requests()[place].gone.is_some()
    });
    worker.requests()[place].gone.unwrap().0 - left
}

#[test]
fn p08_a_client_that_leaves_before_the_first_byte_frees_the_worker_at_once() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
        for (place, body) in [chat("x"), stream("x", 9)].iter().enumerate() {
            let mut client = proxy.connect();
            client.send(&request("POST", CHAT, &[], body.as_bytes()));
            expect_soon("it arrived", || worker.count() == place + 1);
            let left = worker.now().0;
            drop(client);
            let took = let_go(&worker, place, left);
            assert!(took < LET_GO, "{}: {took} s", worker.url());
        }
    }
}

#[test]
fn p08_a_client_that_leaves_inside_an_answer_frees_the_worker_at_once() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        worker.tune(|knobs| knobs.fail(Failure::StallAfter(3), u64::MAX));
        let mut client = proxy.connect();
        client.send(&request("POST", CHAT, &[], stream("x", 9).as_bytes()));
        let mut answer = client.head();
        assert!(client.chunk(&mut answer));
        let left = worker.now().0;
        drop(client);
        let took = let_go(&worker, 0, left);
        assert!(took < LET_GO, "{}: {took} s", worker.url());
    }
}

#[test]
fn p08_a_client_that_sends_ahead_and_leaves_frees_the_worker_at_once() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let next = request("POST", CHAT, &[], chat("x").as_bytes());
    for (place, ahead) in [&b"\r\n"[..], b"GET", &next, &[b'G'; 32 << 10]]
        .iter()
        .enumerate()
    {
        worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
        let mut client = proxy.connect();
        client.send(&request("POST", CHAT, &[], stream("x", 9).as_bytes()));
        client.send(ahead);
        expect_soon("it arrived", || worker.count() == place + 1);
        let left = worker.now().0;
        drop(client);
        let took = let_go(&worker, place, left);
        assert!(took < LET_GO, "{place}: {took} s");
    }
}

#[test]
fn p08_a_stream_that_its_client_resets_frees_the_worker_at_once_over_h2() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::before(&worker);
        worker.tune(|knobs| knobs.fail(Failure::StallAfter(3), u64::MAX));
        let mut client = H2Client::connect(proxy.address());
        let body = stream("x", 9);
        let mut reading = client.open("POST", CHAT, &[], body.as_bytes()).unwrap();
        assert!(client.piece(&mut reading).unwrap().is_ok());
        let left = worker.now().0;
        drop(reading);
        let took = let_go(&worker, 0, left);
        assert!(took < LET_GO, "{}: {took} s", worker.url());
    }
}

#[test]
fn p08_the_leaving_is_logged_once_and_nothing_stays_in_flight() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    let mut clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = proxy.connect();
            client.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
            client
        })
        .collect();
    expect_soon("all arrived", || worker.count() == 20);
    assert_eq!(proxy.metric("forebay_inflight", &[("worker", "w")]), 20.0);
    clients.clear();
    let log = proxy.log_of(20);
    assert_eq!(log.len(), 20);
    assert!(
        log.iter()
            .all(|line| line["status"] == 499 && line["reason"] == "client_gone")
    );
    expect_soon("nothing is in flight", || {
        proxy.metric("forebay_inflight", &[("worker", "w")]) == 0.0
    });
    assert_eq!(worker.load(), (0, 0));
}
