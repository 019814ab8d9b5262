//! What computes: told a card, a worker never serves from the CPU in silence. Here ONNX Runtime is the one for CPUs, so
//! that every card is refused; `worker/gpu-check` tries the same where there is one.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::models::{configure, put_described, put_plus};
use crate::support::{Worker, command, library, run_client};

const CARDS: [&str; 2] = ["cuda", "tensorrt"];
const NOT_IN: &str = "execution provider is not enabled in this build";

/// Serves these models, expects to be refused, and gives what was said.
fn refused(models: &Path, arguments: &[&str]) -> String {
    let mut serve = command(&["serve", "--models", models.to_str().unwrap()]);
    serve.args(["--http", "127.0.0.1:0", "--onnxruntime"]);
    let output = serve.arg(library()).args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

fn describe(models: &Path, toml: &str) {
    fs::write(models.join("plus/model.toml"), toml).unwrap();
}

fn plus() -> tempfile::TempDir {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    models
}

#[test]
fn a_card_that_can_not_be_had_is_refused_with_the_way_out() {
    let models = plus();
    for card in CARDS {
        let said = refused(models.path(), &["--device", card]);
        let wanted = format!("\"{card}\" was wanted");
        for words in [&wanted, NOT_IN, "onnxruntime-gpu", "as fallback"] {
            assert!(said.contains(words), "{words:?} is missing in {said}");
        }
    }
}

#[test]
fn a_model_asks_for_a_card_by_either_file_and_its_neighbours_are_served() {
    let tensorrt = "optimization { execution_accelerators { gpu_execution_accelerator { name: \"tensorrt\" } } }";
    let on_card = "instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]";
    for (toml, config, device) in [
        ("device = \"cuda\"", "", "cuda"),
        ("device = \"tensorrt\"", "", "tensorrt"),
        ("device = \"cuda\"", tensorrt, "tensorrt"),
        ("", on_card, "cuda"),
        (
            "device = \"tensorrt\"",
            "instance_group { kind: KIND_GPU }",
            "tensorrt",
        ),
    ] {
        let models = plus();
        describe(models.path(), toml);
        configure(models.path(), "plus", config);
        let said = refused(models.path(), &[]);
        let wanted = format!("\"{device}\" was wanted");
        assert!(said.contains(&wanted), "{toml} {config}: {said}");
    }
    let models = plus();
    fs::rename(models.path().join("plus"), models.path().join("other")).unwrap();
    put_plus(models.path());
    describe(models.path(), "device = \"cuda\"");
    let worker = Worker::start(models.path());
    let index = worker.post("/v2/repository/index", "").json();
    assert_eq!(index[0]["state"], "READY");
    assert_eq!(index[1]["state"], "UNAVAILABLE");
    let reason = index[1]["reason"].as_str().unwrap();
    assert!(reason.contains(NOT_IN), "{reason}");
}

#[test]
fn the_cpu_stands_in_only_when_asked_and_is_shown_everywhere() {
    let models = plus();
    let worker = Worker::start_with(models.path(), &["--device", "cuda", "--fallback", "cpu"]);
    let health = worker.get("/health").json();
    assert_eq!(
        health,
        json!({"status": "ok", "devices": ["cpu"], "fallbacks": ["plus"]})
    );
    let metadata = worker.get("/v2/models/plus").json();
    assert_eq!(
        metadata["parameters"],
        json!({"device": "cpu", "fallback": true})
    );
    let config = worker.get("/v2/models/plus/config").json();
    assert_eq!(
        config["instance_group"],
        json!([{"name": "plus_0", "kind": "KIND_CPU", "count": 1}])
    );
    run_client("triton_device.py", &worker.grpc);
    let line =
        "forebay_worker_device{model=\"plus\",version=\"1\",device=\"cpu\",fallback=\"true\"} 1\n";
    assert!(worker.metrics().contains(line), "{}", worker.metrics());
    let index = worker.post("/v2/repository/index", "").json();
    assert_eq!(index[0]["state"], "READY");
    let reason = index[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("computes on the CPU: \"cuda\" was wanted"));
    let log = worker.whole_log();
    assert!(log.contains("WARN") && log.contains(NOT_IN), "{log}");

    describe(models.path(), "device = \"cuda\"\nfallback = \"none\"");
    let said = refused(models.path(), &["--fallback", "cpu"]);
    assert!(said.contains("\"cuda\" was wanted"), "{said}");
    describe(models.path(), "device = \"cuda\"\nfallback = \"cpu\"");
    let worker = Worker::start(models.path());
    assert_eq!(worker.get("/health").json()["fallbacks"], json!(["plus"]));
}

#[test]
fn without_a_wish_it_is_the_cpu_and_no_fallback() {
    let models = plus();
    configure(models.path(), "plus", "instance_group { count: 2 }");
    let worker = Worker::start(models.path());
    assert_eq!(
        worker.get("/health").json(),
        json!({"status": "ok", "devices": ["cpu"]})
    );
    let metadata = worker.get("/v2/models/plus").json();
    assert_eq!(
        metadata["parameters"],
        json!({"device": "cpu", "fallback": false})
    );
    let config = worker.get("/v2/models/plus/config").json();
    assert_eq!(config["instance_group"][0]["count"], 2);
}

#[test]
fn a_card_for_what_computes_on_the_cpu_is_refused_or_warned_of_with_its_line() {
    let models = plus();
    let put = |name: &str, toml: &str, config: &str| {
        put_described(
            models.path(),
            name,
            &[("model.toml", toml), ("config.pbtxt", config)],
        );
    };
    let step =
        "backend: \"forebay\"\nparameters { key: \"step\" value { string_value: \"softmax\" } }\n";
    let around = "input { name: \"a\" }\noutput { name: \"sum\" }\nensemble_scheduling { step { model_name: \"plus\"\n\
                  input_map { key: \"a\" value: \"a\" } input_map { key: \"b\" value: \"a\" }\n\
                  output_map { key: \"sum\" value: \"sum\" } } }\n";
    let tensorrt = "optimization { execution_accelerators { gpu_execution_accelerator { name: \"tensorrt\" } } }";
    put(
        "a_group",
        "",
        &format!("{step}instance_group {{ kind: KIND_GPU }}"),
    );
    put(
        "b_cards",
        "",
        &format!("{step}instance_group {{ gpus: 0 }}"),
    );
    put("c_step", "# of a step\ndevice = \"cuda\"", step);
    put("d_echo", "engine = \"echo\"\ndevice = \"tensorrt\"", "");
    put("e_whole", "device = \"cuda\"", around);
    put("f_whole", "\nfallback = \"none\"", around);
    put("g_whole", "", &format!("{around}{tensorrt}"));
    configure(models.path(), "plus", &format!("\n{tensorrt}"));
    let worker = Worker::start(models.path());
    let index = worker.post("/v2/repository/index", "").json();
    for (at, words) in [
        "config.pbtxt: line 3, column 1: instance_group: `KIND_GPU`: what has no graph",
        "config.pbtxt: line 3, column 1: instance_group: `KIND_GPU`: what has no graph",
        "model.toml: line 2, column 1: device: what has no graph computes on the CPU",
        "model.toml: line 2, column 1: device: what has no graph computes on the CPU",
        "model.toml: line 1, column 1: device: an ensemble runs nothing itself",
        "model.toml: line 2, column 1: fallback: an ensemble runs nothing itself",
    ]
    .iter()
    .enumerate()
    {
        let reason = index[at]["reason"].as_str().unwrap();
        assert_ne!(index[at]["state"], "READY", "{index}");
        assert!(reason.contains(words), "{words:?} is missing in {reason}");
    }
    assert_eq!(
        (&index[6]["state"], &index[7]["state"]),
        (&json!("READY"), &json!("READY"))
    );
    let log = worker.whole_log();
    for (line, model) in [(6, "g_whole"), (2, "plus")] {
        let words = format!(
            "config.pbtxt: line {line}, column 41: gpu_execution_accelerator is ignored: no instance"
        );
        let told = log
            .lines()
            .any(|one| one.contains(&words) && one.contains(model) && one.contains("WARN"));
        assert!(told, "{words:?} is missing in {log}");
    }
}
