//! Log and trace settings, as Triton's clients read and change them.

use serde_json::json;

use crate::support::models::put_plus;
use crate::support::{Worker, run_client, wire};

#[test]
fn tritonclient_reads_and_changes_the_settings() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start_with(models.path(), &[]);
    run_client("triton_settings.py", &worker.address);
}

#[test]
fn the_log_really_changes() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let mut worker = Worker::start_with(models.path(), &[]);
    let set = |worker: &Worker, settings: serde_json::Value| {
        let answer = worker.post("/v2/logging", &settings.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(worker.get("/v2/logging").json(), answer.json());
    };
    let infer = |worker: &Worker| {
        let answer = worker.post("/v2/models/plus/infer", &wire("kserve_infer_request.json"));
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    infer(&worker);
    set(&worker, json!({"log_verbose_level": 1}));
    infer(&worker);
    worker.wait_for_line("a batch begins");
    set(&worker, json!({"log_verbose_level": 0, "log_info": false}));
    infer(&worker);
    assert_eq!(
        worker.post("/v2/repository/models/plus/load", "").status,
        200
    );
    set(&worker, json!({"log_info": true}));
    assert_eq!(
        worker.post("/v2/repository/models/plus/unload", "").status,
        200
    );
    worker.wait_for_line("unloaded");
    let log = worker.whole_log();
    assert_eq!(log.matches("a batch begins").count(), 1, "{log}");
    assert_eq!(log.matches(": loaded ").count(), 1, "{log}");
}

#[test]
fn what_can_not_be_set_is_400_with_the_reason() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    for (path, body, words) in [
        ("logging", r#"{"log_info": "x"}"#, "neither true nor false"),
        ("logging", r#"{"log_file": "/tmp/x"}"#, "no file"),
        ("logging", r#"{"log_inof": true}"#, "log_inof"),
        ("logging", "[", "can't be read"),
        (
            "trace/setting",
            r#"{"trace_level": ["TIMESTAMPS"]}"#,
            "writes no traces",
        ),
        (
            "trace/setting",
            r#"{"trace_rate": "5"}"#,
            "writes no traces",
        ),
        ("trace/setting", r#"{"foo": "x"}"#, "no trace setting `foo`"),
        ("trace/setting", "", "can't be read"),
    ] {
        let answer = worker.post(&format!("/v2/{path}"), body);
        assert_eq!(answer.status, 400, "{path} {body}: {answer:?}");
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains(words), "{words:?} is missing in {said:?}");
    }
    assert_eq!(worker.get("/v2/models/none/trace/setting").status, 404);
    assert_eq!(
        worker.post("/v2/models/none/trace/setting", "{}").status,
        404
    );
}
