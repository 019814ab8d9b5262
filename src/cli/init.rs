//! `forebay init`: from the URLs of engines to a configuration that can be served as it is.
//!
//! Every URL is first read as a configuration of its own, so that a mistake in it is told in the words that `check`
//! has. Then all engines are asked at once. What they say becomes keys where it decides something and comments where it
//! only helps to understand; what they don't say is left to be learned. One that does not answer stays in the file as a
//! comment, is named on standard error, and makes the exit status 1.
//!
//! Guaranteed: what is printed has been read back by the checks of `config/`, so `forebay check` accepts it.

mod alike;
mod draft;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::control::failed;
use super::terminal::{complain, say};
use super::{WRONG, interviews};
use crate::config::{self, Plan, Problems, quoted};
use draft::Draft;

/// Ask engines what they are and print a configuration for them
#[derive(Args)]
#[command(
    after_help = "Example:\n  forebay init http://desk:8000 http://laptop:11434 > forebay.toml"
)]
pub struct Init {
    /// Where an engine is, without /v1
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
}

impl Init {
    /// Prints the configuration.
    pub fn run(self) -> ExitCode {
        self.print()
            .map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }

    fn print(self) -> Result<(), ExitCode> {
        let urls = distinct(&self.urls);
        let plan = plan_of(&urls)?;
        let told = interviews::all(&plan)?;
        let silent: Vec<_> = { urls.iter().zip(&told) }
            .filter_map(|(url, told)| {
                Some(format!("{url} does not answer: {}.", told.as_ref().err()?))
            })
            .collect();
        silent.iter().for_each(complain);
        if silent.len() == urls.len() {
            return Err(failed("There is nobody to write a configuration for."));
        }
        let origins = plan.workers.iter().map(|worker| &worker.origin);
        let draft = Draft {
            urls: &urls,
            origins: origins.collect(),
            told: &told,
        };
        let text = draft.to_string();
        if let Err(problems) = read(&text) {
            complain(problems);
            return Err(failed(
                "What these engines say makes no configuration that can be read; write one by hand, please.",
            ));
        }
        say(text.trim_end());
        if silent.is_empty() {
            Ok(())
        } else {
            Err(ExitCode::FAILURE)
        }
    }
}

/// With `http://` where nobody says what is spoken.
pub fn whole(url: &str) -> String {
    let url = url.trim_end_matches('/');
    if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    }
}

/// Each once.
fn distinct(urls: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    urls.iter()
        .map(|url| whole(url))
        .filter(|url| seen.insert(url.clone()))
        .collect()
}

/// A plan with a worker for each URL; or the exit code, after all that is wrong with them has been said.
fn plan_of(urls: &[String]) -> Result<Plan, ExitCode> {
    let mut wrong = false;
    for url in urls {
        if let Err(problems) = read(&bare([url])) {
            wrong = true;
            for problem in &problems {
                let instead = problem
                    .instead
                    .as_deref()
                    .unwrap_or("as in http://192.168.1.10:8000");
                complain(format_args!(
                    "{}: {}; {instead}",
                    shown(url),
                    problem.message
                ));
            }
        }
    }
    if wrong {
        return Err(ExitCode::from(WRONG));
    }
    read(&bare(urls)).map_err(|problems| {
        complain(problems);
        ExitCode::from(WRONG)
    })
}

/// The least configuration with these workers.
fn bare<'a>(urls: impl IntoIterator<Item = &'a String>) -> String {
    let worker = |(number, url): (usize, &String)| {
        format!("[[worker]]\nname = \"w{number}\"\nurl = {}\n", quoted(url))
    };
    urls.into_iter().enumerate().map(worker).collect()
}

/// The text as `check` would read it where there is a place for the state.
fn read(text: &str) -> Result<Plan, Problems> {
    let text = format!("state = \"unused\"\n{text}");
    config::parse(&text, Path::new("forebay.toml"), &|_| None)
}

/// A URL, unless it may hold a password or a key.
fn shown(url: &str) -> &str {
    if url.contains(['@', '?', '#']) {
        "a URL"
    } else {
        url
    }
}
