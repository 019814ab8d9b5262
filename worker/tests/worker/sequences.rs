//! Sequences: requests that belong together and the state that goes from one to the next.

use std::path::Path;

use serde_json::{Value, json};

use crate::statistics::{metric, stats};
use crate::support::models::{put_plus, put_sums};
use crate::support::{Answer, Exchange, Worker, run_client, until, wire};

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

/// How many requests wait for their run.
fn pending(worker: &Worker) -> f64 {
    let series = r#"nv_inference_pending_request_count{model="sums",version="1"}"#;
    metric(&worker.metrics(), series)
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
    until("it waits", || pending(&worker) == 1.0);
    let behind = begin(&worker, 1.0, json!({"sequence_id": 2}));
    until("the next waits behind it", || pending(&worker) == 2.0);
    assert_eq!(sum(&add(&worker, 1.0, json!({"sequence_id": 1}))), 2.0);
    assert_eq!(pending(&worker), 2.0, "it began though there was no place");
    assert_eq!(
        sum(&add(
            &worker,
            1.0,
            json!({"sequence_id": 1, "sequence_end": true})
        )),
        3.0
    );
    assert_eq!(sum(&waits.finish()), 5.0);
    assert_eq!(sum(&behind.finish()), 6.0);
}

/// One place, taken by sequence 1.
fn taken(models: &Path) -> Worker {
    put_sums(
        models,
        "oldest { max_candidate_sequences: 1 } max_sequence_idle_microseconds: 60000000",
    );
    let worker = Worker::start(models);
    let first = add(
        &worker,
        1.0,
        json!({"sequence_id": 1, "sequence_start": true}),
    );
    assert_eq!(sum(&first), 1.0);
    worker
}

fn make_room(worker: &Worker) {
    let last = add(worker, 0.0, json!({"sequence_id": 1, "sequence_end": true}));
    assert_eq!(sum(&last), 1.0);
}

#[test]
fn those_behind_a_first_request_that_is_never_answered_are_told_that_nothing_began() {
    let models = tempfile::tempdir().unwrap();
    let worker = taken(models.path());
    let start = begin(
        &worker,
        5.0,
        json!({"sequence_id": 2, "sequence_start": true}),
    );
    until("it waits", || pending(&worker) == 1.0);
    let behind = begin(&worker, 1.0, json!({"sequence_id": 2}));
    until("the next waits behind it", || pending(&worker) == 2.0);
    drop(start);
    let behind = behind.finish();
    assert_eq!(behind.status, 400, "{behind:?}");
    assert!(behind.body.contains("no such sequence"), "{behind:?}");
    make_room(&worker);
}

#[test]
fn those_behind_the_last_request_are_told_that_it_was() {
    let models = tempfile::tempdir().unwrap();
    let worker = taken(models.path());
    let line = [
        json!({"sequence_id": 2, "sequence_start": true}),
        json!({"sequence_id": 2, "sequence_end": true}),
        json!({"sequence_id": 2}),
    ];
    let mut waiting = 0.0;
    let line = line.map(|parameters| {
        let exchange = begin(&worker, 5.0, parameters);
        waiting += 1.0;
        until("it waits", || pending(&worker) == waiting);
        exchange
    });
    make_room(&worker);
    let [start, end, late] = line.map(Exchange::finish);
    assert_eq!((sum(&start), sum(&end)), (5.0, 10.0));
    assert_eq!(late.status, 400, "{late:?}");
    assert!(late.body.contains("no such sequence"), "{late:?}");
}

#[test]
fn as_many_wait_for_their_turn_as_may_in_line() {
    let models = tempfile::tempdir().unwrap();
    let worker = taken(models.path());
    let start = begin(
        &worker,
        5.0,
        json!({"sequence_id": 2, "sequence_start": true}),
    );
    until("it waits", || pending(&worker) == 1.0);
    let behind: Vec<Exchange> = (1..256)
        .map(|_| begin(&worker, 1.0, json!({"sequence_id": 2})))
        .collect();
    until("they wait behind it", || pending(&worker) == 256.0);
    let full = add(&worker, 1.0, json!({"sequence_id": 2}));
    assert_eq!(full.status, 503, "{full:?}");
    assert!(full.header("retry-after").is_some(), "{full:?}");
    make_room(&worker);
    assert_eq!(sum(&start.finish()), 5.0);
    let mut sums: Vec<f64> = behind
        .into_iter()
        .map(|exchange| sum(&exchange.finish()))
        .collect();
    sums.sort_by(f64::total_cmp);
    assert_eq!(sums, (6..=260).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn a_streams_next_request_waits_behind_the_one_that_begins() {
    let models = tempfile::tempdir().unwrap();
    put_sums(
        models.path(),
        "oldest { max_candidate_sequences: 1 } max_sequence_idle_microseconds: 60000000",
    );
    let worker = Worker::start(models.path());
    run_client("triton_grpc_sequences.py", &worker.grpc);
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
