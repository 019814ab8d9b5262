//! `forebay check`: says whether a configuration is good, without starting anything.
//!
//! With `--live` its workers are asked too (`live.rs`). What is wrong with the file is exit status 2; a worker that is
//! not as the file says is 1, for it may be right tomorrow with the same file.

mod live;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::plan_file::PlanFile;
use super::terminal::{complain, say};
use crate::config::Plan;

/// Check a configuration and report everything that is wrong with it.
#[derive(Args)]
#[command(after_help = "Example:\n  forebay check --live --config /etc/forebay/forebay.toml")]
pub struct Check {
    #[command(flatten)]
    file: PlanFile,
    /// Ask each worker too: does it answer, is it what the file says, has it the models
    #[arg(long)]
    live: bool,
    /// Print what they said as JSON instead of a table
    #[arg(long, requires = "live")]
    json: bool,
}

impl Check {
    /// Loads the file, as `serve` would.
    pub fn run(self) -> ExitCode {
        match self.file.load() {
            Ok((file, plan)) => {
                for remark in &plan.remarks {
                    complain(format_args!("warning: {remark}"));
                }
                if !self.json {
                    say(praise(&file, &plan));
                }
                if self.live {
                    return live::check(&plan, self.json).unwrap_or_else(|code| code);
                }
                ExitCode::SUCCESS
            }
            Err(code) => code,
        }
    }
}

fn praise(file: &Path, plan: &Plan) -> String {
    let workers = counted(plan.workers.len(), "worker");
    let routes = counted(plan.routes.len(), "route");
    let tenants = counted(plan.tenants.len(), "tenant");
    format!("{} is good: {workers}, {routes}, {tenants}", file.display())
}

/// So many of something, in words.
pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
