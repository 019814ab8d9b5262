//! What only a machine with a card can show; `worker/gpu-check` runs it there. `FOREBAY_CARD` names the device, and
//! `FOREBAY_CARD=cpu` tries the checks themselves where there is no card.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::models::put;
use crate::support::onnx::{Graph, Type};
use crate::support::{Worker, command, library};

/// The width of each layer.
const WIDE: usize = 512;

#[expect(clippy::disallowed_methods, reason = "the test's own setting")]
fn device() -> String {
    std::env::var("FOREBAY_CARD").expect("FOREBAY_CARD is cuda, tensorrt or cpu")
}

/// Numbers between -1 and 1 that look like chance and are the same every time.
fn noise(count: usize) -> Vec<f32> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Four layers in float32, enough that a card is worth it for many rows.
fn put_layers(models: &Path) {
    let weights: Vec<f32> = noise(WIDE * WIDE).iter().map(|one| one * 0.05).collect();
    let axes = ["batch", &WIDE.to_string()];
    let mut graph =
        Graph::default()
            .input("x", Type::Float, &axes)
            .output("h4", Type::Float, &axes);
    let mut before = "x".to_owned();
    for layer in 1..=4 {
        let (weight, sum, after) = (
            format!("w{layer}"),
            format!("s{layer}"),
            format!("h{layer}"),
        );
        graph = graph
            .floats(&weight, &[WIDE as u64; 2], &weights)
            .node("MatMul", &[&before, &weight], &[&sum])
            .node("Relu", &[&sum], &[&after]);
        before = after;
    }
    put(models, "layers", graph);
}

fn serve(models: &Path, device: &str) -> Worker {
    Worker::start_with(models, &["--device", device])
}

/// Rows as bytes, so that the wire is not what is measured.
fn infer(worker: &Worker, rows: &[f32]) -> Vec<f32> {
    let count = rows.len() / WIDE;
    let data: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
    let input = json!({"name": "x", "shape": [count, WIDE], "datatype": "FP32", "parameters": {"binary_data_size": data.len()}});
    let head = json!({"inputs": [input], "parameters": {"binary_data_output": true}}).to_string();
    let length = format!("inference-header-content-length: {}", head.len());
    let body = [head.as_bytes(), &data].concat();
    let answer = worker.send("POST", "/v2/models/layers/infer", &[&length], &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let (_, bytes) = answer.parts();
    let (values, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    values
        .iter()
        .map(|value| f32::from_le_bytes(*value))
        .collect()
}

#[test]
#[ignore = "needs an NVIDIA card: worker/gpu-check"]
fn the_card_computes_is_shown_and_answers_as_the_cpu_does() {
    let models = tempfile::tempdir().unwrap();
    put_layers(models.path());
    let device = device();
    let (card, cpu) = (serve(models.path(), &device), serve(models.path(), "cpu"));
    let health = json!({"status": "ok", "devices": [&device]});
    assert_eq!(card.get("/health").json(), health);
    let metadata = card.get("/v2/models/layers").json();
    let shown = json!({"device": &device, "fallback": false});
    assert_eq!(metadata["parameters"], shown);
    let config: Value = card.get("/v2/models/layers/config").json();
    let kind = if device == "cpu" {
        "KIND_CPU"
    } else {
        "KIND_GPU"
    };
    assert_eq!(config["instance_group"][0]["kind"], kind);
    let line = format!("device=\"{device}\",fallback=\"false\"}} 1\n");
    assert!(card.metrics().contains(&line));
    for rows in [1, 7, 64] {
        let given = noise(rows * WIDE);
        let (theirs, ours) = (infer(&card, &given), infer(&cpu, &given));
        assert_eq!(theirs.len(), ours.len());
        let size = ours
            .iter()
            .fold(0.0_f32, |size, value| size.max(value.abs()));
        let error = theirs
            .iter()
            .zip(&ours)
            .fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(size > 0.0 && error <= 2e-3 * size, "{error} of {size}");
    }
}

#[test]
#[ignore = "needs an NVIDIA card: worker/gpu-check"]
fn a_card_that_is_hidden_is_refused() {
    let device = device();
    if device == "cpu" {
        return;
    }
    let models = tempfile::tempdir().unwrap();
    put_layers(models.path());
    let mut serve = command(&["serve", "--models", models.path().to_str().unwrap()]);
    serve.args([
        "--http",
        "127.0.0.1:0",
        "--device",
        &device,
        "--onnxruntime",
    ]);
    serve.arg(library()).env("CUDA_VISIBLE_DEVICES", "");
    let output = serve.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let wanted = format!("\"{device}\" was wanted");
    assert!(said.contains(&wanted), "{said}");
}

#[test]
#[ignore = "needs an NVIDIA card: worker/gpu-check"]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn how_fast_it_is_beside_the_cpu() {
    let models = tempfile::tempdir().unwrap();
    put_layers(models.path());
    let device = device();
    let workers = [device.as_str(), "cpu"].map(|device| (device, serve(models.path(), device)));
    println!("one client, float32, {WIDE} wide, 4 layers");
    for rows in [1, 32, 512] {
        let given = noise(rows * WIDE);
        for (device, worker) in &workers {
            infer(worker, &given);
            let (start, mut runs) = (Instant::now(), 0);
            while start.elapsed() < Duration::from_secs(2) {
                infer(worker, &given);
                runs += 1;
            }
            let rate = f64::from(runs) * rows as f64 / start.elapsed().as_secs_f64();
            println!("{device:>8}  {rows:>4} rows a request  {rate:>10.0} rows/s");
        }
    }
}
