//! KServe's v2 protocol with JSON tensors, as Triton serves it: each `INPUTn` comes back as `OUTPUTn`.

use std::sync::Arc;

use forebay::decide::Work;
use serde_json::{Value, json};

use super::Shared;
use super::answer::Answer;
use super::pace::Asked;

/// Triton's error object.
fn error(status: u16, message: &str) -> Answer {
    Answer::json(status, &json!({"error": message}))
}

/// Any path at or under `/v2`; the liveness paths are answered elsewhere.
pub async fn answer(shared: &Arc<Shared>, method: &str, path: &str, body: &[u8]) -> Answer {
    let parts: Vec<&str> = path.split('/').skip(2).collect();
    let (name, rest) = match parts[..] {
        ["models", name, "versions", _, ref rest @ ..] => (name, rest),
        ["models", name, ref rest @ ..] => (name, rest),
        _ => return error(404, "not found"),
    };
    if !shared.knobs.lock().models.iter().any(|model| model == name) {
        let message = format!("Request for unknown model: '{name}' is not found");
        return error(404, &message);
    }
    match (method, rest) {
        ("GET", []) => Answer::json(200, &metadata(name)),
        ("GET", ["ready"]) => Answer::whole(200, "text/plain", ""),
        ("POST", ["infer"]) => infer(shared, name, body).await,
        _ => error(405, "method not allowed"),
    }
}

fn metadata(name: &str) -> Value {
    let tensor = |tensor: &str| json!({"name": tensor, "datatype": "FP32", "shape": [-1, 4]});
    json!({"name": name, "versions": ["1"], "platform": "onnxruntime_onnx",
           "inputs": [tensor("INPUT0")], "outputs": [tensor("OUTPUT0")]})
}

async fn infer(shared: &Arc<Shared>, name: &str, body: &[u8]) -> Answer {
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return error(400, "failed to parse the request JSON buffer");
    };
    let Some(inputs) = request["inputs"].as_array() else {
        return error(400, "Unable to parse 'inputs': attribute not found");
    };
    let asked = Asked {
        work: Work::Infer,
        prompt: &request["inputs"].to_string(),
        output: 0,
    };
    let _turn = shared.pace.read(asked, &shared.knobs).await;
    let outputs: Vec<Value> = inputs
        .iter()
        .map(|input| {
            let name = input["name"].as_str().unwrap_or_default();
            json!({"name": name.replace("INPUT", "OUTPUT"), "datatype": input["datatype"],
                   "shape": input["shape"], "data": input["data"]})
        })
        .collect();
    let mut answer = json!({"model_name": name, "model_version": "1", "outputs": outputs});
    if !request["id"].is_null() {
        answer["id"] = request["id"].clone();
    }
    Answer::json(200, &answer)
}
