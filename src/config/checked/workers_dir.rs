//! `workers_dir`: a folder in which each file is one worker, for tools that start and stop them.
//!
//! A file `NAME.toml` holds the keys of a `[[worker]]` without its header. Others in the folder are left alone: what an
//! editor or a tool writes beside is none of ours.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::typed::{Section, Value};

/// The most files.
const MOST: usize = 1_000;
/// The longest, in bytes.
const LONGEST: u64 = 64 << 10;

/// The folder as typed.
pub fn folder(root: &Section<'_>) -> Option<PathBuf> {
    root.given("workers_dir").and_then(|value| value.path())
}

/// The files and their texts, by name.
pub fn worker_files(root: &Section<'_>) -> Vec<(PathBuf, String)> {
    let Some(value) = root.given("workers_dir") else {
        return Vec::new();
    };
    let Some(folder) = value.path() else {
        return Vec::new();
    };
    value.reads(&folder);
    let listed = match list(&folder) {
        Ok(listed) => listed,
        Err(error) => {
            let message = format!("the folder named here can't be read: {error}");
            value.refuse_for(message, "create it, or leave this out");
            return Vec::new();
        }
    };
    if listed.len() > MOST {
        let message = format!("there are {} files in this folder", listed.len());
        value.refuse_for(message, format!("keep no more than {MOST} there"));
        return Vec::new();
    }
    let texts = listed.into_iter().filter_map(|path| {
        value.reads(&path);
        let text = text(&value, &path)?;
        Some((path, text))
    });
    texts.collect()
}

fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut listed = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path
            .file_name()
            .is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if !is_hidden && path.extension().is_some_and(|end| end == "toml") {
            listed.push(path);
        }
    }
    listed.sort();
    Ok(listed)
}

fn text(value: &Value<'_>, path: &Path) -> Option<String> {
    let read = || {
        let found = fs::metadata(path)?;
        if !found.is_file() || found.len() > LONGEST {
            return Err(io::Error::other("it is no regular file of up to 64 KiB"));
        }
        fs::read_to_string(path)
    };
    match read() {
        Ok(text) => Some(text),
        Err(error) => {
            let message = format!("{} can't be read: {error}", path.display());
            value.refuse_for(message, "mend it, or take it out of this folder");
            None
        }
    }
}
