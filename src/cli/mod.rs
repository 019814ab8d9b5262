//! The command line: one file per verb.
//!
//! This is the only room that reads the environment and writes to the terminal. Exit codes are the contract's: 0 good,
//! 2 the configuration or the arguments are wrong, 1 anything else.

mod check;
mod completions;
mod control;
mod init;
mod interviews;
mod key;
mod manual;
mod names;
mod plan_file;
mod reference;
mod reload;
mod requests;
mod serve;
mod simulate;
mod table;
mod terminal;
mod why;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The configuration or the arguments are wrong.
const WRONG: u8 = 2;

/// One stable HTTP endpoint in front of unequal GPU machines.
#[derive(Parser)]
#[command(name = "forebay", version, about, max_term_width = 80)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Serve(serve::Serve),
    Check(check::Check),
    Init(init::Init),
    Key(key::Key),
    Reload(reload::Reload),
    Reference(reference::Reference),
    Simulate(simulate::Simulate),
    Workers(workers::Workers),
    Requests(requests::Requests),
    Why(why::Why),
    Completions(completions::Completions),
    #[command(name = "man")]
    Manual(manual::Manual),
}

/// Does what the command line says.
#[must_use]
pub fn run() -> ExitCode {
    match CommandLine::try_parse() {
        Ok(CommandLine { verb }) => match verb {
            Verb::Serve(serve) => serve.run(),
            Verb::Check(check) => check.run(),
            Verb::Init(init) => init.run(),
            Verb::Key(key) => key.run(),
            Verb::Reload(reload) => reload.run(),
            Verb::Reference(reference) => reference.run(),
            Verb::Simulate(simulate) => simulate.run(),
            Verb::Workers(workers) => workers.run(),
            Verb::Requests(requests) => requests.run(),
            Verb::Why(why) => why.run(),
            Verb::Completions(completions) => completions.run(),
            Verb::Manual(manual) => manual.run(),
        },
        Err(refusal) => {
            // Nobody is left to tell when the terminal is gone.
            let _ = refusal.print();
            ExitCode::from(u8::try_from(refusal.exit_code()).unwrap_or(WRONG))
        }
    }
}

/// The look-up that `config` gets.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line is where the environment is read"
)]
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
