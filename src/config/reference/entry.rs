//! A row as an entry of the manual.

use std::fmt::Write as _;

use super::{Kind, ROWS, Row, Unset};

/// The width of the column of captions.
const CAPTION: usize = 10;
/// Where a line of prose ends.
const WIDTH: usize = 100;

/// How values are written, once for all entries.
pub const FORMS: &str = "\
How values are written
  DURATION  a number with its unit ms, s, m, h or d: \"250ms\", \"1.5s\", \"30m\"; never a bare number
  SIZE      a number with its unit B, KiB, MiB, GiB, TiB (1024) or kB, MB, GB, TB (1000): \"64KiB\"
  SECRET    { env = \"NAME\" } or { file = \"PATH\" }, whose last line end is cut off; never the value itself
  PATH      a relative one starts at the folder of the configuration file
  strings   ${NAME} is replaced out of the environment, $${ stands for a plain ${
";

/// These rows as a manual, one entry after the other.
#[must_use]
pub fn manual(rows: &[&Row]) -> String {
    let entries: Vec<String> = rows.iter().map(|row| entry(row)).collect();
    entries.join("\n")
}

fn entry(row: &Row) -> String {
    let mut out = format!("{}\n", row.key);
    line(&mut out, "syntax", &syntax(row));
    line(&mut out, "purpose", row.purpose);
    line(&mut out, "where", &place(row));
    line(&mut out, "allowed", &row.kind.allowed());
    line(&mut out, "default", default(row));
    let header = header(row);
    for (at, text) in header
        .iter()
        .map(String::as_str)
        .chain(row.example.lines())
        .enumerate()
    {
        line(&mut out, if at == 0 { "example" } else { "" }, text);
    }
    if !row.see.is_empty() {
        line(&mut out, "see also", &row.see.join(", "));
    }
    out
}

fn syntax(row: &Row) -> String {
    match row.kind {
        Kind::Section | Kind::Sections if row.section().is_empty() => row.kind.header(row.key),
        kind => format!("{} = {}", row.name(), kind.syntax()),
    }
}

fn default(row: &Row) -> &'static str {
    match row.unset {
        Unset::Is(text) | Unset::Means(text) => text,
        Unset::Required => "none, it has to be written",
    }
}

fn place(row: &Row) -> String {
    let mut places = match (row.section().rsplit_once('.'), header(row)) {
        (Some((_, table)), Some(header)) => format!("{table} in {header}"),
        (None, Some(header)) => header,
        _ if matches!(row.kind, Kind::Section | Kind::Sections) => "a table of the file".to_owned(),
        _ => "top of the file, before any table".to_owned(),
    };
    let here_too = |over: &&Row| over.kind == Kind::Over(row.section());
    for over in ROWS.iter().filter(here_too) {
        let _ = write!(places, ", {}", over.key);
    }
    places
}

/// The header under which the example stands, unless the example brings its own.
fn header(row: &Row) -> Option<String> {
    let outer = row.section().split('.').next().unwrap_or_default();
    let kind = super::row(outer)?.kind;
    (!row.example.starts_with('[')).then(|| kind.header(outer))
}

/// A caption and its text, wrapped at words unless it is code.
fn line(out: &mut String, caption: &str, text: &str) {
    let mut width = 0;
    let _ = write!(out, "  {caption:CAPTION$}");
    if caption.is_empty() || caption == "example" {
        let _ = writeln!(out, "{text}");
        return;
    }
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH - CAPTION - 2 {
            let _ = write!(out, "\n  {:CAPTION$}", "");
            width = 0;
        }
        if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out.push('\n');
}
