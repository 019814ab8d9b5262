//! `forebay man`: a page of the manual, out of the table that reads the command line.

use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_mangen::Man;

use super::CommandLine;
use super::control::{failed, wrong};
use super::terminal::put;

/// Print the manual page of this program, or of one of its verbs
#[derive(Args)]
#[command(after_help = "Example:\n  forebay man workers | man -l -")]
pub struct Manual {
    /// A verb; for one of its own verbs, both: workers drain
    #[arg(value_name = "VERB")]
    verbs: Vec<String>,
}

impl Manual {
    /// Prints the page.
    pub fn run(self) -> ExitCode {
        let mut command = CommandLine::command();
        // Gives each verb the name under which its page is found.
        command.build();
        for verb in &self.verbs {
            let Some(found) = command.find_subcommand(verb) else {
                return wrong(format_args!(
                    "There is no verb {verb} here; --help lists them."
                ));
            };
            command = found.clone();
        }
        let mut page = Vec::new();
        if let Err(error) = Man::new(command).render(&mut page) {
            return failed(format_args!("The page can't be written: {error}"));
        }
        put(&page);
        ExitCode::SUCCESS
    }
}
