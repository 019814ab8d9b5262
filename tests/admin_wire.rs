//! The admin side over real sockets: what hyper makes of its answers, in both versions of HTTP.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay::admin::token::{Origin, TokenSource};
use forebay::admin::{Admin, FleetView, QueueView, Sights};
use forebay::clock::Clock;
use forebay::config::plan::{AccessTarget, LogLevel, LogPlan, Secret};
use forebay::fault::{Fault, Kind};
use forebay::observe::Observe;
use forebay::queue::Foreseen;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const DEADLINE: Duration = Duration::from_secs(10);

fn admin(listen: SocketAddr) -> Admin {
    let log = LogPlan {
        level: LogLevel::Info,
        access: AccessTarget::Off,
        replay: false,
    };
    let source = TokenSource {
        token: Secret::new("token"),
        origin: Origin::Environment,
    };
    let sights = Sights {
        clock: Clock::start(),
        stopping: Box::new(|| false),
        observe: Arc::new(Observe::new(Clock::start(), &log, &[], &[]).unwrap()),
        config: Box::new(|| "{}".into()),
        set_level: Box::new(|_, _| Ok(())),
        reload: Box::new(|_| Box::pin(std::future::pending())),
        reloaded: Box::new(|| None),
        tenants: Box::new(forebay::admission::Accounts::default),
        change: Box::new(|_, _| false),
        staff: Box::new(|_| Box::pin(std::future::pending())),
        dry_run: Box::new(|_, _| Foreseen::refused(Fault::new(Kind::NoRoute, "no path"))),
        fleet: Box::new(|| FleetView {
            workers: Vec::new(),
            queued: Vec::new(),
            ready: Ok(()),
        }),
        queue: Box::new(|_| QueueView::default()),
    };
    Admin::new(source, listen, sights)
}

/// Serves one connection, in the version that is asked for.
async fn serve_one(listener: TcpListener, http2: bool) {
    let admin = Arc::new(admin(listener.local_addr().unwrap()));
    let (stream, _) = listener.accept().await.unwrap();
    let service = service_fn(|request| {
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(admin.answer::<hyper::body::Incoming>(request).await) }
    });
    // How a connection ends is the client's affair.
    let _ended = if http2 {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
    } else {
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await
    };
}

#[tokio::test]
async fn http1_head_has_the_length_and_the_next_answer_begins_right_after_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_one(listener, false));

    let mut client = TcpStream::connect(at).await.unwrap();
    let heads = format!(
        "HEAD /health HTTP/1.1\r\nhost: {at}\r\n\r\n\
         GET /api/config HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer token\r\nconnection: close\r\n\r\n"
    );
    client.write_all(heads.as_bytes()).await.unwrap();
    let mut text = String::new();
    let read = client.read_to_string(&mut text);
    tokio::time::timeout(DEADLINE, read).await.unwrap().unwrap();

    let (head, rest) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-length: 3"), "{head}");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n"), "{rest}");
    assert!(rest.ends_with("\r\n\r\n{}"), "{rest}");
}

#[tokio::test]
async fn http2_head_has_the_length_and_no_body_and_the_authority_is_the_host() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_one(listener, true));

    let stream = TcpStream::connect(at).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tasks.spawn(async { connection.await.unwrap_or_default() });

    for (method, authority, status, body) in [
        ("HEAD", at.to_string(), 200, ""),
        ("GET", at.to_string(), 200, "{}"),
        ("GET", "evil.example".to_owned(), 403, "{\"error\""),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{authority}/api/config"))
            .header("authorization", "Bearer token")
            .body(Empty::<bytes::Bytes>::new())
            .unwrap();
        let answer = tokio::time::timeout(DEADLINE, client.send_request(request));
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.status(), status);
        if method == "HEAD" {
            assert_eq!(answer.headers()["content-length"], "2");
        }
        let got = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(got.starts_with(body.as_bytes()), "{got:?}");
        assert_eq!(got.is_empty(), body.is_empty());
    }
}
