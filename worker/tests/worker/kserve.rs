//! KServe v2 over HTTP.

use serde_json::{Value, json};

use crate::support::models::{
    put_embedding, put_log, put_plus, put_positions, put_slow, put_types, slow_request,
};
use crate::support::{Answer, Worker, wire};

fn plus() -> (tempfile::TempDir, Worker) {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    (models, worker)
}

fn infer(worker: &Worker, model: &str, body: &Value) -> Answer {
    worker.post(&format!("/v2/models/{model}/infer"), &body.to_string())
}

/// The golden request with a change made to it.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut request = serde_json::from_str(&wire("kserve_infer_request.json")).unwrap();
    change(&mut request);
    request
}

#[test]
fn the_golden_request_gets_the_golden_answer() {
    let (_models, worker) = plus();
    let answer = worker.post("/v2/models/plus/infer", &wire("kserve_infer_request.json"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("content-type: application/json"));
    let golden: Value = serde_json::from_str(&wire("kserve_infer_response.json")).unwrap();
    assert_eq!(answer.json(), golden);
    let versioned = worker.post(
        "/v2/models/plus/versions/1/infer",
        &wire("kserve_infer_request.json"),
    );
    assert_eq!(versioned.json(), golden);
}

#[test]
fn without_outputs_all_are_given_and_without_id_none() {
    let (_models, worker) = plus();
    let request = changed(|request| {
        request.as_object_mut().unwrap().remove("outputs");
        request.as_object_mut().unwrap().remove("id");
        request["parameters"] = json!({"binary_data_output": true});
    });
    let answer = infer(&worker, "plus", &request).json();
    let names: Vec<_> = answer["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|output| &output["name"])
        .collect();
    assert_eq!(names, ["sum", "difference"]);
    assert_eq!(
        answer["outputs"][1]["data"],
        json!([-9.0, -17.5, -27.0, -36.0])
    );
    assert!(answer.get("id").is_none());
}

#[test]
fn server_and_model_describe_themselves() {
    let (_models, worker) = plus();
    let server = worker.get("/v2").json();
    let golden: serde_json::Value = serde_json::from_str(&wire("kserve_server.json")).unwrap();
    assert_eq!(server, golden, "the proxy knows the worker by this");
    for path in [
        "/health",
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/plus/ready",
        "/v2/models/plus/versions/1/ready",
    ] {
        assert_eq!(worker.get(path).status, 200, "{path}");
    }
    let described = json!({
        "name": "plus",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "b", "datatype": "FP32", "shape": [-1, 2]},
        ],
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "difference", "datatype": "FP32", "shape": [-1, 2]},
        ],
    });
    assert_eq!(worker.get("/v2/models/plus").json(), described);
    assert_eq!(worker.get("/v2/models/plus/versions/1").json(), described);
}

#[test]
fn what_is_not_there_is_404_and_the_wrong_method_405_in_kserves_shape() {
    let (_models, worker) = plus();
    let body = wire("kserve_infer_request.json");
    let answers = [
        (404, worker.get("/v2/models/minus")),
        (404, worker.get("/v2/models/minus/ready")),
        (404, worker.get("/v2/models/plus/versions/7")),
        (404, worker.post("/v2/models/minus/infer", &body)),
        (404, worker.post("/v2/models/plus/versions/7/infer", &body)),
        (404, worker.get("/v2/nothing")),
        (405, worker.get("/v2/models/plus/infer")),
        (405, worker.post("/v2/models/plus", "{}")),
    ];
    for (status, answer) in answers {
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.json()["error"].is_string(), "{answer:?}");
    }
}

/// Asks for each and expects a 400 that holds the words.
fn expect_400(slips: Vec<(Value, &str)>) {
    let (_models, worker) = plus();
    for (request, words) in slips {
        let answer = infer(&worker, "plus", &request);
        assert_eq!(answer.status, 400, "{request} gave {answer:?}");
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains(words), "{words:?} is missing in {said:?}");
    }
}

#[test]
fn shapes_types_and_data_that_do_not_fit_are_400_never_500() {
    let first = |field: &str, value: Value| changed(|r| r["inputs"][0][field] = value);
    let without = |field: &str| {
        changed(|r| {
            r["inputs"][0].as_object_mut().unwrap().remove(field);
        })
    };
    expect_400(vec![
        (first("shape", json!([2, 3])), "`a`"),
        (first("shape", json!([-1, 2])), "`a` has shape [-1, 2]"),
        (first("shape", json!([])), "`a` has shape []"),
        (first("shape", json!([4])), "[4]"),
        (first("shape", json!([1, 4])), "[1, 4]"),
        (first("shape", json!([1_u64 << 62, 4])), "`a`"),
        (first("shape", json!("2,2")), "can't be read"),
        (without("shape"), "shape"),
        (without("data"), "data"),
        (
            first("data", json!([1, 2, 3])),
            "expected 4 elements in `data`, not 3",
        ),
        (first("data", json!(["1", "2", "3", "4"])), "strings"),
        (first("data", json!([1, 2, 3, null])), "can't be read"),
        (first("datatype", json!("FP64")), "takes FP32"),
        (first("datatype", json!("FP16")), "FP16"),
        (first("datatype", json!("FLOAT")), "FLOAT"),
    ]);
}

#[test]
fn names_that_do_not_fit_and_rubbish_are_400_never_500() {
    let one_row = changed(|r| {
        r["inputs"][1]["shape"] = json!([1, 2]);
        r["inputs"][1]["data"] = json!([1, 2]);
    });
    let too_few = changed(|r| {
        r["inputs"].as_array_mut().unwrap().pop();
    });
    let twice = changed(|r| r["outputs"] = json!([{"name": "sum"}, {"name": "sum"}]));
    expect_400(vec![
        (
            changed(|r| r["inputs"][0]["name"] = json!("c")),
            "`a` is missing",
        ),
        (
            changed(|r| r["inputs"][1]["name"] = json!("a")),
            "`b` is missing",
        ),
        (too_few, "`b` is missing"),
        (one_row, "`batch`"),
        (
            changed(|r| r["outputs"][0]["name"] = json!("product")),
            "product",
        ),
        (twice, "twice"),
        (changed(|r| r["inputs"] = json!(7)), "can't be read"),
        (json!([]), "can't be read"),
    ]);
    let (_models, worker) = plus();
    for misplaced in [
        changed(|r| r["inputs"] = json!("canary")),
        changed(|r| r["inputs"][0]["shape"] = json!("canary")),
        changed(|r| r["inputs"][0]["parameters"] = json!("canary")),
    ] {
        let answer = worker.post("/v2/models/plus/infer", &misplaced.to_string());
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(!format!("{answer:?}").contains("canary"), "{answer:?}");
    }
    for rubbish in ["", "{", "nonsense", &"[".repeat(10_000)] {
        let answer = worker.post("/v2/models/plus/infer", rubbish);
        assert_eq!(answer.status, 400, "{answer:?}");
    }
}

#[test]
fn an_axis_of_nothing_is_400_with_the_tensor_its_shape_and_what_is_expected() {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", "");
    put_positions(models.path());
    let worker = Worker::start(models.path());
    for shape in [json!([0, 0]), json!([0, 2]), json!([2, 0])] {
        let input =
            |name: &str| json!({"name": name, "shape": shape, "datatype": "INT64", "data": []});
        let names = ["input_ids", "attention_mask", "token_type_ids"];
        let tokens = infer(&worker, "tiny", &json!({"inputs": names.map(input)}));
        let x = json!({"name": "x", "shape": shape, "datatype": "FP32", "data": []});
        let floats = infer(&worker, "positions", &json!({"inputs": [x]}));
        for (answer, name) in [(tokens, "input_ids"), (floats, "x")] {
            assert_eq!(answer.status, 400, "{answer:?}");
            let said = answer.json()["error"].as_str().unwrap().to_owned();
            let shape = shape.to_string().replace(',', ", ");
            let expected = format!(
                "input `{name}` has shape {shape}; the model takes [-1, -1], where -1 is at least 1"
            );
            assert_eq!(said, expected);
        }
    }
}

#[test]
fn a_size_that_only_the_graph_knows_to_be_wrong_is_400_with_all_shapes() {
    let models = tempfile::tempdir().unwrap();
    put_positions(models.path());
    let worker = Worker::start(models.path());
    let x = |data: Value| json!({"inputs": [{"name": "x", "shape": [1, data.as_array().unwrap().len()], "datatype": "FP32", "data": data}]});
    let fits = infer(&worker, "positions", &x(json!([1, 1, 1]))).json();
    assert_eq!(fits["outputs"][0]["data"], json!([1.0, 1.5, 2.0]));
    let longer = infer(&worker, "positions", &x(json!([1, 1, 1, 1])));
    assert_eq!(longer.status, 400, "{longer:?}");
    assert!(longer.body.contains("can't take `x` [1, 4]"), "{longer:?}");
}

#[test]
fn memory_that_runs_out_is_500_not_the_requests_fault() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let worker = Worker::start(models.path());
    let answer = worker.post("/v2/models/slow/infer", &slow_request(100_000_000));
    assert_eq!(answer.status, 500, "{answer:?}");
}

/// Shapes, types and data that a careless client may send, in every combination.
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

#[test]
fn binary_tensors_are_refused_with_what_to_write_instead() {
    let (_models, worker) = plus();
    let header = ["inference-header-content-length: 10"];
    let by_header = worker.send("POST", "/v2/models/plus/infer", &header, b"0123456789abc");
    let by_output = changed(|r| r["outputs"][0]["parameters"]["binary_data"] = json!(true));
    let by_input = changed(|r| r["inputs"][0]["parameters"] = json!({"binary_data_size": 16}));
    for answer in [
        by_header,
        infer(&worker, "plus", &by_output),
        infer(&worker, "plus", &by_input),
    ] {
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains("binary_data=False"), "{answer:?}");
    }
    let classify = changed(|r| r["outputs"][0]["parameters"] = json!({"classification": 3}));
    assert_eq!(infer(&worker, "plus", &classify).status, 400);
}

#[test]
fn every_element_type_that_json_can_carry_comes_back_as_it_went() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    let worker = Worker::start(models.path());
    let samples = [
        ("BOOL", json!([true, false])),
        ("UINT8", json!([0, 255])),
        ("UINT16", json!([0, 65535])),
        ("UINT32", json!([0, 4294967295_u32])),
        ("UINT64", json!([0, u64::MAX])),
        ("INT8", json!([-128, 127])),
        ("INT16", json!([-32768, 32767])),
        ("INT32", json!([i32::MIN, i32::MAX])),
        ("INT64", json!([i64::MIN, i64::MAX])),
        ("FP32", json!([-1.5, 0.25])),
        ("FP64", json!([-1.5e300, 0.1])),
        ("BYTES", json!(["", "größer \"als\" \n"])),
    ];
    for (name, data) in samples {
        let input = json!({"name": "x", "shape": [2], "datatype": name, "data": data});
        let answer = infer(&worker, name, &json!({"inputs": [input]}));
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        let output = &answer.json()["outputs"][0];
        assert_eq!(
            (&output["data"], &output["datatype"]),
            (&data, &json!(name))
        );
    }
    let x = json!({"name": "x", "shape": [1], "datatype": "FP32", "data": [1.5]});
    let all = infer(&worker, "half", &json!({"inputs": [x]}));
    assert_eq!(all.status, 400, "{all:?}");
    assert!(all.body.contains("FP16"));
    let one = infer(
        &worker,
        "half",
        &json!({"inputs": [x], "outputs": [{"name": "y"}]}),
    );
    assert_eq!(one.json()["outputs"][0]["data"], json!([1.5]));
    assert_eq!(
        worker.get("/v2/models/half").json()["outputs"][0]["datatype"],
        "FP16"
    );
}

#[test]
fn nan_and_infinity_are_422_never_invalid_json() {
    let models = tempfile::tempdir().unwrap();
    put_log(models.path());
    let worker = Worker::start(models.path());
    for bad in [0.0, -1.0] {
        let x = json!({"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, bad]});
        let answer = infer(&worker, "log", &json!({"inputs": [x]}));
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(answer.json()["error"].as_str().unwrap().contains("`y`"));
    }
}

#[test]
fn an_embedding_model_takes_tensors_too_and_a_bad_index_is_400() {
    let models = tempfile::tempdir().unwrap();
    put_embedding(models.path(), "tiny", "");
    let worker = Worker::start(models.path());
    let tokens = |ids: Value| {
        let input = |name: &str, data: &Value| json!({"name": name, "shape": [1, 2], "datatype": "INT64", "data": data});
        json!({"inputs": [
            input("input_ids", &ids),
            input("attention_mask", &json!([1, 1])),
            input("token_type_ids", &json!([0, 0])),
        ]})
    };
    let answer = infer(&worker, "tiny", &tokens(json!([4, 5]))).json();
    assert_eq!(answer["outputs"][0]["shape"], json!([1, 2, 4]));
    let bad = infer(&worker, "tiny", &tokens(json!([4, 99])));
    assert_eq!(bad.status, 400, "{bad:?}");
}

#[test]
fn a_scalar_answer_has_an_empty_shape() {
    let models = tempfile::tempdir().unwrap();
    put_slow(models.path());
    let worker = Worker::start(models.path());
    let answer = worker
        .post("/v2/models/slow/infer", &slow_request(4))
        .json();
    assert_eq!(answer["outputs"][0]["shape"], json!([]));
    assert_eq!(answer["outputs"][0]["data"], json!([0.0]));
}

#[test]
fn bodies_over_the_limit_are_413_and_compressed_ones_415() {
    let (_models, worker) = plus();
    let huge = vec![b' '; (32 << 20) + 1];
    let answer = worker.send("POST", "/v2/models/plus/infer", &[], &huge);
    assert_eq!(answer.status, 413, "{answer:?}");
    let zipped = worker.send(
        "POST",
        "/v2/models/plus/infer",
        &["content-encoding: gzip"],
        b"x",
    );
    assert_eq!(zipped.status, 415, "{zipped:?}");
}

#[test]
fn many_at_once_each_get_their_own_answer() {
    let (_models, worker) = plus();
    let request = |n: usize| {
        let input = |name: &str, data: [usize; 2]| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "data": data});
        json!({"id": n.to_string(), "inputs": [input("a", [n, 2 * n]), input("b", [1, 1])]})
            .to_string()
    };
    for round in 0..5 {
        let exchanges: Vec<_> = (0..40)
            .map(|n| n + round * 40)
            .map(|n| {
                (
                    n,
                    worker.begin("POST", "/v2/models/plus/infer", &[], request(n).as_bytes()),
                )
            })
            .collect();
        for (n, exchange) in exchanges {
            let answer = exchange.finish().json();
            assert_eq!(answer["id"], n.to_string());
            assert_eq!(
                answer["outputs"][0]["data"],
                json!([(n + 1) as f32, (2 * n + 1) as f32])
            );
        }
    }
}
