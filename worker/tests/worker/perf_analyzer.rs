//! NVIDIA's own load generator measures the worker over both protocols. It asks for a model's metadata, configuration
//! and statistics before and after its requests, and stops at whatever it does not understand.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::statistics::stats;
use crate::support::Worker;
use crate::support::models::put_plus;

/// What it is linked to and calls only for shared memory and for texts in files, neither of which is asked of it here.
const UNCALLED: &str = "
    void base64_decode_block(void) {} void base64_encode_block(void) {} void base64_encode_blockend(void) {}
    void base64_init_decodestate(void) {} void base64_init_encodestate(void) {}
    void cudaFree(void) {} void cudaGetErrorName(void) {} void cudaGetErrorString(void) {}
    void cudaIpcGetMemHandle(void) {} void cudaMalloc(void) {} void cudaMemcpy(void) {} void cudaSetDevice(void) {}
";

/// Libraries by these names, in a folder.
fn put_libraries(folder: &Path) {
    let source = folder.join("uncalled.c");
    std::fs::write(&source, UNCALLED).unwrap();
    for name in ["libb64.so.0d", "libcudart.so.12"] {
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wl,--default-symver"])
            .arg(format!("-Wl,-soname,{name}"))
            .arg("-o")
            .args([&folder.join(name), &source])
            .status();
        assert!(built.unwrap().success());
    }
}

fn perf_analyzer() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/bin/perf_analyzer");
    assert!(fetched.exists(), "no perf_analyzer: run `./run deps test`");
    fetched
}

#[test]
fn perf_analyzer_runs_over_http_and_grpc() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let worker = Worker::start(models.path());
    let libraries = tempfile::tempdir().unwrap();
    put_libraries(libraries.path());
    for (protocol, address) in [("http", &worker.address), ("grpc", &worker.grpc)] {
        let before = stats(&worker, "plus")["inference_count"].as_u64().unwrap();
        let output = Command::new(perf_analyzer())
            .args(["-m", "plus", "-i", protocol, "-u", address])
            .args(["--concurrency-range", "2", "--request-count", "60"])
            .env("LD_LIBRARY_PATH", libraries.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{complained}");
        // By its own count, by the worker's statistics as it read them, and by them as they are.
        assert!(said.contains("Request count: 60"), "{said}");
        assert!(said.contains("Inference count: "), "{said}");
        let after = stats(&worker, "plus")["inference_count"].as_u64().unwrap();
        assert!(after - before >= 60, "{said}");
    }
}
