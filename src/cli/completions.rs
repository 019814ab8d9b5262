//! `forebay completions`: what a shell needs to complete this command line, out of the table that reads it.

use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use super::CommandLine;
use super::terminal::put;

/// Print what a shell needs to complete this command line
#[derive(Args)]
#[command(after_help = "Example:\n  forebay completions bash > /etc/bash_completion.d/forebay")]
pub struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    /// Prints the script.
    pub fn run(self) -> ExitCode {
        let mut script = Vec::new();
        generate(
            self.shell,
            &mut CommandLine::command(),
            "forebay",
            &mut script,
        );
        put(&script);
        ExitCode::SUCCESS
    }
}
