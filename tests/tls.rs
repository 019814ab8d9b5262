//! TLS toward clients and toward workers, spoken by the real proxy: promise P41.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use rustls::version::{TLS12, TLS13};
use support::client::request;
use support::engine::Engine;
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::{Proxy, Setup};
use support::tls::{Authority, Caller, Files, front};

fn listening(files: &Files, more: &str) -> Setup {
    Proxy::setup().listen(&format!("tls = {{ {}{more} }}", files.table()))
}

/// A request whose answer ends the connection.
fn last() -> Vec<u8> {
    request(
        "POST",
        CHAT,
        &[("connection", "close")],
        chat("x").as_bytes(),
    )
}

#[test]
fn p41_clients_speak_tls_1_2_and_1_3_and_http_1_or_2() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .worker("w", &worker)
        .start();
    for version in [&TLS12, &TLS13] {
        let caller = Caller {
            versions: &[version],
            ..Caller::new(&authority)
        };
        let answer = caller.ask(proxy.address(), "gpu.lan", &last()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for seen in worker.requests() {
        assert_eq!(seen.all("x-forwarded-proto"), ["https"]);
    }
    let offers: [&[u8]; 2] = [b"h2", b"http/1.1"];
    for (offered, agreed) in [(&offers[..], "h2"), (&offers[1..], "http/1.1")] {
        let caller = Caller {
            alpn: offered,
            ..Caller::new(&authority)
        };
        let stream = caller.call(proxy.address(), "gpu.lan").unwrap();
        assert_eq!(stream.conn.alpn_protocol(), Some(agreed.as_bytes()));
    }
}

#[test]
fn p41_the_cipher_is_the_proxys_to_choose() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .worker("w", &worker)
        .start();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut caller = Caller::new(&authority);
        caller.versions = std::slice::from_ref(&version);
        let mut agreed = || {
            let stream = caller.call(proxy.address(), "gpu.lan").unwrap();
            caller.suites.reverse();
            stream.conn.negotiated_cipher_suite().unwrap().suite()
        };
        assert_eq!(agreed(), agreed());
    }
}

/// A greeting of TLS 1.1, as RFC 4346 has it.
#[test]
fn p41_nothing_older_is_spoken() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .worker("w", &worker)
        .start();
    let mut hello = vec![22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x13, 0, 0x2f, 1, 0]);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.write_all(&hello).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let fatal_alert = [2];
    assert_eq!(
        (answer[0], &answer[5..6]),
        (21, &fatal_alert[..]),
        "{answer:?}"
    );
}

#[test]
fn each_name_has_its_certificate_and_strangers_get_the_first() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let [first, second] = ["gpu.lan", "*.other.lan"].map(|name| authority.issue(name));
    let tables = format!("tls = [{{ {} }}, {{ {} }}]", first.table(), second.table());
    let proxy = Proxy::setup().listen(&tables).worker("w", &worker).start();
    let caller = Caller::new(&authority);
    for name in ["gpu.lan", "a.other.lan"] {
        let answer = caller.ask(proxy.address(), name, &last()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let error = caller.call(proxy.address(), "stranger.lan").unwrap_err();
    assert!(error.to_string().contains("gpu.lan"), "{error}");
}

#[test]
fn where_an_authority_vouches_for_clients_nobody_else_comes_in() {
    let (authority, others) = (Authority::new(), Authority::new());
    let team = format!(", client_ca = \"{}\"", authority.ca().display());
    let worker = Engine::start();
    let proxy = listening(&authority.issue("gpu.lan"), &team)
        .worker("w", &worker)
        .start();
    let [own, foreign] = [&authority, &others].map(|one| one.issue("app"));
    let ask = |shows| {
        let caller = Caller {
            shows,
            ..Caller::new(&authority)
        };
        caller.ask(proxy.address(), "gpu.lan", &last())
    };
    for stranger in [None, Some(&foreign)] {
        assert!(ask(stranger).is_err());
    }
    assert_eq!(worker.count(), 0);
    assert!(ask(Some(&own)).unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn who_speaks_no_tls_is_told_so_and_who_says_nothing_is_cut() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .section("[limits]\nheader_timeout = \"300ms\"")
        .worker("w", &worker)
        .start();
    let refused = || {
        let labels = [("cause", "tls")];
        proxy.metric("forebay_connections_refused_total", &labels)
    };
    let before = refused();
    // Who only looks whether somebody is there is not refused.
    drop(TcpStream::connect(proxy.address()).unwrap());
    let mut plain = TcpStream::connect(proxy.address()).unwrap();
    plain.write_all(&last()).unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("https://"),
        "{answer}"
    );

    let mut silent = TcpStream::connect(proxy.address()).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    expect_soon("both are counted", || refused() == before + 2.0);
}

#[test]
fn a_worker_within_tls_is_used_when_it_is_whom_it_should_be() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let files = authority.issue("localhost");
    let own = authority.issue("forebay");
    let address = front(&files, Some(&authority.ca()), worker.address());
    let url = format!("https://localhost:{}", address.port());
    let ca = format!("ca = \"{}\"", authority.ca().display());
    let shown = format!("client_cert = {{ {} }}", own.table());
    let proxy = Proxy::setup()
        .worker_at("w", &url, &format!("{ca}\n{shown}"))
        .start();
    for _ in 0..3 {
        assert_eq!(proxy.chat(&chat("x")).status, 200);
    }
    let host = format!("localhost:{}", address.port());
    assert_eq!(worker.requests()[0].all("host"), [host]);
}

#[test]
fn a_worker_that_nobody_vouches_for_is_down() {
    let (authority, others) = (Authority::new(), Authority::new());
    let worker = Engine::start();
    let address = front(&authority.issue("localhost"), None, worker.address());
    for (name, ca, flaw) in [
        ("localhost", others.ca(), "invalid peer certificate: "),
        ("127.0.0.1", authority.ca(), "not valid for name"),
    ] {
        let url = format!("https://{name}:{}", address.port());
        let proxy = Proxy::setup()
            .worker_at("w", &url, &format!("ca = \"{}\"", ca.display()))
            .launch();
        expect_soon("it is down, and why is said", || {
            let shown = proxy.worker("w");
            shown["state"] == "down" && shown.to_string().contains(flaw)
        });
        assert_eq!(proxy.chat(&chat("x")).status, 503);
    }
    assert_eq!(worker.count(), 0);
}

#[test]
fn p41_another_certificate_in_the_same_files_is_taken_over_without_a_restart() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .worker("w", &worker)
        .start();
    let caller = Caller::new(&authority);
    let mut kept = caller.call(proxy.address(), "gpu.lan").unwrap();
    let shown = |stream: &rustls::StreamOwned<rustls::ClientConnection, TcpStream>| {
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    };
    let before = shown(&kept);
    authority.issue("gpu.lan");
    proxy.signal("HUP");
    expect_soon("another is shown", || {
        let stream = caller.call(proxy.address(), "gpu.lan").unwrap();
        shown(&stream) != before
    });
    kept.write_all(&last()).unwrap();
    let mut answer = String::new();
    kept.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn files_that_do_not_go_together_are_told_before_they_are_needed() {
    let authority = Authority::new();
    let [one, other] = ["one", "other"].map(|name| authority.issue(name));
    let mixed = Files {
        cert: one.cert.clone(),
        key: other.key.clone(),
    };
    let empty = Files {
        cert: one.key.clone(),
        key: one.key.clone(),
    };
    let check = |listen: &str, worker: &str| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[listen]\n{listen}\n[[worker]]\nname = \"w\"\nurl = \"http://127.0.0.1:1\"\n{worker}\n"
        );
        std::fs::write(folder.path().join("forebay.toml"), text).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.arg("check").current_dir(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    for (files, flaw) in [
        (mixed, "other.key is not the key of"),
        (empty, "there is no certificate in it"),
    ] {
        let said = check(&format!("tls = {{ {} }}", files.table()), "");
        assert!(said.contains(flaw), "{said}");
    }
    let said = check("tls = { cert = \"x.pem\" }", "ca = \"x.pem\"");
    assert!(said.contains("listen.tls.key"), "{said}");
    assert!(
        said.contains("this worker is not spoken to by TLS"),
        "{said}"
    );
}
