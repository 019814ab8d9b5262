//! Requests that do not fit the model are refused with what to write instead, and are never the worker's fault.

use serde_json::{Value, json};

use super::{changed, infer, plus};
use crate::support::Worker;
use crate::support::models::{put_embedding, put_positions, put_slow, slow_request};

/// Asks for each and expects a 400 that holds the words.
fn expect_400(slips: Vec<(Value, &str)>) {
    let (_models, worker) = plus();
    for (request, words) in slips {
        let answer = infer(&worker, "plus", &request);
        assert_eq!(answer.status, 400, "{request} gave {answer:?}");
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains(words), "{words:?} is missing in {said:?}");
    }
}

#[test]
fn shapes_types_and_data_that_do_not_fit_are_400_never_500() {
    let first = |field: &str, value: Value| changed(|r| r["inputs"][0][field] = value);
    let without = |field: &str| {
        changed(|r| {
            r["inputs"][0].as_object_mut().unwrap().remove(field);
        })
    };
    expect_400(vec![
        (first("shape", json!([2, 3])), "`a`"),
        (first("shape", json!([-1, 2])), "`a` has shape [-1, 2]"),
        (first("shape", json!([])), "`a` has shape []"),
        (first("shape", json!([4])), "[4]"),
        (first("shape", json!([1, 4])), "[1, 4]"),
        (first("shape", json!([1_u64 << 62, 4])), "`a`"),
        (first("shape", json!("2,2")), "can't be read"),
        (without("shape"), "shape"),
        (without("data"), "data"),
        (
            first("data", json!([1, 2, 3])),
            "expected 4 elements, not 3",
        ),
        (first("data", json!(["1", "2", "3", "4"])), "strings"),
        (first("data", json!([1, 2, 3, null])), "can't be read"),
        (first("datatype", json!("FP64")), "takes FP32"),
        (first("datatype", json!("FP16")), "FP16"),
        (first("datatype", json!("FLOAT")), "FLOAT"),
    ]);
}

#[test]
fn names_that_do_not_fit_and_rubbish_are_400_never_500() {
    let one_row = changed(|r| {
        r["inputs"][1]["shape"] = json!([1, 2]);
        r["inputs"][1]["data"] = json!([1, 2]);
    });
    let too_few = changed(|r| {
        r["inputs"].as_array_mut().unwrap().pop();
    });
    let twice = changed(|r| r["outputs"] = json!([{"name": "sum"}, {"name": "sum"}]));
    expect_400(vec![
        (
            changed(|r| r["inputs"][0]["name"] = json!("c")),
            "`a` is missing",
        ),
        (
            changed(|r| r["inputs"][1]["name"] = json!("a")),
            "`b` is missing",
        ),
        (too_few, "`b` is missing"),
        (one_row, "`batch`"),
        (
            changed(|r| r["outputs"][0]["name"] = json!("product")),
            "product",
        ),
        (twice, "twice"),
        (changed(|r| r["inputs"] = json!(7)), "can't be read"),
        (json!([]), "can't be read"),
    ]);
    let (_models, worker) = plus();
    for misplaced in [
        changed(|r| r["inputs"] = json!("canary")),
        changed(|r| r["inputs"][0]["shape"] = json!("canary")),
        changed(|r| r["inputs"][0]["parameters"] = json!("canary")),
    ] {
        let answer = worker.post("/v2/models/plus/infer", &misplaced.to_string());
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(!format!("{answer:?}").contains("canary"), "{answer:?}");
    }
    for rubbish in ["", "{", "nonsense", &"[".repeat(10_000)] {
        let answer = worker.post("/v2/models/plus/infer", rubbish);
        assert_eq!(answer.status, 400, "{answer:?}");
    }
}

#[test]
fn no_rows_are_400_with_the_tensor_its_shape_and_what_is_expected() {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", "");
    put_positions(models.path());
    let worker = Worker::start(models.path());
    for shape in [json!([0, 0]), json!([0, 2])] {
        let input =
            |name: &str| json!({"name": name, "shape": shape, "datatype": "INT64", "data": []});
        let names = ["input_ids", "attention_mask", "token_type_ids"];
        let tokens = infer(&worker, "tiny", &json!({"inputs": names.map(input)}));
        let x = json!({"name": "x", "shape": shape, "datatype": "FP32", "data": []});
        let floats = infer(&worker, "positions", &json!({"inputs": [x]}));
        for (answer, name) in [(tokens, "input_ids"), (floats, "x")] {
            assert_eq!(answer.status, 400, "{answer:?}");
            let said = answer.json()["error"].as_str().unwrap().to_owned();
            let shape = shape.to_string().replace(',', ", ");
            let expected = format!(
                "input `{name}` has shape {shape}; the model takes [-1, -1], and at least 1 on axis 0"
            );
            assert_eq!(said, expected);
        }
    }
}

#[test]
fn a_size_that_only_the_graph_knows_to_be_wrong_is_400_with_all_shapes() {
    let models = tempfile::tempdir().unwrap();
    put_positions(models.path());
    let worker = Worker::start(models.path());
    let x = |data: Value| json!({"inputs": [{"name": "x", "shape": [1, data.as_array().unwrap().len()], "datatype": "FP32", "data": data}]});
    let fits = infer(&worker, "positions", &x(json!([1, 1, 1]))).json();
    assert_eq!(fits["outputs"][0]["data"], json!([1.0, 1.5, 2.0]));
    let longer = infer(&worker, "positions", &x(json!([1, 1, 1, 1])));
    assert_eq!(longer.status, 400, "{longer:?}");
    assert!(longer.body.contains("can't take `x` [1, 4]"), "{longer:?}");
}

#[test]
fn memory_that_runs_out_is_500_not_the_requests_fault() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let worker = Worker::start(models.path());
    let answer = worker.post("/v2/models/slow/infer", &slow_request(100_000_000));
    assert_eq!(answer.status, 500, "{answer:?}");
}
