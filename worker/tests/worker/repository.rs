//! The model repository: `config.pbtxt`, versions, loading and unloading while it serves.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::models::{configure, put, put_plus, put_slow, slow_request};
use crate::support::onnx::{Graph, Type};
use crate::support::{Answer, Worker, run_client, until};

/// `y` = `x` plus a number, in rows of two.
fn adder(number: f32) -> Graph {
    let axes = ["batch", "2"];
    Graph::default()
        .floats("number", &[1], &[number])
        .node("Add", &["x", "number"], &["y"])
        .input("x", Type::Float, &axes)
        .output("y", Type::Float, &axes)
}

fn put_version(models: &Path, version: &str, number: f32) {
    let folder = models.join("add").join(version);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("model.onnx"), adder(number).model()).unwrap();
}

fn add(worker: &Worker, path: &str, shape: Value, data: Value) -> Answer {
    let x = json!({"name": "x", "shape": shape, "datatype": "FP32", "data": data});
    worker.post(path, &json!({"inputs": [x]}).to_string())
}

/// What `add` makes of 0.
fn added(worker: &Worker) -> Answer {
    add(worker, "/v2/models/add/infer", json!([1, 2]), json!([0, 0]))
}

fn sum(answer: &Answer) -> f64 {
    answer.json()["outputs"][0]["data"][0].as_f64().unwrap()
}

#[test]
fn tritonclient_is_content_with_the_repository() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    configure(
        models.path(),
        "plus",
        "max_batch_size: 4 dynamic_batching { preferred_batch_size: 2 }",
    );
    let worker = Worker::start(models.path());
    run_client("triton_repository.py", &worker.address);
}

#[test]
fn odd_names_in_paths_are_told_in_json() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    for path in ["/v2/repository/models/%ff/load", "/v2/models/%ff/infer"] {
        let answer = worker.post(path, "{}");
        assert_eq!(answer.status, 400, "{answer:?}");
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains("UTF-8"), "{said}");
    }
    let answer = worker.get("/v1/models/%ff");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "bad_request");
    let unloaded = worker.post("/v2/repository/models/plus/unload", "");
    assert_eq!(unloaded.status, 200, "{unloaded:?}");
    let said = worker.get("/v2/models/plus").body;
    let words = "is served here (unloaded); there are none";
    assert!(said.contains(words), "{said}");
}

#[test]
fn a_configuration_narrows_and_reshapes_what_clients_see() {
    let models = tempfile::tempdir().unwrap();
    put(models.path(), "add", adder(1.0));
    configure(
        models.path(),
        "add",
        r#"platform: "onnxruntime_onnx" max_batch_size: 2
           input { name: "x" data_type: TYPE_FP32 dims: [ 1, 2 ] reshape { shape: 2 } }
           output { name: "y" data_type: TYPE_FP32 dims: [ 2, 1 ] reshape { shape: 2 } }"#,
    );
    let worker = Worker::start(models.path());
    let described = worker.get("/v2/models/add").json();
    assert_eq!(described["inputs"][0]["shape"], json!([-1, 1, 2]));
    let path = "/v2/models/add/infer";
    let answer = add(&worker, path, json!([2, 1, 2]), json!([1, 2, 3, 4]));
    let output = &answer.json()["outputs"][0];
    assert_eq!(output["shape"], json!([2, 2, 1]));
    assert_eq!(output["data"], json!([2.0, 3.0, 4.0, 5.0]));
    for (shape, words) in [
        (json!([3, 1, 2]), "max_batch_size"),
        (json!([2, 2]), "[-1, 1, 2]"),
    ] {
        let count: u64 = shape
            .as_array()
            .unwrap()
            .iter()
            .map(|size| size.as_u64().unwrap())
            .product();
        let answer = add(&worker, path, shape, json!(vec![0; count as usize]));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains(words), "{answer:?}");
    }
}

#[test]
fn a_configuration_shows_also_what_its_file_leaves_out() {
    let models = tempfile::tempdir().unwrap();
    put(models.path(), "add", adder(1.0));
    put(models.path(), "kept", adder(1.0));
    configure(models.path(), "kept", "version_policy { all {} }");
    let worker = Worker::start(models.path());
    let config = worker.get("/v2/models/add/config").json();
    let latest = json!({"latest": {"num_versions": 1}});
    assert_eq!(config["version_policy"], latest);
    assert_eq!(config["default_model_filename"], "model.onnx");
    let config = worker.get("/v2/models/kept/config").json();
    assert_eq!(config["version_policy"], json!({"all": {}}));
}

#[test]
fn a_bad_model_is_named_and_stops_no_other() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    for (name, text) in [
        ("axes", "input { name: \"x\" dims: 3 } max_batch_size: 1"),
        (
            "kind",
            "input { name: \"x\" data_type: TYPE_INT8 dims: 2 } max_batch_size: 1",
        ),
        ("other", "input { name: \"z\" dims: 2 }"),
        ("typo", "max_batch_sise: 1"),
    ] {
        put(models.path(), name, adder(1.0));
        configure(models.path(), name, text);
    }
    let fixed = Graph::default()
        .node("Identity", &["x"], &["y"])
        .input("x", Type::Float, &["1", "2"])
        .output("y", Type::Float, &["1", "2"]);
    put(models.path(), "fixed", fixed);
    configure(models.path(), "fixed", "max_batch_size: 4");
    let axes = ["batch", "2"];
    let two = Graph::default()
        .node("Add", &["x", "w"], &["y"])
        .input("x", Type::Float, &axes)
        .input("w", Type::Float, &axes)
        .output("y", Type::Float, &axes);
    put(models.path(), "less", two);
    configure(
        models.path(),
        "less",
        "input { name: \"x\" dims: 2 } max_batch_size: 1",
    );
    let worker = Worker::start(models.path());
    assert_eq!(worker.get("/v2/health/ready").status, 200);
    assert_eq!(worker.get("/v2/models/plus/ready").status, 200);
    let index = worker.post("/v2/repository/index", "").json();
    let reasons = [
        ("axes", "does not fit the graph's [-1, 2]"),
        ("fixed", "expected -1 first"),
        ("kind", "`x` is FP32 in the graph"),
        ("less", "leaves out the graph's input `w`"),
        ("other", "the graph has no input `z`; there are: x"),
        ("typo", "did you mean `max_batch_size`"),
    ];
    for (name, words) in reasons {
        let entry = index
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["name"] == name)
            .unwrap();
        assert_eq!(entry["state"], "UNAVAILABLE", "{entry}");
        assert!(entry["reason"].as_str().unwrap().contains(words), "{entry}");
        assert_eq!(worker.get(&format!("/v2/models/{name}/ready")).status, 404);
    }
    let ready = worker
        .post("/v2/repository/index", r#"{"ready": true}"#)
        .json();
    assert_eq!(
        ready,
        json!([{"name": "plus", "version": "1", "state": "READY"}])
    );
}

#[test]
fn versions_are_served_as_the_policy_says() {
    let models = tempfile::tempdir().unwrap();
    for (version, number) in [("1", 1.0), ("2", 2.0), ("3", 3.0)] {
        put_version(models.path(), version, number);
    }
    configure(
        models.path(),
        "add",
        "version_policy { specific { versions: [ 1, 2 ] } }",
    );
    let worker = Worker::start(models.path());
    assert_eq!(
        worker.get("/v2/models/add").json()["versions"],
        json!(["1", "2"])
    );
    assert_eq!(sum(&added(&worker)), 2.0);
    let path = |version: u8| format!("/v2/models/add/versions/{version}/infer");
    let first = add(&worker, &path(1), json!([1, 2]), json!([0, 0]));
    assert_eq!(sum(&first), 1.0);
    assert_eq!(first.json()["model_version"], "1");
    let third = add(&worker, &path(3), json!([1, 2]), json!([0, 0]));
    assert_eq!(third.status, 404, "{third:?}");
}

#[test]
fn a_reload_leaves_no_gap_and_a_bad_one_changes_nothing() {
    let models = tempfile::tempdir().unwrap();
    put_version(models.path(), "1", 1.0);
    let worker = Worker::start(models.path());
    put_version(models.path(), "2", 2.0);
    let loading = worker.begin("POST", "/v2/repository/models/add/load", &[], b"{}");
    let mut seen = vec![];
    until("the new version answers", || {
        let answer = added(&worker);
        assert_eq!(answer.status, 200, "{answer:?}");
        seen.push(sum(&answer));
        seen.last() == Some(&2.0)
    });
    assert_eq!(loading.finish().status, 200);
    assert_eq!(
        worker.get("/v2/models/add").json()["versions"],
        json!(["2"])
    );

    fs::write(models.path().join("add/2/model.onnx"), "half a gra").unwrap();
    let failed = worker.post("/v2/repository/models/add/load", "");
    assert_eq!(failed.status, 400, "{failed:?}");
    assert!(
        failed.body.contains("can't be loaded: version 2"),
        "{failed:?}"
    );
    assert_eq!(sum(&added(&worker)), 2.0, "the old one went");
}

#[test]
fn unloaded_models_are_404_and_come_back() {
    let models = tempfile::tempdir().unwrap();
    put_version(models.path(), "1", 1.0);
    put_plus(models.path());
    let worker = Worker::start(models.path());
    assert_eq!(
        worker.post("/v2/repository/models/add/unload", "{}").status,
        200
    );
    assert_eq!(added(&worker).status, 404);
    assert_eq!(worker.get("/v2/health/ready").status, 200);
    let ids = worker.get("/v1/models").json();
    assert_eq!(ids["data"].as_array().unwrap().len(), 1);
    assert_eq!(
        worker.post("/v2/repository/models/add/unload", "").status,
        200
    );
    assert_eq!(
        worker.post("/v2/repository/models/add/load", "").status,
        200
    );
    assert_eq!(sum(&added(&worker)), 1.0);
    for (path, body, status) in [
        ("none/load", "", 404),
        ("none/unload", "", 404),
        ("..%2Fadd/load", "", 404),
        ("add/load", "{", 400),
        ("add/load", r#"{"parameters": {"config": "{}"}}"#, 400),
    ] {
        let answer = worker.post(&format!("/v2/repository/models/{path}"), body);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.json()["error"].is_string());
    }
}

#[test]
fn nothing_is_loaded_by_request_unless_the_operator_lets_clients() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start_with(models.path(), &["--model-control", "none"]);
    for verb in ["load", "unload"] {
        let answer = worker.post(&format!("/v2/repository/models/plus/{verb}"), "");
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(
            answer.body.contains("--model-control explicit"),
            "{answer:?}"
        );
    }
    assert_eq!(worker.get("/v2/models/plus/ready").status, 200);
}

#[test]
fn the_folder_is_followed_when_polled() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let arguments = ["--model-control", "poll", "--poll-seconds", "1"];
    let worker = Worker::start_with(models.path(), &arguments);
    put_version(models.path(), "1", 1.0);
    until("the new model answers", || added(&worker).status == 200);
    fs::create_dir_all(models.path().join("bad/1")).unwrap();
    fs::write(models.path().join("bad/1/model.onnx"), "half").unwrap();
    put_version(models.path(), "2", 2.0);
    until("the new version answers", || sum(&added(&worker)) == 2.0);
    fs::remove_dir_all(models.path().join("plus")).unwrap();
    until("the old model is gone", || {
        worker.get("/v2/models/plus").status == 404
    });
}

/// Serves the slow model with this queue policy, one request running.
fn slow_with(text: &str) -> (tempfile::TempDir, Worker, crate::support::Exchange) {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    configure(models.path(), "slow", text);
    let mut worker = Worker::start(models.path());
    let request = slow_request(2500);
    let running = worker.begin("POST", "/v2/models/slow/infer", &[], request.as_bytes());
    worker.wait_for_line("a batch begins");
    (models, worker, running)
}

#[test]
fn a_queue_timeout_is_answered_though_the_engine_is_busy() {
    let policy =
        "dynamic_batching { default_queue_policy { default_timeout_microseconds: 100000 } }";
    let (_models, worker, running) = slow_with(policy);
    let refused = worker.post("/v2/models/slow/infer", &slow_request(1));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    let still_running = "nv_inference_exec_count{model=\"slow\",version=\"1\"} 0";
    assert!(
        worker.metrics().contains(still_running),
        "it came when the engine was free"
    );
    assert_eq!(running.finish().status, 200);
}

#[test]
fn a_queue_takes_as_many_as_its_policy_says() {
    let policy = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }";
    let (_models, worker, running) = slow_with(policy);
    let quick = slow_request(1);
    let crowd: Vec<_> = (0..4)
        .map(|_| worker.begin("POST", "/v2/models/slow/infer", &[], quick.as_bytes()))
        .collect();
    let answers: Vec<Answer> = crowd.into_iter().map(|one| one.finish()).collect();
    assert_eq!(running.finish().status, 200);
    let refused = answers.iter().filter(|answer| answer.status == 503).count();
    assert_eq!(refused, 3, "{answers:?}");
}
