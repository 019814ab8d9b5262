//! Writing to the terminal. A reader that went away (`forebay reference | head`) is no reason to fail, let alone to panic
//! as `println!` would.

use std::fmt::Display;
use std::io::{self, Write};

/// A line on standard output.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// A line on standard error.
pub fn complain(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
