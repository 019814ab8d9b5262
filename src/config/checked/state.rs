//! `state`: where the process keeps what outlives it.

use std::path::{Path, PathBuf};

use crate::config::typed::{Env, Section};

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
    let folder = by_environment(&|name| root.reader.env(name));
    if folder.is_none() {
        root.missing("state");
    }
    folder
}

/// The folder where none is typed. An empty variable counts as not set.
pub fn by_environment(env: Env<'_>) -> Option<PathBuf> {
    let env = |name| env(name).filter(|value| !value.is_empty());
    // systemd separates several folders with colons; the first is the service's own.
    if let Some(folders) = env("STATE_DIRECTORY") {
        return folders.split(':').next().map(PathBuf::from);
    }
    // The specification says to ignore a relative path.
    let xdg = env("XDG_STATE_HOME").map(PathBuf::from);
    let home = || {
        let home = env("HOME")?;
        Some(Path::new(&home).join(".local/state"))
    };
    let base = xdg.filter(|path| path.is_absolute()).or_else(home)?;
    Some(base.join("forebay"))
}
