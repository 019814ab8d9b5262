//! Promises about those who are slow, and those who are many: heads that never end (P18), clients that don't read
//! (P19), more connections than there are files for (P21), and what one address may have.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use forebay::clock::Clock;
use forebay::units::Seconds;
use socket2::SockRef;

use support::client::{Client, request};
use support::engine::Engine;
use support::expect_soon;
use support::open_files::{allowed, may_open};
use support::prompt::{CHAT, chat, stream};
use support::proxy::Proxy;

const REFUSED: &str = "forebay_connections_refused_total";

fn refused(proxy: &Proxy, cause: &str) -> f64 {
    proxy.metric(REFUSED, &[("cause", cause)])
}

/// Whether the peer has closed.
fn is_over(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 512]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn p18_ten_thousand_heads_that_never_end_are_cut_and_hold_nobody_up() {
    // The files of a process that has a connection to each, and what else it needs.
    const FILES: usize = 12_900;
    const CONNECTIONS: usize = 10_000;
    let files = allowed(FILES);
    if !may_open(
        files,
        "p18_ten_thousand_heads_that_never_end_are_cut_and_hold_nobody_up",
    ) {
        return;
    }
    let many = CONNECTIONS.min(files / 5 * 4 - 300);
    let engine = Engine::start();
    let files = u32::try_from(files).unwrap();
    let proxy = Proxy::setup()
        .worker("w", &engine)
        .open_files(files)
        .start();
    let mut bystander = proxy.connect();
    let mut asked = Vec::new();
    let mut ask = || {
        let sent = engine.now();
        assert_eq!(bystander.call("POST", CHAT, &chat("x")).status, 200);
        asked.push((engine.now() - sent).0);
    };
    let mut slow = Vec::new();
    while slow.len() < many {
        if slow.len().is_multiple_of(100) {
            ask();
        }
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nx-slow: ").unwrap();
        slow.push(stream);
    }
    let open = engine.now();
    let mut turn = 0;
    while !slow.is_empty() {
        // A byte now and then prolongs nothing.
        for _ in 0..50 {
            turn = (turn + 1) % slow.len().min(500);
            let _ = slow[turn].write(b"x");
        }
        slow.retain_mut(|stream| !is_over(stream));
        ask();
        let (left, passed) = (slow.len(), engine.now() - open);
        assert!(left == 0 || passed.0 < 15.0, "{left} left after {passed}");
    }
    let cut = engine.now() - open;
    asked.sort_by(f64::total_cmp);
    let [median, p99] = [50, 99].map(|percent| asked[asked.len() * percent / 100]);
    println!("{many} heads, the last cut after {cut}; others: {median:.4} s, p99 {p99:.4} s");
    // Judged by the many: other tests run beside this one.
    assert!(median < 0.05, "others' median {median} s, p99 {p99} s");
    expect_soon("each is counted", || {
        refused(&proxy, "header_timeout") == many as f64
    });
}

/// A worker whose answer never ends, and how much of it the proxy has taken when it takes no more.
fn endless() -> (SocketAddr, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, taken) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let sender = sender.clone();
            std::thread::spawn(move || answer_endlessly(stream, &sender));
        }
    });
    (address, taken)
}

fn answer_endlessly(mut stream: TcpStream, taken: &mpsc::Sender<usize>) {
    // What the worker's own system holds is not the proxy's.
    SockRef::from(&stream)
        .set_send_buffer_size(32 << 10)
        .unwrap();
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
        stream.write_all(head).unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let mut count = 0;
        while let Ok(more) = stream.write(&[7; 16 << 10]) {
            count += more;
        }
        if taken.send(count).is_err() {
            return;
        }
    }
}

#[test]
fn p19_who_does_not_read_holds_a_mebibyte_at_most_of_an_answer() {
    let (worker, taken) = endless();
    let proxy = Proxy::setup()
        .worker_at("w", &format!("http://{worker}"), "engine = \"generic\"")
        .section("[[route]]\npath = \"/raw/*\"")
        .start();
    let before = support::resident::resident(proxy.pid());
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let socket = TcpStream::connect(proxy.address()).unwrap();
            SockRef::from(&socket)
                .set_recv_buffer_size(4 << 10)
                .unwrap();
            (&socket)
                .write_all(&request("GET", "/raw/x", &[], b""))
                .unwrap();
            socket
        })
        .collect();
    for _ in &readers {
        let taken = taken.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(taken < 1 << 20, "{taken} bytes of one answer");
        println!("{taken} bytes of an answer were taken");
    }
    let grown = support::resident::resident(proxy.pid()).saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for eight streams");
}

#[test]
fn p21_where_files_run_out_streams_live_on_and_there_is_room_again_at_once() {
    // Of many files, connections come to their share first; of few, the process comes to its end.
    for files in [512, 64] {
        let engine = Engine::start();
        engine.tune(|knobs| knobs.decode = 0.02);
        let proxy = Proxy::setup()
            .worker("w", &engine)
            .section("[limits]\nheader_timeout = \"1m\"")
            .open_files(files)
            .start();
        let mut reader = proxy.connect();
        reader.send(&request("POST", CHAT, &[], stream("x", 10_000).as_bytes()));
        let mut answer = reader.head();
        let mut other = proxy.connect();
        assert_eq!(other.call("POST", CHAT, &chat("x")).status, 200);
        let mut idle: Vec<_> = (0..files).map(|_| proxy.connect()).collect();
        let is_full = || match files {
            512 => refused(&proxy, "connections") > 0.0,
            _ => proxy.stderr().contains("Too many open files"),
        };
        expect_soon("there is no room", is_full);
        let (began, worked) = (Clock::start(), support::resident::worked(proxy.pid()));
        for _ in 0..100 {
            assert!(reader.chunk(&mut answer), "the stream goes on");
        }
        let worked = support::resident::worked(proxy.pid()) - worked;
        let passed = began.now();
        assert!(
            worked.0 < passed.0 / 2.0,
            "it worked for {worked} of {passed}"
        );
        if files == 512 {
            // Its connection to the worker is a new one each time.
            engine.tune(|knobs| knobs.answers_per_connection = Some(1));
            for _ in 0..5 {
                assert_eq!(other.call("POST", CHAT, &chat("x")).status, 200);
            }
        }
        idle.clear();
        let clock = Clock::start();
        assert_eq!(proxy.chat(&chat("x")).status, 200);
        assert!(clock.now() < Seconds(5.0), "room after {}", clock.now());
        assert!(reader.chunk(&mut answer), "the stream goes on");
    }
}

#[test]
fn one_address_has_so_many_connections_and_proxies_that_are_trusted_any_number() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &engine)
        .listen("trusted_proxies = [\"127.0.0.9\"]")
        .section("[limits]\nconnections_per_address = 3")
        .start();
    let from = |last| Client::connect_from(Ipv4Addr::new(127, 0, 0, last), proxy.address());
    let mut three: Vec<_> = (0..3).map(|_| from(2)).collect();
    for client in &mut three {
        assert_eq!(client.call("GET", "/health", "").status, 200);
    }
    assert!(from(2).is_closed(), "a fourth");
    assert_eq!(refused(&proxy, "connections_per_address"), 1.0);
    assert_eq!(from(3).call("GET", "/health", "").status, 200);
    let mut many: Vec<_> = (0..9).map(|_| from(9)).collect();
    for client in &mut many {
        assert_eq!(client.call("GET", "/health", "").status, 200);
    }
    three.pop();
    expect_soon("there is room for another", || {
        let mut client = from(2);
        client.try_send(&request("GET", "/health", &[], b""));
        client.try_head().is_some_and(|head| head.status == 200)
    });
    proxy.reconfigure(
        &proxy
            .configuration()
            .replace("_address = 3", "_address = 0"),
    );
    let mut more: Vec<_> = (0..9).map(|_| from(2)).collect();
    for client in &mut more {
        assert_eq!(client.call("GET", "/health", "").status, 200);
    }
}
