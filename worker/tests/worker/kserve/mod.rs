//! KServe v2 over HTTP: what is answered. What is refused, what is odd and what tensors hold each have a file.

mod binary;
mod bodies;
mod elements;
mod generate;
mod odd;
mod slips;

use serde_json::{Value, json};

use crate::support::models::put_plus;
use crate::support::{Answer, Worker, wire};

fn plus() -> (tempfile::TempDir, Worker) {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    (models, worker)
}

fn infer(worker: &Worker, model: &str, body: &Value) -> Answer {
    worker.post(&format!("/v2/models/{model}/infer"), &body.to_string())
}

/// The golden request with a change made to it.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut request = serde_json::from_str(&wire("kserve_infer_request.json")).unwrap();
    change(&mut request);
    request
}

#[test]
fn the_golden_request_gets_the_golden_answer() {
    let (_models, worker) = plus();
    let answer = worker.post("/v2/models/plus/infer", &wire("kserve_infer_request.json"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("content-type: application/json"));
    let golden: Value = serde_json::from_str(&wire("kserve_infer_response.json")).unwrap();
    assert_eq!(answer.json(), golden);
    let versioned = worker.post(
        "/v2/models/plus/versions/1/infer",
        &wire("kserve_infer_request.json"),
    );
    assert_eq!(versioned.json(), golden);
}

#[test]
fn without_outputs_all_are_given_and_without_id_none() {
    let (_models, worker) = plus();
    let request = changed(|request| {
        request.as_object_mut().unwrap().remove("outputs");
        request.as_object_mut().unwrap().remove("id");
    });
    let answer = infer(&worker, "plus", &request).json();
    let names: Vec<_> = answer["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|output| &output["name"])
        .collect();
    assert_eq!(names, ["sum", "difference"]);
    assert_eq!(
        answer["outputs"][1]["data"],
        json!([-9.0, -17.5, -27.0, -36.0])
    );
    assert!(answer.get("id").is_none());
}

#[test]
fn server_and_model_describe_themselves() {
    let (_models, worker) = plus();
    let server = worker.get("/v2").json();
    let golden: serde_json::Value = serde_json::from_str(&wire("kserve_server.json")).unwrap();
    assert_eq!(server, golden, "the proxy knows the worker by this");
    for path in [
        "/health",
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/plus/ready",
        "/v2/models/plus/versions/1/ready",
    ] {
        assert_eq!(worker.get(path).status, 200, "{path}");
    }
    let described = json!({
        "name": "plus",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "b", "datatype": "FP32", "shape": [-1, 2]},
        ],
        "parameters": {"device": "cpu", "fallback": false},
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "difference", "datatype": "FP32", "shape": [-1, 2]},
        ],
    });
    assert_eq!(worker.get("/v2/models/plus").json(), described);
    assert_eq!(worker.get("/v2/models/plus/versions/1").json(), described);
}

#[test]
fn what_is_not_there_is_404_and_the_wrong_method_405_in_kserves_shape() {
    let (_models, worker) = plus();
    let body = wire("kserve_infer_request.json");
    let answers = [
        (404, worker.get("/v2/models/minus")),
        (404, worker.get("/v2/models/minus/ready")),
        (404, worker.get("/v2/models/plus/versions/7")),
        (404, worker.post("/v2/models/minus/infer", &body)),
        (404, worker.post("/v2/models/plus/versions/7/infer", &body)),
        (404, worker.get("/v2/nothing")),
        (405, worker.get("/v2/models/plus/infer")),
        (405, worker.post("/v2/models/plus", "{}")),
    ];
    for (status, answer) in answers {
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.json()["error"].is_string(), "{answer:?}");
    }
}

#[test]
fn bodies_over_the_limit_are_413() {
    let (_models, worker) = plus();
    let huge = vec![b' '; (32 << 20) + 1];
    let answer = worker.send("POST", "/v2/models/plus/infer", &[], &huge);
    assert_eq!(answer.status, 413, "{answer:?}");
}

#[test]
fn many_at_once_each_get_their_own_answer() {
    let (_models, worker) = plus();
    let request = |n: usize| {
        let input = |name: &str, data: [usize; 2]| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "data": data});
        json!({"id": n.to_string(), "inputs": [input("a", [n, 2 * n]), input("b", [1, 1])]})
            .to_string()
    };
    for round in 0..5 {
        let exchanges: Vec<_> = (0..40)
            .map(|n| n + round * 40)
            .map(|n| {
                (
                    n,
                    worker.begin("POST", "/v2/models/plus/infer", &[], request(n).as_bytes()),
                )
            })
            .collect();
        for (n, exchange) in exchanges {
            let answer = exchange.finish().json();
            assert_eq!(answer["id"], n.to_string());
            assert_eq!(
                answer["outputs"][0]["data"],
                json!([(n + 1) as f32, (2 * n + 1) as f32])
            );
        }
    }
}
