//! The official Python clients are content: `openai`, `anthropic`, `tritonclient` and `websockets`, through the proxy, in front of the
//! scripted worker. The scripts stand in `tests/clients/`, the packages in a virtual environment that `./run test`
//! makes; without it these tests fail and say how to get it, they don't pretend.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::engine::Engine;
use support::engine::knobs::{Canned, Dialect, Failure, Knobs};
use support::expect_soon;
use support::grpc::GrpcWorker;
use support::proxy::Proxy;
use support::tenant::tenant;
use support::tls::Authority;
use support::websocket::EchoWorker;

/// Where the repository is.
const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// The Python that has the clients.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever runs the tests says where the clients are"
)]
fn python() -> PathBuf {
    let python = std::env::var_os("FOREBAY_TEST_PYTHON").map_or_else(
        || PathBuf::from(REPOSITORY).join("target/venv/bin/python"),
        PathBuf::from,
    );
    assert!(
        python.exists(),
        "there is no Python with the clients at {}: run `./run test`, which makes it, or name one with openai, \
         anthropic, tritonclient[http,grpc] and websockets in FOREBAY_TEST_PYTHON",
        python.display()
    );
    python
}

/// Runs a script against the proxy; it fails by its exit status.
#[track_caller]
fn content(script: &str, proxy: &Proxy) {
    content_with(script, proxy, &[]);
}

/// Runs a script that is given keys.
#[track_caller]
fn content_with(script: &str, proxy: &Proxy, keys: &[&str]) {
    let url = format!("http://{}", proxy.address());
    passes(
        script,
        Command::new(python()).arg(path(script)).arg(url).args(keys),
    );
}

fn path(script: &str) -> String {
    format!("{REPOSITORY}/tests/clients/{script}")
}

#[track_caller]
fn passes(script: &str, command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("ok"), "{script} checked nothing: {said}");
}

#[test]
fn the_triton_client_speaks_grpc() {
    let worker = GrpcWorker::start();
    let lines = "engine = \"generic\"\nmodels = { m = \"real\" }";
    let proxy = Proxy::setup().worker_at("w", &worker.url(), lines).start();
    content("triton_grpc.py", &proxy);
}

#[test]
fn the_websockets_client_holds_a_session() {
    let worker = EchoWorker::start();
    let lines = "engine = \"generic\"\nmodels = { m = \"real\" }";
    let proxy = Proxy::setup().worker_at("w", &worker.url(), lines).start();
    content("websocket_client.py", &proxy);
    let log = proxy.log_of(2);
    assert_eq!(
        (&log[0]["status"], &log[0]["reason"]),
        (&101.into(), &"ok".into())
    );
}

#[test]
fn the_openai_client_sends_sound() {
    let worker = Engine::start();
    worker.tune(|knobs| {
        knobs.models = vec!["whisper-large".to_owned()];
        let canned = Canned::ok("{\"text\":\"heard\"}").header("content-type", "application/json");
        knobs.canned = Some(canned);
    });
    let models = "models = { m = \"whisper-large\" }";
    let proxy = Proxy::setup().worker_with("w", &worker, models).start();
    content("openai_audio.py", &proxy);
    let seen = worker.requests();
    assert_eq!(seen.len(), 2);
    for seen in seen {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        assert!(
            body.contains("\r\n\r\nwhisper-large\r\n--"),
            "{:?}",
            seen.headers
        );
        assert!(seen.body.len() > 1 << 20);
    }
}

#[test]
fn openai_is_content() {
    content("openai_client.py", &Proxy::before(&Engine::start()));
}

#[test]
fn openai_is_content_within_tls() {
    let (authority, worker) = (Authority::new(), Engine::start());
    let files = authority.issue("127.0.0.1");
    let proxy = Proxy::setup()
        .listen(&format!("tls = {{ {} }}", files.table()))
        .worker("w", &worker)
        .start();
    let script = "openai_client.py";
    let mut command = Command::new(python());
    let url = format!("https://{}", proxy.address());
    let command = command.arg(path(script)).arg(url);
    passes(script, command.env("SSL_CERT_FILE", authority.ca()));
}

#[test]
fn openai_hears_of_a_broken_stream() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.fail(Failure::CutAfter(3), u64::MAX));
    content("openai_broken_stream.py", &Proxy::before(&worker));
}

#[test]
fn anthropic_is_content() {
    content("anthropic_client.py", &Proxy::before(&Engine::start()));
}

#[test]
fn openai_with_a_key_is_told_what_its_tenant_may() {
    let worker = Engine::with(Knobs {
        decode: 0.001,
        ..Knobs::default()
    });
    let tenants = [
        tenant("right", "fb_right", "models = [\"m\"]"),
        tenant("slow", "fb_slow", "requests_per_minute = 60"),
        tenant("full", "fb_full", "max_concurrent = 1"),
    ];
    let proxy = Proxy::setup()
        .section(&tenants.concat())
        .worker("w", &worker)
        .start();
    let keys = ["fb_right", "fb_slow", "fb_full"];
    content_with("openai_tenant.py", &proxy, &keys);
}

#[test]
fn openai_s_own_retries_behave_well() {
    let worker = Engine::with(Knobs {
        decode: 0.001,
        ..Knobs::default()
    });
    let [silent, down] = [(); 2].map(|()| Engine::start());
    silent.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    down.refuse();
    let tenants = [
        tenant("slow", "fb_slow", "requests_per_minute = 60"),
        tenant("open", "fb_open", ""),
    ];
    let proxy = Proxy::setup()
        .section(&tenants.concat())
        .worker("w", &worker)
        .worker_with("s", &silent, "models = [\"silent\"]")
        .worker_with("d", &down, "models = [\"down\"]")
        .launch();
    expect_soon("two are up", || {
        ["w", "s"]
            .iter()
            .all(|name| proxy.worker(name)["state"] == "up")
    });
    content_with("openai_retries.py", &proxy, &["fb_slow", "fb_open"]);
    let refused = |reason| proxy.metric("forebay_requests_total", &[("reason", reason)]);
    let counts = ["model_not_found", "deadline", "no_worker"].map(refused);
    assert_eq!(counts, [1.0, 1.0, 3.0]);
}

#[test]
fn anthropic_with_a_key_is_told_what_its_tenant_may() {
    let worker = Engine::start();
    let tenants = [
        tenant("right", "fb_right", "models = [\"m\"]"),
        tenant("empty", "fb_empty", "requests_per_minute = 1"),
    ];
    let proxy = Proxy::setup()
        .section(&tenants.concat())
        .worker("w", &worker)
        .start();
    content_with("anthropic_tenant.py", &proxy, &["fb_right", "fb_empty"]);
}

#[test]
fn tritonclient_is_content() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.dialect = Dialect::Triton);
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "engine = \"triton\"")
        .start();
    content("triton_client.py", &proxy);
}
