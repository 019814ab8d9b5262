//! KServe v2 over gRPC, asked by the official clients; their scripts say what they expect.

use crate::support::models::{put_log, put_plus, put_scores, put_slow, put_types};
use crate::support::{Worker, run_client, send_to};

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

#[test]
fn the_worker_ends_a_call_at_its_deadline_by_itself() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let worker = Worker::start(models.path());
    // A ModelInferRequest: model_name, one of inputs (name, datatype, shape), one of raw_input_contents.
    let input = b"\x0a\x01n\x12\x05INT64\x1a\x01\x01";
    let size = 300_i64.to_le_bytes();
    let message = [b"\x0a\x04slow\x2a\x0d", &input[..], b"\x3a\x08", &size].concat();
    let frame = [&[0, 0, 0, 0, message.len() as u8][..], &message].concat();
    // HTTP/1.1 shows the status as a header where no answer was begun.
    let ask = |timeout: &str| {
        let path = "/inference.GRPCInferenceService/ModelInfer";
        let headers = ["content-type: application/grpc", "te: trailers", timeout];
        send_to(&worker.grpc, "POST", path, &headers, &frame).finish()
    };
    let late = ask("grpc-timeout: 1n");
    assert_eq!(late.header("grpc-status"), Some("4"), "{late:?}");
    let odd = ask("grpc-timeout: soon");
    assert_eq!(odd.header("grpc-status"), Some("3"), "{odd:?}");
    let whole = ask("grpc-timeout: 30S");
    assert_eq!(whole.header("grpc-status"), None, "{whole:?}");
    assert!(whole.body.contains("mean"), "{whole:?}");
}

#[test]
fn a_call_that_can_not_be_read_is_its_clients_mistake() {
    let (_models, worker) = everything();
    let ask = |frame: &[u8]| {
        let path = "/inference.GRPCInferenceService/ModelInfer";
        let headers = ["content-type: application/grpc", "te: trailers"];
        send_to(&worker.grpc, "POST", path, &headers, frame).finish()
    };
    for (what, frame) in [
        ("no protobuf", &b"\0\0\0\0\x03\xff\xff\xff"[..]),
        ("cut short", b"\0\0\0\0\x09\x0a\x04pl"),
        ("an odd flag", b"\x07\0\0\0\0"),
        ("compressed by nothing", b"\x01\0\0\0\0"),
        ("no message", b""),
    ] {
        let answer = ask(frame);
        assert_eq!(
            answer.header("grpc-status"),
            Some("3"),
            "{what}: {answer:?}"
        );
        let said = answer.header("grpc-message").unwrap();
        assert!(said.starts_with("the%20call%20can"), "{said}");
    }
    run_client("triton_grpc_unread.py", &worker.grpc);
}
