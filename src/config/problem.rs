//! What is wrong with a configuration: every problem at once, each with its place and the way out.
//!
//! An operator who fixes one mistake only to meet the next wastes a restart on each, so reading never stops at the
//! first. A problem prints the value as it was typed, never what `${NAME}` or a secret stood for.

use std::fmt;
use std::path::PathBuf;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file it is in.
    pub file: PathBuf,
    /// Line, counted from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// Column in characters, counted from 1; 0 with line 0.
    pub column: usize,
    /// The key's path, as in `worker[1].max_inflight`; empty when there is none.
    pub key: String,
    /// The value as typed, cut to one short line; `None` when there is none or it must not be shown.
    pub value: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What is allowed there.
    pub allowed: Option<String>,
    /// The line to write instead, or another way out.
    pub instead: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        match (self.key.as_str(), &self.value) {
            ("", _) => {}
            (key, None) => write!(f, " {key}:")?,
            (key, Some(value)) => write!(f, " {key} = {value}:")?,
        }
        write!(f, " {}", self.message)?;
        if let Some(allowed) = &self.allowed {
            write!(f, "\n    allowed: {allowed}")?;
        }
        if let Some(instead) = &self.instead {
            write!(f, "\n    way out: {instead}")?;
        }
        Ok(())
    }
}

/// Everything that is wrong with a file, by line; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Puts problems in the order of the file; what was found twice is kept once.
    pub(super) fn sorted(mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| (a.line, a.column, a).cmp(&(b.line, b.column, b)));
        problems.dedup();
        Problems(problems)
    }

    /// Those of several files, in this order; `None` when there are none.
    pub(super) fn joined(of_files: impl Iterator<Item = Vec<Problem>>) -> Option<Self> {
        let sorted = of_files.flat_map(|problems| Problems::sorted(problems).0);
        let all: Vec<_> = sorted.collect();
        (!all.is_empty()).then_some(Problems(all))
    }

    /// The problems in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let gap = if at == 0 { "" } else { "\n\n" };
            write!(f, "{gap}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
