//! Configuration in three stages: as typed, checked, as used.
//!
//! *As typed* is the tree of the file with the place of every value; *checked* is one file per section, which notes every
//! mistake instead of stopping at the first; *as used* is the [`Plan`], which nobody needs to check again. A file with
//! one mistake gives no plan at all: there is no half-configured process (promise P14). The table in [`mod@reference`] holds
//! each key's default and range once, for the reader, the messages and the manual.
//!
//! This room reads the file, and the files that it names (secrets, test requests); never the environment (its caller hands a look-up down),
//! never the clock.

mod checked;
pub mod diff;
pub mod dump;
mod later;
pub mod plan;
mod problem;
pub mod reference;
pub mod suggest;
mod typed;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

pub use checked::{origin, usual_state};
pub use plan::Plan;
pub use problem::{Problem, Problems};
pub use typed::{Env, quantity};
pub use words::Choice;

/// Reads a file into a plan.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn load(path: &Path, env: Env<'_>) -> Result<Plan, Problems> {
    load_beside(path, env, &[])
}

/// The same with further workers beside it, each as the text of a file with its name, as those in `workers_dir` are.
///
/// # Errors
///
/// Everything that is wrong with the file or with one of them.
pub fn load_beside(
    path: &Path,
    env: Env<'_>,
    beside: &[(PathBuf, String)],
) -> Result<Plan, Problems> {
    match fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => parse_beside(&text, path, env, beside),
        Ok(Err(error)) => {
            let valid = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..valid]
                .iter()
                .filter(|b| **b == b'\n')
                .count()
                + 1;
            Err(unreadable(
                path,
                &format!("line {line} is not UTF-8"),
                "save the file as UTF-8",
            ))
        }
        Err(error) => Err(unreadable(
            path,
            &format!("can't be read: {error}"),
            "name another file, or let this process read it",
        )),
    }
}

/// Reads the text of a file into a plan. Relative paths start at the file's folder.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn parse(text: &str, file: &Path, env: Env<'_>) -> Result<Plan, Problems> {
    parse_beside(text, file, env, &[])
}

/// A text as TOML's basic string, with nothing in it that the configuration would replace.
#[must_use]
pub fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace("${", "$${"))
}

fn parse_beside(
    text: &str,
    file: &Path,
    env: Env<'_>,
    beside: &[(PathBuf, String)],
) -> Result<Plan, Problems> {
    let (reader, tree) = typed::Reader::open(text, file, env);
    let mut plan = None;
    let mut others = Vec::new();
    if !reader.is_beyond_reading() {
        let root = typed::Section::root(&reader, tree);
        let mut texts = checked::worker_files(&root);
        texts.extend_from_slice(beside);
        let opened = texts
            .iter()
            .map(|(path, text)| typed::Reader::open(text, path, env));
        let (readers, trees): (Vec<_>, Vec<_>) = opened.unzip();
        let alone = readers.iter().zip(trees);
        let alone = alone.map(|(reader, tree)| typed::Section::alone("worker", reader, tree));
        plan = checked::plan(&root, alone.collect());
        if let Some(plan) = &mut plan {
            plan.files = readers.iter().flat_map(typed::Reader::files).collect();
            plan.files.extend(reader.files());
            plan.files.push(file.to_path_buf());
        }
        others = readers
            .into_iter()
            .map(typed::Reader::into_problems)
            .collect();
    }
    let found = std::iter::once(reader.into_problems()).chain(others);
    match (plan, Problems::joined(found)) {
        (Some(plan), None) => Ok(plan),
        (_, Some(problems)) => Err(problems),
        (None, None) => Err(unreadable(
            file,
            "can't be used, and nothing says why",
            "report this as a mistake of ours",
        )),
    }
}

/// Where the process of a file keeps its state, and the admin token that it names.
#[derive(Debug, Default)]
pub struct Glance {
    /// The folder.
    pub state: Option<PathBuf>,
    /// The token.
    pub admin_token: Option<plan::Secret>,
}

/// Looks for what leads to a running process, in a file that may be wrong otherwise: it may be just being written, or
/// refer to an environment that only the process has.
#[must_use]
pub fn glance(path: &Path, env: Env<'_>) -> Glance {
    let text = fs::read_to_string(path).unwrap_or_default();
    let (reader, tree) = typed::Reader::open(&text, path, env);
    checked::glance(&typed::Section::root(&reader, tree))
}

/// The one problem of a file that can't be read at all.
fn unreadable(path: &Path, message: &str, way_out: &str) -> Problems {
    Problems::sorted(vec![Problem {
        file: path.to_path_buf(),
        line: 0,
        column: 0,
        key: String::new(),
        value: None,
        message: message.to_owned(),
        allowed: None,
        instead: Some(way_out.to_owned()),
    }])
}
