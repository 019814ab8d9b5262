//! KServe v2 over gRPC, asked by the official clients; their scripts say what they expect.

use std::process::{Command, Stdio};

use crate::support::models::{put_log, put_plus, put_scores, put_slow, put_types};
use crate::support::{Worker, command, run_client};

fn everything() -> (tempfile::TempDir, Worker) {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    put_scores(models.path());
    put_types(models.path());
    put_log(models.path());
    let worker = Worker::start(models.path());
    (models, worker)
}

#[test]
fn tritonclient_is_content_over_grpc() {
    let (_models, worker) = everything();
    run_client("triton_grpc.py", &worker.grpc);
}

#[test]
fn tritonclient_is_content_with_streams_and_asyncio() {
    let (_models, worker) = everything();
    run_client("triton_grpc_stream.py", &worker.grpc);
}

#[test]
fn damaged_messages_are_never_an_internal_error() {
    let (_models, worker) = everything();
    run_client("triton_grpc_damage.py", &worker.grpc);
}

#[test]
fn a_call_whose_deadline_passed_in_line_is_not_run() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let worker = Worker::start(models.path());
    run_client("triton_grpc_deadline.py", &worker.grpc);
    let log = worker.whole_log();
    assert_eq!(log.matches("a batch begins").count(), 3, "{log}");
}

#[test]
fn a_grpc_port_in_use_ends_the_worker_and_names_the_port() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let models = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(models.path().join("echo/1")).unwrap();
    std::fs::write(models.path().join("echo/model.toml"), "engine = \"echo\"").unwrap();
    let mut serve = command(&["serve", "--models", models.path().to_str().unwrap()]);
    serve.args(["--http", "127.0.0.1:0", "--grpc", &address]);
    let ended: &mut Command = serve.stderr(Stdio::piped());
    let output = ended.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("--grpc {address}")), "{said}");
}
