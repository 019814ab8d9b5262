//! `forebay requests`: what became of the last requests.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;

use super::control::Control;
use super::table::{Cell, Column, known, line, time, titles};
use super::terminal::{Colour, say};
use crate::facts::percent_encoded;

const COLUMNS: [Column; 6] = [
    Column::words("time", 8),
    Column::words("id", 22),
    Column::words("worker", 14),
    Column::number("status", 6),
    Column::number("took", 9),
    Column::words("reason", 16),
];

/// Show the last requests of a running proxy; `forebay why ID` tells more of one
#[derive(Args)]
#[command(after_help = "Example:\n  forebay requests --slow --since 1h")]
pub struct Requests {
    #[command(flatten)]
    control: Control,
    /// Those that took longest, the slowest first
    #[arg(long)]
    slow: bool,
    /// Only those whose answer was an error or broke off
    #[arg(long)]
    failed: bool,
    /// Only this tenant's
    #[arg(long, value_name = "T")]
    tenant: Option<String>,
    /// Only those that came within this time
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// So many at the most, up to 1000
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

/// What `/api/requests` answers.
#[derive(Deserialize)]
pub struct Found {
    pub requests: Vec<Summary>,
}

/// A request, as far as a line shows it.
#[derive(Deserialize)]
pub struct Summary {
    pub id: String,
    pub time: String,
    worker: Option<String>,
    pub status: u16,
    pub reason: String,
    pub total_s: f64,
}

impl Requests {
    /// Asks the proxy.
    pub fn run(self) -> ExitCode {
        let query = self.query();
        let done = self.control.find().and_then(|proxy| {
            let answer = proxy.get(&format!("/api/requests?{query}"))?;
            proxy.show(&answer, |found: Found| {
                say(titles(&COLUMNS));
                found.requests.iter().for_each(tell);
            })
        });
        done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }

    fn query(&self) -> String {
        let mut wishes = vec![format!("limit={}", self.limit)];
        wishes.extend(self.slow.then(|| "slow".to_owned()));
        wishes.extend(self.failed.then(|| "failed".to_owned()));
        for (key, value) in [("tenant", &self.tenant), ("since", &self.since)] {
            let value = value.as_ref().map(|value| percent_encoded(value));
            wishes.extend(value.map(|value| format!("{key}={value}")));
        }
        wishes.join("&")
    }
}

fn tell(request: &Summary) {
    let status = request.status.to_string();
    let has_failed = request.status >= 400 || request.reason != "ok";
    let cells = [
        // `2026-11-30T02:43:19.500Z`: the time of day.
        request.time.get(11..19).unwrap_or_default().into(),
        request.id.as_str().into(),
        known(request.worker.clone()).into(),
        if has_failed {
            Cell::coloured(&status, Colour::Red)
        } else {
            status.into()
        },
        time(Some(request.total_s)).into(),
        request.reason.as_str().into(),
    ];
    say(line(&COLUMNS, cells));
}
