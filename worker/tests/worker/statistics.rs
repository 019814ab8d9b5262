//! What is counted of a model: statistics as Triton tells them, and metrics under its names.

use serde_json::{Value, json};

use crate::support::models::{configure, put_embedding, put_plus, put_slow, slow_request};
use crate::support::{Worker, run_client, send_to, until, wire};

const PLUS: &str = "/v2/models/plus/infer";
const SLOW: &str = "/v2/models/slow/infer";

/// What is told of a model that has one version.
pub fn stats(worker: &Worker, model: &str) -> Value {
    let answer = worker.get(&format!("/v2/models/{model}/stats"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["model_stats"][0].clone()
}

pub fn count(stats: &Value, what: &str) -> u64 {
    stats["inference_stats"][what]["count"].as_u64().unwrap()
}

/// The number of a metric with these labels.
pub fn metric(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{series} ")));
    let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn failures(worker: &Worker, model: &str, reason: &str) -> f64 {
    let labels = format!("{{model=\"{model}\",version=\"1\",reason=\"{reason}\"}}");
    metric(
        &worker.metrics(),
        &format!("nv_inference_request_failure{labels}"),
    )
}

#[test]
fn tritonclient_reads_the_statistics() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    put_embedding(models.path(), "tiny", "");
    let worker = Worker::start(models.path());
    run_client("triton_statistics.py", &worker.address);
}

#[test]
fn the_fields_are_tritons() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    let zero = json!({"count": 0, "ns": 0});
    // As Triton 2.51 answers for a model that was never asked.
    let golden = json!({"model_stats": [{
        "name": "plus", "version": "1", "last_inference": 0, "inference_count": 0, "execution_count": 0,
        "inference_stats": {
            "success": zero, "fail": zero, "queue": zero, "compute_input": zero, "compute_infer": zero,
            "compute_output": zero, "cache_hit": zero, "cache_miss": zero,
        },
        "response_stats": {}, "batch_stats": [], "memory_usage": [],
    }]});
    assert_eq!(worker.get("/v2/models/stats").json(), golden);
}

#[test]
fn unknown_models_and_versions_have_no_statistics() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    for path in ["none/stats", "plus/versions/7/stats"] {
        let answer = worker.get(&format!("/v2/models/{path}"));
        assert_eq!(answer.status, 404, "{answer:?}");
        assert!(answer.json()["error"].is_string());
    }
}

#[test]
fn every_ending_is_counted_once() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let policy = "dynamic_batching { default_queue_policy { max_queue_size: 1 allow_timeout_override: true } }";
    configure(models.path(), "slow", policy);
    let mut worker = Worker::start(models.path());
    let running = worker.begin("POST", SLOW, &[], slow_request(2500).as_bytes());
    worker.wait_for_line("a batch begins");
    let pending = |worker: &Worker| {
        let series = r#"nv_inference_pending_request_count{model="slow",version="1"}"#;
        metric(&worker.metrics(), series)
    };

    let left = worker.begin("POST", SLOW, &[], slow_request(1).as_bytes());
    until("it waits", || pending(&worker) == 1.0);
    let full = worker.post(SLOW, &slow_request(1));
    assert_eq!(full.status, 503, "{full:?}");
    assert_eq!(failures(&worker, "slow", "REJECTED"), 1.0);
    drop(left);
    until("it is cancelled", || {
        failures(&worker, "slow", "CANCELED") == 1.0
    });
    until("it waits no more", || pending(&worker) == 0.0);

    let mut hasty: Value = serde_json::from_str(&slow_request(1)).unwrap();
    hasty["parameters"] = json!({"timeout": 1000});
    let late = worker.post(SLOW, &hasty.to_string());
    assert_eq!(late.status, 503, "{late:?}");
    assert_eq!(failures(&worker, "slow", "REJECTED"), 2.0);

    let misfit = r#"{"inputs":[{"name":"n","shape":[2],"datatype":"INT64","data":[1,2]}]}"#;
    assert_eq!(worker.post(SLOW, misfit).status, 400);
    assert_eq!(failures(&worker, "slow", "OTHER"), 1.0);

    // What can't be read is no request of the model's.
    let short = misfit.replace("[1,2]", "[1]");
    let generate = "/v2/models/slow/generate";
    for (path, body) in [(SLOW, "{"), (SLOW, &short), (generate, r#"{"n":"one"}"#)] {
        let refused = worker.post(path, body);
        assert_eq!(refused.status, 400, "{refused:?}");
    }

    assert_eq!(running.finish().status, 200);
    let told = stats(&worker, "slow");
    assert_eq!(
        (count(&told, "success"), count(&told, "fail")),
        (1, 4),
        "{told}"
    );
    assert_eq!(
        (&told["inference_count"], &told["execution_count"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn rows_and_runs_are_counted_apart() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    put_embedding(models.path(), "tiny", "");
    let worker = Worker::start(models.path());
    for _ in 0..3 {
        let answer = worker.post(PLUS, &wire("kserve_infer_request.json"));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let told = stats(&worker, "plus");
    assert_eq!(
        (&told["inference_count"], &told["execution_count"]),
        (&json!(6), &json!(3))
    );
    assert_eq!(told["batch_stats"][0]["batch_size"], 2, "{told}");
    assert!(
        told["last_inference"].as_u64().unwrap() > 1_700_000_000_000,
        "{told}"
    );
    assert!(
        told["inference_stats"]["compute_infer"]["ns"]
            .as_u64()
            .unwrap()
            > 0,
        "{told}"
    );

    // One request of forty texts, which are computed in batches of at most 32.
    let texts = vec!["hello"; 40];
    let body = json!({"model": "tiny", "input": texts}).to_string();
    assert_eq!(worker.post("/v1/embeddings", &body).status, 200);
    let told = stats(&worker, "tiny");
    assert_eq!(count(&told, "success"), 1, "{told}");
    assert_eq!(
        (&told["inference_count"], &told["execution_count"]),
        (&json!(40), &json!(2))
    );
    assert_eq!(
        worker
            .post("/v1/embeddings", r#"{"model":"tiny","input":""}"#)
            .status,
        400
    );
    assert_eq!(failures(&worker, "tiny", "OTHER"), 1.0);
    let text = worker.metrics();
    let rows = |what: &str| format!("forebay_worker_batch_rows_{what}");
    let tiny = r#"{model="tiny",version="1"}"#;
    assert_eq!(metric(&text, &format!("{}{tiny}", rows("sum"))), 40.0);
    assert_eq!(metric(&text, &format!("{}{tiny}", rows("count"))), 2.0);
    let bucket = format!(
        "{}{{model=\"tiny\",version=\"1\",le=\"16\"}}",
        rows("bucket")
    );
    assert_eq!(metric(&text, &bucket), 1.0);
}

#[test]
fn numbers_outlive_a_reload() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    let infer = || worker.post(PLUS, &wire("kserve_infer_request.json"));
    assert_eq!(infer().status, 200);
    assert_eq!(
        worker.post("/v2/repository/models/plus/load", "").status,
        200
    );
    assert_eq!(infer().status, 200);
    assert_eq!(count(&stats(&worker, "plus"), "success"), 2);
    assert_eq!(
        worker.post("/v2/repository/models/plus/unload", "").status,
        200
    );
    assert_eq!(
        worker.get("/v2/models/stats").json(),
        json!({"model_stats": []})
    );
    assert!(!worker.metrics().contains("plus"));
}

#[test]
fn metrics_have_the_names_that_dashboards_for_triton_use() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    assert_eq!(
        worker.post(PLUS, &wire("kserve_infer_request.json")).status,
        200
    );
    let text = worker.metrics();
    let labels = r#"{model="plus",version="1"}"#;
    for (name, value) in [
        ("nv_inference_request_success", 1.0),
        ("nv_inference_count", 2.0),
        ("nv_inference_exec_count", 1.0),
        ("nv_inference_pending_request_count", 0.0),
    ] {
        assert_eq!(metric(&text, &format!("{name}{labels}")), value, "{text}");
    }
    for name in [
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_compute_input_duration_us",
        "nv_inference_compute_infer_duration_us",
        "nv_inference_compute_output_duration_us",
        "nv_model_load_duration_secs",
    ] {
        assert!(metric(&text, &format!("{name}{labels}")) >= 0.0);
    }
    let device = r#"forebay_worker_device{model="plus",version="1",device="cpu",fallback="false"}"#;
    assert_eq!(metric(&text, device), 1.0);
    assert!(metric(&text, "nv_cpu_memory_total_bytes") > 0.0, "{text}");
    for (path, status) in [("/", 200), ("/metrica", 404)] {
        let answer = send_to(&worker.metrics, "GET", path, &[], b"").finish();
        assert_eq!(answer.status, status);
        assert_eq!(answer.body, "metrics are at /metrics\n");
    }
    assert_eq!(
        worker.get("/metrics").status,
        404,
        "metrics have a port of their own"
    );
}
