//! A table of a fleet file, and the readings of its values: what can't be read is noted with its place and the way out.
//!
//! The configuration's own reader takes its keys from the configuration's reference, so it can't read this file; its
//! units, its form of a problem and its "did you mean" are used.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key};
use crate::config::suggest::nearest;
use crate::config::{Problem, quantity};
use crate::units::Seconds;

/// The longest value that is repeated in a message, in characters.
const SHOWN: usize = 60;

/// A file that is read.
pub(super) struct File<'a> {
    pub path: &'a Path,
    pub text: &'a str,
    pub problems: RefCell<Vec<Problem>>,
}

/// One table of it.
pub(super) struct Table<'a> {
    file: &'a File<'a>,
    /// Which keys it may have.
    kind: &'static str,
    /// Its name in messages.
    path: String,
    start: usize,
    keys: DeTable<'a>,
}

impl File<'_> {
    /// Notes a problem at a byte of the text.
    pub(super) fn note(&self, byte: usize, key: &str, message: &str) {
        self.push(self.problem(byte, key, message));
    }

    fn problem(&self, byte: usize, key: &str, message: &str) -> Problem {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Problem {
            file: self.path.to_path_buf(),
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            key: key.escape_debug().to_string(),
            value: None,
            message: message.to_owned(),
            allowed: None,
            instead: None,
        }
    }

    fn push(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    fn excerpt(&self, span: &Range<usize>) -> Option<String> {
        let line = self.text.get(span.clone())?.lines().next()?;
        Some(line.chars().take(SHOWN).collect())
    }
}

impl<'a> Table<'a> {
    /// The whole file.
    pub(super) fn root(file: &'a File<'a>, keys: DeTable<'a>) -> Self {
        let root = Table {
            file,
            kind: "",
            path: String::new(),
            start: 0,
            keys,
        };
        root.refuse_unknown();
        root
    }

    /// The tables of a list; none when it is not there.
    pub(super) fn tables(&self, key: &str) -> Vec<Table<'a>> {
        let Some((row, node)) = self.given(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = node.get_ref() else {
            self.refuse(key, "this is a list of tables");
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let Some(keys) = item.get_ref().as_table() else {
                self.refuse(key, "this is a list of tables");
                continue;
            };
            let table = Table {
                file: self.file,
                kind: row.name,
                path: format!("{key}[{at}]"),
                start: item.span().start,
                keys: keys.clone(),
            };
            table.refuse_unknown();
            tables.push(table);
        }
        tables
    }

    /// A string.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        let (_, node) = self.given(key)?;
        let text = node.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.refuse(key, "a string is wanted here");
        }
        text
    }

    /// A number within its range.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        let (row, node) = self.given(key)?;
        let number = match node.get_ref() {
            DeValue::Integer(whole) if whole.radix() == 10 => whole.as_str().parse().ok(),
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        };
        let Some(number) = number else {
            self.refuse(key, "a number is wanted here");
            return None;
        };
        let within = row.holds(number);
        if !within {
            self.refuse(key, "this number is out of range");
        }
        within.then_some(number)
    }

    /// A duration within its range.
    pub(super) fn duration(&self, key: &str) -> Option<Seconds> {
        let (row, node) = self.given(key)?;
        self.seconds(key, (row, node.get_ref()))
    }

    /// Names with durations; those that can't be read are left out.
    pub(super) fn durations(&self, key: &str) -> Vec<(String, Seconds)> {
        let Some((row, node)) = self.given(key) else {
            return Vec::new();
        };
        let Some(table) = node.get_ref().as_table() else {
            self.refuse(key, "a table of names is wanted here");
            return Vec::new();
        };
        let read = table.iter().filter_map(|(name, node)| {
            let span = self.seconds(key, (row, node.get_ref()))?;
            Some((name.get_ref().to_string(), span))
        });
        read.collect()
    }

    /// A string that has to be there.
    pub(super) fn required_text(&self, key: &str) -> Option<String> {
        self.require(key)?;
        self.text(key)
    }

    /// A number that has to be there.
    pub(super) fn required_number(&self, key: &str) -> Option<f64> {
        self.require(key)?;
        self.number(key)
    }

    /// A duration that has to be there.
    pub(super) fn required_duration(&self, key: &str) -> Option<Seconds> {
        self.require(key)?;
        self.duration(key)
    }

    /// Whether nothing was found wrong with the file yet.
    pub(super) fn is_good_so_far(&self) -> bool {
        self.file.problems.borrow().is_empty()
    }

    /// Notes what is wrong with a key, or with its absence.
    pub(super) fn refuse(&self, key: &str, message: &str) {
        let row = self.row(key);
        let way_out = row.map(|row| format!("write, for example: {}", row.example));
        self.refuse_for(key, message, row.map(|row| row.allowed.to_owned()), way_out);
    }

    /// Notes a word that is none of those known.
    pub(super) fn refuse_word<'k>(
        &self,
        key: &str,
        word: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) {
        let known: Vec<&str> = known.into_iter().collect();
        let near = nearest(word, known.iter().copied());
        let way_out = match near {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "write one of these".to_owned(),
        };
        let allowed = format!("\"{}\"", known.join("\", \""));
        self.refuse_for(key, "unknown word", Some(allowed), Some(way_out));
    }

    fn refuse_for(
        &self,
        key: &str,
        message: &str,
        allowed: Option<String>,
        instead: Option<String>,
    ) {
        let span = self.given(key).map(|(_, node)| node.span());
        let start = span.as_ref().map_or(self.start, |span| span.start);
        let mut problem = self.file.problem(start, &self.key_path(key), message);
        problem.value = span.and_then(|span| self.file.excerpt(&span));
        problem.allowed = allowed;
        problem.instead = instead;
        self.file.push(problem);
    }

    fn require(&self, key: &str) -> Option<()> {
        let there = self.given(key).is_some();
        if !there {
            self.refuse(key, "this key is required");
        }
        there.then_some(())
    }

    fn seconds(&self, key: &str, (row, node): (&Key, &DeValue<'_>)) -> Option<Seconds> {
        let read = node.as_str().map(quantity::duration);
        match read {
            Some(Ok(span)) if row.holds(span.0) => return Some(span),
            Some(Ok(_)) => self.refuse(key, "this duration is out of range"),
            Some(Err(flaw)) => self.refuse(key, flaw.words()),
            None => self.refuse(key, "a duration is wanted here, with its unit"),
        }
        None
    }

    fn given(&self, key: &str) -> Option<(&'static Key, &toml::Spanned<DeValue<'a>>)> {
        let row = self.row(key)?;
        let (_, node) = self.keys.iter().find(|(name, _)| name.get_ref() == key)?;
        Some((row, node))
    }

    fn row(&self, key: &str) -> Option<&'static Key> {
        self.rows().find(|row| row.name == key)
    }

    fn rows(&self) -> impl Iterator<Item = &'static Key> {
        let kind = self.kind;
        KEYS.iter().filter(move |row| row.table == kind)
    }

    fn key_path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn refuse_unknown(&self) {
        let known: Vec<&str> = self.rows().map(|row| row.name).collect();
        for (name, _) in self.keys.iter() {
            let key = name.get_ref();
            if known.contains(&key.as_ref()) {
                continue;
            }
            let mut problem =
                self.file
                    .problem(name.span().start, &self.key_path(key), "unknown key");
            problem.allowed = Some(known.join(", "));
            let near = nearest(key, known.iter().copied());
            problem.instead = near.map(|near| format!("did you mean {near}?"));
            self.file.push(problem);
        }
    }
}

impl Key {
    /// Whether a number is within the range.
    fn holds(&self, number: f64) -> bool {
        (self.range.0..=self.range.1).contains(&number) && (!self.whole || number.fract() == 0.0)
    }
}
