//! Answers that are kept: `response_cache { enable: true }`.

use std::fs;

use serde_json::{Value, json};

use crate::statistics::{count, stats};
use crate::support::models::{
    configure, put_described, put_endless, put_plus, put_slow, slow_request,
};
use crate::support::{Worker, until};

const CACHED: &str = "response_cache { enable: true }";

fn plus(worker: &Worker, a: f64, outputs: Value) -> Value {
    let input = |name: &str, value: f64| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "data": [value, value]});
    let body = json!({"inputs": [input("a", a), input("b", 1.0)], "outputs": outputs});
    let answer = worker.post("/v2/models/plus/infer", &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Hits, misses and runs.
fn told(worker: &Worker, model: &str) -> (u64, u64, u64) {
    let told = stats(worker, model);
    let runs = told["execution_count"].as_u64().unwrap();
    (count(&told, "cache_hit"), count(&told, "cache_miss"), runs)
}

#[test]
fn the_same_request_is_computed_once_and_anything_else_anew() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    configure(models.path(), "plus", CACHED);
    let worker = Worker::start(models.path());
    let sum = || json!([{"name": "sum"}]);
    let first = plus(&worker, 1.0, sum());
    assert_eq!(plus(&worker, 1.0, sum()), first);
    assert_eq!(told(&worker, "plus"), (1, 1, 1));
    assert_ne!(plus(&worker, 2.0, sum()), first);
    assert_ne!(plus(&worker, 1.0, json!([])), first);
    assert_eq!(told(&worker, "plus"), (1, 3, 3));
    let counted = stats(&worker, "plus");
    assert_eq!(
        (count(&counted, "success"), count(&counted, "compute_infer")),
        (4, 3)
    );
    assert!(
        worker
            .metrics()
            .contains("nv_cache_num_hits_per_model{model=\"plus\",version=\"1\"} 1\n")
    );
    assert_eq!(
        worker.post("/v2/repository/models/plus/load", "").status,
        200
    );
    assert_eq!(plus(&worker, 1.0, sum()), first);
    assert_eq!(
        told(&worker, "plus"),
        (1, 4, 4),
        "a reload begins with nothing"
    );
}

#[test]
fn nothing_is_kept_unless_the_model_asks_and_there_is_room() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let ask = |arguments: &[&str], told_after: (u64, u64, u64)| {
        let worker = Worker::start_with(models.path(), arguments);
        for _ in 0..2 {
            plus(&worker, 1.0, json!([]));
        }
        assert_eq!(told(&worker, "plus"), told_after, "{arguments:?}");
        worker.whole_log()
    };
    ask(&[], (0, 0, 2));
    configure(models.path(), "plus", CACHED);
    let log = ask(&["--cache-bytes", "0"], (0, 0, 2));
    assert!(
        log.contains("response_cache is ignored: --cache-bytes is 0"),
        "{log}"
    );
    ask(&["--cache-bytes", "100"], (0, 2, 2));
    ask(&[], (1, 1, 1));
}

#[test]
fn requests_alike_that_run_at_once_are_computed_once() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    configure(models.path(), "slow", CACHED);
    let mut worker = Worker::start(models.path());
    let request = slow_request(2500);
    let begin =
        |worker: &Worker| worker.begin("POST", "/v2/models/slow/infer", &[], request.as_bytes());
    let first = begin(&worker);
    worker.wait_for_line("a batch begins");
    let others = [begin(&worker), begin(&worker), begin(&worker)];
    assert_eq!(first.finish().status, 200);
    for other in others {
        assert_eq!(other.finish().status, 200);
    }
    assert_eq!(told(&worker, "slow"), (3, 1, 1));
}

#[test]
fn when_the_one_who_computes_leaves_another_does() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    configure(models.path(), "slow", CACHED);
    let mut worker = Worker::start(models.path());
    let request = slow_request(1500);
    let path = "/v2/models/slow/infer";
    let first = worker.begin("POST", path, &[], request.as_bytes());
    worker.wait_for_line("a batch begins");
    let second = worker.begin("POST", path, &[], request.as_bytes());
    drop(first);
    until("the first is cancelled", || {
        count(&stats(&worker, "slow"), "fail") == 1
    });
    assert_eq!(second.finish().status, 200);
    let third = worker.post(path, &request);
    assert_eq!(third.status, 200, "{third:?}");
    let (hits, misses, _) = told(&worker, "slow");
    assert_eq!((hits, misses), (1, 1));
}

#[test]
fn no_more_wait_for_another_than_may_wait_in_line() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let policy = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }";
    configure(models.path(), "slow", &format!("{CACHED} {policy}"));
    let mut worker = Worker::start(models.path());
    let request = slow_request(2500);
    let path = "/v2/models/slow/infer";
    let begin = |worker: &Worker| worker.begin("POST", path, &[], request.as_bytes());
    let first = begin(&worker);
    worker.wait_for_line("a batch begins");
    let waits = r#"nv_inference_pending_request_count{model="slow",version="1"} 1"#;
    let second = begin(&worker);
    until("one waits for the other", || {
        worker.metrics().contains(waits)
    });
    let third = worker.post(path, &request);
    assert_eq!(third.status, 503, "{third:?}");
    assert!(third.header("retry-after").is_some());
    assert_eq!(first.finish().status, 200);
    assert_eq!(second.finish().status, 200);
    assert_eq!(told(&worker, "slow").2, 1, "computed once");
}

#[test]
fn a_kept_ensemble_lets_no_more_wait_and_none_longer_than_a_model_does() {
    let models = tempfile::tempdir().unwrap();
    put_endless(models.path());
    let text = format!(
        "{CACHED} input {{ name: \"n\" }} output {{ name: \"mean\" }} ensemble_scheduling {{ step {{ model_name: \"endless\" \
         input_map {{ key: \"n\" value: \"n\" }} output_map {{ key: \"mean\" value: \"mean\" }} }} }}"
    );
    put_described(models.path(), "around", &[("config.pbtxt", &text)]);
    let mut worker = Worker::start(models.path());
    let path = "/v2/models/around/infer";
    let request = slow_request(2000);
    let begin = |worker: &Worker| worker.begin("POST", path, &[], request.as_bytes());
    let _computes = begin(&worker);
    worker.wait_for_line("a batch begins");
    let soon = request.replacen('{', r#"{"parameters":{"timeout":100000},"#, 1);
    let late = worker.post(path, &soon);
    assert_eq!(late.status, 503, "{late:?}");
    assert!(late.body.contains("waited in line"), "{late:?}");
    let waiting: Vec<_> = (0..256).map(|_| begin(&worker)).collect();
    let line = r#"nv_inference_pending_request_count{model="around",version="1"} 256"#;
    until("all of them wait for the first", || {
        worker.metrics().contains(line)
    });
    let refused = worker.post(path, &request);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(
        refused.body.contains("as many requests wait"),
        "{refused:?}"
    );
    assert!(refused.header("retry-after").is_some());
    drop(waiting);
}

#[test]
fn a_reload_that_fails_costs_an_ensemble_none_of_its_answers() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let around = |name: &str, member: &str| {
        let text = format!(
            "{CACHED} max_batch_size: 4 input [ {{ name: \"a\" }}, {{ name: \"b\" }} ] output {{ name: \"sum\" }}\n\
             ensemble_scheduling {{ step {{ model_name: \"{member}\" input_map {{ key: \"a\" value: \"a\" }}\n\
             input_map {{ key: \"b\" value: \"b\" }} output_map {{ key: \"sum\" value: \"sum\" }} }} }}"
        );
        put_described(models.path(), name, &[("config.pbtxt", &text)]);
    };
    around("inner", "plus");
    around("outer", "inner");
    let worker = Worker::start(models.path());
    let ask = || {
        let tensor =
            |name: &str| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "data": [1, 2]});
        let body = json!({"inputs": [tensor("a"), tensor("b")]}).to_string();
        let answer = worker.post("/v2/models/outer/infer", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let load = |name: &str| {
        let path = format!("/v2/repository/models/{name}/load");
        worker.post(&path, "").status
    };
    let looked = || {
        let told = stats(&worker, "outer");
        (count(&told, "cache_hit"), count(&told, "cache_miss"))
    };
    ask();
    let graph = models.path().join("plus/1/model.onnx");
    let good = fs::read(&graph).unwrap();
    fs::write(&graph, "half a gra").unwrap();
    assert_eq!(load("plus"), 400);
    ask();
    assert_eq!(looked(), (1, 1), "a member's load failed");
    around("inner", "minus");
    assert_eq!(load("inner"), 400);
    ask();
    assert_eq!(looked(), (2, 1), "a member's own file is wrong");
    fs::write(&graph, good).unwrap();
    around("inner", "plus");
    assert_eq!((load("inner"), load("plus")), (200, 200));
    ask();
    assert_eq!(
        looked(),
        (2, 2),
        "a load that went well begins with nothing"
    );
}
