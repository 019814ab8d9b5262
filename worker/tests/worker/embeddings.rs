//! OpenAI's embeddings and models.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::models::{TABLE, put_embedding, put_plus};
use crate::support::{Answer, Worker, command, library, wire};

fn tiny(settings: &str) -> (tempfile::TempDir, Worker) {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", settings);
    let worker = Worker::start(models.path());
    (models, worker)
}

fn embed(worker: &Worker, input: Value) -> Answer {
    let body = json!({"model": "tiny", "input": input});
    worker.post("/v1/embeddings", &body.to_string())
}

fn vector(answer: &Value, index: usize) -> Vec<f32> {
    let values = answer["data"][index]["embedding"].as_array().unwrap();
    values
        .iter()
        .map(|value| value.as_f64().unwrap() as f32)
        .collect()
}

fn assert_close(left: &[f32], right: &[f32]) {
    let near = left.iter().zip(right).all(|(l, r)| (l - r).abs() < 1e-6);
    assert!(
        near && left.len() == right.len(),
        "{left:?} is not {right:?}"
    );
}

#[test]
fn the_golden_request_gets_the_golden_answer() {
    let (_models, worker) = tiny("normalize = false");
    let answer = worker.post("/v1/embeddings", &wire("embeddings_request.json"));
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut answer = answer.json();
    let mut golden: Value = serde_json::from_str(&wire("embeddings_response.json")).unwrap();
    for index in 0..2 {
        assert_close(&vector(&answer, index), &vector(&golden, index));
        answer["data"][index]["embedding"].take();
        golden["data"][index]["embedding"].take();
    }
    assert_eq!(answer, golden);
}

#[test]
fn all_four_forms_of_input_agree() {
    let (_models, worker) = tiny("");
    let text = embed(&worker, json!("hello world")).json();
    let expected = vector(&text, 0);
    let length: f32 = expected.iter().map(|value| value * value).sum();
    assert!(
        (length - 1.0).abs() < 1e-5,
        "not of length one: {expected:?}"
    );
    for input in [
        json!(["hello world"]),
        json!([2, 4, 5, 3]),
        json!([[2, 4, 5, 3]]),
        json!(["cat", "hello world"]),
        json!([[2, 6, 3], [2, 4, 5, 3]]),
    ] {
        let answer = embed(&worker, input).json();
        let last = answer["data"].as_array().unwrap().len() - 1;
        assert_eq!(answer["data"][last]["index"], last);
        assert_close(&vector(&answer, last), &expected);
    }
}

#[test]
fn base64_is_little_endian_f32() {
    let (_models, worker) = tiny("normalize = false");
    let body = json!({"model": "tiny", "input": "hello world", "encoding_format": "base64"});
    let answer = worker.post("/v1/embeddings", &body.to_string()).json();
    let text = answer["data"][0]["embedding"].as_str().unwrap();
    let bytes = STANDARD.decode(text).unwrap();
    let values: Vec<f32> = bytes
        .chunks(4)
        .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(values, [0.125, 1.125, 0.0, 2.0]);
}

#[test]
fn the_tokenizers_own_padding_and_truncation_are_overridden() {
    // Its file says: cut at 4, pad to 4. The model says 6.
    let (_models, worker) = tiny("max_tokens = 6\nnormalize = false");
    let short = embed(&worker, json!("cat")).json();
    assert_eq!(
        short["usage"],
        json!({"prompt_tokens": 3, "total_tokens": 3})
    );
    let long = embed(&worker, json!("cat dog cat dog hello world")).json();
    assert_eq!(long["usage"]["prompt_tokens"], 6);
    let kept = [2, 6, 7, 6, 7, 3].map(|token: usize| TABLE[token]);
    let mean: Vec<f32> = (0..4)
        .map(|column| kept.iter().map(|row| row[column]).sum::<f32>() / 6.0)
        .collect();
    assert_close(&vector(&long, 0), &mean);
    let given = embed(&worker, json!([6, 7, 6, 7, 6, 7, 6, 7])).json();
    assert_eq!(given["usage"]["prompt_tokens"], 6);
}

#[test]
fn one_by_one_and_all_together_give_the_same() {
    let (_models, worker) = tiny("max_tokens = 50");
    let words = ["hello", "world", "cat", "dog", "stranger"];
    let texts: Vec<String> = (0..100)
        .map(|n| words.repeat(1 + n % 9)[n % 5..].join(" "))
        .collect();
    let together = embed(&worker, json!(texts)).json();
    let mut tokens = 0;
    for (index, text) in texts.iter().enumerate() {
        let alone = embed(&worker, json!(text)).json();
        assert_close(&vector(&together, index), &vector(&alone, 0));
        tokens += alone["usage"]["total_tokens"].as_u64().unwrap();
    }
    assert_eq!(together["usage"]["total_tokens"], tokens);
}

#[test]
fn cls_pooling_takes_the_first_token() {
    let (_models, worker) = tiny("pooling = \"cls\"\nnormalize = false");
    let answer = embed(&worker, json!([[6, 7], [4]])).json();
    assert_close(&vector(&answer, 0), &TABLE[6]);
    assert_close(&vector(&answer, 1), &TABLE[4]);
}

#[test]
fn slips_are_400_in_openais_shape() {
    let (_models, worker) = tiny("");
    let too_many = vec!["cat"; 2049];
    for (input, words) in [
        (json!([]), "empty"),
        (json!(""), "empty"),
        (json!(["cat", ""]), "input[1]"),
        (json!([[]]), "empty"),
        (json!(null), "neither"),
        (json!([1.5]), "neither"),
        (json!(["cat", 1]), "neither"),
        (json!([4, 99]), "99"),
        (json!([-4]), "neither"),
        (json!(too_many), "2049"),
    ] {
        let answer = embed(&worker, input.clone());
        assert_eq!(answer.status, 400, "{input}");
        let error = &answer.json()["error"];
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{error}"
        );
        assert_eq!(
            (&error["type"], &error["param"]),
            (&json!("invalid_request_error"), &json!("input"))
        );
        assert_eq!(error["code"], "bad_request");
    }
    for body in [
        json!({"model": "tiny", "input": "cat", "encoding_format": "hex"}),
        json!({"model": "tiny", "input": "cat", "dimensions": 5}),
        json!({"model": "tiny", "input": "cat", "dimensions": 0}),
        json!({"model": "tiny"}),
        json!({"input": "cat"}),
    ] {
        let answer = worker.post("/v1/embeddings", &body.to_string());
        assert_eq!(answer.status, 400, "{body}");
    }
}

#[test]
fn fewer_dimensions_are_the_first_ones_at_length_one() {
    let (_models, worker) = tiny("");
    let ask = |dimensions: usize| {
        let body = json!({"model": "tiny", "input": "hello world", "dimensions": dimensions});
        vector(&worker.post("/v1/embeddings", &body.to_string()).json(), 0)
    };
    let whole = ask(4);
    let length = (whole[0] * whole[0] + whole[1] * whole[1]).sqrt();
    assert!(length < 0.9, "{whole:?} shows nothing");
    assert_close(&ask(2), &[whole[0] / length, whole[1] / length]);
    let (_models, raw) = tiny("normalize = false");
    let body = json!({"model": "tiny", "input": "hello world", "dimensions": 2});
    let answer = raw.post("/v1/embeddings", &body.to_string()).json();
    assert_eq!(vector(&answer, 0), [0.125, 1.125]);
}

#[test]
fn unknown_models_and_models_without_text_are_said() {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", "");
    put_plus(models.path());
    let worker = Worker::start(models.path());
    let unknown = worker.post("/v1/embeddings", r#"{"model":"gpt","input":"cat"}"#);
    assert_eq!(unknown.status, 404);
    let error = &unknown.json()["error"];
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("model_not_found"), &json!("model"))
    );
    let plus = worker.post("/v1/embeddings", r#"{"model":"plus","input":"cat"}"#);
    assert_eq!(plus.status, 400);
    let method = worker.get("/v1/embeddings");
    assert_eq!(
        (method.status, &method.json()["error"]["code"]),
        (405, &json!("method_not_allowed"))
    );
    let path = worker.get("/v1/nothing");
    assert_eq!(
        (path.status, &path.json()["error"]["code"]),
        (404, &json!("no_route"))
    );
}

#[test]
fn a_graph_that_the_description_does_not_fit_is_refused_at_the_start() {
    for (settings, words) in [
        ("pooling = \"none\"", "2 axes"),
        ("max_tokens = 2", "max_tokens = 2"),
    ] {
        let models = tempfile::tempdir().unwrap();
        put_embedding(models.path(), "tiny", settings);
        let library = library();
        let mut serve = command(&["serve", "--models", models.path().to_str().unwrap()]);
        serve.args([
            "--http",
            "127.0.0.1:0",
            "--onnxruntime",
            library.to_str().unwrap(),
        ]);
        let output = serve.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("model tiny:") && said.contains(words),
            "{said}"
        );
    }
}

#[test]
fn models_are_listed() {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", "");
    put_plus(models.path());
    let worker = Worker::start(models.path());
    let list = worker.get("/v1/models").json();
    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(ids, ["plus", "tiny"]);
    assert!(list["data"][0]["created"].as_u64().unwrap() > 1_600_000_000);
    assert_eq!(worker.get("/v1/models/tiny").json()["object"], "model");
    assert_eq!(worker.get("/v1/models/none").status, 404);
}

#[test]
fn p39_no_text_reaches_the_log() {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", "");
    let library = library();
    let mut serve = command(&["serve", "--models", models.path().to_str().unwrap()]);
    serve.args([
        "--http",
        "127.0.0.1:0",
        "--onnxruntime",
        library.to_str().unwrap(),
    ]);
    let mut worker = Worker::spawn(serve.env("FOREBAY_LOG", "trace"));
    worker.wait_for_line("ready");
    assert_eq!(embed(&worker, json!("canary cat")).status, 200);
    assert_eq!(embed(&worker, json!({"canary": "canary"})).status, 400);
    worker.post("/v1/embeddings?key=canary", "{\"input\": \"canary");
    worker.post("/v2/models/tiny/infer", "{\"inputs\": \"canary\"}");
    let headers = ["authorization: Bearer canary"];
    worker.send("POST", "/v1/embeddings", &headers, b"{}");
    let log = worker.whole_log();
    assert!(log.contains("ready") && !log.contains("canary"), "{log}");
}
