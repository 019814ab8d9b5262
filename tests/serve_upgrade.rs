//! Another process takes over: the real binary twice, on one configuration and state.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Duration;

use forebay::clock;
use serde_json::{Value, json};
use support::client::{Answer, Client, request};
use support::engine::Engine;
use support::engine::knobs::Knobs;
use support::expect_soon;
use support::h2_client::H2Client;
use support::load::Load;
use support::manager::Manager;
use support::prompt::{CHAT, chat, said, stream};
use support::proxy::{Proxy, TOKEN};

/// One proxy hands over to another, which serves now.
#[track_caller]
fn swap(running: &Proxy) -> Proxy {
    let successor = running.successor();
    running.signal("QUIT");
    expect_soon("the successor serves", || {
        running.serving_pid() == successor.pid() && running.stderr().contains("handed over")
    });
    successor
}

/// A stream of so many tokens, whose head has come.
fn streaming(proxy: &Proxy, tokens: usize) -> (Client, Answer) {
    let mut client = proxy.connect();
    let body = stream("on and on", tokens);
    client.send(&request("POST", CHAT, &[], body.as_bytes()));
    let head = client.head();
    (client, head)
}

#[test]
fn p12_five_swaps_under_load_lose_nothing() {
    const REQUESTS: usize = 4_500;
    let engine = Engine::start();
    let first = Proxy::before(&engine);
    let mut proxies: Vec<Proxy> = Vec::new();
    let load = Load {
        clients: 8,
        requests: REQUESTS,
        rate: Some(300.0),
        path: CHAT,
        body: &chat("hello"),
    };
    let ended = load.send(&first, |running| {
        for turn in 1..=5 {
            expect_soon("the load goes on", || running.count() >= 100 * turn);
            let successor = swap(proxies.last().unwrap_or(&first));
            proxies.push(successor);
        }
    });
    proxies.insert(0, first);
    let lost: Vec<_> = ended.iter().filter(|one| !one.is_good()).collect();
    assert!(lost.is_empty() && ended.len() == REQUESTS, "{lost:?}");
    for proxy in &proxies[..5] {
        let status = proxy.wait_exit(Duration::from_secs(20));
        assert!(status.success(), "{}", proxy.stderr());
    }
    assert!(!proxies[5].has_ended() && proxies[5].is_ready());
    let served = proxies.iter().map(|proxy| proxy.log().len());
    assert!(
        served.clone().all(|count| count > 0),
        "{:?}",
        served.collect::<Vec<_>>()
    );
}

#[test]
fn a_stream_outlives_the_swap_and_what_was_learned_is_taken_along() {
    let engine = Engine::with(Knobs {
        decode: 0.05,
        ..Knobs::default()
    });
    let old = Proxy::before(&engine);
    for _ in 0..3 {
        old.chat(&chat("hello"));
    }
    let (mut client, mut answer) = streaming(&old, 80);
    let new = swap(&old);
    expect_soon("what was learned is known", || {
        new.worker("w")["prefill"].is_object()
    });
    assert_eq!(new.chat(&chat("hello")).status, 200);
    assert!(!old.has_ended(), "a stream runs");
    client.finish(&mut answer);
    assert!(answer.complete && said(answer.text()).split_whitespace().count() >= 80);
    let status = old.wait_exit(Duration::from_secs(20));
    assert!(status.success());
    let state = old.folder().join("state");
    assert!(!state.join("upgrade.sock").exists() && !state.join("upgrade").exists());
}

#[test]
fn who_was_added_by_hand_is_not_taken_along_and_that_is_said() {
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::before(&engine);
    let guest = format!(r#"{{"url":"{}"}}"#, other.url());
    assert_eq!(proxy.change("/api/workers/guest/add", &guest).status, 200);
    let successor = swap(&proxy);
    let workers = successor.api("/api/workers");
    assert_eq!(workers["workers"].as_array().unwrap().len(), 1);
    expect_soon("it is said", || {
        let log = proxy.stderr();
        let told = "was added by hand and is not with the successor";
        log.lines()
            .any(|line| line.contains(told) && line.contains("guest"))
    });
}

#[test]
fn a_stream_is_cut_when_drain_is_over() {
    let engine = Engine::with(Knobs {
        decode: 0.05,
        ..Knobs::default()
    });
    let old = Proxy::setup()
        .top("drain = \"3s\"")
        .worker("w", &engine)
        .start();
    let (mut client, mut answer) = streaming(&old, 4_000);
    let _new = swap(&old);
    let status = old.wait_exit(Duration::from_secs(20));
    assert!(
        status.success() && old.stderr().contains("drain = 3s is over"),
        "{}",
        old.stderr()
    );
    client.finish(&mut answer);
    assert!(!answer.complete);
}

/// A stream that says at its end that the proxy stops, and nothing that could be taken for the end of its answer.
#[track_caller]
fn says_that_the_proxy_stops(body: &str) {
    let (_, last) = body.rsplit_once("\n\nevent: error\ndata: ").expect(body);
    let error: Value = serde_json::from_str(last.strip_suffix("\n\n").unwrap()).unwrap();
    assert_eq!(error["error"]["message"], "the proxy is stopping");
    assert!(!body.contains("[DONE]") && !body.contains("message_stop"));
}

#[test]
fn streams_that_outlast_drain_say_why_they_end() {
    let engine = Engine::with(Knobs {
        decode: 0.02,
        ..Knobs::default()
    });
    let proxy = Proxy::setup()
        .top("drain = \"300ms\"")
        .worker("w", &engine)
        .start();
    let body = stream("on and on", 4_000);
    let mut over_http1 = [CHAT, "/v1/messages"].map(|path| {
        let mut client = proxy.connect();
        client.send(&request("POST", path, &[], body.as_bytes()));
        let head = client.head();
        (client, head)
    });
    let mut over_http2 = H2Client::connect(proxy.address());
    let mut reading = { over_http2.open("POST", CHAT, &[], body.as_bytes()) }.unwrap();
    proxy.signal("TERM");
    for (client, answer) in &mut over_http1 {
        client.finish(answer);
        assert!(!answer.complete);
        says_that_the_proxy_stops(answer.text());
    }
    let mut came = Vec::new();
    let end = loop {
        match over_http2.piece(&mut reading) {
            Some(Ok(piece)) => came.extend_from_slice(&piece),
            end => break end,
        }
    };
    assert!(matches!(end, Some(Err(_))), "the stream is reset");
    says_that_the_proxy_stops(str::from_utf8(&came).unwrap());
    let status = proxy.wait_exit(Duration::from_secs(5));
    assert!(status.success(), "{}", proxy.stderr());
    for line in proxy.log_of(3) {
        assert_eq!(
            (&line["status"], &line["reason"]),
            (&json!(200), &json!("overloaded"))
        );
    }
}

/// One reload, as a service manager hears of it.
#[track_caller]
fn hears_of_a_reload(manager: &Manager, proxy: &Proxy) {
    let ordered = clock::since_boot().as_micros();
    proxy.signal("HUP");
    let (by, said) = manager.hears();
    let (word, at) = said.split_once("\nMONOTONIC_USEC=").unwrap();
    let at: u128 = at.parse().unwrap();
    assert_eq!((by, word), (proxy.pid(), "RELOADING=1"));
    assert!((ordered..=clock::since_boot().as_micros()).contains(&at));
    assert_eq!(manager.hears(), (proxy.pid(), "READY=1".to_owned()));
}

#[test]
fn a_service_manager_is_told_whom_to_watch_and_a_swap_does_not_stop_the_service() {
    let (engine, manager) = (Engine::start(), Manager::start());
    let old = Proxy::setup()
        .worker("w", &engine)
        .variable("NOTIFY_SOCKET", manager.place().to_str().unwrap())
        .start();
    assert_eq!(manager.hears(), (old.pid(), "READY=1".to_owned()));
    hears_of_a_reload(&manager, &old);
    let new = swap(&old);
    let taken_over = format!("MAINPID={}\nREADY=1", new.pid());
    assert_eq!(manager.hears(), (new.pid(), taken_over));
    assert!(old.wait_exit(Duration::from_secs(20)).success());
    assert!(manager.heard_all(), "who handed over says nothing");
    hears_of_a_reload(&manager, &new);
    new.signal("TERM");
    assert!(new.wait_exit(Duration::from_secs(20)).success());
    assert_eq!(manager.hears(), (new.pid(), "STOPPING=1".to_owned()));
    assert!(manager.heard_all());
}

#[test]
fn sigquit_without_a_successor_is_refused() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    proxy.signal("QUIT");
    expect_soon("it is refused", || {
        proxy
            .stderr()
            .contains("SIGQUIT refused: no successor waits")
    });
    assert_eq!(proxy.chat(&chat("here")).status, 200);
}

#[test]
fn a_successor_that_is_stopped_leaves_everything_as_it_was() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let successor = proxy.successor();
    successor.signal("TERM");
    let status = successor.wait_exit(Duration::from_secs(10));
    assert!(status.success());
    assert!(!proxy.folder().join("state/upgrade.sock").exists());
    assert_eq!(proxy.serving_pid(), proxy.pid());
    proxy.signal("QUIT");
    expect_soon("it is refused", || {
        proxy.stderr().contains("SIGQUIT refused")
    });
    assert_eq!(proxy.chat(&chat("here")).status, 200);
    let third = swap(&proxy);
    assert_eq!(third.chat(&chat("there")).status, 200);
}

#[test]
fn a_successor_that_dies_on_the_way_leaves_the_pid_of_who_runs() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let state = proxy.folder().join("state");
    let meeting = UnixListener::bind(state.join("upgrade.sock")).unwrap();
    proxy.signal("QUIT");
    let (line, _) = meeting.accept().unwrap();
    let mut has = String::new();
    BufReader::new(&line).read_line(&mut has).unwrap();
    assert!(has.starts_with("has "), "{has}");
    std::fs::write(state.join("forebay.pid"), "1\n").unwrap();
    drop(line);
    expect_soon("it is written again", || proxy.serving_pid() == proxy.pid());
    assert_eq!(proxy.chat(&chat("here")).status, 200);
}

#[test]
fn a_successor_whose_predecessor_dies_ends_and_says_why() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let successor = proxy.successor();
    proxy.signal("KILL");
    let status = successor.wait_exit(Duration::from_secs(20));
    assert_eq!(status.code(), Some(1));
    expect_soon("it says why", || {
        successor
            .stderr()
            .contains("no proxy runs that could hand over")
    });
    assert!(!proxy.folder().join("state/upgrade.sock").exists());
}

#[test]
fn a_successor_to_whom_no_sockets_come_ends_and_says_so() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let successor = proxy.successor();
    let meeting = UnixStream::connect(proxy.folder().join("state/upgrade.sock")).unwrap();
    writeln!(&meeting, "has {} {}", proxy.address(), proxy.admin()).unwrap();
    let mut ready = String::new();
    BufReader::new(&meeting).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    drop(meeting);
    let status = successor.wait_exit(Duration::from_secs(30));
    assert_eq!(status.code(), Some(1));
    expect_soon("it says why", || {
        successor.stderr().contains("has sent no sockets in 5 s")
    });
    assert_eq!(proxy.chat(&chat("here")).status, 200);
}

#[test]
fn of_two_successors_the_second_is_refused_and_told_who_is_the_first() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let first = proxy.successor();
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["serve", "--upgrade", "--config"])
        .arg(proxy.folder().join("forebay.toml"))
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("another successor waits already (pid {})", first.pid());
    assert!(told.contains(&expected), "{told}");
    proxy.signal("QUIT");
    expect_soon("the first serves", || proxy.serving_pid() == first.pid());
    assert_eq!(first.chat(&chat("there")).status, 200);
}

#[test]
fn a_port_in_use_is_told_with_who_has_it() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["serve", "--config"])
        .arg(proxy.folder().join("forebay.toml"))
        .env("FOREBAY_ADMIN_TOKEN", TOKEN)
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let (port, pid) = (proxy.address().port(), proxy.pid());
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("port {port} is in use by forebay (pid {pid})");
    assert!(told.contains(&expected), "{told}");
    assert_eq!(proxy.serving_pid(), pid);
}
