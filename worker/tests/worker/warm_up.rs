//! What a model runs before it is ready.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::statistics::stats;
use crate::support::Worker;
use crate::support::models::{configure, put_embedding, put_plus, put_positions};

fn warmed(inputs: &str) -> String {
    format!("max_batch_size: 8 model_warmup {{ name: \"w\" batch_size: 4 count: 2 {inputs} }}")
}

fn input(name: &str, filled: &str) -> String {
    format!("inputs {{ key: \"{name}\" value {{ {filled} }} }}")
}

fn reason(worker: &Worker, model: &str) -> String {
    let index = worker.post("/v2/repository/index", "").json();
    let entry = index
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == model);
    entry.unwrap()["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn put_bytes(models: &Path, model: &str, file: &str, bytes: &[u8]) {
    let folder = models.join(model).join("warmup");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(file), bytes).unwrap();
}

#[test]
fn a_model_that_is_warm_answers_and_counts_only_requests() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    put_bytes(
        models.path(),
        "plus",
        "row",
        &[1.0f32, 2.0].map(f32::to_le_bytes).concat(),
    );
    let inputs = [
        input("a", "data_type: TYPE_FP32 dims: 2 random_data: true"),
        input("b", "data_type: TYPE_FP32 dims: 2 input_data_file: \"row\""),
    ];
    configure(models.path(), "plus", &warmed(&inputs.concat()));
    put_embedding(models.path(), "tiny", "warmup = [1, 8]");
    let worker = Worker::start(models.path());
    for model in ["plus", "tiny"] {
        assert_eq!(
            worker.get(&format!("/v2/models/{model}/ready")).status,
            200,
            "{}",
            reason(&worker, model)
        );
        assert_eq!(stats(&worker, model)["execution_count"], 0);
    }
}

#[test]
fn a_model_that_fails_its_warm_up_is_not_served_and_says_why() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let broken = [
        (
            "short",
            input("x", "data_type: TYPE_FP32 dims: 3 zero_data: true"),
            "",
        ),
        (
            "long",
            input("x", "data_type: TYPE_FP32 dims: 4 zero_data: true"),
            "can't take `x` [4, 4]",
        ),
        (
            "type",
            input("x", "data_type: TYPE_INT8 dims: 3 zero_data: true"),
            "`x` is FP32 in the graph",
        ),
        ("none", String::new(), "input `x` is missing"),
        (
            "other",
            input("y", "data_type: TYPE_FP32 dims: 3 zero_data: true"),
            "no input `y`",
        ),
        (
            "file",
            input(
                "x",
                "data_type: TYPE_FP32 dims: 3 input_data_file: \"none\"",
            ),
            "warmup/none",
        ),
        (
            "bytes",
            input(
                "x",
                "data_type: TYPE_FP32 dims: 3 input_data_file: \"five\"",
            ),
            "no whole number of FP32",
        ),
        (
            "count",
            input(
                "x",
                "data_type: TYPE_FP32 dims: 3 input_data_file: \"four\"",
            ),
            "not of shape [1, 3]",
        ),
    ];
    for (name, inputs, _) in &broken {
        put_positions(models.path());
        fs::rename(models.path().join("positions"), models.path().join(name)).unwrap();
        configure(models.path(), name, &warmed(inputs));
        put_bytes(models.path(), name, "five", &[0; 5]);
        put_bytes(models.path(), name, "four", &[0; 4]);
    }
    let worker = Worker::start(models.path());
    for (name, _, words) in &broken {
        let said = reason(&worker, name);
        assert!(
            said.contains(words),
            "{name}: {words:?} is missing in {said:?}"
        );
        let status = worker.get(&format!("/v2/models/{name}/ready")).status;
        let expected = if words.is_empty() { 200 } else { 404 };
        assert_eq!(status, expected, "{name}: {said}");
        assert!(
            said.is_empty() || said.contains("model_warmup \"w\""),
            "{said}"
        );
    }
}

#[test]
fn rows_of_a_model_toml_need_sizes_that_are_fixed() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    put_positions(models.path());
    for (name, text) in [("plus", "warmup = [1, 4]"), ("positions", "warmup = [2]")] {
        fs::write(models.path().join(name).join("model.toml"), text).unwrap();
    }
    let worker = Worker::start(models.path());
    let path = "/v2/models/plus/infer";
    let one =
        |name: &str| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "data": [1, 2]});
    let body: Value = json!({"inputs": [one("a"), one("b")]});
    assert_eq!(worker.post(path, &body.to_string()).status, 200);
    let said = reason(&worker, "positions");
    assert!(said.contains("`x` takes any size"), "{said}");
}
