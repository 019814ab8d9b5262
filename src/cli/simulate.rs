//! `forebay simulate`: a fleet and its clients in virtual time, under several rules side by side.
//!
//! This file reads and writes; what happens in between is `simulate`'s, which knows no files. Every rule has a thread
//! of its own: they share nothing, so the result does not depend on who is done first.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::WRONG;
use super::check::counted;
use super::terminal::{complain, say};
use crate::config::suggest::nearest;
use crate::simulate::{self, Fleet, RULES, Request, Score, load};

/// The rules that always run: ours, and what it is compared with.
const ALWAYS: [&str; 2] = ["least_time", "oracle"];
/// Requests of a generated load, when nobody says how many.
const REQUESTS: usize = 12_000;
/// The most requests that a trace may grow to: a mistyped rate should not fill the memory.
const MOST: usize = 10_000_000;
/// What compressed files begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Try a fleet, a load and routing policies in virtual time.
#[derive(Args)]
#[command(
    after_help = "Example:\n  forebay simulate --load classifier --fleet config/fleets/classifier-pair.toml\n\n\
                  Machines are models with guessed speeds: they tell which policy is better, not how fast yours are."
)]
pub struct Simulate {
    /// Requests that were: Mooncake's JSON lines, Azure's CSV or Forebay's own access log, plain or .gz
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "load",
        conflicts_with = "load"
    )]
    trace: Option<PathBuf>,
    /// Requests that are made up instead
    #[arg(long, value_name = "LOAD")]
    load: Option<Made>,
    /// The machines: see config/fleets
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,
    /// Only these policies, beside least_time and oracle; all by default
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policy: Vec<String>,
    /// Requests a second; by default the fleet's, else the trace's own
    #[arg(long, value_name = "X")]
    rate: Option<f64>,
    /// How many requests; by default the fleet's, else all
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// One seed, one result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What if this worker were gone? May be repeated
    #[arg(long, value_name = "WORKER")]
    without: Vec<String>,
    /// What if there were one more with this card ("T4", "2x RTX4090")? May be repeated
    #[arg(long, value_name = "CARD")]
    add: Vec<String>,
    /// Count only requests that come while a fault of the fleet file lasts
    #[arg(long)]
    during_faults: bool,
    /// Write a picture of the means and p95s
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Loads that are made up.
#[derive(Clone, Copy, ValueEnum)]
enum Made {
    /// A classifier: Poisson, prompts of 2,000 tokens on average, no answers to decode
    Classifier,
    /// Agents that call tools: sessions with long shared prompts
    Tools,
    /// Chats with 16 LoRA adapters of one model
    Adapters,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    requests: usize,
    too_long: usize,
    seed: u64,
    policies: &'a [Score],
    #[serde(skip_serializing_if = "Option::is_none")]
    unchanged: Option<&'a Score>,
}

impl Simulate {
    /// Runs it.
    pub fn run(self) -> ExitCode {
        match self.prepare() {
            Ok(prepared) => self.play(&prepared),
            Err(complaint) => {
                complain(complaint);
                ExitCode::from(WRONG)
            }
        }
    }

    /// Everything that was named, read and checked.
    fn prepare(&self) -> Result<Prepared, String> {
        let rules = self.rules()?;
        let typed = read_fleet(&self.fleet)?;
        let fleet = self.changed(&typed)?;
        let rate = self.rate.or(typed.rate);
        if rate.is_some_and(|rate| !(1e-3..=1e5).contains(&rate)) {
            return Err(
                "--rate is a number of requests a second, from 0.001 to 100000.".to_owned(),
            );
        }
        let requests = self.requests.or(typed.requests);
        if requests.is_some_and(|count| !(1..=MOST).contains(&count)) {
            return Err(format!("--requests is a number from 1 to {MOST}."));
        }
        let mut load = match (&self.trace, self.load) {
            (Some(trace), _) => load::at_rate(read_trace(trace)?, rate, self.seed, MOST),
            (None, Some(made)) => made.load(rate, requests.unwrap_or(REQUESTS), self.seed),
            (None, None) => Vec::new(),
        };
        load.truncate(requests.unwrap_or(MOST));
        let all = load.len();
        // The same requests before and after a change, so that they can be compared.
        let load = simulate::fitting(&fleet, simulate::fitting(&typed, load));
        if load.is_empty() {
            return Err("There is no request in this load that fits on any machine.".to_owned());
        }
        if self.during_faults && !load.iter().any(|request| typed.suffers(request.at)) {
            return Err(
                "--during-faults counts no request: none comes while a fault lasts.".to_owned(),
            );
        }
        Ok(Prepared {
            too_long: all - load.len(),
            before: (fleet != typed).then_some(typed),
            fleet,
            load,
            rules,
        })
    }

    fn rules(&self) -> Result<Vec<&'static str>, String> {
        for name in &self.policy {
            if !RULES.contains(&name.as_str()) {
                let near = nearest(name, RULES).map(|near| format!(" Did you mean {near}?"));
                let way_out = near.unwrap_or_else(|| format!(" There are {}.", RULES.join(", ")));
                return Err(format!("There is no policy {name}.{way_out}"));
            }
        }
        let wanted = |rule: &&str| {
            self.policy.is_empty()
                || ALWAYS.contains(rule)
                || self.policy.iter().any(|name| name == rule)
        };
        Ok(RULES.into_iter().filter(wanted).collect())
    }

    /// The fleet with what was taken out and added.
    fn changed(&self, fleet: &Fleet) -> Result<Fleet, String> {
        let mut fleet = fleet.clone();
        for name in &self.without {
            if !fleet.remove(name) {
                let names = fleet.members.iter().map(|member| &*member.name);
                let near = nearest(name, names).map(|near| format!(" Did you mean {near}?"));
                let near = near.unwrap_or_default();
                return Err(format!("There is no worker {name} in this fleet.{near}"));
            }
        }
        for typed in &self.add {
            let Some((count, member)) = simulate::added(typed) else {
                let known: Vec<&str> = simulate::CARDS.iter().map(|(name, _)| *name).collect();
                let known = known.join(", ");
                return Err(format!(
                    "There is no card {typed}. There are {known}; \"2x T4\" adds two."
                ));
            };
            fleet.members.extend(std::iter::repeat_n(member, count));
        }
        Ok(fleet)
    }

    /// Lets the load run under every rule, and tells what came out.
    fn play(&self, prepared: &Prepared) -> ExitCode {
        let Prepared { load, before, .. } = prepared;
        let scores = self.scores(prepared);
        if scores.len() < prepared.rules.len() {
            complain("Not every policy could be simulated to its end.");
            return ExitCode::FAILURE;
        }
        let before = before.as_ref();
        let unchanged = before.and_then(|before| self.score(prepared, before, ALWAYS[0]));
        let title = format!("{} on {}", self.load_name(), stem(&self.fleet));
        if let Some(file) = &self.plot
            && let Err(error) = fs::write(file, simulate::plot(&title, &scores))
        {
            complain(format_args!("{} can't be written: {error}", file.display()));
            return ExitCode::FAILURE;
        }
        if self.json {
            let report = Report {
                requests: load.len(),
                too_long: prepared.too_long,
                seed: self.seed,
                policies: &scores,
                unchanged: unchanged.as_ref(),
            };
            let Ok(json) = sonic_rs::to_string(&report) else {
                complain("The report can't be written as JSON.");
                return ExitCode::FAILURE;
            };
            say(json);
        } else {
            self.tell(prepared, &scores, unchanged.as_ref());
        }
        ExitCode::SUCCESS
    }

    /// The score of each rule, in their order.
    fn scores(&self, prepared: &Prepared) -> Vec<Score> {
        let rules = &prepared.rules;
        let done = &AtomicUsize::new(0);
        thread::scope(|scope| {
            let run = |rule: &'static str| {
                scope.spawn(move || {
                    let score = self.score(prepared, &prepared.fleet, rule);
                    let place = done.fetch_add(1, Ordering::Relaxed) + 1;
                    progress(rule, place, rules.len());
                    score
                })
            };
            let running: Vec<_> = rules.iter().map(|rule| run(rule)).collect();
            let ended = running.into_iter().map(|one| one.join().ok().flatten());
            ended.flatten().collect()
        })
    }

    /// What a rule is worth with this load on this fleet; the faults that count are those of the fleet's file, also
    /// when their worker is gone.
    fn score(&self, prepared: &Prepared, fleet: &Fleet, rule: &'static str) -> Option<Score> {
        let Prepared { load, .. } = prepared;
        let faulty = prepared.before.as_ref().unwrap_or(&prepared.fleet);
        let ends = simulate::simulate(fleet, load, rule, self.seed)?;
        let counts = |request: &Request| !self.during_faults || faulty.suffers(request.at);
        let counted = load
            .iter()
            .zip(&ends)
            .filter(|(request, _)| counts(request));
        Some(Score::of(rule, counted))
    }

    fn tell(&self, prepared: &Prepared, scores: &[Score], unchanged: Option<&Score>) {
        let Prepared {
            load,
            fleet,
            too_long,
            ..
        } = prepared;
        let span = load.last().map_or(0.0, |last| last.at.0) / 60.0;
        let left_out = match too_long {
            0 => String::new(),
            _ => format!("; {too_long} too long for every machine were left out"),
        };
        say(format_args!(
            "{}: {} in {span:.0} minutes on {}{left_out}\n",
            self.load_name(),
            counted(load.len(), "request"),
            counted(fleet.members.len(), "worker")
        ));
        say(simulate::table(scores).trim_end());
        let after = scores.iter().find(|score| score.policy == ALWAYS[0]);
        if let (Some(before), Some(after)) = (unchanged, after) {
            say(format_args!("\n{}", simulate::change(before, after)));
        }
    }

    fn load_name(&self) -> String {
        match (&self.trace, self.load) {
            (Some(trace), _) => stem(trace),
            (None, Some(Made::Classifier)) => "classifier".to_owned(),
            (None, Some(Made::Adapters)) => "adapters".to_owned(),
            (None, _) => "tools".to_owned(),
        }
    }
}

/// What a simulation needs.
struct Prepared {
    fleet: Fleet,
    /// The fleet as it is in its file, if it was changed.
    before: Option<Fleet>,
    load: Vec<Request>,
    too_long: usize,
    rules: Vec<&'static str>,
}

impl Made {
    fn load(self, rate: Option<f64>, requests: usize, seed: u64) -> Vec<Request> {
        match self {
            Made::Classifier => load::classifier(rate.unwrap_or(200.0), requests, seed),
            Made::Tools => load::tools(rate.unwrap_or(1.0), requests, seed),
            Made::Adapters => load::adapters(rate.unwrap_or(4.0), requests, seed),
        }
    }
}

/// Says on a terminal who is done, as which of how many.
fn progress(rule: &str, place: usize, of: usize) {
    if io::stderr().is_terminal() {
        let bar = "#".repeat(place) + &".".repeat(of.saturating_sub(place));
        complain(format_args!("[{bar}] {rule}"));
    }
}

fn read_fleet(path: &Path) -> Result<Fleet, String> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    simulate::parse_fleet(&text, path).map_err(|problems| {
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        told.join("\n\n")
    })
}

fn read_trace(path: &Path) -> Result<Vec<Request>, String> {
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    let mut text = String::new();
    if bytes.starts_with(&GZIP) {
        let mut plain = flate2::read::MultiGzDecoder::new(bytes.as_slice());
        plain
            .read_to_string(&mut text)
            .map_err(|error| unreadable(path, &error))?;
    } else {
        text = String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8.", path.display()))?;
    }
    load::parse(&text).map_err(|flaw| format!("{}:{}: {}", path.display(), flaw.line, flaw.what))
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("{} can't be read: {error}", path.display())
}

/// A file's name without what tells its kind.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or(OsStr::new(""));
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}
