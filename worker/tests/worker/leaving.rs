//! Clients that leave: what is computed for nobody is ended.

use crate::statistics::{count, stats};
use crate::support::models::{put_endless, slow_request};
use crate::support::{Worker, until};

#[test]
fn a_run_ends_with_its_client_and_the_next_one_is_served() {
    let models = tempfile::tempdir().unwrap();
    put_endless(models.path());
    let mut worker = Worker::loading(models.path());
    worker.wait_for_line("ready");
    let path = "/v2/models/endless/infer";
    // To its end it would take minutes on any machine.
    let long = worker.begin("POST", path, &[], slow_request(2000).as_bytes());
    worker.wait_for_line("a batch begins");
    let next = worker.begin("POST", path, &[], slow_request(1).as_bytes());
    let waits = r#"nv_inference_pending_request_count{model="endless",version="1"} 1"#;
    until("the next one waits", || worker.metrics().contains(waits));
    drop(long);
    let answer = next.finish();
    assert_eq!(answer.status, 200, "{answer:?}");
    until("the first is cancelled", || {
        count(&stats(&worker, "endless"), "fail") == 1
    });
    let told = stats(&worker, "endless");
    assert_eq!(told["execution_count"], 1, "an ended run is none");
}
