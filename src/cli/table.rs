//! Tables for people: columns of a fixed width, never more than 80 letters together.
//!
//! A text that is too long for its column is cut and says so with `…`; who needs all of it takes `--json`.

use super::terminal::{Colour, painted, plain};

/// Letters of a line.
const WIDTH: usize = 80;
/// What a sentence below a line begins with.
const INDENT: &str = "  ";

/// A column.
pub struct Column {
    title: &'static str,
    width: usize,
    is_number: bool,
}

/// What stands in one place.
pub struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl Column {
    /// Of words.
    pub const fn words(title: &'static str, width: usize) -> Self {
        Column {
            title,
            width,
            is_number: false,
        }
    }

    /// Of numbers, which end where the column ends.
    pub const fn number(title: &'static str, width: usize) -> Self {
        Column {
            title,
            width,
            is_number: true,
        }
    }

    fn fill(&self, text: &str) -> String {
        let mut shown = plain(text);
        if shown.chars().count() > self.width {
            shown = shown.chars().take(self.width - 1).chain(['…']).collect();
        }
        let width = self.width;
        if self.is_number {
            format!("{shown:>width$}")
        } else {
            format!("{shown:width$}")
        }
    }
}

impl Cell {
    /// In this colour.
    pub fn coloured(text: &str, colour: Colour) -> Self {
        Cell {
            text: text.to_owned(),
            colour: Some(colour),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell {
            text: text.into(),
            colour: None,
        }
    }
}

/// The line of titles.
pub fn titles(columns: &[Column]) -> String {
    let titles = columns.iter().map(|column| column.fill(column.title));
    titles.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// One line.
pub fn line<const N: usize>(columns: &[Column; N], cells: [Cell; N]) -> String {
    let filled = columns.iter().zip(cells);
    let filled = filled.map(|(column, cell)| painted(&column.fill(&cell.text), cell.colour));
    filled.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// A sentence below a line, indented, over as many lines as it needs.
pub fn paragraph(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in plain(text).split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{INDENT}{word}")),
        }
    }
    lines.join("\n")
}

/// A span with three digits that count; a dash where it is not known.
pub fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(s) if s < 0.999_5 => format!("{:.1} ms", s * 1e3),
        Some(s) if s < 9.995 => format!("{s:.2} s"),
        Some(s) if s < 99.95 => format!("{s:.1} s"),
        Some(s) => format!("{s:.0} s"),
    }
}

/// A text, or a dash.
pub fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_what_a_terminal_would_obey_is_not_written() {
        let columns = [Column::words("name", 6), Column::number("took", 8)];
        assert_eq!(titles(&columns), "name       took");
        let row = line(&columns, ["a\u{1b}[2J-very-long".into(), "1.00 s".into()]);
        assert_eq!(row, "a\u{fffd}[2J…   1.00 s");
    }

    #[test]
    fn a_sentence_is_broken_between_words_only() {
        let text = format!("{} ab {}", "x".repeat(75), "y".repeat(90));
        let told = paragraph(&text);
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(
            lines,
            [
                format!("  {} ab", "x".repeat(75)),
                format!("  {}", "y".repeat(90))
            ]
        );
        assert_eq!(paragraph("a\u{1b}b c"), "  a\u{fffd}b c");
    }

    #[test]
    fn spans_have_three_digits_that_count() {
        let spans = [0.012_34, 1.234, 12.34, 123.4].map(|span| time(Some(span)));
        assert_eq!(spans, ["12.3 ms", "1.23 s", "12.3 s", "123 s"]);
        assert_eq!(time(None), "-");
    }
}
