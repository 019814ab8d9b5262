//! `forebay reference`: the manual of the configuration, out of the table that the reader works by.

use std::process::ExitCode;

use clap::Args;

use super::WRONG;
use super::terminal::{complain, say};
use crate::config::reference::{FORMS, ROWS, Row, look_up, manual};
use crate::config::suggest::nearest;

/// Print what a configuration key means, or all of them.
#[derive(Args)]
#[command(after_help = "Example:\n  forebay reference limits.body")]
pub struct Reference {
    /// A key (worker.url), a section (worker), or a bare name (url)
    key: Option<String>,
}

impl Reference {
    /// Prints the entries.
    pub fn run(self) -> ExitCode {
        let Some(key) = self.key else {
            let all: Vec<&Row> = ROWS.iter().collect();
            say(FORMS);
            say(manual(&all).trim_end());
            return ExitCode::SUCCESS;
        };
        let found = look_up(&key);
        if found.is_empty() {
            complain(format_args!("There is no key {key}.{}", suggestion(&key)));
            return ExitCode::from(WRONG);
        }
        say(manual(&found).trim_end());
        ExitCode::SUCCESS
    }
}

fn suggestion(key: &str) -> String {
    let paths = ROWS.iter().map(|row| row.key);
    match nearest(key, paths.chain(ROWS.iter().map(Row::name))) {
        Some(near) => format!(" Did you mean {near}?"),
        None => " `forebay reference` without a key prints them all.".to_owned(),
    }
}
