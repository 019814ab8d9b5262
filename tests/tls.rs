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
use std::process::{Command, Stdio};

use rustls::version::{TLS12, TLS13};
use support::client::request;
use support::engine::Engine;
use support::expect_soon;
use support::greeting::{
    EXTENDED_MASTER_SECRET, Greeting, HEARTBEAT, RENEGOTIATION_INFO, Reply, TLS_1_2,
};
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

/// Those of TLS 1.2 that a certificate of ECDSA can have here: AES-128-GCM, AES-256-GCM and ChaCha20-Poly1305, with keys
/// that nobody has afterwards.
const SPOKEN: [u16; 3] = [0xc02b, 0xc02c, 0xcca9];

/// SSL 3.0, TLS 1.0 and TLS 1.1, with ciphers of theirs and ours.
#[test]
fn p41_nothing_older_is_spoken() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .worker("w", &worker)
        .start();
    for version in 0x0300..TLS_1_2 {
        let greeting = Greeting {
            version,
            ..Greeting::offering(&[0xc02b, 0xc009, 0xc013, 0x002f])
        };
        let protocol_version = Reply::Refused(70);
        assert_eq!(
            greeting.send(proxy.address()),
            protocol_version,
            "{version:x}"
        );
    }
}

#[test]
fn p41_no_weak_cipher_is_spoken() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .worker("w", &worker)
        .start();
    // All that was ever numbered before TLS 1.3: without a cipher, for export, RC4, DES, 3DES, CBC, static RSA, …
    let all = [0x0000..0x0100, 0xc000..0xc100, 0xcc00..0xcd00];
    let weak = all.into_iter().flatten();
    let weak: Vec<u16> = weak.filter(|suite| !SPOKEN.contains(suite)).collect();
    let handshake_failure = Reply::Refused(40);
    assert_eq!(
        Greeting::offering(&weak).send(proxy.address()),
        handshake_failure
    );
    for spoken in SPOKEN {
        let offered: Vec<u16> = weak.iter().copied().chain([spoken]).collect();
        let Reply::Agreed(agreed) = Greeting::offering(&offered).send(proxy.address()) else {
            panic!("{spoken:x} is not spoken");
        };
        assert_eq!(agreed.suite, spoken);
    }
}

#[test]
fn p41_what_weakens_a_session_is_not_agreed_to() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .worker("w", &worker)
        .start();
    let with = |compressions: &[u8]| {
        let greeting = Greeting {
            compressions: compressions.to_vec(),
            ..Greeting::offering(&SPOKEN)
        };
        greeting.send(proxy.address())
    };
    let deflate = 1;
    assert!(matches!(with(&[deflate]), Reply::Refused(_)));
    let Reply::Agreed(agreed) = with(&[deflate, 0]) else {
        panic!("TLS 1.2 is spoken");
    };
    assert_eq!((agreed.version, agreed.compression), (TLS_1_2, 0));
    assert_eq!(agreed.says(HEARTBEAT), None);
    assert_eq!(agreed.says(EXTENDED_MASTER_SECRET), Some(&[][..]));
    // Nobody can put a greeting of their own before it (RFC 5746 §3.6).
    assert_eq!(agreed.says(RENEGOTIATION_INFO), Some(&[0][..]));
    // A client that speaks TLS 1.3 sees that somebody took it away on the way (RFC 8446 §4.1.3).
    assert!(agreed.random.ends_with(b"DOWNGRD\x01"));
}

/// Keys are not agreed on anew within a connection, which costs the server more than the client: who asks for it gets no
/// answer, and as it has no request either, the end of its connection.
#[test]
fn p41_there_is_no_renegotiation() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let proxy = listening(&authority.issue("gpu.lan"), "")
        .section("[limits]\nheader_timeout = \"2s\"")
        .worker("w", &worker)
        .start();
    let openssl = Command::new("openssl")
        .args([
            "s_client",
            "-tls1_2",
            "-connect",
            &proxy.address().to_string(),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut openssl) = openssl else {
        println!("skipped: there is no openssl to ask for it");
        return;
    };
    openssl.stdin.as_mut().unwrap().write_all(b"R\n").unwrap();
    let output = openssl.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let [agreed, asked] =
        ["Cipher is ECDHE-ECDSA-", "RENEGOTIATING"].map(|word| said.contains(word));
    assert!(agreed && asked, "{said}");
    assert!(!output.status.success(), "keys were agreed on anew: {said}");
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
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
