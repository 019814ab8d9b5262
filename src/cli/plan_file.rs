//! Where a verb finds its configuration.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::terminal::complain;
use super::{WRONG, env};
use crate::config::{self, Glance, Plan};

const PLACES: [&str; 2] = ["./forebay.toml", "/etc/forebay/forebay.toml"];

/// The option of every verb that reads a configuration.
#[derive(Args)]
pub struct PlanFile {
    /// The configuration; by default ./forebay.toml, else /etc/forebay/forebay.toml
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

impl PlanFile {
    /// The plan and its file; or the exit code, after everything that is wrong has been said.
    pub fn load(self) -> Result<(PathBuf, Plan), ExitCode> {
        let found = self.load_if_any()?;
        found.ok_or_else(|| {
            let places = PLACES.join(" and ");
            complain(format_args!(
                "There is no configuration: looked for {places}. Name one with --config FILE."
            ));
            ExitCode::from(WRONG)
        })
    }

    fn load_if_any(self) -> Result<Option<(PathBuf, Plan)>, ExitCode> {
        let Some(file) = self.config.or_else(first_place) else {
            return Ok(None);
        };
        match config::load(&file, &env) {
            Ok(plan) => Ok(Some((file, plan))),
            Err(problems) => {
                complain(problems);
                Err(ExitCode::from(WRONG))
            }
        }
    }

    /// What leads to a running process, also in a file that is wrong otherwise.
    pub fn glance(self) -> Glance {
        let file = self.config.or_else(first_place);
        file.map(|file| config::glance(&file, &env))
            .unwrap_or_default()
    }
}

fn first_place() -> Option<PathBuf> {
    let mut places = PLACES.iter().map(Path::new);
    places.find(|place| place.exists()).map(Path::to_path_buf)
}
