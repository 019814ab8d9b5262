//! A section of the file: a table whose keys, defaults and ranges are rows of the reference.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::{Reader, Value};
use crate::config::reference::{self, Kind, Row, Unset};
use crate::config::suggest::nearest;
use crate::config::words::Choice;
use crate::config::{later, reference::join};
use crate::units::{Bytes, Seconds};

/// A table as typed, or its absence.
pub struct Section<'a> {
    /// Where values read themselves.
    pub reader: &'a Reader<'a>,
    /// The section's key in the reference; empty for the top level.
    rows: &'static str,
    /// Its path as shown in messages, as in `worker[1].probe`.
    path: String,
    span: Range<usize>,
    keys: DeTable<'a>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub fn root(reader: &'a Reader<'a>, keys: DeTable<'a>) -> Self {
        let section = Section {
            reader,
            rows: "",
            path: String::new(),
            span: 0..0,
            keys,
        };
        section.refuse_unknown_keys();
        section
    }

    /// A file that is one section of a list, `worker`, without its header.
    pub fn alone(list: &'static str, reader: &'a Reader<'a>, keys: DeTable<'a>) -> Self {
        let section = Section {
            reader,
            rows: list,
            path: list.to_owned(),
            span: 0..0,
            keys,
        };
        section.refuse_unknown_keys();
        section
    }

    /// A section within this one. When it is not typed, it is empty and all its defaults hold.
    pub fn section(&self, key: &str) -> Section<'a> {
        let typed = self.given(key).and_then(|value| value.section());
        typed.unwrap_or_else(|| Section {
            reader: self.reader,
            rows: self.row(key).map_or("", |row| row.keys_within()),
            path: join(&self.path, key),
            span: self.span.clone(),
            keys: DeTable::new(),
        })
    }

    /// The sections of a list, `[[worker]]`; none when it is not typed.
    pub fn sections(&self, key: &str) -> Vec<Section<'a>> {
        let typed = self.given(key).and_then(|value| value.items());
        let items = typed.unwrap_or_default();
        items.iter().filter_map(Value::section).collect()
    }

    /// A section out of a value that turned out to be a table.
    pub(super) fn within(value: &Value<'a>, keys: DeTable<'a>) -> Self {
        let section = Section {
            reader: value.reader,
            rows: value.row.keys_within(),
            path: value.path.clone(),
            span: value.span.clone(),
            keys,
        };
        section.refuse_unknown_keys();
        section
    }

    /// The value of a key if it was typed.
    pub fn given(&self, key: &str) -> Option<Value<'a>> {
        let row = self.row(key)?;
        let (_, node) = self.keys.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Value {
            reader: self.reader,
            row,
            path: join(&self.path, key),
            span: node.span(),
            node: node.get_ref().clone(),
            shown: true,
        })
    }

    /// The value of a key, or else the default out of the reference. A required key that is not typed is a problem.
    pub fn value(&self, key: &str) -> Option<Value<'a>> {
        if let Some(typed) = self.given(key) {
            return Some(typed);
        }
        let row = self.row(key)?;
        let Unset::Is(default) = row.unset else {
            self.missing(key);
            return None;
        };
        let node = DeValue::parse(default).ok()?.into_inner();
        Some(Value {
            reader: self.reader,
            row,
            path: join(&self.path, key),
            span: self.span.clone(),
            node,
            shown: false, // it stands nowhere in the file
        })
    }

    /// A duration, typed or by default.
    pub fn duration(&self, key: &str) -> Option<Seconds> {
        self.value(key)?.duration()
    }

    /// A duration or `"off"`, typed or by default.
    pub fn timer(&self, key: &str) -> Option<Option<Seconds>> {
        self.value(key)?.timer()
    }

    /// A size, typed or by default.
    pub fn size(&self, key: &str) -> Option<Bytes> {
        self.value(key)?.size()
    }

    /// A whole number, typed or by default.
    pub fn count(&self, key: &str) -> Option<u32> {
        self.value(key)?.count()
    }

    /// One of a few words, typed or by default.
    pub fn choice<T: Choice>(&self, key: &str) -> Option<T> {
        self.value(key)?.choice()
    }

    /// The line where this section stands.
    pub fn line(&self) -> usize {
        self.reader.place(self.span.start).0
    }

    /// Notes that a key which has no default was not typed. Silent when the file has broken lines: it may be on one.
    pub fn missing(&self, key: &str) {
        let Some(row) = self.row(key).filter(|_| self.reader.broken.is_empty()) else {
            return;
        };
        let path = join(&self.path, key);
        let mut problem = self
            .reader
            .problem(&self.span, &path, "this key is required");
        problem.allowed = Some(row.kind.allowed());
        problem.instead = Some(format!("write: {}", row.example_line()));
        self.reader.push(problem);
    }

    fn row(&self, key: &str) -> Option<&'static Row> {
        reference::row(&join(self.rows, key))
    }

    fn refuse_unknown_keys(&self) {
        for (name, _) in self.keys.iter() {
            let key = name.get_ref();
            if self.row(key).is_none() {
                self.refuse_key(&name.span(), key);
            }
        }
    }

    fn refuse_key(&self, span: &Range<usize>, key: &str) {
        let path = join(&self.path, key);
        if let Some(way_out) = later::instead_of_foreign(self.rows, key) {
            let mut problem = self.reader.problem(span, &path, "this is nginx's key");
            problem.instead = Some(way_out.to_owned());
            self.reader.push(problem);
        } else if later::comes_later(self.rows, key) {
            let message = "this key is not supported by this version yet";
            let mut problem = self.reader.problem(span, &path, message);
            problem.instead = Some("leave it out".to_owned());
            self.reader.push(problem);
        } else {
            let mut problem = self.reader.problem(span, &path, "unknown key");
            problem.allowed = Some(self.known_keys().join(", "));
            problem.instead = self.suggestion(key);
            self.reader.push(problem);
        }
    }

    fn known_keys(&self) -> Vec<&'static str> {
        reference::within(self.rows).map(Row::name).collect()
    }

    /// The nearest key of this section, else the section that has this very key.
    fn suggestion(&self, key: &str) -> Option<String> {
        if let Some(near) = nearest(key, self.known_keys()) {
            return Some(format!("did you mean {near}?"));
        }
        let elsewhere = reference::ROWS.iter().find(|row| row.name() == key)?;
        match elsewhere.section() {
            "" => Some(format!(
                "{key} belongs at the top of the file, before any table"
            )),
            section => {
                let header = reference::row(section).map_or(Kind::Section, |row| row.kind);
                Some(format!("{key} belongs in {}", header.header(section)))
            }
        }
    }
}
