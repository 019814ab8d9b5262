//! Triton's generate extension; the answers are those that Triton 2.51 gave to the same, but for its 500s.

use serde_json::{Value, json};

use crate::support::models::{put_plus, put_scores, put_types};
use crate::support::{Answer, Worker};

fn ask(worker: &Worker, path: &str, body: &Value) -> Answer {
    worker.post(&format!("/v2/models/{path}"), &body.to_string())
}

#[test]
fn an_object_of_inputs_gives_an_object_of_outputs() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    put_plus(models.path());
    put_scores(models.path());
    let worker = Worker::start(models.path());
    let with = |name: &str, more: Value| {
        let mut answer = json!({"model_name": name, "model_version": "1"});
        answer
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        answer
    };
    for (name, body, more) in [
        (
            "BYTES",
            json!({"x": "hello", "id": "7", "extra": 1}),
            json!({"y": "hello", "id": "7"}),
        ),
        ("BYTES", json!({"x": ["a", "b"]}), json!({"y": ["a", "b"]})),
        (
            "FP32",
            json!({"x": 1.5, "parameters": {"priority": 1, "mine": 2}}),
            json!({"y": 1.5}),
        ),
        (
            "plus",
            json!({"a": [1, 2], "b": [3, 4]}),
            json!({"sum": [4.0, 6.0], "difference": [-2.0, -2.0]}),
        ),
        (
            "scores",
            json!({"x": [1, 2, 3, 4, 5, 6]}),
            json!({"scores": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}),
        ),
    ] {
        let answer = ask(&worker, &format!("{name}/generate"), &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json(), with(name, more));
    }
    let streamed = ask(
        &worker,
        "BYTES/versions/1/generate_stream",
        &json!({"x": "hello"}),
    );
    assert_eq!(
        streamed.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let event = streamed
        .body
        .strip_prefix("data: ")
        .and_then(|rest| rest.strip_suffix("\n\n"));
    let event: Value = serde_json::from_str(event.unwrap()).unwrap();
    assert_eq!(event, with("BYTES", json!({"y": "hello"})));
}

#[test]
fn what_does_not_fit_is_400_in_kserves_shape_also_for_a_stream() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    put_scores(models.path());
    let worker = Worker::start(models.path());
    for verb in ["generate", "generate_stream"] {
        for (name, body, words) in [
            ("BYTES", json!({"x": 5}), "no BYTES"),
            (
                "BYTES",
                json!({"x": null}),
                "neither one element nor a list",
            ),
            (
                "FP32",
                json!({"x": {"a": 1}}),
                "neither one element nor a list",
            ),
            (
                "FP32",
                json!({"x": [1, "a"]}),
                "neither one element nor a list",
            ),
            ("FP32", json!({}), "`x` is missing"),
            ("FP32", json!([]), "can't be read"),
            ("FP16", json!({"x": 1}), "FP16"),
            (
                "scores",
                json!({"x": [1, 2]}),
                "2 elements don't tell a shape like [-1, 3]",
            ),
            ("scores", json!({"x": []}), "at least 1"),
        ] {
            let answer = ask(&worker, &format!("{name}/{verb}"), &body);
            assert_eq!(answer.status, 400, "{body} gave {answer:?}");
            let said = answer.json()["error"].as_str().unwrap().to_owned();
            assert!(said.contains(words), "{words:?} is missing in {said:?}");
        }
        assert_eq!(
            ask(&worker, &format!("none/{verb}"), &json!({"x": 1})).status,
            404
        );
    }
}
