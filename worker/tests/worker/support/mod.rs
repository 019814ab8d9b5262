//! A running worker and a plain HTTP client for it.

pub mod models;
pub mod onnx;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take before the test gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// ONNX Runtime's library: `FOREBAY_ONNXRUNTIME`, else what `./run deps` fetched.
#[expect(clippy::disallowed_methods, reason = "the test's own setting")]
pub fn library() -> PathBuf {
    if let Some(named) = std::env::var_os("FOREBAY_ONNXRUNTIME") {
        return PathBuf::from(named);
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/onnxruntime");
    let entries = std::fs::read_dir(fetched).into_iter().flatten();
    let mut found = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_library = |path: &PathBuf| path.to_string_lossy().contains("libonnxruntime.so");
    found
        .find(is_library)
        .expect("no ONNX Runtime library: run `./run deps`, or set FOREBAY_ONNXRUNTIME")
}

/// The Python that has tritonclient: `FOREBAY_TEST_PYTHON`, else the one that `./run deps` made.
#[expect(clippy::disallowed_methods, reason = "the test's own setting")]
fn python() -> PathBuf {
    if let Some(named) = std::env::var_os("FOREBAY_TEST_PYTHON") {
        return PathBuf::from(named);
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/python")
}

/// Runs a script of `tests/clients` against an address; it says what it misses and fails, or ends well.
pub fn run_client(script: &str, address: &str) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let mut client = Command::new(python());
    let output = client
        .arg(scripts.join(script))
        .arg(address)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
}

/// A golden file shared with the proxy's tests.
pub fn wire(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/wire");
    std::fs::read_to_string(path.join(name)).unwrap()
}

/// The binary with these arguments and no settings from outside.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-worker"));
    command
        .args(arguments)
        .env_remove("FOREBAY_ONNXRUNTIME")
        .env_remove("FOREBAY_LOG")
        .stdin(Stdio::null());
    command
}

/// The command that serves a folder of models on free ports.
fn serve(models: &Path) -> Command {
    let library = library();
    let mut serve = command(&["serve", "--models", models.to_str().unwrap()]);
    serve.args(["--http", "127.0.0.1:0", "--threads", "1"]);
    serve.args(["--onnxruntime", library.to_str().unwrap()]);
    serve
}

/// A worker that serves a folder of models. Killed when dropped.
pub struct Worker {
    child: Child,
    lines: Receiver<String>,
    log: String,
    /// Where it answers HTTP.
    pub address: String,
    /// Where it answers gRPC.
    pub grpc: String,
    /// Where it tells metrics.
    pub metrics: String,
}

impl Worker {
    /// Starts on a free port and waits until all models answer.
    pub fn start(models: &Path) -> Worker {
        let mut worker = Worker::loading(models);
        worker.wait_for_line("ready");
        worker
    }

    /// Starts on a free port and waits only until it listens.
    pub fn loading(models: &Path) -> Worker {
        Worker::spawn(serve(models).env("FOREBAY_LOG", "forebay_worker=debug"))
    }

    /// Starts with further arguments and what it logs by default, and waits until all models answer.
    pub fn start_with(models: &Path, arguments: &[&str]) -> Worker {
        let mut worker = Worker::spawn(serve(models).args(arguments));
        worker.wait_for_line("ready");
        worker
    }

    /// Starts this command and waits until it listens.
    pub fn spawn(command: &mut Command) -> Worker {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut worker = Worker {
            child,
            lines,
            log: String::new(),
            address: String::new(),
            grpc: String::new(),
            metrics: String::new(),
        };
        let mut told = |words: &str| {
            let line = worker.wait_for_line(words);
            let address = line.split(words).nth(1).unwrap().trim();
            address.trim_end_matches("/metrics").to_owned()
        };
        let (metrics, grpc) = (told("metrics on http://"), told("gRPC on "));
        let address = told("listening on http://");
        (worker.metrics, worker.grpc, worker.address) = (metrics, grpc, address);
        worker
    }

    /// The next line of the log that holds these words.
    pub fn wait_for_line(&mut self, words: &str) -> String {
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("no line with {words:?} in the log:\n{}", self.log);
            };
            self.log.push_str(&line);
            self.log.push('\n');
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Everything logged until the process ended.
    pub fn whole_log(mut self) -> String {
        self.signal("TERM");
        self.wait();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.log.push_str(&line);
            self.log.push('\n');
        }
        std::mem::take(&mut self.log)
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Asks the worker to stop; its exit code and how long it took.
    #[expect(clippy::disallowed_methods, reason = "the promise is about time")]
    pub fn stop(&mut self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        self.signal("TERM");
        (self.wait().code(), start.elapsed())
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    /// All metrics.
    pub fn metrics(&self) -> String {
        let answer = send_to(&self.metrics, "GET", "/metrics", &[], b"").finish();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[], body.as_bytes())
    }

    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        self.begin(method, path, headers, body).finish()
    }

    /// Sends a request and leaves the answer to be read later.
    pub fn begin(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Exchange {
        send_to(&self.address, method, path, headers, body)
    }
}

/// Sends a request to an address and leaves the answer to be read later.
pub fn send_to(address: &str, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Exchange {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: worker\r\nconnection: close\r\n");
    for header in headers {
        head.push_str(&format!("{header}\r\n"));
    }
    head.push_str(&format!("content-length: {length}\r\n\r\n"));
    stream.write_all(head.as_bytes()).unwrap();
    // A worker that refuses early may close before it has read everything.
    let _ = stream.write_all(body);
    Exchange { stream }
}

/// Asks again until the answer is as wanted.
#[expect(clippy::disallowed_methods, reason = "a deadline")]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request that was sent.
pub struct Exchange {
    stream: TcpStream,
}

impl Exchange {
    pub fn finish(mut self) -> Answer {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let bytes_of_body = end.map_or_else(Vec::new, |end| bytes.split_off(end + 4));
        let head = String::from_utf8(bytes).unwrap();
        Answer {
            status: head.get(9..12).unwrap_or("0").parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: String::from_utf8_lossy(&bytes_of_body).into_owned(),
            bytes: bytes_of_body,
        }
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    /// The body as text, with marks where it is none.
    pub body: String,
    /// The body as it came.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(named, value)| (named == name).then_some(value))
    }

    /// The body's JSON and the bytes after it, of an answer with binary tensors.
    pub fn parts(&self) -> (Value, &[u8]) {
        let length = self.header("inference-header-content-length");
        let length = length.and_then(|length| length.parse().ok());
        let (json, bytes) = self.bytes.split_at(length.unwrap_or(self.bytes.len()));
        let json = serde_json::from_slice(json);
        (json.unwrap_or_else(|_| panic!("no JSON: {self:?}")), bytes)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}
