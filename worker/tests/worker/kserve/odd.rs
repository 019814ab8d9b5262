//! Requests that are odd or damaged cost no more than their own answer.

use serde_json::json;

use super::{changed, infer, plus};
use crate::support::wire;

#[test]
fn no_input_however_odd_is_an_internal_error() {
    let (_models, worker) = plus();
    let shapes = [
        json!([2, 2]),
        json!([0, 0]),
        json!([-1, 2]),
        json!([i64::MAX, 2]),
        json!([u64::MAX]),
        json!([1_u64 << 32, 1_u64 << 32]),
        json!([2.0, 2]),
        json!([[2, 2]]),
        json!(vec![1; 200]),
        json!(null),
    ];
    let datatypes = [
        json!("FP32"),
        json!("INT64"),
        json!("BF16"),
        json!("fp32"),
        json!(32),
    ];
    let data = [
        json!([[1, 2], [3, 4]]),
        json!([1.5, 2, 3, 4]),
        json!([[[1], 2], 3, [[[4]]]]),
        json!([]),
        json!([[], []]),
        json!([1, true, "x", 1.5]),
        json!([1e300, -1e300, 0, 0]),
        json!({"0": 1}),
        json!("1,2,3,4"),
        json!(null),
    ];
    let mut good = 0;
    for shape in &shapes {
        for datatype in &datatypes {
            for data in &data {
                let input = |name: &str| json!({"name": name, "shape": shape, "datatype": datatype, "data": data});
                let request = json!({"inputs": [input("a"), input("b")]});
                let answer = infer(&worker, "plus", &request);
                assert!(
                    matches!(answer.status, 200 | 400),
                    "{request} gave {answer:?}"
                );
                good += usize::from(answer.status == 200);
            }
        }
    }
    // The first shape and type with each of the first three.
    assert_eq!(good, 3);
    for inputs in [
        json!([]),
        json!([null]),
        json!([{}]),
        json!({}),
        json!(null),
    ] {
        let answer = infer(&worker, "plus", &json!({"inputs": inputs}));
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    let thrice = changed(|r| {
        let first = r["inputs"][0].clone();
        r["inputs"]
            .as_array_mut()
            .unwrap()
            .extend([first.clone(), first]);
    });
    let answer = infer(&worker, "plus", &thrice);
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        answer.body.contains("`a` is unknown or given twice"),
        "{answer:?}"
    );
}

#[test]
fn damaged_requests_never_cost_more_than_their_own_answer() {
    let (_models, worker) = plus();
    let golden = wire("kserve_infer_request.json").into_bytes();
    // A linear congruential generator (Knuth's MMIX constants): the same damage in every run.
    let mut state = 42u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for round in 0..400 {
        let mut body = golden.clone();
        for _ in 0..=next(3) {
            let place = next(body.len());
            match next(3) {
                0 => body[place] = b"{}[]\",:-0e. \xff"[next(13)],
                1 => drop(body.remove(place)),
                _ => body.truncate(place.max(1)),
            }
        }
        let answer = worker.send("POST", "/v2/models/plus/infer", &[], &body);
        let fine = matches!(answer.status, 200 | 400 | 422);
        assert!(
            fine,
            "round {round}: {answer:?} to {}",
            String::from_utf8_lossy(&body)
        );
    }
    assert_eq!(
        worker
            .post("/v2/models/plus/infer", &wire("kserve_infer_request.json"))
            .status,
        200
    );
}
