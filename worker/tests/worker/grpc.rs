//! KServe v2 over gRPC, asked by the official clients; their scripts say what they expect.

use crate::support::models::{put_log, put_plus, put_scores, put_slow, put_types};
use crate::support::{Worker, run_client};

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
}
