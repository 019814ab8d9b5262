//! A value as typed, and the readings of it: a duration, a size, a choice.
//!
//! What is allowed comes from the value's row in the reference, so that a message can't say other than the manual does.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::quantity::{self, Flaw};
use super::{Reader, Section, expand};
use crate::config::reference::{Kind, Row};
use crate::config::suggest::nearest;
use crate::config::words::Choice;
use crate::units::{Bytes, Seconds};

/// A value with its place, its path and its row.
pub struct Value<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) row: &'static Row,
    pub(super) path: String,
    pub(super) span: Range<usize>,
    pub(super) node: DeValue<'a>,
    pub(super) shown: bool,
}

impl<'a> Value<'a> {
    /// This value, never printed in a problem: it may be a secret.
    #[must_use]
    pub fn concealed(mut self) -> Self {
        self.shown = false;
        self
    }

    /// Notes what is wrong, with what is allowed and an example out of the reference.
    pub fn refuse(&self, message: impl Into<String>) {
        self.refuse_for(
            message,
            format!("write, for example: {}", self.row.example_line()),
        );
    }

    /// Notes what is wrong, with what is allowed and this way out.
    pub fn refuse_for(&self, message: impl Into<String>, way_out: impl Into<String>) {
        let mut problem = self.reader.problem(&self.span, &self.path, message);
        problem.value = self.reader.excerpt(&self.span).filter(|_| self.shown);
        problem.allowed = Some(self.row.kind.allowed());
        problem.instead = Some(way_out.into());
        self.reader.push(problem);
    }

    fn refuse_type(&self, wanted: &str) {
        let got = self.node.type_str();
        let article = if matches!(got, "integer" | "array") {
            "an"
        } else {
            "a"
        };
        self.refuse(format!("{wanted} is wanted here, this is {article} {got}"));
    }

    /// A string with its `${NAME}` replaced.
    pub fn text(&self) -> Option<String> {
        let DeValue::String(typed) = &self.node else {
            self.refuse_type("a string");
            return None;
        };
        match expand::expand(typed, self.reader.env) {
            Ok(text) => Some(text),
            Err(flaw) => {
                self.refuse_for(flaw.words(), flaw.way_out());
                None
            }
        }
    }

    /// A path, relative to the folder of the configuration file.
    pub fn path(&self) -> Option<PathBuf> {
        Some(self.reader.path(&self.text()?))
    }

    /// Notes that what stands in this file is part of the plan.
    pub fn reads(&self, path: &Path) {
        self.reader.reads(path);
    }

    /// True or false.
    pub fn flag(&self) -> Option<bool> {
        let flag = self.node.as_bool();
        if flag.is_none() {
            self.refuse_type("true or false");
        }
        flag
    }

    /// A whole number within the row's range.
    pub fn count(&self) -> Option<u32> {
        let DeValue::Integer(typed) = &self.node else {
            self.refuse_type("a whole number");
            return None;
        };
        let number = u32::from_str_radix(typed.as_str(), typed.radix()).ok();
        let within = number.filter(|n| match self.row.kind {
            Kind::Count { least, most } => (least..=most).contains(n),
            _ => true,
        });
        if within.is_none() {
            self.refuse("this number is out of range");
        }
        within
    }

    /// A number, whole or not, within the row's range.
    pub fn number(&self) -> Option<f64> {
        let typed = match &self.node {
            DeValue::Integer(whole) if whole.radix() == 10 => whole.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => {
                self.refuse_type("a number");
                return None;
            }
        };
        let within = typed.parse::<f64>().ok().filter(|n| match self.row.kind {
            Kind::Number { least, most } => (least..=most).contains(n),
            _ => n.is_finite(),
        });
        if within.is_none() {
            self.refuse("this number is out of range");
        }
        within
    }

    /// A duration within the row's range.
    pub fn duration(&self) -> Option<Seconds> {
        let read = self.quantity("s", quantity::duration)?;
        let within = match self.row.kind {
            Kind::Duration { least, most } | Kind::Timer { least, most } => {
                least <= read && read <= most
            }
            _ => true,
        };
        if !within {
            self.refuse("this duration is out of range");
        }
        within.then_some(read)
    }

    /// A duration within the row's range, or `"off"`, which is `None`.
    pub fn timer(&self) -> Option<Option<Seconds>> {
        if self.node.as_bool() == Some(false) {
            let way_out = self.row.line_with("\"off\"");
            self.refuse_for("a timer is switched off by a word", way_out);
            return None;
        }
        if self.node.is_str() && self.text()? == "off" {
            return Some(None);
        }
        self.duration().map(Some)
    }

    /// A size within the row's range.
    pub fn size(&self) -> Option<Bytes> {
        let read = self.quantity("B", quantity::size)?;
        let within = match self.row.kind {
            Kind::Size { least, most } => least <= read && read <= most,
            _ => true,
        };
        if !within {
            self.refuse("this size is out of range");
        }
        within.then_some(read)
    }

    /// A quantity. A bare number is refused, with the line to write if a unit would make it one.
    fn quantity<T>(&self, unit: &str, read: fn(&str) -> Result<T, Flaw>) -> Option<T> {
        let bare = match &self.node {
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str()),
            DeValue::Float(number) => Some(number.as_str()),
            DeValue::String(text) if read(text).err() == Some(Flaw::NoUnit) => Some(text.as_ref()),
            _ => None,
        };
        if let Some(number) = bare {
            let message = "a bare number has no unit";
            let with_unit = format!("{number}{unit}");
            match read(&with_unit) {
                // Where durations are parts of a value, the line would not be it.
                Ok(_) if matches!(self.row.kind, Kind::Free { .. }) => self.refuse(message),
                Ok(_) => self.refuse_for(message, self.row.line_with(&format!("\"{with_unit}\""))),
                Err(_) => self.refuse(message),
            }
            return None;
        }
        let text = self.text()?;
        let quantity = read(&text);
        match &quantity {
            Ok(_) => {}
            Err(_) if text == "off" => self.refuse("this one can't be switched off"),
            Err(flaw) => self.refuse(flaw.words()),
        }
        quantity.ok()
    }

    /// One of a few words.
    pub fn choice<T: Choice>(&self) -> Option<T> {
        let text = self.text()?;
        let choice = T::named(&text);
        if choice.is_none() {
            match nearest(&text, T::WORDS.iter().map(|(word, _)| *word)) {
                Some(near) => self.refuse_for("unknown word", format!("did you mean \"{near}\"?")),
                None => self.refuse("unknown word"),
            }
        }
        choice
    }

    /// The items of a list, each a value of its own.
    pub fn items(&self) -> Option<Vec<Value<'a>>> {
        let DeValue::Array(items) = &self.node else {
            match self.row.kind {
                Kind::Sections => {
                    let header = self.row.kind.header(self.row.key);
                    self.refuse_for("this is a list of tables", format!("write: {header}"));
                }
                _ => self.refuse_type("a list"),
            }
            return None;
        };
        let item = |(at, item): (usize, &toml::Spanned<DeValue<'a>>)| Value {
            reader: self.reader,
            row: self.row,
            path: format!("{}[{at}]", self.path),
            span: item.span(),
            node: item.get_ref().clone(),
            shown: self.shown,
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// Names and values of a table whose keys are the operator's own, in the order of the file.
    pub fn entries(&self) -> Option<Vec<(String, Value<'a>)>> {
        let keys = self.table()?;
        let entry = |(name, node): (&toml::Spanned<_>, &toml::Spanned<DeValue<'a>>)| {
            let name: &std::borrow::Cow<'_, str> = name.get_ref();
            let value = Value {
                reader: self.reader,
                row: self.row,
                path: format!("{}.{name}", self.path),
                span: node.span(),
                node: node.get_ref().clone(),
                shown: self.shown,
            };
            (name.clone().into_owned(), value)
        };
        let mut entries: Vec<_> = keys.iter().map(entry).collect();
        entries.sort_by_key(|(_, value)| value.span.start);
        Some(entries)
    }

    /// Whether this very word was typed.
    pub fn is_word(&self, word: &str) -> bool {
        self.node.as_str() == Some(word)
    }

    /// Whether a list or table with nothing in it was typed.
    pub fn is_empty(&self) -> bool {
        match &self.node {
            DeValue::Array(items) => items.is_empty(),
            DeValue::Table(keys) => keys.is_empty(),
            _ => false,
        }
    }

    /// Whether a string was typed.
    pub fn is_text(&self) -> bool {
        self.node.is_str()
    }

    /// Whether a table was typed.
    pub fn is_table(&self) -> bool {
        self.node.is_table()
    }

    /// The section that this table is.
    pub fn section(&self) -> Option<Section<'a>> {
        let keys = self.table()?.clone();
        Some(Section::within(self, keys))
    }

    fn table(&self) -> Option<&DeTable<'a>> {
        let table = self.node.as_table();
        if table.is_none() {
            match self.row.kind {
                Kind::Section if self.node.is_array() => {
                    let header = self.row.kind.header(self.row.key);
                    self.refuse_for(
                        "there is only one of this table",
                        format!("write: {header}"),
                    );
                }
                _ => self.refuse_type("a table"),
            }
        }
        table
    }
}
