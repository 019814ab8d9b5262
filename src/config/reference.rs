//! The reference: one row per key, the only place where a key's name, default, range and purpose are written down.
//!
//! The reader takes its known keys, defaults and ranges from here, messages take from here what is allowed, and
//! `forebay reference` prints it; so the manual can't say other than the program does. The form of an entry is that of
//! HAProxy's configuration manual: syntax, purpose, where, what is allowed, default, example, see also.

mod entry;
mod fleet;
mod kinds;
mod process;
mod queue;
mod region;
mod rows;
mod tenants;

pub use entry::{FORMS, manual};
pub use rows::ROWS;

use crate::units::{Bytes, Seconds};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its path: section and name, `limits.body`.
    pub key: &'static str,
    /// What kind of value it takes.
    pub kind: Kind,
    /// What holds when it is not typed.
    pub unset: Unset,
    /// What it is for, in one sentence or two.
    pub purpose: &'static str,
    /// Lines as they stand in a file, under the section's header.
    pub example: &'static str,
    /// Keys to read next.
    pub see: &'static [&'static str],
}

/// What holds when a key is not typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unset {
    /// This value, as it would be typed.
    Is(&'static str),
    /// What these words say.
    Means(&'static str),
    /// It has to be typed.
    Required,
}

/// What kind of value a key takes, and its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A table of its own, `[limits]`, or a small one inside a section.
    Section,
    /// A list of tables, `[[worker]]`.
    Sections,
    /// A table with the keys of another section; a key that is not typed falls through to it.
    Over(&'static str),
    /// A duration.
    Duration {
        /// The shortest.
        least: Seconds,
        /// The longest.
        most: Seconds,
    },
    /// A duration or `"off"`.
    Timer {
        /// The shortest.
        least: Seconds,
        /// The longest.
        most: Seconds,
    },
    /// A size.
    Size {
        /// The smallest.
        least: Bytes,
        /// The largest.
        most: Bytes,
    },
    /// A whole number.
    Count {
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
    /// A number.
    Number {
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// True or false.
    Flag,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A secret.
    Secret,
    /// Anything else, with rules of its own.
    Free {
        /// Its place-holder in the syntax.
        syntax: &'static str,
        /// What is allowed.
        allowed: &'static str,
    },
}

impl Kind {
    /// The place-holder of a value in the syntax line.
    #[must_use]
    pub const fn syntax(&self) -> &'static str {
        match self {
            Kind::Section | Kind::Sections | Kind::Over(_) => "TABLE",
            Kind::Duration { .. } => "DURATION",
            Kind::Timer { .. } => "DURATION | \"off\"",
            Kind::Size { .. } => "SIZE",
            Kind::Count { .. } | Kind::Number { .. } => "NUMBER",
            Kind::Flag => "true | false",
            Kind::OneOf(_) => "WORD",
            Kind::Secret => "SECRET",
            Kind::Free { syntax, .. } => syntax,
        }
    }

    /// What is allowed, in words.
    #[must_use]
    pub fn allowed(&self) -> String {
        const TIME: &str = "a number with its unit ms, s, m, h or d, as in \"1.5s\"";
        const SIZE: &str = "a number with its unit B, KiB, MiB, GiB, TiB, kB, MB, GB or TB";
        match self {
            Kind::Section => "one table".to_owned(),
            Kind::Sections => "a table for each".to_owned(),
            Kind::Over(section) => format!("a table with keys of [{section}]"),
            Kind::Duration { least, most } => format!("{TIME}, from {least} to {most}"),
            Kind::Timer { least, most } => format!("{TIME}, from {least} to {most}, or \"off\""),
            Kind::Size { least, most } => format!("{SIZE}, from {least} to {most}"),
            Kind::Count { least, most } => format!("a whole number from {least} to {most}"),
            Kind::Number { least, most } => format!("a number from {least} to {most}"),
            Kind::Flag => "true or false".to_owned(),
            Kind::OneOf(words) => format!("\"{}\"", words.join("\", \"")),
            Kind::Secret => {
                "{ env = \"NAME\" } or { file = \"PATH\" }, printable ASCII without spaces"
                    .to_owned()
            }
            Kind::Free { allowed, .. } => (*allowed).to_owned(),
        }
    }

    /// The header that opens a section of this kind in a file.
    #[must_use]
    pub fn header(&self, section: &str) -> String {
        match self {
            Kind::Sections => format!("[[{section}]]"),
            _ => format!("[{section}]"),
        }
    }
}

impl Row {
    /// The key without its section.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.key.rsplit('.').next().unwrap_or(self.key)
    }

    /// The section that the key stands in; empty for the top level.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.key.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// The section whose rows are the keys within this table.
    #[must_use]
    pub const fn keys_within(&self) -> &'static str {
        match self.kind {
            Kind::Over(section) => section,
            _ => self.key,
        }
    }

    /// The line of the example that shows this key.
    #[must_use]
    pub fn example_line(&self) -> &'static str {
        let shows_key = |line: &&str| line.starts_with(self.name());
        let mut lines = self.example.lines();
        lines
            .clone()
            .find(shows_key)
            .or_else(|| lines.next())
            .unwrap_or_default()
    }

    /// "write: KEY = VALUE".
    #[must_use]
    pub fn line_with(&self, value: &str) -> String {
        format!("write: {} = {value}", self.name())
    }
}

/// The row of a key.
#[must_use]
pub fn row(key: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.key == key)
}

/// The rows of the keys that stand directly in a section; empty means the top level.
pub fn within(section: &str) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.section() == section)
}

/// A path with one more step.
#[must_use]
pub fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// The rows that a person means by a word: a key's path, a section with all in it, or a bare name wherever it stands.
/// A path out of a message, `worker[1].url`, will do.
#[must_use]
pub fn look_up(word: &str) -> Vec<&'static Row> {
    let outside_brackets = |(depth, mut path): (u32, String), c: char| match c {
        '[' => (depth + 1, path),
        ']' => (depth.saturating_sub(1), path),
        c => {
            if depth == 0 || !c.is_ascii_digit() {
                path.push(c);
            }
            (depth, path)
        }
    };
    let (_, path) = word.chars().fold((0, String::new()), outside_brackets);
    let inside = format!("{path}.");
    let by_path: Vec<_> = ROWS
        .iter()
        .filter(|row| row.key == path || row.key.starts_with(&inside))
        .collect();
    if by_path.is_empty() {
        return ROWS.iter().filter(|row| row.name() == path).collect();
    }
    by_path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_row_and_every_section_too() {
        for (at, row) in ROWS.iter().enumerate() {
            let twin = ROWS[..at].iter().find(|earlier| earlier.key == row.key);
            assert!(twin.is_none(), "{} has two rows", row.key);
            let section = row.section();
            assert!(
                section.is_empty() || super::row(section).is_some(),
                "{section}"
            );
        }
    }

    #[test]
    fn what_is_seen_also_exists() {
        for row in ROWS {
            for key in row.see {
                assert!(super::row(key).is_some(), "{}: see {key}", row.key);
                assert_ne!(*key, row.key, "{} points at itself", row.key);
            }
        }
    }

    #[test]
    fn every_entry_says_what_a_reader_looks_for() {
        for row in ROWS {
            let entry = manual(&[row]);
            assert!(row.purpose.ends_with('.'), "{}", row.key);
            for caption in [
                "syntax", "purpose", "where", "allowed", "default", "example", "see also",
            ] {
                assert!(
                    entry.contains(&format!("\n  {caption} ")),
                    "{}: {caption}",
                    row.key
                );
            }
        }
    }

    #[test]
    fn a_key_is_found_as_people_write_it() {
        let keys = |word| look_up(word).iter().map(|row| row.key).collect::<Vec<_>>();
        assert_eq!(keys("limits.body"), ["limits.body"]);
        assert_eq!(keys("worker[1].url"), ["worker.url"]);
        assert_eq!(keys("[[worker]]"), keys("worker"));
        assert_eq!(keys("max_inflight"), ["worker.max_inflight"]);
        assert_eq!(keys("path"), ["probe.path", "route.path"]);
        assert!(keys("probe").contains(&"probe.fall"));
        assert!(keys("colour").is_empty());
    }
}
