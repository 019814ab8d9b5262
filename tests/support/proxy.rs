//! The real binary, run in a fresh folder on ports of its own.
//!
//! Ports are taken below the range from which the system hands out ephemeral ones, so nobody is given one between our
//! looking and the proxy's binding. Tests run as processes side by side; each begins its search where its pid says.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::client::{Answer, Client};
use super::engine::Engine;
use super::{expect_soon, wait_until};

/// The admin token of every proxy under test.
pub const TOKEN: &str = "token-of-the-tests";
/// The same, as a header's value.
pub const BEARER: &str = "Bearer token-of-the-tests";

/// Ports that are searched: below Linux's ephemeral range, which begins at 32,768.
const PORTS: std::ops::Range<u16> = 10_240..32_000;

/// A port that is free now and that the system gives to nobody.
fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    let start = u16::try_from(std::process::id() * 16 % u32::from(span)).unwrap();
    loop {
        let step = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + start.wrapping_add(step) % span;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A proxy's configuration, as far as a test cares. Probes are quick unless it says otherwise.
#[derive(Default)]
pub struct Setup {
    top: String,
    listen: String,
    sections: String,
    workers: String,
    probe: Option<String>,
    queue: Option<String>,
    environment: Vec<(String, String)>,
    deaf: bool,
    open_files: Option<u32>,
    any_port: bool,
    state: Option<PathBuf>,
    written: Option<String>,
}

impl Setup {
    /// A configuration that somebody wrote, as it stands but for its state folder and its addresses, which are the usual
    /// ones there.
    pub fn written(mut self, toml: &str) -> Self {
        self.written = Some(toml.to_owned());
        self
    }

    /// A line before any table.
    pub fn top(mut self, line: &str) -> Self {
        self.top += &format!("{line}\n");
        self
    }

    /// Further lines of `[listen]`.
    pub fn listen(mut self, lines: &str) -> Self {
        self.listen += &format!("{lines}\n");
        self
    }

    /// Further tables, as TOML.
    pub fn section(mut self, toml: &str) -> Self {
        self.sections += &format!("{toml}\n");
        self
    }

    /// Another `[probe]` than the quick one, as its lines.
    pub fn probe(mut self, lines: &str) -> Self {
        self.probe = Some(lines.to_owned());
        self
    }

    /// Another `[queue]` than one that waits for no worker to come up, as its lines.
    pub fn queue(mut self, lines: &str) -> Self {
        self.queue = Some(lines.to_owned());
        self
    }

    /// A vLLM worker that serves `m`.
    pub fn worker(self, name: &str, engine: &Engine) -> Self {
        self.worker_with(name, engine, "")
    }

    /// A worker with further lines; `engine` and `models` are vLLM's and `m`, and nothing is sent but what
    /// clients send (`test = "off"`), unless they say otherwise.
    pub fn worker_with(self, name: &str, engine: &Engine, lines: &str) -> Self {
        self.worker_at(name, &engine.url(), lines)
    }

    /// A worker at an address where a test has something of its own.
    pub fn worker_at(mut self, name: &str, url: &str, lines: &str) -> Self {
        let or = |key: &str, line: &'static str| if lines.contains(key) { "" } else { line };
        self.workers += &format!(
            "[[worker]]\nname = \"{name}\"\nurl = \"{url}\"\n{}{}{}{lines}\n\n",
            or("engine =", "engine = \"vllm\"\n"),
            or("models =", "models = [\"m\"]\n"),
            or("test =", "test = \"off\"\n"),
        );
        self
    }

    /// A variable of the proxy's environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Nobody reads its stderr.
    pub fn deaf(mut self) -> Self {
        self.deaf = true;
        self
    }

    /// It keeps its state there, and finds what another left.
    pub fn state(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state = Some(folder.into());
        self
    }

    /// The system chooses the clients' port, and the log tells it.
    pub fn any_port(mut self) -> Self {
        self.any_port = true;
        self
    }

    /// It may have so many files open.
    pub fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    fn command(&self) -> Command {
        let binary = env!("CARGO_BIN_EXE_forebay");
        let Some(most) = self.open_files else {
            return Command::new(binary);
        };
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {most}; exec \"$0\" \"$@\"");
        command.args(["-c", &limited, binary]);
        command
    }

    fn toml(&self, client: SocketAddr, admin: SocketAddr) -> String {
        if let Some(written) = &self.written {
            let moved = written
                .replacen("127.0.0.1:7070", &client.to_string(), 1)
                .replacen("127.0.0.1:7071", &admin.to_string(), 1);
            return format!("state = \"state\"\n{moved}");
        }
        let probe = self
            .probe
            .as_deref()
            .unwrap_or("interval = \"100ms\"\ntimeout = \"1s\"\nrise = 1\nfall = 2");
        let queue = self.queue.as_deref().unwrap_or("wait_no_worker = \"0s\"");
        format!(
            "state = \"state\"\n{}\n[listen]\nhttp = [\"{client}\"]\nadmin = \"{admin}\"\n{}\n[probe]\n{probe}\n\n[queue]\n{queue}\n\n{}\n{}",
            self.top, self.listen, self.sections, self.workers
        )
    }

    /// Starts the proxy and waits until it is ready and all its workers are up.
    #[track_caller]
    pub fn start(self) -> Proxy {
        let proxy = self.launch();
        let ready = wait_until(super::PATIENCE, || proxy.is_ready() && proxy.all_are_up());
        assert!(
            ready,
            "the proxy was not ready in time:\n{}",
            proxy.stderr()
        );
        proxy
    }

    /// Starts the proxy and waits only until its admin side answers, whether a worker is up or not.
    #[track_caller]
    pub fn launch(self) -> Proxy {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let address = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (mut client, admin) = (address(), address());
        if self.any_port {
            client.set_port(0);
        }
        let own = || folder.path().join("state");
        let state = self.state.clone().unwrap_or_else(own);
        let toml = self
            .toml(client, admin)
            .replacen("\"state\"", &format!("{state:?}"), 1);
        let file = folder.path().join("forebay.toml");
        std::fs::write(&file, toml).unwrap();
        let mut child = self
            .command()
            .args(["serve", "--config"])
            .arg(&file)
            .env("FOREBAY_ADMIN_TOKEN", TOKEN)
            .envs(self.environment.clone())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut proxy = Proxy {
            client,
            admin,
            stdout: lines_of(child.stdout.take().unwrap()),
            // What is not taken stays with the child, open and unread.
            stderr: if self.deaf {
                Arc::default()
            } else {
                lines_of(child.stderr.take().unwrap())
            },
            child: Mutex::new(child),
            folder,
            environment: self.environment,
        };
        let listens = wait_until(super::PATIENCE, || {
            proxy.has_ended() || proxy.readiness().is_some()
        });
        if proxy.has_ended() {
            expect_soon("it says why it ended", || !proxy.stderr().is_empty());
        }
        assert!(
            listens && !proxy.has_ended(),
            "the proxy did not come up:\n{}",
            proxy.stderr()
        );
        if self.any_port {
            proxy.client = told_address(&proxy.stderr());
        }
        proxy
    }
}

/// Where a log says that clients are listened to.
#[track_caller]
fn told_address(log: &str) -> SocketAddr {
    let (_, after) = log.split_once("listening for clients on ").unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

/// Collects lines as they come, on a thread that ends with the pipe.
fn lines_of(pipe: impl Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&lines);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            collected.lock().push(line);
        }
    });
    lines
}

/// A running proxy. It is killed when the handle is dropped.
pub struct Proxy {
    client: SocketAddr,
    admin: SocketAddr,
    stdout: Arc<Mutex<Vec<String>>>,
    stderr: Arc<Mutex<Vec<String>>>,
    child: Mutex<Child>,
    folder: Arc<tempfile::TempDir>,
    environment: Vec<(String, String)>,
}

impl Proxy {
    /// A configuration to fill in and start.
    pub fn setup() -> Setup {
        Setup::default()
    }

    /// A proxy in front of one vLLM worker.
    #[track_caller]
    pub fn before(engine: &Engine) -> Self {
        Proxy::setup().worker("w", engine).start()
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.client
    }

    /// Where the admin side is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The folder of its configuration and state.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.lock().id()
    }

    /// Starts another process on its configuration, state and environment, which waits to take over from it.
    #[track_caller]
    pub fn successor(&self) -> Proxy {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["serve", "--upgrade", "--config"])
            .arg(self.folder().join("forebay.toml"))
            .env("FOREBAY_ADMIN_TOKEN", TOKEN)
            .envs(self.environment.clone())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let successor = Proxy {
            client: self.client,
            admin: self.admin,
            stdout: lines_of(child.stdout.take().unwrap()),
            stderr: lines_of(child.stderr.take().unwrap()),
            child: Mutex::new(child),
            folder: self.folder.clone(),
            environment: self.environment.clone(),
        };
        expect_soon("the successor waits", || {
            successor.stderr().contains("waiting for the running proxy")
        });
        successor
    }

    /// The process that serves, as the state folder says.
    pub fn serving_pid(&self) -> u32 {
        let pid = std::fs::read_to_string(self.folder().join("state/forebay.pid"));
        pid.unwrap().trim().parse().unwrap()
    }

    /// The text of its configuration.
    pub fn configuration(&self) -> String {
        std::fs::read_to_string(self.folder().join("forebay.toml")).unwrap()
    }

    /// Puts this in the place of its configuration, whole.
    pub fn configure(&self, text: &str) {
        let fresh = self.folder().join("forebay.toml.new");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(fresh, self.folder().join("forebay.toml")).unwrap();
    }

    /// The same, and waits until that is in force.
    #[track_caller]
    pub fn reconfigure(&self, text: &str) {
        self.configure(text);
        let told = self.change("/api/reload", "").json();
        // Who follows the file may have come first.
        assert!(
            told["result"] == "ok" || told["result"] == "unchanged",
            "{told}"
        );
    }

    /// A fresh client connection.
    #[track_caller]
    pub fn connect(&self) -> Client {
        Client::connect(self.client)
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub fn call(&self, method: &str, target: &str, body: &str) -> Answer {
        self.connect().call(method, target, body)
    }

    /// One POST to the chat path on a connection of its own.
    #[track_caller]
    pub fn chat(&self, body: &str) -> Answer {
        self.call("POST", "/v1/chat/completions", body)
    }

    /// An answer of the admin side, asked with the token.
    #[track_caller]
    pub fn ask_admin(&self, path: &str) -> Answer {
        self.admin_call("GET", path, &[("authorization", BEARER)], "")
    }

    /// An answer of the admin side to a change, asked with the token.
    #[track_caller]
    pub fn change(&self, path: &str, body: &str) -> Answer {
        self.admin_call("POST", path, &[("authorization", BEARER)], body)
    }

    /// An answer of the admin side to a request with these headers.
    #[track_caller]
    pub fn admin_call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let host = self.admin.to_string();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {host}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let length = body.len();
        let request = format!("{head}content-length: {length}\r\n\r\n{body}");
        Client::connect(self.admin)
            .send(request.as_bytes())
            .answer()
    }

    /// JSON of the admin API.
    #[track_caller]
    pub fn api(&self, path: &str) -> Value {
        self.ask_admin(path).json()
    }

    /// One worker's row of `/api/workers`.
    #[track_caller]
    pub fn worker(&self, name: &str) -> Value {
        let workers = self.api("/api/workers");
        let rows = workers["workers"].as_array().unwrap();
        rows.iter()
            .find(|row| row["name"] == name)
            .unwrap_or_else(|| panic!("no worker {name} in {workers}"))
            .clone()
    }

    /// Whether every worker is up.
    pub fn all_are_up(&self) -> bool {
        let workers = self.api("/api/workers");
        let rows = workers["workers"].as_array().unwrap();
        rows.iter().all(|row| row["state"] == "up")
    }

    /// Whether it says that it can answer.
    pub fn is_ready(&self) -> bool {
        self.readiness() == Some(200)
    }

    /// The status of `/ready`, if the admin side answers yet.
    fn readiness(&self) -> Option<u16> {
        let mut client = Client::try_connect(self.admin).ok()?;
        let request = format!("GET /ready HTTP/1.1\r\nhost: {}\r\n\r\n", self.admin);
        let sent = client.try_send(request.as_bytes());
        client.try_head().filter(|_| sent).map(|head| head.status)
    }

    /// The sum of a metric over the series that have all of these labels; zero when there is none.
    #[track_caller]
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let answer = self.ask_admin("/metrics");
        let text = answer.text();
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' '))
            .filter(|(series, _)| {
                let (family, shown) = series.split_once('{').unwrap_or((series, ""));
                let has =
                    |(label, value): &(&str, &str)| shown.contains(&format!("{label}=\"{value}\""));
                family == name && labels.iter().all(has)
            })
            .map(|(_, value)| value.parse::<f64>().unwrap())
            .sum()
    }

    /// Its access log so far.
    #[track_caller]
    pub fn log(&self) -> Vec<Value> {
        let lines = self.stdout.lock();
        lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
            .collect()
    }

    /// Its access log, once it has at least this many lines.
    #[track_caller]
    pub fn log_of(&self, count: usize) -> Vec<Value> {
        expect_soon(&format!("{count} lines of access log"), || {
            self.log().len() >= count
        });
        self.log()
    }

    /// Everything it wrote to stdout.
    pub fn stdout(&self) -> String {
        self.stdout.lock().join("\n")
    }

    /// Everything it wrote to stderr.
    pub fn stderr(&self) -> String {
        self.stderr.lock().join("\n")
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.child.lock().try_wait().unwrap().is_some()
    }

    /// Waits until the process has ended, at most for `deadline`.
    #[track_caller]
    pub fn wait_exit(&self, deadline: Duration) -> ExitStatus {
        assert!(
            wait_until(deadline, || self.has_ended()),
            "the proxy still ran after {deadline:?}:\n{}",
            self.stderr()
        );
        self.child.lock().wait().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut child = self.child.lock();
        let _ = child.kill();
        let _ = child.wait();
    }
}
