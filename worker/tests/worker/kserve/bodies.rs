//! Bodies that are compressed, classes instead of values, a client's own parameters, and what is not served.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::{Value, json};

use super::{changed, infer, plus};
use crate::support::models::{put_log, put_plus, put_scores, put_types};
use crate::support::{Worker, run_client, wire};

const PATH: &str = "/v2/models/plus/infer";

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_requests_are_read_and_bombs_are_413() {
    let (_models, worker) = plus();
    let golden = wire("kserve_infer_request.json").into_bytes();
    let expected: Value = serde_json::from_str(&wire("kserve_infer_response.json")).unwrap();
    let bomb = vec![b' '; (32 << 20) + 1];
    for (name, compress) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("deflate", deflate)] {
        let encoding = format!("content-encoding: {name}");
        let send = |body: &[u8]| worker.send("POST", PATH, &[&encoding], body);
        assert_eq!(send(&compress(&golden)).json(), expected, "{name}");
        let small = compress(&bomb);
        assert!(small.len() < 1 << 17, "{} bytes", small.len());
        assert_eq!(send(&small).status, 413, "{name}");
        let whole = compress(&golden);
        for damaged in [
            &whole[..whole.len() - 3],
            b"nonsense",
            &[&whole[..], b"more"].concat(),
        ] {
            let answer = send(damaged);
            assert_eq!(answer.status, 400, "{name}: {answer:?}");
        }
    }
    let strange = worker.send("POST", PATH, &["content-encoding: br"], &golden);
    assert_eq!(strange.status, 415, "{strange:?}");
}

#[test]
fn answers_are_compressed_where_the_client_takes_it_and_it_is_worth_it() {
    let models = tempfile::tempdir().unwrap();
    put_types(models.path());
    let worker = Worker::start(models.path());
    let ask = |values: usize, accept: &str| {
        let x =
            json!({"name": "x", "shape": [values], "datatype": "FP32", "data": vec![1.5; values]});
        let json = json!({"inputs": [x], "parameters": {"binary_data_output": true}}).to_string();
        let accept = format!("accept-encoding: {accept}");
        worker.send("POST", "/v2/models/FP32/infer", &[&accept], json.as_bytes())
    };
    let plain = ask(1000, "identity");
    assert_eq!(plain.header("content-encoding"), None);
    let zipped = ask(1000, "gzip");
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
    assert!(zipped.bytes.len() < plain.bytes.len() / 4);
    let mut inflated = Vec::new();
    GzDecoder::new(&zipped.bytes[..])
        .read_to_end(&mut inflated)
        .unwrap();
    assert_eq!(
        inflated, plain.bytes,
        "also the length of the JSON is that before"
    );
    assert_eq!(
        zipped.header("inference-header-content-length"),
        plain.header("inference-header-content-length")
    );
    let deflated = ask(1000, "br, deflate;q=0.5");
    let mut inflated = Vec::new();
    ZlibDecoder::new(&deflated.bytes[..])
        .read_to_end(&mut inflated)
        .unwrap();
    assert_eq!(inflated, plain.bytes);
    assert_eq!(ask(1, "gzip").header("content-encoding"), None);
}

#[test]
fn classes_are_the_highest_of_each_row_with_their_labels() {
    let models = tempfile::tempdir().unwrap();
    put_scores(models.path());
    put_types(models.path());
    let worker = Worker::start(models.path());
    let x =
        json!({"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [0.1, 0.7, 0.2, 5, 1, 5]});
    let ask = |parameters: Value| {
        let output = json!({"name": "scores", "parameters": parameters});
        infer(
            &worker,
            "scores",
            &json!({"inputs": [x], "outputs": [output]}),
        )
    };
    // As Triton 2.51 answered the same request.
    let two = json!({"name": "scores", "datatype": "BYTES", "shape": [2, 2],
        "data": ["0.700000:1:dog", "0.200000:2", "5.000000:0:cat", "5.000000:2"]});
    assert_eq!(ask(json!({"classification": 2})).json()["outputs"][0], two);
    assert_eq!(
        ask(json!({"classification": 9})).json()["outputs"][0]["shape"],
        json!([2, 3])
    );
    assert_eq!(
        ask(json!({"classification": 0})).json()["outputs"][0]["datatype"],
        "FP32"
    );
    let binary = ask(json!({"classification": 1, "binary_data": true}));
    assert_eq!(
        binary.parts().1,
        b"\x0e\0\0\x000.700000:1:dog\x0e\0\0\x005.000000:0:cat"
    );
    for wrong in [json!(-1), json!("2"), json!(1.5)] {
        assert_eq!(ask(json!({"classification": wrong})).status, 400, "{wrong}");
    }
    // Triton 2.51 dies of this one.
    let strings = json!({"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]});
    let output = json!({"name": "y", "parameters": {"classification": 1}});
    let answer = infer(
        &worker,
        "BYTES",
        &json!({"inputs": [strings], "outputs": [output]}),
    );
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[test]
fn tritonclient_is_content_over_http() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    put_scores(models.path());
    put_types(models.path());
    put_log(models.path());
    let worker = Worker::start(models.path());
    run_client("triton_http.py", &worker.address);
}

#[test]
fn a_clients_own_parameters_come_back_and_the_protocols_do_not() {
    let (_models, worker) = plus();
    let own = json!({"session": "s", "step": 3, "last": true, "scale": 0.5});
    let request = changed(|request| {
        request["parameters"] = own.clone();
        request["parameters"]["priority"] = json!(1);
        request["parameters"]["timeout"] = json!(30_000_000);
        request["parameters"]["sequence_id"] = json!(0);
    });
    assert_eq!(infer(&worker, "plus", &request).json()["parameters"], own);
    for wrong in [
        json!({"mine": [1]}),
        json!({"priority": -1}),
        json!({"timeout": "1"}),
        json!({"sequence_id": -7}),
        json!({"sequence_id": 7, "sequence_start": "x"}),
        json!({"binary_data_output": 1}),
    ] {
        let answer = infer(
            &worker,
            "plus",
            &changed(|request| request["parameters"] = wrong),
        );
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains("the parameter `"), "{answer:?}");
    }
}

#[test]
fn shared_memory_is_refused_with_the_reason() {
    let (_models, worker) = plus();
    for path in [
        "/v2/systemsharedmemory/status",
        "/v2/systemsharedmemory/region/r/register",
        "/v2/systemsharedmemory/unregister",
        "/v2/cudasharedmemory/region/r/status",
    ] {
        for answer in [worker.get(path), worker.post(path, "{}")] {
            assert_eq!(answer.status, 501, "{answer:?}");
            let said = answer.json()["error"].as_str().unwrap().to_owned();
            assert!(said.contains("behind a proxy"), "{said}");
        }
    }
}
