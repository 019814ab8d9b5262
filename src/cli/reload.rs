//! `forebay reload`: a running proxy reads its configuration again.

use std::process::ExitCode;

use clap::Args;
use http::StatusCode;
use serde::Deserialize;

use super::WRONG;
use super::control::{Control, Running, read};
use super::terminal::{complain, plain, say};
use crate::config::diff::Change;

/// Let a running proxy read its configuration again, and print what changes
#[derive(Args)]
#[command(after_help = "Example:\n  forebay reload --dry-run")]
pub struct Reload {
    #[command(flatten)]
    control: Control,
    /// Only print what would change
    #[arg(long)]
    dry_run: bool,
}

/// What the proxy answers; one of an earlier version says less.
#[derive(Deserialize)]
struct Told {
    result: String,
    changes: Vec<Change>,
    #[serde(default)]
    lost: Vec<String>,
    #[serde(default)]
    remarks: Vec<String>,
    pending: Vec<String>,
    problems: Vec<String>,
}

impl Reload {
    /// Asks the proxy.
    pub fn run(self) -> ExitCode {
        let asked = self
            .control
            .find()
            .and_then(|proxy| ask(&proxy, self.dry_run));
        asked.unwrap_or_else(|code| code)
    }
}

fn ask(proxy: &Running, is_dry: bool) -> Result<ExitCode, ExitCode> {
    order(
        proxy,
        "/api/reload",
        format!("{{\"dry_run\":{is_dry}}}"),
        is_dry,
    )
}

/// Orders something that is answered like a reload, and prints what comes of it.
pub fn order(
    proxy: &Running,
    path: &str,
    body: String,
    is_dry: bool,
) -> Result<ExitCode, ExitCode> {
    let refusal = StatusCode::UNPROCESSABLE_ENTITY;
    let answer = proxy.post_unless(path, body, refusal)?;
    let told: Told = read(&answer)?;
    proxy.show(&answer, |told: Told| tell(&told, is_dry))?;
    Ok(match &*told.result {
        "refused" => ExitCode::from(WRONG),
        _ => ExitCode::SUCCESS,
    })
}

fn tell(told: &Told, is_dry: bool) {
    for change in &told.changes {
        say(plain(&change.to_string()));
    }
    for model in &told.lost {
        say(plain(&format!(
            "! clients lose {model}: no worker serves it any more"
        )));
    }
    for remark in &told.remarks {
        complain(plain(&format!("warning: {remark}")));
    }
    for key in &told.pending {
        say(format_args!(
            "! {key} needs a restart or forebay serve --upgrade; until then it stays as it was"
        ));
    }
    match &*told.result {
        "refused" => {
            let lines = told.problems.iter().flat_map(|problem| problem.lines());
            lines.for_each(|line| complain(plain(line)));
            complain("Refused: the plan before stays in force.");
        }
        "unchanged" => say("Nothing changes."),
        _ => say(told.outcome(is_dry)),
    }
}

impl Told {
    /// What becomes of what changes, but for what waits.
    fn outcome(&self, is_dry: bool) -> &'static str {
        let waits = |change: &Change| self.pending.contains(&change.key);
        match (self.pending.is_empty(), is_dry) {
            (false, _) if self.changes.iter().all(waits) => "Nothing else changes.",
            (false, true) => "The rest would be taken over.",
            (false, false) => "The rest is taken over.",
            (true, true) => "This would be taken over.",
            (true, false) => "Taken over.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_an_earlier_proxy_is_understood() {
        let earlier = br#"{"result":"ok","changes":[],"pending":[],"problems":[]}"#;
        let told: Told = read(earlier).unwrap();
        assert_eq!(told.outcome(false), "Taken over.");
    }
}
