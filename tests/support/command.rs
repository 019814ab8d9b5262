//! The real binary as a command that ends by itself, in a pipe and without an environment.

use std::path::Path;
use std::process::Command;

/// What it said, and how it ended.
pub struct Said {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

impl Said {
    /// Whether nothing of it is wider than a terminal, or coloured.
    pub fn fits(&self) -> bool {
        let wide = self.out.lines().any(|line| line.chars().count() > 80);
        !wide && !self.out.contains('\u{1b}')
    }
}

/// Runs it in this folder, with these variables and no others.
#[track_caller]
pub fn forebay(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
