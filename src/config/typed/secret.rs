//! Secrets: `{ env = "NAME" }` or `{ file = "PATH" }`, never the value itself.
//!
//! A configuration file is copied into tickets and repositories; so a secret that stands in it as plain text is refused,
//! and not repeated in the message (promise P40).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{Value, expand};
use crate::config::plan::Secret;

/// A key longer than this is a wrong path.
const LARGEST: u64 = 64 << 10;

impl Value<'_> {
    /// The secret that this value points to: not empty, printable ASCII, so that it can travel in a header.
    pub fn secret(self) -> Option<Secret> {
        let value = self.concealed();
        if !value.is_table() {
            value.refuse("a secret is not written into this file");
            return None;
        }
        let entries = value.entries()?;
        let found = match entries.as_slice() {
            [(source, name)] if source == "env" => from_env(name)?,
            [(source, path)] if source == "file" => from_file(path)?,
            _ => {
                value.refuse("a secret has one source, env or file");
                return None;
            }
        };
        if found.is_empty() {
            value.refuse("this secret is empty");
            return None;
        }
        if !found.bytes().all(|b| b.is_ascii_graphic()) {
            value.refuse("this secret holds spaces or characters that can't travel in a header");
            return None;
        }
        Some(Secret::new(&found))
    }
}

fn from_env(name: &Value<'_>) -> Option<String> {
    let variable = name.text()?;
    if !expand::is_name(&variable) {
        name.refuse("this is not the name of an environment variable");
        return None;
    }
    let value = (name.reader.env)(&variable);
    if value.is_none() {
        let message = format!("the environment variable {variable} is not set");
        name.refuse_for(message, format!("set {variable}, or name another source"));
    }
    value
}

fn from_file(path: &Value<'_>) -> Option<String> {
    let typed = path.text()?;
    let found = path.reader.path(&typed);
    path.reader.reads(&found);
    match read(&found) {
        Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => {
            let message = format!("the file named here can't be read: {error}");
            path.refuse_for(message, "create it, or name another source");
            None
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?
        .take(LARGEST + 1)
        .read_to_string(&mut text)?;
    if read as u64 > LARGEST {
        return Err(io::Error::other(
            "it is larger than 64 KiB, which no key is",
        ));
    }
    Ok(text)
}
