//! `state`: where the process keeps what outlives it.

use std::path::{Path, PathBuf};

use crate::config::typed::Section;

/// The folder as typed; else systemd's, else the one of the XDG base directory specification.
pub fn state(root: &Section<'_>) -> Option<PathBuf> {
    if let Some(typed) = root.given("state") {
        let path = typed.text()?;
        if path.is_empty() {
            typed.refuse("this path is empty");
            return None;
        }
        return Some(root.reader.path(&path));
    }
    let folder = by_environment(root);
    if folder.is_none() {
        root.missing("state");
    }
    folder
}

fn by_environment(root: &Section<'_>) -> Option<PathBuf> {
    // systemd separates several folders with colons; the first is the service's own.
    if let Some(folders) = root.reader.env("STATE_DIRECTORY") {
        return folders.split(':').next().map(PathBuf::from);
    }
    // The specification says to ignore a relative path.
    let xdg = root.reader.env("XDG_STATE_HOME").map(PathBuf::from);
    let home = || {
        let home = root.reader.env("HOME")?;
        Some(Path::new(&home).join(".local/state"))
    };
    let base = xdg.filter(|path| path.is_absolute()).or_else(home)?;
    Some(base.join("forebay"))
}
