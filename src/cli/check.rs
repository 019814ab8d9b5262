//! `forebay check`: says whether a configuration is good, without starting anything.

use std::process::ExitCode;

use clap::Args;

use super::plan_file::PlanFile;
use super::terminal::{complain, say};

/// Check a configuration and report everything that is wrong with it.
#[derive(Args)]
#[command(after_help = "Example:\n  forebay check --config /etc/forebay/forebay.toml")]
pub struct Check {
    #[command(flatten)]
    file: PlanFile,
}

impl Check {
    /// Loads the file, as `serve` would.
    pub fn run(self) -> ExitCode {
        match self.file.load() {
            Ok((file, plan)) => {
                for remark in &plan.remarks {
                    complain(format_args!("warning: {remark}"));
                }
                let workers = counted(plan.workers.len(), "worker");
                let routes = counted(plan.routes.len(), "route");
                let tenants = counted(plan.tenants.len(), "tenant");
                say(format_args!(
                    "{} is good: {workers}, {routes}, {tenants}",
                    file.display()
                ));
                ExitCode::SUCCESS
            }
            Err(code) => code,
        }
    }
}

/// So many of something, in words.
pub(super) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
