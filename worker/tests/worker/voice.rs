//! Silero's detector of voices, a real model whose state goes from one piece of sound to the next.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::Worker;
use crate::support::models::configure;

/// What both models take and give beside the state.
const SOUND: &str = r#"
    max_batch_size: 0
    input [ { name: "input" data_type: TYPE_FP32 dims: [ 1, 576 ] },
            { name: "sr" data_type: TYPE_INT64 dims: 1 reshape {} } ]
    output { name: "output" data_type: TYPE_FP32 dims: [ 1, 1 ] }"#;

/// The state as a client's own affair.
const OPEN: &str = r#"
    input { name: "state" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] }
    output { name: "stateN" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] }"#;

/// The state as the worker's.
const KEPT: &str = r#"
    sequence_batching {
        oldest { max_candidate_sequences: 2 }
        max_sequence_idle_microseconds: 60000000
        state {
            input_name: "state" output_name: "stateN" data_type: TYPE_FP32 dims: [ 2, 1, 128 ]
            initial_state { name: "silence" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] zero_data: true }
        }
    }"#;

fn put_voice(models: &Path, name: &str, state: &str) {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-models");
    let version = models.join(name).join("1");
    fs::create_dir_all(&version).unwrap();
    fs::copy(fetched.join("silero_vad.onnx"), version.join("model.onnx"))
        .expect("no silero_vad.onnx: run `./run deps test`");
    configure(models, name, &format!("{SOUND} {state}"));
}

fn tensor(name: &str, shape: Value, data: Vec<f64>) -> Value {
    json!({"name": name, "shape": shape, "datatype": "FP32", "data": data})
}

/// 36 ms of a tone, at 16 kHz.
fn sound(pitch: f64, piece: usize) -> Vec<Value> {
    let at = |sample: usize| ((piece * 576 + sample) as f64 * pitch).sin();
    vec![
        tensor("input", json!([1, 576]), (0..576).map(at).collect()),
        json!({"name": "sr", "shape": [1], "datatype": "INT64", "data": [16000]}),
    ]
}

fn infer(worker: &Worker, model: &str, request: &Value) -> Value {
    let answer = worker.post(&format!("/v2/models/{model}/infer"), &request.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["outputs"].clone()
}

/// What the model says of each piece when its client keeps the state.
fn by_hand(worker: &Worker, pitch: f64, pieces: usize) -> Vec<Value> {
    let mut state = tensor("state", json!([2, 1, 128]), vec![0.0; 256]);
    let mut said = Vec::new();
    for piece in 0..pieces {
        let mut inputs = sound(pitch, piece);
        inputs.push(state.clone());
        let outputs = infer(worker, "open", &json!({"inputs": inputs}));
        state["data"] = outputs[1]["data"].clone();
        said.push(outputs[0]["data"].clone());
    }
    said
}

#[test]
fn two_voices_at_once_are_heard_as_if_each_were_alone() {
    const PIECES: usize = 4;
    let models = tempfile::tempdir().unwrap();
    put_voice(models.path(), "open", OPEN);
    put_voice(models.path(), "kept", KEPT);
    let worker = Worker::start(models.path());
    let described = worker.get("/v2/models/kept").json();
    assert_eq!(
        described["inputs"].as_array().unwrap().len(),
        2,
        "{described}"
    );
    let pitches = [0.05, 0.11];
    let mut heard = [vec![], vec![]];
    for piece in 0..PIECES {
        for (voice, pitch) in pitches.into_iter().enumerate() {
            let parameters = json!({
                "sequence_id": voice + 1,
                "sequence_start": piece == 0,
                "sequence_end": piece + 1 == PIECES,
            });
            let request = json!({"inputs": sound(pitch, piece), "parameters": parameters});
            heard[voice].push(infer(&worker, "kept", &request)[0]["data"].clone());
        }
    }
    for (voice, pitch) in pitches.into_iter().enumerate() {
        assert_eq!(
            heard[voice],
            by_hand(&worker, pitch, PIECES),
            "voice {voice}"
        );
    }
    let first: Vec<Value> = heard.iter().map(|said| said[0].clone()).collect();
    assert_ne!(first[0], first[1], "they are two voices");
    let forgetful = json!({
        "inputs": sound(pitches[0], 1),
        "parameters": {"sequence_id": 3, "sequence_start": true, "sequence_end": true},
    });
    let without = infer(&worker, "kept", &forgetful)[0]["data"].clone();
    assert_ne!(without, heard[0][1], "the state matters");
}
