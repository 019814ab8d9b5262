//! Texts classified, and documents ranked.

use serde_json::{Value, json};

use crate::support::models::{put_classifier, put_embedding, put_plus, put_ranker};
use crate::support::{Answer, Worker};

const LABELS: &str = "labels = [\"river\", \"lake\", \"sea\"]\n";

/// A classifier of four classes, one that ranks, an embedding model, and one without text.
fn readers(settings: &str) -> (tempfile::TempDir, Worker) {
    let models = tempfile::tempdir().unwrap();
    put_classifier(models.path(), "four", settings);
    put_ranker(models.path(), "ranker");
    put_embedding(models.path(), "tiny", "");
    put_plus(models.path());
    let worker = Worker::start(models.path());
    (models, worker)
}

fn classify(worker: &Worker, input: Value) -> Answer {
    let body = json!({"model": "four", "input": input});
    worker.post("/v1/classify", &body.to_string())
}

fn rerank(worker: &Worker, body: Value) -> Answer {
    worker.post("/v1/rerank", &body.to_string())
}

fn floats(values: &Value) -> Vec<f64> {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value.as_f64().unwrap()).collect()
}

/// As many and the same, but for rounding.
fn assert_near(left: &[f64], right: &[f64]) {
    let near = left.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(
        near && left.len() == right.len(),
        "{left:?} is not {right:?}"
    );
}

#[test]
fn the_highest_class_is_named_and_all_probabilities_given() {
    let (_models, worker) = readers(LABELS);
    let answer = classify(&worker, json!(["hello", "dog cat"])).json();
    // [CLS] hello [SEP] and [CLS] dog cat [SEP].
    let scores = [[1.5, 2.5, 3.0, 4.0], [7.0, 0.75, 2.0, -3.75]];
    for (index, scores) in scores.iter().enumerate() {
        let sum: f64 = scores.iter().map(|score: &f64| score.exp()).sum();
        let expected: Vec<f64> = scores.iter().map(|score| score.exp() / sum).collect();
        let entry = &answer["data"][index];
        assert_near(&floats(&entry["probs"]), &expected);
        assert_eq!(
            (&entry["index"], &entry["num_classes"]),
            (&json!(index), &json!(4))
        );
    }
    // The fourth has no name.
    assert_eq!(answer["data"][0]["label"], "LABEL_3");
    assert_eq!(answer["data"][1]["label"], "river");
    assert_eq!(answer["usage"]["prompt_tokens"], 7);
    let ids = classify(&worker, json!([2, 4, 3])).json();
    assert_eq!(ids["data"][0], answer["data"][0]);
}

#[test]
fn scores_are_activated_as_the_model_says() {
    for (activation, expected) in [
        ("none", [1.5, 2.5, 3.0, 4.0]),
        (
            "sigmoid",
            [1.5f64, 2.5, 3.0, 4.0].map(|score| 1.0 / (1.0 + (-score).exp())),
        ),
    ] {
        let (_models, worker) = readers(&format!("activation = \"{activation}\""));
        let answer = classify(&worker, json!("hello")).json();
        assert_near(&floats(&answer["data"][0]["probs"]), &expected);
    }
}

#[test]
fn a_cross_encoder_reads_each_document_together_with_the_query() {
    let (_models, worker) = readers("");
    let documents = json!(["cat", {"text": "world"}, "dog cat"]);
    let ask = |more: Value| {
        let mut body = json!({"model": "ranker", "query": "dog", "documents": documents});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        rerank(&worker, body)
    };
    let answer = ask(json!({})).json();
    let results = answer["results"].as_array().unwrap();
    let order: Vec<&Value> = results.iter().map(|result| &result["index"]).collect();
    assert_eq!(order, [2, 0, 1]);
    let scores: Vec<f64> = results
        .iter()
        .map(|one| one["relevance_score"].as_f64().unwrap())
        .collect();
    let sigmoid = |score: f64| 1.0 / (1.0 + (-score).exp());
    assert_near(&scores, &[6.5, 3.0, -1.0].map(sigmoid));
    assert!(results[0].get("document").is_none());
    assert_eq!(answer["usage"]["total_tokens"], 2 + 2 + 3);
    let best = ask(json!({"top_n": 1, "return_documents": true})).json();
    assert_eq!(best["results"].as_array().unwrap().len(), 1);
    assert_eq!(best["results"][0]["document"], json!({"text": "dog cat"}));
}

#[test]
fn an_embedding_model_ranks_by_the_cosine() {
    let (_models, worker) = readers("");
    let body = json!({"model": "tiny", "query": "cat", "documents": ["world", "cat", "dog"]});
    let answer = rerank(&worker, body).json();
    let results = answer["results"].as_array().unwrap();
    let order: Vec<&Value> = results.iter().map(|result| &result["index"]).collect();
    assert_eq!(order, [1, 2, 0]);
    assert!((results[0]["relevance_score"].as_f64().unwrap() - 1.0).abs() < 1e-5);
    assert!(results[2]["relevance_score"].as_f64().unwrap() < 0.5);
}

#[test]
fn requests_that_do_not_fit_are_400_and_say_why() {
    let (_models, worker) = readers("");
    let rank = |field: &str, value: Value| {
        let mut body = json!({"model": "ranker", "query": "cat", "documents": ["dog"]});
        body[field] = value;
        rerank(&worker, body)
    };
    for (answer, words) in [
        (rank("documents", json!([])), "documents is empty"),
        (
            rank("documents", json!(["dog", ""])),
            "documents[1] is empty",
        ),
        (rank("documents", json!(vec!["dog"; 2049])), "at most 2048"),
        (rank("documents", json!([7])), "can't be read"),
        (rank("query", json!("")), "query is empty"),
        (rank("model", json!("four")), "one that ranks has one"),
        (rank("model", json!("plus")), "reads no texts"),
        (classify(&worker, json!([])), "input is empty"),
        (classify(&worker, json!("")), "input[0] is empty"),
        (
            worker.post("/v1/classify", r#"{"model":"tiny","input":"cat"}"#),
            "not a classifier",
        ),
        (
            worker.post("/v1/embeddings", r#"{"model":"four","input":"cat"}"#),
            "not an embedding",
        ),
    ] {
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(
            answer.body.contains(words),
            "{words:?} is missing in {answer:?}"
        );
    }
    assert_eq!(rank("model", json!("none")).status, 404);
}
