//! Start, signals, exit codes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::time::Duration;

use crate::support::models::{put_plus, put_slow, put_slow_to_load, slow_request};
use crate::support::{Worker, command, library};

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command(arguments).output().unwrap();
    let said = [stdout, stderr].concat();
    (status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn help_shows_an_example() {
    let (code, said) = run(&["serve", "--help"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("forebay-worker serve --models ./models"),
        "{said}"
    );
}

#[test]
fn wrong_arguments_exit_2_and_are_named() {
    for (arguments, word) in [
        (&["serve"][..], "--models"),
        (
            &["serve", "--models", "x", "--gprc", "127.0.0.1:1"],
            "--gprc",
        ),
        (
            &["serve", "--models", "x", "--device", "gpu"],
            "expected \"cpu\", \"cuda\" or",
        ),
        (&["serve", "--models", "x", "--threads", "0"], "--threads"),
        (&["serve", "--models", "x", "--http", "nowhere"], "--http"),
        (&["bench"], "bench"),
        (&[], "serve"),
    ] {
        let (code, said) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn a_bad_models_folder_and_a_bad_library_are_both_said() {
    let (code, said) = run(&[
        "serve",
        "--models",
        "/nowhere",
        "--onnxruntime",
        "/nothing.so",
    ]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("/nowhere") && said.contains("/nothing.so"),
        "{said}"
    );
}

#[test]
fn a_folder_of_which_nothing_can_be_loaded_exits_2_and_says_why() {
    let models = tempfile::tempdir().unwrap();
    fs::create_dir_all(models.path().join("broken/1")).unwrap();
    fs::write(models.path().join("broken/1/model.onnx"), "not a graph").unwrap();
    let library = library();
    let (code, said) = run(&[
        "serve",
        "--models",
        models.path().to_str().unwrap(),
        "--http",
        "127.0.0.1:0",
        "--onnxruntime",
        library.to_str().unwrap(),
    ]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("model broken:"), "{said}");
}

#[test]
fn an_empty_folder_exits_2_unless_models_may_come_into_it() {
    let models = tempfile::tempdir().unwrap();
    let folder = models.path().to_str().unwrap();
    let (code, said) = run(&["serve", "--models", folder, "--http", "127.0.0.1:0"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("holds no model"), "{said}");
}

#[test]
fn a_port_in_use_exits_1_and_is_named() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let library = library();
    let folder = models.path().to_str().unwrap();
    for flag in ["--http", "--grpc", "--metrics"] {
        let mut arguments = vec!["serve", "--models", folder];
        arguments.extend(["--onnxruntime", library.to_str().unwrap()]);
        arguments.extend([flag, &address]);
        if flag != "--http" {
            arguments.extend(["--http", "127.0.0.1:0"]);
        }
        let (code, said) = run(&arguments);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("{flag} {address}")), "{said}");
    }
}

#[test]
fn shells_are_told_what_completes_it() {
    for shell in ["bash", "zsh", "fish"] {
        let output = command(&["completions", shell]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["forebay-worker", "serve", "model-control"] {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
    }
}

#[test]
fn an_echo_needs_no_library() {
    let models = tempfile::tempdir().unwrap();
    fs::create_dir(models.path().join("echo")).unwrap();
    fs::write(models.path().join("echo/model.toml"), "engine = \"echo\"").unwrap();
    let folder = models.path().to_str().unwrap();
    let mut worker = Worker::spawn(&mut command(&[
        "serve",
        "--models",
        folder,
        "--http",
        "127.0.0.1:0",
    ]));
    worker.wait_for_line("ready");
    let body = r#"{"inputs":[{"name":"input","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    let answer = worker.post("/v2/models/echo/infer", body);
    assert!(answer.body.contains("[1.0,2.0]"), "{answer:?}");
}

#[test]
fn while_models_load_it_lives_is_not_ready_and_says_when_to_come_back() {
    let models = tempfile::tempdir().unwrap();
    put_slow_to_load(models.path());
    put_plus(models.path());
    let mut worker = Worker::loading(models.path());
    assert_eq!(worker.get("/v2/health/live").status, 200);
    let answers = [
        worker.get("/health"),
        worker.get("/v2/health/ready"),
        worker.get("/v2/models/plus/ready"),
        worker.get("/v1/models"),
        worker.post("/v2/models/plus/infer", "{}"),
        worker.post("/v1/embeddings", r#"{"model":"plus","input":"x"}"#),
    ];
    for answer in answers {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.head.contains("retry-after: 1\r\n"), "{answer:?}");
        assert!(answer.body.contains("still loading"), "{answer:?}");
    }
    let (code, took) = worker.stop();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(5), "took {took:?}");
}

/// A worker that is in the middle of a request of a second or so.
fn busy() -> (tempfile::TempDir, Worker, crate::support::Exchange) {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let mut worker = Worker::start(models.path());
    let request = slow_request(2500);
    let exchange = worker.begin("POST", "/v2/models/slow/infer", &[], request.as_bytes());
    worker.wait_for_line("a batch begins");
    (models, worker, exchange)
}

#[test]
fn p13_the_first_signal_lets_what_runs_finish() {
    for signal in ["TERM", "INT"] {
        let (_models, mut worker, exchange) = busy();
        worker.signal(signal);
        worker.wait_for_line("stopping");
        let refused = || TcpStream::connect(&worker.address).is_err();
        assert!((0..1_000_000).any(|_| refused()), "still accepting");
        let answer = exchange.finish();
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(worker.wait().code(), Some(0));
    }
}

#[test]
fn p08_a_request_whose_client_left_is_not_run() {
    let (_models, worker, exchange) = busy();
    let quick = slow_request(2);
    let path = "/v2/models/slow/infer";
    let left = worker.begin("POST", path, &[], quick.as_bytes());
    assert_eq!(worker.get("/health").status, 200);
    drop(left);
    let stayed = worker.begin("POST", path, &[], quick.as_bytes());
    assert_eq!(exchange.finish().status, 200);
    assert_eq!(stayed.finish().status, 200);
    let log = worker.whole_log();
    assert_eq!(log.matches("a batch begins").count(), 2, "{log}");
}

#[test]
fn a_worker_that_stops_says_so_to_whoever_still_asks() {
    let (_models, mut worker, exchange) = busy();
    let mut halfway = TcpStream::connect(&worker.address).unwrap();
    halfway
        .write_all(b"GET /v2/health/ready HTTP/1.1\r\nhost: ")
        .unwrap();
    // A later connection is answered, so the one before it has been accepted.
    assert_eq!(worker.get("/v2/health/ready").status, 200);
    worker.signal("TERM");
    worker.wait_for_line("stopping");
    halfway.write_all(b"worker\r\n\r\n").unwrap();
    let mut answer = String::new();
    halfway.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("stopping"),
        "{answer}"
    );
    assert_eq!(exchange.finish().status, 200);
}

#[test]
fn connections_without_a_request_do_not_hold_up_the_stop() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let mut worker = Worker::start(models.path());
    let mut kept = TcpStream::connect(&worker.address).unwrap();
    kept.write_all(b"GET /health HTTP/1.1\r\nhost: worker\r\n\r\n")
        .unwrap();
    kept.read_exact(&mut [0; 64]).unwrap();
    let silent = TcpStream::connect(&worker.address).unwrap();
    let mut halfway = TcpStream::connect(&worker.address).unwrap();
    halfway.write_all(b"POST /v1/embed").unwrap();
    assert_eq!(worker.get("/health").status, 200);
    let (code, took) = worker.stop();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(5), "took {took:?}");
    drop((kept, silent, halfway));
}

#[test]
fn a_full_queue_is_503_with_the_time_to_come_back() {
    let (_models, worker, exchange) = busy();
    let path = "/v2/models/slow/infer";
    let quick = slow_request(1);
    let crowd: Vec<_> = (0..300)
        .map(|_| worker.begin("POST", path, &[], quick.as_bytes()))
        .collect();
    assert_eq!(exchange.finish().status, 200);
    let answers: Vec<_> = crowd
        .into_iter()
        .map(|exchange| exchange.finish())
        .collect();
    let (served, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 200);
    assert!(
        served.len() >= 256 && !refused.is_empty(),
        "{} served",
        served.len()
    );
    for answer in refused {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.head.contains("retry-after: "), "{answer:?}");
    }
}

#[test]
fn the_second_signal_ends_at_once() {
    let (_models, mut worker, exchange) = busy();
    worker.signal("TERM");
    worker.wait_for_line("stopping");
    worker.signal("TERM");
    assert_eq!(worker.wait().code(), Some(1));
    assert_eq!(exchange.finish().status, 0, "an answer after the end");
}
