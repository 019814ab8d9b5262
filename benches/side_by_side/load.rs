//! The load generator: one kind of load against one address, one JSON line at the end.
//!
//! `closed`  each connection sends its next request as soon as the last answer ended: the cost of a request
//! `streams` each connection holds a stream and opens the next when it ends: the cost of an event
//! `hold`    like `streams`, but measures once every stream has had its first event: memory
//! `paced`   requests are due at a fixed rate, and their latency counts from when they were due, so that a stalled
//!           proxy can't hide the requests that should have been sent meanwhile (coordinated omission). Threads and
//!           blocking sockets: tokio's timers go by whole milliseconds
//!
//! CPU time and memory of the processes in `--pids` are read from /proc at both ends of the window.
#![expect(clippy::print_stdout, reason = "its result is a line of JSON")]

mod answer;
mod process;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use answer::Answer;
use forebay::clock::Clock;
use forebay::rng::Rng;
use forebay::units::Seconds;
use process::Usage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

type Failure = Box<dyn Error + Send + Sync>;

/// How many different requests take turns.
const REQUESTS: usize = 128;

/// The command line: a mode, then pairs of `--name value`.
struct Options {
    mode: String,
    values: BTreeMap<String, String>,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mode = words
            .next()
            .ok_or("usage: load MODE --address ADDR [--name value]…")?;
        let mut values = BTreeMap::new();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            values.insert(name.trim_start_matches('-').to_owned(), value);
        }
        Ok(Options { mode, values })
    }

    fn get<T: FromStr>(&self, name: &str) -> Result<T, Failure> {
        let text = self
            .values
            .get(name)
            .ok_or_else(|| format!("--{name} is missing"))?;
        text.parse()
            .map_err(|_| format!("--{name} {text} can't be read").into())
    }

    fn span(&self, name: &str) -> Result<Duration, Failure> {
        Ok(Seconds(self.get(name)?).to_duration())
    }
}

fn main() -> Result<(), Failure> {
    let options = Options::read(std::env::args().skip(1))?;
    let requests = requests(&options)?;
    if options.mode == "paced" {
        return paced(&options, requests);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, together(&options, requests))
}

/// Chat requests of `--body` bytes. Eight system prompts take half of each text, the other half is its own.
fn requests(options: &Options) -> Result<Vec<Vec<u8>>, Failure> {
    let (address, size): (SocketAddr, usize) = (options.get("address")?, options.get("body")?);
    let (tokens, stream) = (
        options.get::<usize>("tokens")?,
        options.mode == "streams" || options.mode == "hold",
    );
    let body = |number: usize| {
        let before = r#"{"model":"m","messages":[{"role":"system","content":""#;
        let between = r#""},{"role":"user","content":""#;
        let after = format!(r#""}}],"max_tokens":{tokens},"temperature":0.7,"stream":{stream}}}"#);
        let text = size.saturating_sub(before.len() + between.len() + after.len());
        let system = words(number as u64 % 8, text / 2);
        let user = words(1000 + number as u64, text - text / 2);
        format!("{before}{system}{between}{user}{after}")
    };
    let whole = |body: String| {
        let length = body.len();
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: */*\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    };
    Ok((0..REQUESTS).map(|number| whole(body(number))).collect())
}

fn words(seed: u64, length: usize) -> String {
    const WORDS: [&str; 8] = [
        "river ", "stone ", "turbine ", "valve ", "head ", "flow ", "gate ", "surge ",
    ];
    let mut rng = Rng::seeded(seed);
    let mut text = String::with_capacity(length + 8);
    while text.len() < length {
        text.push_str(WORDS[rng.below(WORDS.len())]);
    }
    text.truncate(length);
    text
}

/// What the connections of one run count together.
#[derive(Default)]
struct Tally {
    answers: Cell<u64>,
    events: Cell<u64>,
    failures: Cell<u64>,
    streams_begun: Cell<usize>,
    last_failure: RefCell<String>,
}

impl Tally {
    fn failed(&self, why: String) {
        self.failures.set(self.failures.get() + 1);
        self.last_failure.replace(why);
    }

    fn restart(&self) {
        self.answers.set(0);
        self.events.set(0);
        self.failures.set(0);
    }
}

/// The modes in which connections wait for answers rather than for the clock.
async fn together(options: &Options, requests: Vec<Vec<u8>>) -> Result<(), Failure> {
    let (tally, requests) = (Rc::new(Tally::default()), Rc::new(requests));
    let (address, connections): (SocketAddr, usize) =
        (options.get("address")?, options.get("connections")?);
    let pids = process::pids(&options.get::<String>("pids")?);
    for number in 0..connections {
        spawn_local(connection(
            address,
            number,
            Rc::clone(&requests),
            Rc::clone(&tally),
        ));
        if number % 64 == 63 {
            tokio::time::sleep(Duration::from_millis(5)).await; // no accept queue is longer than that
        }
    }
    if options.mode == "hold" {
        let all = async {
            while tally.streams_begun.get() < connections {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(30), all).await; // `streams` in the result tells
    }
    tokio::time::sleep(options.span("warm")?).await;
    tally.restart();
    let (clock, before) = (Clock::start(), Usage::of(&pids));
    tokio::time::sleep(options.span("seconds")?).await;
    let (took, after) = (clock.now(), Usage::of(&pids));
    println!(
        r#"{{"seconds":{:.4},"answers":{},"events":{},"failures":{},"streams":{},"cpu_s":{:.6},"rss_kib":{},"last_failure":{:?}}}"#,
        took.0,
        tally.answers.get(),
        tally.events.get(),
        tally.failures.get(),
        tally.streams_begun.get(),
        after.cpu.0 - before.cpu.0,
        after.rss_kib,
        tally.last_failure.borrow()
    );
    Ok(())
}

/// One client, for as long as the process lives. A broken connection counts as a failure and is opened anew.
async fn connection(
    address: SocketAddr,
    number: usize,
    requests: Rc<Vec<Vec<u8>>>,
    tally: Rc<Tally>,
) {
    let mut turn = number * 37;
    loop {
        if let Err(error) = exchanges(address, &mut turn, &requests, &tally).await {
            tally.failed(error.to_string());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn exchanges(
    address: SocketAddr,
    turn: &mut usize,
    requests: &[Vec<u8>],
    tally: &Tally,
) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    loop {
        stream.write_all(&requests[*turn % requests.len()]).await?;
        *turn += 1;
        let mut answer = Answer::default();
        while !answer.is_complete() {
            if stream.read_buf(answer.buffer()).await? == 0 {
                return Err(wire::broken("the connection closed inside an answer"));
            }
            let (events, first) = (answer.advance()?, !answer.has_events());
            if first && events > 0 {
                tally.streams_begun.set(tally.streams_begun.get() + 1);
            }
            answer.saw(events);
            tally.events.set(tally.events.get() + events);
        }
        match answer.status() {
            200 => tally.answers.set(tally.answers.get() + 1),
            status => tally.failed(format!("status {status}")),
        }
        if answer.closes() {
            return Ok(());
        }
    }
}

/// The mode in which requests are due by the clock.
fn paced(options: &Options, requests: Vec<Vec<u8>>) -> Result<(), Failure> {
    let connections: usize = options.get("connections")?;
    let pace = Pace {
        address: options.get("address")?,
        connections,
        gap: 1.0 / options.get::<f64>("rate")?,
        warm: options.get("warm")?,
        end: options.get::<f64>("warm")? + options.get::<f64>("seconds")?,
        clock: Clock::start(),
    };
    let requests = Arc::new(requests);
    let threads: Vec<_> = (0..connections)
        .map(|number| {
            let requests = Arc::clone(&requests);
            std::thread::spawn(move || pace.keep(number, &requests))
        })
        .collect();
    let (mut latencies, mut failures) = (Vec::new(), 0);
    for thread in threads {
        let (seen, failed) = thread
            .join()
            .map_err(|_| "a thread of the load generator died")?;
        latencies.extend(seen);
        failures += failed;
    }
    latencies.sort_unstable_by(f64::total_cmp);
    let quantile = |share: usize| {
        latencies
            .get(latencies.len() * share / 100)
            .map_or(-1.0, |s| s * 1e6)
    };
    println!(
        r#"{{"answers":{},"failures":{failures},"p50_us":{:.1},"p99_us":{:.1}}}"#,
        latencies.len(),
        quantile(50),
        quantile(99)
    );
    Ok(())
}

#[derive(Clone, Copy)]
struct Pace {
    address: SocketAddr,
    connections: usize,
    gap: f64,
    warm: f64,
    end: f64,
    clock: Clock,
}

impl Pace {
    /// Every `connections`-th request: the latencies after the warm-up, and how many requests failed.
    fn keep(&self, number: usize, requests: &[Vec<u8>]) -> (Vec<f64>, u64) {
        let (mut latencies, mut failures, mut stream) = (Vec::new(), 0, None);
        for turn in (number..).step_by(self.connections) {
            let due = turn as f64 * self.gap;
            if due > self.end {
                break;
            }
            self.wait(due);
            match self.exchange(&mut stream, &requests[turn % requests.len()]) {
                Ok(()) if due >= self.warm => latencies.push(self.clock.now().0 - due),
                Ok(()) => {}
                Err(_) => (failures, stream) = (failures + 1, None),
            }
        }
        (latencies, failures)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a request is due at a time, not on a condition"
    )]
    fn wait(&self, due: f64) {
        std::thread::sleep(Seconds(due - self.clock.now().0).to_duration());
    }

    fn exchange(&self, stream: &mut Option<std::net::TcpStream>, request: &[u8]) -> io::Result<()> {
        let mut open = match stream.take() {
            Some(open) => open,
            None => std::net::TcpStream::connect(self.address)?,
        };
        open.set_nodelay(true)?;
        open.set_read_timeout(Some(Duration::from_secs(10)))?;
        open.write_all(request)?;
        let (mut answer, mut piece) = (Answer::default(), [0; 16_384]);
        while !answer.is_complete() {
            match open.read(&mut piece)? {
                0 => return Err(wire::broken("the connection closed inside an answer")),
                length => answer.buffer().extend_from_slice(&piece[..length]),
            }
            answer.advance()?;
        }
        if !answer.closes() {
            *stream = Some(open);
        }
        match answer.status() {
            200 => Ok(()),
            status => Err(wire::broken(&format!("status {status}"))),
        }
    }
}
