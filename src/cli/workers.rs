//! `forebay workers`: the fleet as it is, and changes by hand.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::control::{Control, Running, failed, read, wrong};
use super::init::whole;
use super::names::{host_name, unique};
use super::reload::order;
use super::table::{Cell, Column, known, line, paragraph, titles};
use super::terminal::{Colour, complain, plain, say};
use crate::clock::Clock;
use crate::config::{self, quantity};
use crate::facts::percent_encoded;

/// How often a worker is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(250);

const COLUMNS: [Column; 7] = [
    Column::words("worker", 22),
    Column::words("state", 9),
    Column::number("held", 7),
    Column::number("speed", 7),
    Column::number("share", 6),
    Column::number("weight", 7),
    Column::words("models", 16),
];

/// Show the workers of a running proxy, or change them by hand
#[derive(Args)]
#[command(after_help = "Example:\n  forebay workers drain desk --wait --within 10m")]
pub struct Workers {
    #[command(flatten)]
    control: Control,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Show all of them
    #[command(after_help = "Example:\n  forebay workers list --json")]
    List,
    Add(Add),
    /// Let a worker that was added leave; what it holds ends by itself
    #[command(after_help = "Example:\n  forebay workers remove h100")]
    Remove {
        /// Its name
        name: String,
    },
    Drain(Drain),
    /// Let a worker have requests again, whatever kept them from it other than its probes
    #[command(after_help = "Example:\n  forebay workers resume desk")]
    Resume {
        /// Its name
        name: String,
    },
    /// Say how fast a worker is relative to the others; what was learned of it is forgotten
    #[command(after_help = "Example:\n  forebay workers speed desk 4.0")]
    Speed {
        /// Its name
        name: String,
        /// So many times as fast as one of speed 1
        #[arg(value_parser = speed)]
        speed: f64,
    },
}

/// Add a worker, until the proxy is started anew or for some time
#[derive(Args)]
#[command(after_help = "Example:\n  forebay workers add http://h100:8000 --for 8h")]
struct Add {
    /// Where its engine is, without /v1
    url: String,
    /// What it is called; by its host if you don't say
    #[arg(long)]
    name: Option<String>,
    /// When it leaves again
    #[arg(long = "for", value_name = "TIME")]
    within: Option<String>,
}

/// What is told of a worker that is added.
#[derive(Serialize)]
struct Newcomer {
    url: String,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    within: Option<String>,
}

/// Give a worker no new requests; those it holds end by themselves
#[derive(Args)]
#[command(after_help = "Example:\n  forebay workers drain desk --wait --within 10m")]
struct Drain {
    /// Its name
    name: String,
    /// Return when it holds none any more
    #[arg(long)]
    wait: bool,
    /// When it should hold none any more; with --wait, exit with 1 if it still does
    #[arg(long, value_name = "TIME")]
    within: Option<String>,
}

/// What `/api/workers` answers.
#[derive(Deserialize)]
struct Fleet {
    workers: Vec<Row>,
}

/// A worker, as far as the table shows it.
#[derive(Deserialize)]
struct Row {
    name: String,
    state: String,
    reason: Option<String>,
    until: Option<String>,
    inflight: u32,
    max_inflight: Option<u32>,
    speed: Option<f64>,
    #[serde(default)]
    speeds: BTreeMap<String, f64>,
    share: Option<f64>,
    weight: f64,
    models: Vec<String>,
    #[serde(rename = "override", default)]
    overridden: Overridden,
}

/// What somebody changed of it by hand.
#[derive(Default, Deserialize)]
struct Overridden {
    state: Option<String>,
    speed: Option<f64>,
}

impl Workers {
    /// Asks the proxy.
    pub fn run(self) -> ExitCode {
        let done = self.control.find().and_then(|proxy| {
            let changed = match self.verb {
                None | Some(Verb::List) => list(&proxy),
                Some(Verb::Add(add)) => return add.run(&proxy),
                Some(Verb::Remove { name }) => {
                    let path = format!("/api/workers/{}/remove", percent_encoded(&name));
                    return order(&proxy, &path, String::new(), false);
                }
                Some(Verb::Drain(drain)) => drain.run(&proxy),
                Some(Verb::Resume { name }) => change(&proxy, &name, "resume", String::new()),
                Some(Verb::Speed { name, speed }) => {
                    change(&proxy, &name, "speed", format!("{{\"speed\":{speed}}}"))
                }
            };
            changed.map(|()| ExitCode::SUCCESS)
        });
        done.unwrap_or_else(|code| code)
    }
}

/// A number, which JSON can say.
fn speed(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|speed: &f64| speed.is_finite());
    number.ok_or_else(|| format!("{text} is no speed, as 4.0 is"))
}

fn list(proxy: &Running) -> Result<(), ExitCode> {
    let answer = proxy.get("/api/workers")?;
    proxy.show(&answer, |fleet: Fleet| {
        say(titles(&COLUMNS));
        fleet.workers.iter().for_each(tell);
    })
}

fn change(proxy: &Running, name: &str, verb: &str, body: String) -> Result<(), ExitCode> {
    let name = percent_encoded(name);
    let answer = proxy.post(&format!("/api/workers/{name}/{verb}"), body)?;
    proxy.show(&answer, |row: Row| {
        say(titles(&COLUMNS));
        tell(&row);
    })
}

/// A worker's line, and more for why it gets no requests and what was changed by hand.
fn tell(row: &Row) {
    let held = match row.max_inflight {
        Some(most) => format!("{}/{most}", row.inflight),
        None => row.inflight.to_string(),
    };
    let colour = match &*row.state {
        "up" => Colour::Green,
        "down" | "ejected" => Colour::Red,
        _ => Colour::Yellow,
    };
    let cells = [
        row.name.as_str().into(),
        Cell::coloured(&row.state, colour),
        held.into(),
        known(row.speed.map(|speed| format!("{speed:.2}"))).into(),
        known(row.share.map(|share| format!("{:.0} %", share * 100.0))).into(),
        format!("{:.0}", row.weight).into(),
        row.models.join(",").into(),
    ];
    say(line(&COLUMNS, cells));
    if let Some(reason) = &row.reason {
        let until = row.until.as_deref();
        let until = until.map_or_else(String::new, |until| format!(", until {until}"));
        say(paragraph(&format!("{reason}{until}")));
    }
    if row.speeds.len() > 1 {
        let ratios = row.speeds.iter();
        let ratios: Vec<_> = ratios
            .map(|(work, speed)| format!("{work} {speed:.2}"))
            .collect();
        say(paragraph(&format!("speed by kind: {}", ratios.join(", "))));
    }
    if let Some(speed) = row.overridden.speed {
        say(paragraph(&format!("speed {speed} set by hand")));
    }
}

impl Add {
    fn run(self, proxy: &Running) -> Result<ExitCode, ExitCode> {
        let url = whole(&self.url);
        let name = match self.name {
            Some(name) => name,
            None => name_for(&url, proxy)?,
        };
        let path = format!("/api/workers/{}/add", percent_encoded(&name));
        let within = self.within;
        let body = sonic_rs::to_string(&Newcomer { url, within });
        let body = body.map_err(|error| failed(format_args!("This can't be sent: {error}")))?;
        order(proxy, &path, body, false)
    }
}

/// A name that no other worker has.
fn name_for(url: &str, proxy: &Running) -> Result<String, ExitCode> {
    let Some(origin) = config::origin(url) else {
        return Err(wrong(
            "This is no URL of an engine, as http://192.168.1.10:8000 is.",
        ));
    };
    let fleet: Fleet = read(&proxy.get("/api/workers")?)?;
    let mut taken = fleet.workers.into_iter().map(|row| row.name).collect();
    let base = host_name(&origin.host).unwrap_or("worker");
    Ok(unique(base, &origin, &mut taken))
}

impl Drain {
    fn run(self, proxy: &Running) -> Result<(), ExitCode> {
        let within = self.within.as_deref().map(quantity::duration).transpose();
        let within = within.map_err(|flaw| {
            complain(format_args!("--within: {}, as in 10m.", flaw.words()));
            ExitCode::from(super::WRONG)
        })?;
        let typed = self.within.as_ref();
        let body = typed.map_or_else(String::new, |text| format!("{{\"within\":\"{text}\"}}"));
        if !self.wait {
            return change(proxy, &self.name, "drain", body);
        }
        let path = format!("/api/workers/{}/drain", percent_encoded(&self.name));
        let mut row: Row = read(&proxy.post(&path, body)?)?;
        let clock = Clock::start();
        let mut told = None;
        while row.inflight > 0 {
            if within.is_some_and(|within| clock.now() > within) {
                let held = super::check::counted(row.inflight as usize, "request");
                return Err(failed(format_args!(
                    "{} still holds {held}, and stays drained.",
                    self.name
                )));
            }
            progress(&row, &mut told);
            proxy.pause(LOOK);
            row = self.look(proxy)?;
            if row.overridden.state.as_deref() != Some("draining") {
                let name = &self.name;
                return Err(failed(format_args!(
                    "{name} is not drained any more: somebody resumed it, or the proxy was started anew."
                )));
            }
        }
        let answer = proxy.get("/api/workers")?;
        proxy.show(&answer, |_: Fleet| {
            say(titles(&COLUMNS));
            tell(&row);
        })
    }

    fn look(&self, proxy: &Running) -> Result<Row, ExitCode> {
        let fleet: Fleet = read(&proxy.get("/api/workers")?)?;
        let mut rows = fleet.workers.into_iter();
        let found = rows.find(|row| row.name == self.name);
        found.ok_or_else(|| failed(format_args!("{} is gone.", self.name)))
    }
}

/// Says on a terminal how many are left, when that has changed.
fn progress(row: &Row, told: &mut Option<u32>) {
    if told.replace(row.inflight) != Some(row.inflight) && io::stderr().is_terminal() {
        complain(format_args!("{} holds {}", plain(&row.name), row.inflight));
    }
}
