//! `forebay serve`: the proxy itself.

use std::process::ExitCode;

use clap::Args;

use super::env;
use super::plan_file::PlanFile;
use super::terminal::complain;
use crate::admin::token;
use crate::serve;

/// Run the proxy until SIGTERM or SIGINT.
#[derive(Args)]
#[command(after_help = "Example:\n  forebay serve --config /etc/forebay/forebay.toml")]
pub struct Serve {
    #[command(flatten)]
    file: PlanFile,
}

impl Serve {
    /// Does not return while the proxy runs.
    pub fn run(self) -> ExitCode {
        let (file, plan) = match self.file.load() {
            Ok(found) => found,
            Err(code) => return code,
        };
        match serve::run(plan, env(token::VARIABLE)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(format_args!("{} can't be served: {error}", file.display()));
                ExitCode::FAILURE
            }
        }
    }
}
