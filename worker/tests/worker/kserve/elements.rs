//! What tensors hold: every element type, numbers that JSON can't say, and shapes at the edge.

use serde_json::{Value, json};

use super::infer;
use crate::support::Worker;
use crate::support::models::{
    configure, put, put_embedding, put_log, put_slow, put_types, slow_request,
};
use crate::support::onnx::{Graph, Type};

#[test]
fn every_element_type_that_json_can_carry_comes_back_as_it_went() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    let worker = Worker::start(models.path());
    let samples = [
        ("BOOL", json!([true, false])),
        ("UINT8", json!([0, 255])),
        ("UINT16", json!([0, 65535])),
        ("UINT32", json!([0, 4294967295_u32])),
        ("UINT64", json!([0, u64::MAX])),
        ("INT8", json!([-128, 127])),
        ("INT16", json!([-32768, 32767])),
        ("INT32", json!([i32::MIN, i32::MAX])),
        ("INT64", json!([i64::MIN, i64::MAX])),
        ("FP32", json!([-1.5, 0.25])),
        ("FP64", json!([-1.5e300, 0.1])),
        ("BYTES", json!(["", "größer \"als\" \n"])),
    ];
    for (name, data) in samples {
        let input = json!({"name": "x", "shape": [2], "datatype": name, "data": data});
        let answer = infer(&worker, name, &json!({"inputs": [input]}));
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        let output = &answer.json()["outputs"][0];
        assert_eq!(
            (&output["data"], &output["datatype"]),
            (&data, &json!(name))
        );
    }
    let x = json!({"name": "x", "shape": [1], "datatype": "FP32", "data": [1.5]});
    let all = infer(&worker, "half", &json!({"inputs": [x]}));
    assert_eq!(all.status, 400, "{all:?}");
    assert!(all.body.contains("FP16"));
    let one = infer(
        &worker,
        "half",
        &json!({"inputs": [x], "outputs": [{"name": "y"}]}),
    );
    assert_eq!(one.json()["outputs"][0]["data"], json!([1.5]));
    assert_eq!(
        worker.get("/v2/models/half").json()["outputs"][0]["datatype"],
        "FP16"
    );
}

#[test]
fn nan_and_infinity_are_null_in_json_and_counted_and_exact_in_binary() {
    let models = tempfile::tempdir().unwrap();
    put_log(models.path());
    let worker = Worker::start(models.path());
    let x = json!({"name": "x", "shape": [3], "datatype": "FP32", "data": [1.0, 0.0, -1.0]});
    let answer = infer(&worker, "log", &json!({"inputs": [x]})).json();
    assert_eq!(answer["outputs"][0]["data"], json!([0.0, null, null]));
    assert_eq!(answer["outputs"][0]["parameters"], json!({"not_finite": 2}));
    let binary = json!({"inputs": [x], "parameters": {"binary_data_output": true}});
    let answer = infer(&worker, "log", &binary);
    let (json, bytes) = answer.parts();
    assert_eq!(
        json["outputs"][0]["parameters"],
        json!({"binary_data_size": 12})
    );
    let (values, _) = bytes.as_chunks::<4>();
    let values: Vec<f32> = values
        .iter()
        .map(|four| f32::from_le_bytes(*four))
        .collect();
    assert_eq!((values[0], values[1]), (0.0, f32::NEG_INFINITY));
    assert!(values[2].is_nan());
    let finite =
        json!({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]});
    let answer = infer(&worker, "log", &finite).json();
    assert!(answer["outputs"][0].get("parameters").is_none(), "{answer}");
}

#[test]
fn an_embedding_model_takes_tensors_too_and_a_bad_index_is_400() {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", "");
    let worker = Worker::start(models.path());
    let tokens = |ids: Value| {
        let input = |name: &str, data: &Value| json!({"name": name, "shape": [1, 2], "datatype": "INT64", "data": data});
        json!({"inputs": [
            input("input_ids", &ids),
            input("attention_mask", &json!([1, 1])),
            input("token_type_ids", &json!([0, 0])),
        ]})
    };
    let answer = infer(&worker, "tiny", &tokens(json!([4, 5]))).json();
    assert_eq!(answer["outputs"][0]["shape"], json!([1, 2, 4]));
    let bad = infer(&worker, "tiny", &tokens(json!([4, 99])));
    assert_eq!(bad.status, 400, "{bad:?}");
}

#[test]
fn a_scalar_answer_has_an_empty_shape() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let worker = Worker::start(models.path());
    let answer = worker
        .post("/v2/models/slow/infer", &slow_request(4))
        .json();
    assert_eq!(answer["outputs"][0]["shape"], json!([]));
    assert_eq!(answer["outputs"][0]["data"], json!([0.0]));
}

#[test]
fn a_decoders_cache_is_empty_before_the_first_token() {
    let models = tempfile::tempdir().unwrap();
    let decoder = Graph::default()
        .node_with("Concat", &["past", "new"], &["present"], &[("axis", 1)])
        .input("past", Type::Float, &["batch", "past", "2"])
        .input("new", Type::Float, &["batch", "tokens", "2"])
        .output("present", Type::Float, &["batch", "all", "2"]);
    put(models.path(), "decoder", decoder);
    let worker = Worker::start(models.path());
    let step = |past: Value, size: usize| {
        let past = json!({"name": "past", "shape": [1, size, 2], "datatype": "FP32", "data": past});
        let new = json!({"name": "new", "shape": [1, 1, 2], "datatype": "FP32", "data": [1, 2]});
        let answer = infer(&worker, "decoder", &json!({"inputs": [past, new]}));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["outputs"][0].clone()
    };
    let first = step(json!([]), 0);
    assert_eq!(first["shape"], json!([1, 1, 2]));
    let second = step(first["data"].clone(), 1);
    assert_eq!(second["data"], json!([1.0, 2.0, 1.0, 2.0]));
}

#[test]
fn no_elements_at_all_go_through_models_without_rows() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    for name in ["FP32", "BYTES"] {
        configure(models.path(), name, "max_batch_size: 0");
    }
    let worker = Worker::start(models.path());
    for name in ["FP32", "BYTES"] {
        let x = json!({"name": "x", "shape": [0], "datatype": name, "data": []});
        let answer = infer(&worker, name, &json!({"inputs": [x]}));
        assert_eq!(answer.status, 200, "{answer:?}");
        let y = &answer.json()["outputs"][0];
        assert_eq!((&y["shape"], &y["data"]), (&json!([0]), &json!([])));
    }
}
