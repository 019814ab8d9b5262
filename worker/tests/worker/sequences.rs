//! Sequences: requests that belong together and the state that goes from one to the next.

use serde_json::{Value, json};

use crate::statistics::stats;
use crate::support::models::{put_plus, put_sums};
use crate::support::{Answer, Exchange, Worker, run_client, wire};

const SUMS: &str = "/v2/models/sums/infer";

fn body(x: f64, parameters: Value) -> String {
    let x = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [x]});
    json!({"inputs": [x], "parameters": parameters, "outputs": [{"name": "y"}]}).to_string()
}

fn add(worker: &Worker, x: f64, parameters: Value) -> Answer {
    worker.post(SUMS, &body(x, parameters))
}

fn sum(answer: &Answer) -> f64 {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["outputs"][0]["data"][0].as_f64().unwrap()
}

fn begin(worker: &Worker, x: f64, parameters: Value) -> Exchange {
    worker.begin("POST", SUMS, &[], body(x, parameters).as_bytes())
}

#[test]
fn tritonclient_adds_up_two_sequences_at_once() {
    let models = tempfile::tempdir().unwrap();
    put_sums(models.path(), "max_sequence_idle_microseconds: 60000000");
    let worker = Worker::start(models.path());
    run_client("triton_sequences.py", &worker.address);
}

#[test]
fn what_is_no_request_of_a_sequence_is_400_with_the_reason() {
    let models = tempfile::tempdir().unwrap();
    put_sums(models.path(), "");
    put_plus(models.path());
    let worker = Worker::start(models.path());
    for (parameters, words) in [
        (json!({}), "needs a `sequence_id`"),
        (
            json!({"sequence_id": 0, "sequence_start": true}),
            "needs a `sequence_id`",
        ),
        (
            json!({"sequence_id": 5}),
            "its first request says `sequence_start`",
        ),
        (
            json!({"sequence_id": "five", "sequence_start": true}),
            "takes a number",
        ),
        (
            json!({"sequence_id": u64::MAX, "sequence_start": true}),
            "beyond INT64",
        ),
        (
            json!({"sequence_id": 5, "sequence_start": "yes"}),
            "`sequence_start`",
        ),
    ] {
        let answer = add(&worker, 1.0, parameters);
        assert_eq!(answer.status, 400, "{answer:?}");
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains(words), "{words:?} is missing in {said:?}");
    }
    let x = json!({"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [1, 2]});
    let two = json!({"inputs": [x], "parameters": {"sequence_id": 5, "sequence_start": true}});
    let answer = worker.post(SUMS, &two.to_string());
    assert!(
        answer.status == 400 && answer.body.contains("one row"),
        "{answer:?}"
    );

    // A model without sequences takes no notice, as Triton's.
    let mut request: Value = serde_json::from_str(&wire("kserve_infer_request.json")).unwrap();
    request["parameters"] = json!({"sequence_id": 5});
    assert_eq!(
        worker
            .post("/v2/models/plus/infer", &request.to_string())
            .status,
        200
    );
}

#[test]
fn one_more_sequence_than_there_are_places_waits_for_one() {
    let models = tempfile::tempdir().unwrap();
    put_sums(
        models.path(),
        "oldest { max_candidate_sequences: 1 } max_sequence_idle_microseconds: 60000000",
    );
    let worker = Worker::start(models.path());
    assert_eq!(
        sum(&add(
            &worker,
            1.0,
            json!({"sequence_id": 1, "sequence_start": true})
        )),
        1.0
    );
    let waits = begin(
        &worker,
        5.0,
        json!({"sequence_id": 2, "sequence_start": true}),
    );
    assert_eq!(sum(&add(&worker, 1.0, json!({"sequence_id": 1}))), 2.0);
    let refused = add(&worker, 1.0, json!({"sequence_id": 2}));
    assert_eq!(
        refused.status, 400,
        "it began though there was no place: {refused:?}"
    );
    assert_eq!(
        sum(&add(
            &worker,
            1.0,
            json!({"sequence_id": 1, "sequence_end": true})
        )),
        3.0
    );
    assert_eq!(sum(&waits.finish()), 5.0);
}

#[test]
fn an_idle_sequence_gives_its_place_up() {
    let models = tempfile::tempdir().unwrap();
    put_sums(
        models.path(),
        "oldest { max_candidate_sequences: 1 } max_sequence_idle_microseconds: 300000",
    );
    let worker = Worker::start(models.path());
    assert_eq!(
        sum(&add(
            &worker,
            1.0,
            json!({"sequence_id": 1, "sequence_start": true})
        )),
        1.0
    );
    // Nobody ends the first, so the second is answered only when the first is forgotten.
    assert_eq!(
        sum(&add(
            &worker,
            5.0,
            json!({"sequence_id": 2, "sequence_start": true})
        )),
        5.0
    );
    assert_eq!(add(&worker, 1.0, json!({"sequence_id": 1})).status, 400);
}

#[test]
fn requests_of_one_sequence_take_turns_and_none_is_lost() {
    let models = tempfile::tempdir().unwrap();
    put_sums(models.path(), "max_sequence_idle_microseconds: 60000000");
    let worker = Worker::start(models.path());
    let ids = [1, 2, 3];
    for id in ids {
        let start = add(
            &worker,
            0.0,
            json!({"sequence_id": id, "sequence_start": true}),
        );
        assert_eq!(sum(&start), 0.0);
    }
    let crowd: Vec<(i32, Exchange)> = (0..10)
        .flat_map(|_| ids)
        .map(|id| (id, begin(&worker, id.into(), json!({"sequence_id": id}))))
        .collect();
    let mut sums: Vec<(i32, f64)> = crowd
        .into_iter()
        .map(|(id, exchange)| (id, sum(&exchange.finish())))
        .collect();
    sums.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let expected = ids
        .into_iter()
        .flat_map(|id| (1..=10).map(move |n| (id, f64::from(id * n))));
    assert_eq!(sums, expected.collect::<Vec<_>>());
    assert_eq!(stats(&worker, "sums")["inference_count"], 33);
}

#[test]
fn a_plan_that_does_not_fit_the_graph_is_named() {
    let models = tempfile::tempdir().unwrap();
    put_sums(
        models.path(),
        "control_input { name: \"READY\" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } }",
    );
    put_plus(models.path());
    let worker = Worker::start(models.path());
    let index = worker.post("/v2/repository/index", "").json();
    let reason = index[1]["reason"].as_str().unwrap();
    assert!(reason.contains("no input `READY`"), "{index}");
}
