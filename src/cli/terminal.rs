//! Writing to the terminal. A reader that went away (`forebay reference | head`) is no reason to fail, let alone to
//! panic as `println!` would.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use super::env;

/// A line on standard output.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Bytes on standard output, as they are.
pub fn put(bytes: &[u8]) {
    let _ = io::stdout().lock().write_all(bytes);
}

/// A line on standard error.
pub fn complain(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The colours that a terminal has for states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// All is well.
    Green,
    /// It will be, or somebody wants it so.
    Yellow,
    /// It is not.
    Red,
}

/// A text in a colour, where a person looks and has not said otherwise (<https://no-color.org>).
pub fn painted(text: &str, colour: Option<Colour>) -> String {
    let code = match colour {
        Some(Colour::Green) => 32,
        Some(Colour::Yellow) => 33,
        Some(Colour::Red) => 31,
        None => return text.to_owned(),
    };
    let wanted = env("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted && io::stdout().is_terminal() {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// A text from elsewhere, without what a terminal would obey.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_control() {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect()
}
