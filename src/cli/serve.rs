//! `forebay serve`: the proxy itself.

use std::process::ExitCode;

use clap::Args;

use super::env;
use super::plan_file::PlanFile;
use super::terminal::complain;
use crate::serve;

/// Run the proxy until SIGTERM or SIGINT.
#[derive(Args)]
#[command(after_help = "Example:\n  forebay serve --config /etc/forebay/forebay.toml")]
pub struct Serve {
    #[command(flatten)]
    file: PlanFile,
    /// Wait until the running proxy gets SIGQUIT, then take over from it
    #[arg(long)]
    upgrade: bool,
}

impl Serve {
    /// Does not return while the proxy runs.
    pub fn run(self) -> ExitCode {
        let (file, plan) = match self.file.load() {
            Ok(found) => found,
            Err(code) => return code,
        };
        let start = serve::Start {
            plan,
            file: file.clone(),
            env,
            upgrade: self.upgrade,
        };
        match serve::run(start) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(format_args!("{} can't be served: {error}", file.display()));
                ExitCode::FAILURE
            }
        }
    }
}
