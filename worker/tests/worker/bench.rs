//! `forebay-worker bench`: it measures the worker as clients meet it, and says so in a table or in JSON.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::models::{
    configure, put_described, put_embedding, put_plus, put_positions, put_types,
};
use crate::support::{command, library};

/// A run that is short, since its figures are of no interest here.
fn bench(models: &Path, arguments: &[&str]) -> Output {
    let mut bench = command(&["bench", "--models", models.to_str().unwrap()]);
    bench.args(["--threads", "1"]);
    bench.args(["--onnxruntime", library().to_str().unwrap()]);
    bench.args(["-p", "30"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn measured(models: &Path, arguments: &[&str]) -> Value {
    let output = bench(models, &[arguments, &["--json"]].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "", "nothing but the result is told in a pipe");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The exit code and what was said of a run that had to fail.
fn refused(models: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = bench(models, arguments);
    (output.status.code(), text(&output.stderr).to_owned())
}

#[test]
fn a_model_is_measured_by_batch_and_concurrency() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let told = measured(
        models.path(),
        &["-b", "1,4", "--concurrency-range", "1:7:3"],
    );
    let model = &told["models"][0];
    assert_eq!(model["model"], "plus");
    assert_eq!(model["elements_per_row"], 4, "{model}");
    let rows = |table: &str, first: &str, second: &str| -> Vec<(u64, u64)> {
        let rows = model[table].as_array().unwrap().iter();
        let pair = |row: &Value| (row[first].as_u64().unwrap(), row[second].as_u64().unwrap());
        rows.map(pair).collect()
    };
    assert_eq!(
        rows("served", "batch", "concurrency"),
        [(1, 1), (1, 4), (1, 7), (4, 1), (4, 4), (4, 7)]
    );
    // What 7 requests of one row, or of four, could make: the powers of two up to 7, and up to 28.
    let runs: Vec<u64> = rows("raw", "rows", "instances")
        .iter()
        .map(|(rows, _)| *rows)
        .collect();
    assert_eq!(runs, [1, 2, 4, 7, 8, 16, 28]);
    for row in model["served"].as_array().unwrap() {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("p50_s") > 0.0 && number("p99_s") >= number("p50_s"));
        assert!(number("of_raw") > 0.0, "{row}");
        let rows = number("requests_per_second") * number("batch");
        assert!((number("rows_per_second") - rows).abs() < 1e-6 * rows);
    }
}

#[test]
fn texts_are_measured_as_texts_and_the_table_fits_a_terminal() {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", "");
    let output = bench(models.path(), &["tiny", "--concurrency-range", "1,3"]);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(shown.starts_with("tiny, version 1: "), "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    let last = shown.trim_end().lines().next_back().unwrap();
    let cells: Vec<&str> = last.split_whitespace().collect();
    assert_eq!((cells[0], cells[1], cells[7]), ("1", "3", "%"), "{last}");
}

#[test]
fn inputs_of_any_size_are_asked_for() {
    let models = tempfile::tempdir().unwrap();
    put_positions(models.path());
    let with = |more: &[&'static str]| [&["--concurrency-range", "1"], more].concat();
    let told = measured(models.path(), &with(&["--shape", "x:3"]));
    assert_eq!(told["models"][0]["elements_per_row"], 3, "{told}");
    for (arguments, words) in [
        (with(&[]), "`x` takes any size; say which by --shape"),
        (with(&["--shape", "x:2,3"]), "[2, 3] does not fit"),
        (with(&["--shape", "x:4"]), "the model can't take"),
    ] {
        let (code, said) = refused(models.path(), &arguments);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn each_model_of_a_folder_is_measured() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    let told = measured(models.path(), &["--concurrency-range", "1"]);
    let names = told["models"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|one| one["model"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"BYTES") && names.contains(&"BF16"),
        "{names:?}"
    );
}

#[test]
fn an_ensemble_is_passed_over_and_said_so() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let both = r#"
        input [ { name: "a" data_type: TYPE_FP32 dims: [ -1, 2 ] }, { name: "b" data_type: TYPE_FP32 dims: [ -1, 2 ] } ]
        output { name: "sum" data_type: TYPE_FP32 dims: [ -1, 2 ] }
        ensemble_scheduling { step { model_name: "plus"
          input_map { key: "a" value: "a" } input_map { key: "b" value: "b" }
          output_map { key: "sum" value: "sum" } } }"#;
    put_described(models.path(), "around", &[("config.pbtxt", both)]);
    // An echo would fit this one.
    let like_echo = r#"
        input { name: "input" data_type: TYPE_FP32 dims: [ -1, -1 ] }
        output { name: "output" data_type: TYPE_FP32 dims: [ -1, -1 ] }
        ensemble_scheduling { step { model_name: "plus"
          input_map { key: "a" value: "input" } output_map { key: "sum" value: "output" } } }"#;
    put_described(models.path(), "like_echo", &[("config.pbtxt", like_echo)]);
    let output = bench(models.path(), &["--json", "--concurrency-range", "1"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for name in ["around", "like_echo"] {
        assert!(
            said.contains(&format!("model {name} is passed over")),
            "{said}"
        );
    }
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&Value> = told["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["model"])
        .collect();
    assert_eq!(names, ["plus"], "{told}");
    let (code, said) = refused(models.path(), &["around"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("it is an ensemble"), "{said}");
}

#[test]
fn what_can_not_be_measured_is_said() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    configure(models.path(), "plus", "max_batch_size: 4");
    let (code, said) = refused(models.path(), &["minus"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("no model `minus`") && said.contains("plus"),
        "{said}"
    );
    let (code, said) = refused(models.path(), &["-b", "8"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("-b 8: ") && said.contains("at most 4 rows"),
        "{said}"
    );
    let (code, said) = refused(models.path(), &["--concurrency-range", "1,300"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("range 300: no more than 256 requests may wait"),
        "{said}"
    );
    let (code, said) = refused(models.path(), &["--concurrency-range", "4:1"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("START:END"), "{said}");
}
