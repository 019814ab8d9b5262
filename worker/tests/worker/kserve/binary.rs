//! Tensors as bytes: the binary tensor extension, both ways, and what is wrong with bytes that don't fit.

use serde_json::{Value, json};

use super::{infer, plus};
use crate::support::models::{put_plus, put_types};
use crate::support::{Answer, Worker};

/// Sends JSON and what follows it.
fn send(worker: &Worker, model: &str, json: &[u8], bytes: &[u8]) -> Answer {
    let length = format!("inference-header-content-length: {}", json.len());
    let path = format!("/v2/models/{model}/infer");
    worker.send("POST", &path, &[&length], &[json, bytes].concat())
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// A request for `plus` with both inputs binary, and its bytes.
fn golden() -> (Value, Vec<u8>) {
    let input = |name: &str| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}});
    let output = json!({"name": "sum", "parameters": {"binary_data": true}});
    let json = json!({"id": "7", "inputs": [input("a"), input("b")], "outputs": [output]});
    (json, floats(&[1.0, 2.0, 10.0, 20.0]))
}

#[test]
fn every_element_type_comes_back_byte_for_byte() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    let worker = Worker::start(models.path());
    let samples: [(&str, &[u8]); 14] = [
        ("BOOL", &[1, 0]),
        ("UINT8", &[0, 255]),
        ("UINT16", &[1, 2, 3, 4]),
        ("UINT32", &[1, 2, 3, 4, 255, 255, 255, 255]),
        ("UINT64", &[255; 16]),
        ("INT8", &[128, 127]),
        ("INT16", &[0, 128, 255, 127]),
        ("INT32", &[0, 0, 0, 128, 1, 0, 0, 0]),
        ("INT64", &[1; 16]),
        ("FP16", &[0, 60, 0, 124]),
        ("FP32", &[0x34, 0x12, 0xc0, 0x7f, 0, 0, 0, 128]),
        ("FP64", &[2; 16]),
        ("BF16", &[128, 63, 128, 255]),
        ("BYTES", b"\x00\x00\x00\x00\x03\x00\x00\x00a\xc3\xa4"),
    ];
    for (name, bytes) in samples {
        let input = json!({"name": "x", "shape": [2], "datatype": name, "parameters": {"binary_data_size": bytes.len()}});
        let json = json!({"inputs": [input], "parameters": {"binary_data_output": true}});
        let answer = send(&worker, name, json.to_string().as_bytes(), bytes);
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/octet-stream")
        );
        let (json, given) = answer.parts();
        assert_eq!(given, bytes, "{name}");
        let output = &json["outputs"][0];
        assert_eq!(
            (&output["datatype"], &output["shape"]),
            (&json!(name), &json!([2]))
        );
        assert_eq!(output["parameters"]["binary_data_size"], bytes.len());
        assert!(output.get("data").is_none());
    }
}

#[test]
fn one_request_may_mix_json_and_bytes_both_ways() {
    let (_models, worker) = plus();
    let (mut json, bytes) = golden();
    json["inputs"][1] = json!({"name": "b", "shape": [1, 2], "datatype": "FP32", "data": [10, 20]});
    json["outputs"] =
        json!([{"name": "difference"}, {"name": "sum", "parameters": {"binary_data": true}}]);
    let answer = send(&worker, "plus", json.to_string().as_bytes(), &bytes[..8]);
    let (json, bytes) = answer.parts();
    assert_eq!(json["outputs"][0]["data"], json!([-9.0, -18.0]));
    assert_eq!(json["outputs"][1]["name"], "sum");
    assert_eq!(
        (&json["id"], bytes),
        (&json!("7"), &floats(&[11.0, 22.0])[..])
    );
}

#[test]
fn an_outputs_own_wish_goes_before_that_of_the_request() {
    let (_models, worker) = plus();
    let input =
        |name: &str| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "data": [1, 2]});
    let json = json!({
        "inputs": [input("a"), input("b")],
        "parameters": {"binary_data_output": true},
        "outputs": [{"name": "sum", "parameters": {"binary_data": false}}, {"name": "difference"}],
    });
    let answer = infer(&worker, "plus", &json);
    let (json, bytes) = answer.parts();
    assert_eq!(json["outputs"][0]["data"], json!([2.0, 4.0]));
    assert_eq!(bytes, floats(&[0.0, 0.0]));
}

#[test]
fn a_body_without_json_is_one_row_of_the_one_input() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    put_plus(models.path());
    let worker = Worker::start(models.path());
    for (name, body, given) in [
        ("FP32", &floats(&[1.0])[..], &floats(&[1.0])[..]),
        ("BYTES", b"hello", b"\x05\x00\x00\x00hello"),
    ] {
        let answer = send(&worker, name, b"", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let (json, bytes) = answer.parts();
        assert_eq!((&json["outputs"][0]["shape"], bytes), (&json!([1]), given));
    }
    for (name, body, words) in [
        ("plus", &b"12345678"[..], "one input only"),
        ("FP32", b"123", "no whole number of FP32"),
        ("FP32", b"12345678", "2 elements in one row"),
        ("BYTES", b"\xff", "no UTF-8"),
    ] {
        let answer = send(&worker, name, b"", body);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(
            answer.body.contains(words),
            "{words:?} is missing in {answer:?}"
        );
    }
}

#[test]
fn bytes_that_do_not_fit_are_400_with_the_cause() {
    let (_models, worker) = plus();
    let (json, bytes) = golden();
    let with = |field: &str, value: Value| {
        let mut json = json.clone();
        json["inputs"][1][field] = value;
        json
    };
    let size = |size: Value| with("parameters", json!({"binary_data_size": size}));
    for (json, bytes, words) in [
        (
            json.clone(),
            &bytes[..15],
            "input `b`: `binary_data_size` is 8, and 7 bytes are left",
        ),
        (
            json.clone(),
            &[&bytes[..], b"x"].concat(),
            "1 bytes at the end",
        ),
        (
            size(json!(7)),
            &bytes,
            "7 bytes are no whole number of FP32",
        ),
        (size(json!(4)), &bytes[..12], "expected 2 elements, not 1"),
        (
            size(json!(-8)),
            &bytes,
            "`binary_data_size` is not a whole number",
        ),
        (size(json!(u64::MAX)), &bytes, "8 bytes are left"),
        (with("data", json!([1, 2])), &bytes, "both `data` and"),
        (
            with("datatype", json!("FP64")),
            &bytes,
            "expected 2 elements, not 1",
        ),
        (
            with("shape", json!([i64::MAX, i64::MAX])),
            &bytes,
            "`b` has shape",
        ),
        (
            with("shape", json!([-1, 2])),
            &bytes,
            "`b` has shape [-1, 2]",
        ),
        (
            with("parameters", json!({"shared_memory_region": "r"})),
            &bytes,
            "shared_memory_region",
        ),
    ] {
        let answer = send(&worker, "plus", json.to_string().as_bytes(), bytes);
        assert_eq!(answer.status, 400, "{json} gave {answer:?}");
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains(words), "{words:?} is missing in {said:?}");
    }
}

#[test]
fn a_header_length_that_lies_is_400() {
    let (_models, worker) = plus();
    let (json, bytes) = golden();
    let body = [json.to_string().as_bytes(), &bytes].concat();
    let length = json.to_string().len();
    let all = body.len();
    for header in [
        (length - 1).to_string(),
        (length + 1).to_string(),
        (all + 1).to_string(),
        "-1".into(),
        "+5".into(),
        "".into(),
        "99999999999999999999".into(),
        "1e2".into(),
    ] {
        let header = format!("inference-header-content-length: {header}");
        let answer = worker.send("POST", "/v2/models/plus/infer", &[&header], &body);
        assert_eq!(answer.status, 400, "{header}: {answer:?}");
    }
    let header = format!("inference-header-content-length: {length}");
    let twice = worker.send("POST", "/v2/models/plus/infer", &[&header, &header], &body);
    assert_eq!(twice.status, 400, "{twice:?}");
    let once = worker.send("POST", "/v2/models/plus/infer", &[&header], &body);
    assert_eq!(once.status, 200, "{once:?}");
}

/// Damages a request in a way of its own for each `round`; the same in every run.
struct Damage(u64);

impl Damage {
    /// A linear congruential generator (Knuth's MMIX constants).
    fn next(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below
    }

    fn number(&mut self) -> Value {
        let odd = [
            json!(0),
            json!(-1),
            json!(1),
            json!(7),
            json!(1_u64 << 31),
            json!(u64::MAX),
            json!(1.5),
            json!("8"),
            json!(null),
        ];
        odd[self.next(odd.len())].clone()
    }

    fn change(&mut self, json: &mut Value, bytes: &mut Vec<u8>) {
        let input = self.next(2);
        match self.next(8) {
            0 => json["inputs"][input]["parameters"]["binary_data_size"] = self.number(),
            1 => json["inputs"][input]["shape"] = json!([self.number(), self.number()]),
            2 => {
                let types = [
                    "BOOL", "FP16", "BYTES", "FP64", "INT8", "BF16", "UINT16", "FP33",
                ];
                json["inputs"][input]["datatype"] = json!(types[self.next(types.len())]);
            }
            3 => bytes.truncate(self.next(bytes.len() + 1)),
            4 => bytes.resize(bytes.len() + self.next(9), 255),
            5 => {
                json["outputs"][0]["parameters"] =
                    json!({"classification": self.number(), "binary_data": self.number()})
            }
            6 => {
                json["parameters"] =
                    json!({"binary_data_output": self.number(), "timeout": self.number()})
            }
            _ => {
                let place = self.next(bytes.len().max(1));
                bytes.insert(place.min(bytes.len()), self.next(256) as u8);
            }
        }
    }
}

#[test]
fn damaged_binary_requests_are_never_an_internal_error() {
    let (_models, worker) = plus();
    let mut damage = Damage(7);
    let (mut good, mut bad) = (0, 0);
    for round in 0..600 {
        let (mut json, mut bytes) = golden();
        // Every tenth is left as it is: the control.
        let changes = if round % 10 == 0 {
            0
        } else {
            1 + damage.next(3)
        };
        for _ in 0..changes {
            damage.change(&mut json, &mut bytes);
        }
        let mut text = json.to_string().into_bytes();
        if changes > 0 && damage.next(4) == 0 {
            let place = damage.next(text.len());
            text[place] = b"{}[]\",:-0e. \xff"[damage.next(13)];
        }
        let answer = send(&worker, "plus", &text, &bytes);
        match answer.status {
            200 => good += 1,
            400 => bad += 1,
            _ => panic!("round {round}: {answer:?} to {json}"),
        }
        if changes == 0 {
            let (_, sum) = answer.parts();
            assert_eq!(sum, floats(&[11.0, 22.0]), "round {round}");
        }
    }
    assert!(good >= 60 && bad >= 300, "{good} good, {bad} bad");
}
