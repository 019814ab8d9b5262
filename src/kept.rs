//! What a process leaves for the next: documents in the state folder.
//!
//! A file per document, JSON, written whole beside the old one and then in its place, so that a reader finds one or the
//! other and never a half. For the owner's eyes: the folder holds the admin token too. What is read may be anything: an
//! older version's, cut by a full disk, or nobody's; whoever reads decides what to do without it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::facts::nesting;

/// A longer file is not ours.
const LARGEST: u64 = 16 << 20;

/// Puts a document in the place of the one before it.
///
/// # Errors
/// When the folder or the disk does not take it; the old one stays.
pub fn write(state: &Path, name: &str, document: &impl Serialize) -> io::Result<()> {
    let text = sonic_rs::to_string(document).map_err(io::Error::other)?;
    let fresh = state.join(format!("{name}.new"));
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(&fresh)?.write_all(text.as_bytes())?;
    fs::rename(fresh, state.join(name))
}

/// The document that was left; `None` when there is none.
///
/// # Errors
/// When it can't be read, or is not what is written there.
pub fn read<T: DeserializeOwned>(state: &Path, name: &str) -> io::Result<Option<T>> {
    let file = match File::open(state.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    let length = file.take(LARGEST + 1).read_to_string(&mut text)?;
    if length as u64 > LARGEST {
        return Err(io::Error::other("it is longer than 16 MiB"));
    }
    if nesting::is_too_deep(text.as_bytes()) {
        return Err(io::Error::other("it is nested too deep"));
    }
    let document = sonic_rs::from_str(&text);
    document
        .map(Some)
        .map_err(|_| io::Error::other("it is not what this version writes"))
}
