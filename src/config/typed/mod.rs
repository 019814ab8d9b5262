//! Stage one: the configuration as typed, each value with its place in the file.
//!
//! The tree is read by our own reader and not by serde's derive, because serde stops at the first mistake and knows
//! neither the line nor the way out. Every reading method returns an `Option`: `None` means that the problem has been
//! noted, so a caller reads all of its keys first and gives up afterwards. One noted problem and there is no plan, so
//! that a check may go on with what it has after it has noted a problem.

mod expand;
pub mod quantity;
mod secret;
mod section;
mod value;

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::problem::Problem;
pub use section::Section;
pub use value::Value;

/// Looks a variable of the environment up.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What every value needs to read itself: the text, the environment, and where problems go.
pub struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
    env: Env<'a>,
    broken: Vec<usize>,
    problems: RefCell<Vec<Problem>>,
    files: RefCell<Vec<PathBuf>>,
}

impl<'a> Reader<'a> {
    /// Reads the text into a tree. Mistakes of syntax are noted; the tree then holds what could be read.
    pub fn open(text: &'a str, file: &'a Path, env: Env<'a>) -> (Self, DeTable<'a>) {
        let (tree, errors) = DeTable::parse_recoverable(text);
        let mut reader = Reader {
            text,
            file,
            env,
            broken: Vec::new(),
            problems: RefCell::default(),
            files: RefCell::default(),
        };
        for error in errors {
            reader.note_broken(&error);
        }
        (reader, tree.into_inner())
    }

    /// Whether syntax is so broken that the rest can't be judged: a damaged `[header]` puts all that follows into the
    /// wrong section.
    pub fn is_beyond_reading(&self) -> bool {
        let lines: Vec<&str> = self.text.split('\n').collect();
        self.broken.iter().any(|line| {
            lines
                .get(line - 1)
                .is_none_or(|text| text.trim_start().starts_with('['))
        })
    }

    /// What is wrong.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    /// A variable of the environment; an empty one counts as not set.
    pub fn env(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    /// A path as typed, relative to the folder of the configuration file.
    pub fn path(&self, typed: &str) -> PathBuf {
        match self.file.parent() {
            Some(folder) => folder.join(typed),
            None => PathBuf::from(typed),
        }
    }

    /// Notes that what stands in this file, or folder, is part of the plan.
    pub fn reads(&self, path: &Path) {
        self.files.borrow_mut().push(path.to_path_buf());
    }

    /// The files beside this one that the plan was made of, each once, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = self.files.borrow().clone();
        files.sort();
        files.dedup();
        files
    }

    /// Line and column of a byte, both counted from 1.
    pub fn place(&self, byte: usize) -> (usize, usize) {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }

    /// The text of a value as typed, cut to one short line.
    fn excerpt(&self, span: &Range<usize>) -> Option<String> {
        const SHOWN: usize = 60;
        let typed = self.text.get(span.clone())?;
        let line = typed.lines().next()?;
        let cut: String = line.chars().take(SHOWN).collect();
        Some(if cut.len() < typed.len() {
            cut + "…"
        } else {
            cut
        })
    }

    /// Notes a mistake of syntax, the first of each line: what follows on it is mostly an echo.
    fn note_broken(&mut self, error: &toml::de::Error) {
        let span = error.span().unwrap_or(0..0);
        let (line, _) = self.place(span.start);
        if self.broken.contains(&line) {
            return;
        }
        self.broken.push(line);
        let mut problem = self.problem(&span, "", error.message());
        problem.instead = Some(match error.message() {
            "duplicate key" => "keep one of the two".to_owned(),
            _ => "write KEY = VALUE, with strings in double quotes, or a [table]".to_owned(),
        });
        self.push(problem);
    }

    fn problem(&self, span: &Range<usize>, key: &str, message: impl Into<String>) -> Problem {
        let (line, column) = self.place(span.start);
        Problem {
            file: self.file.to_path_buf(),
            line,
            column,
            key: key.escape_debug().to_string(), // it may hold what a terminal obeys
            value: None,
            message: message.into(),
            allowed: None,
            instead: None,
        }
    }

    /// Notes a problem, unless its line could not be read anyway.
    fn push(&self, problem: Problem) {
        let syntax = problem.key.is_empty();
        if syntax || !self.broken.contains(&problem.line) {
            self.problems.borrow_mut().push(problem);
        }
    }
}
