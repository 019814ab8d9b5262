//! `forebay why`: where a request's time went, and who was considered for it.
//!
//! The first line names the largest share of the time and its cause; the tables below are what the choice saw: every
//! candidate with the seconds that were expected there, by term. With `--dry-run` it is a request that nobody sends:
//! the proxy goes the way of a real one up to the choice and says what would become of it now.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;

use super::control::{Control, Running, failed, read, wrong};
use super::requests::{Found, Summary};
use super::table::{Column, known, line, time, titles};
use super::terminal::{plain, say};
use crate::facts::percent_encoded;

const COLUMNS: [Column; 8] = [
    Column::words("worker", 14),
    Column::words("fate", 11),
    Column::number("total", 8),
    Column::number("wait", 8),
    Column::number("read", 8),
    Column::number("write", 8),
    Column::number("load", 8),
    Column::number("other", 8),
];

/// Explain where a request's time went and why it went to which worker
#[derive(Args)]
#[command(
    after_help = "Example:\n  forebay why --slow\n  forebay why --dry-run '{\"model\":\"chat\",\"messages\":[]}'"
)]
pub struct Why {
    #[command(flatten)]
    control: Control,
    /// Its x-request-id
    #[arg(conflicts_with_all = ["last", "slow", "dry_run"])]
    id: Option<String>,
    /// The request that ended last; so is it without an ID
    #[arg(long, conflicts_with_all = ["slow", "dry_run"])]
    last: bool,
    /// The slowest of those remembered
    #[arg(long, conflicts_with = "dry_run")]
    slow: bool,
    /// What would become of a request with this body now: JSON, @FILE, or - for standard input; nothing is sent
    #[arg(long, value_name = "BODY")]
    dry_run: Option<String>,
    /// Where that would be sent; if you don't say, where such bodies belong
    #[arg(long, value_name = "PATH", requires = "dry_run")]
    path: Option<String>,
}

/// A request: one that has ended, or one that still waits.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Ended(Box<Ended>),
    Waiting {
        id: String,
        waits_for: String,
        waited_s: f64,
    },
}

#[derive(Deserialize)]
struct Ended {
    #[serde(flatten)]
    summary: Summary,
    route: Option<String>,
    model: Option<String>,
    tenant: String,
    queue_s: Option<f64>,
    first_byte_s: Option<f64>,
    culprit: Culprit,
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Culprit {
    sentence: String,
}

#[derive(Deserialize)]
struct Choice {
    chosen_s: f64,
    worker: Option<String>,
    outcome: Option<String>,
    candidates: Vec<Candidate>,
    left_out: usize,
}

/// What would become of a request; a proxy of an earlier version does not say of which path.
#[derive(Deserialize)]
struct Foreseen {
    sentence: String,
    path: Option<String>,
    candidates: Vec<Candidate>,
    left_out: usize,
}

#[derive(Deserialize)]
struct Candidate {
    worker: Option<String>,
    fate: String,
    total_s: Option<f64>,
    #[serde(default)]
    terms_s: BTreeMap<String, f64>,
}

impl Why {
    /// Asks the proxy.
    pub fn run(self) -> ExitCode {
        let body = match self.dry_run.as_deref().map(body).transpose() {
            Ok(body) => body,
            Err(code) => return code,
        };
        let done = self.control.find().and_then(|proxy| {
            if let Some(body) = body {
                return foresee(&proxy, self.path.as_deref(), body);
            }
            let id = match self.id {
                Some(id) => id,
                None => first(&proxy, self.slow)?,
            };
            let answer = proxy.get(&format!("/api/requests/{}", percent_encoded(&id)))?;
            proxy.show(&answer, |told: Told| match told {
                Told::Ended(ended) => ended.tell(),
                Told::Waiting {
                    id,
                    waits_for,
                    waited_s,
                } => {
                    let waited = time(Some(waited_s));
                    say(plain(&format!(
                        "queue: {id} has waited {waited}: {waits_for}"
                    )));
                }
            })
        });
        done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }
}

/// The text that was typed, or that of the file or the stream that it names.
fn body(typed: &str) -> Result<String, ExitCode> {
    let mut text = String::new();
    let read = match typed.strip_prefix('@') {
        Some(file) => fs::read_to_string(file).map(|read| text = read),
        None if typed == "-" => io::stdin().read_to_string(&mut text).map(|_| ()),
        None => return Ok(typed.to_owned()),
    };
    read.map(|()| text)
        .map_err(|error| wrong(format_args!("{typed} can't be read: {error}")))
}

fn foresee(proxy: &Running, path: Option<&str>, body: String) -> Result<(), ExitCode> {
    let path = path.map_or_else(String::new, |path| {
        format!("?path={}", percent_encoded(path))
    });
    let answer = proxy.post(&format!("/api/dry-run{path}"), body)?;
    proxy.show(&answer, |foreseen: Foreseen| {
        say(plain(&foreseen.sentence));
        if let Some(path) = &foreseen.path {
            say(plain(&format!("as a POST to {path}")));
        }
        if !foreseen.candidates.is_empty() {
            say("");
            tell(&foreseen.candidates, foreseen.left_out);
        }
    })
}

/// The id of the last request, or of the slowest.
fn first(proxy: &Running, slow: bool) -> Result<String, ExitCode> {
    let wish = if slow { "&slow" } else { "" };
    let found: Found = read(&proxy.get(&format!("/api/requests?limit=1{wish}"))?)?;
    let first = found.requests.into_iter().next();
    first
        .map(|request| request.id)
        .ok_or_else(|| failed("No request has ended yet."))
}

impl Ended {
    fn tell(&self) {
        let Summary {
            id,
            time: came,
            status,
            reason,
            total_s,
            ..
        } = &self.summary;
        say(plain(&self.culprit.sentence));
        say("");
        say(plain(&format!("{id}: {status} {reason}, came {came}")));
        let or_dash = |text: &Option<String>| known(text.clone());
        say(plain(&format!(
            "route {}, model {}, tenant {}",
            or_dash(&self.route),
            or_dash(&self.model),
            self.tenant
        )));
        say(format_args!(
            "in line {}, first byte after {}, ended after {}",
            time(self.queue_s),
            time(self.first_byte_s),
            time(Some(*total_s))
        ));
        for (number, choice) in (1..).zip(&self.choices) {
            choice.tell(number);
        }
    }
}

impl Choice {
    fn tell(&self, number: usize) {
        let at = time(Some(self.chosen_s));
        let went = match (&self.worker, &self.outcome) {
            (None, _) => "nobody".to_owned(),
            (Some(worker), None) => worker.clone(),
            (Some(worker), Some(outcome)) => format!("{worker}, which ended `{outcome}`"),
        };
        say("");
        say(plain(&format!("choice {number} after {at}: {went}")));
        tell(&self.candidates, self.left_out);
    }
}

fn tell(candidates: &[Candidate], left_out: usize) {
    say(titles(&COLUMNS));
    candidates.iter().for_each(Candidate::tell);
    if left_out > 0 {
        say(format_args!("and {left_out} more"));
    }
}

impl Candidate {
    fn tell(&self) {
        let term = |names: &[&str]| {
            let spans = names.iter().filter_map(|name| self.terms_s.get(*name));
            self.total_s.map(|_| spans.sum::<f64>())
        };
        let cells = [
            known(self.worker.clone()),
            self.fate.clone(),
            time(self.total_s),
            time(term(&["wait"])),
            time(term(&["own"])),
            time(term(&["decode"])),
            time(term(&["lora", "swap"])),
            time(term(&["net", "external", "failure", "price"])),
        ];
        say(line(&COLUMNS, cells.map(Into::into)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_an_earlier_proxy_is_understood() {
        let earlier = br#"{"sentence":"It would go to a.","candidates":[],"left_out":0}"#;
        let foreseen: Foreseen = read(earlier).unwrap();
        assert_eq!(foreseen.path, None);
    }
}
