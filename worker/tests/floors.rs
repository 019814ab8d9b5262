//! The order of the rooms, held once: a room may use only rooms on lower floors, and the pure rooms know no sockets,
//! files, threads, environment or time.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't read the source should say so and stop"
)]

use std::fs;
use std::path::{Path, PathBuf};

const FLOORS: [(&str, u8); 19] = [
    ("main", 11),
    ("cli", 10),
    ("bench", 9),
    ("serve", 8),
    ("api", 7),
    ("line", 6),
    ("runner", 5),
    ("engine", 4),
    ("ensemble", 4),
    ("repository", 3),
    ("text", 3),
    ("observe", 3),
    ("cache", 3),
    ("batch", 2),
    ("clock", 2),
    ("tensor", 2),
    ("fault", 2),
    ("log", 2),
    ("units", 1),
];
const PURE: [&str; 5] = ["batch", "ensemble", "tensor", "units", "fault"];
const IMPURE: [&str; 8] = [
    "tokio",
    "axum",
    "ort::",
    "std::net",
    "std::fs",
    "std::env",
    "std::thread",
    "std::time::Instant",
];

fn floor(room: &str) -> Option<u8> {
    let row = FLOORS.iter().find(|(name, _)| *name == room)?;
    Some(row.1)
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Each file with its room and its text up to the unit tests.
fn rooms() -> Vec<(PathBuf, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let describe = |path: PathBuf| {
        let inside = path.strip_prefix(&root).unwrap();
        let first = inside.iter().next().unwrap().to_str().unwrap();
        let room = first.trim_end_matches(".rs").to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
        (path, room, code)
    };
    sources(&root).into_iter().map(describe).collect()
}

/// The rooms that a text names as `crate::ROOM`.
fn named(code: &str) -> Vec<&str> {
    code.split("crate::")
        .skip(1)
        .map(|rest| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap()
        })
        .collect()
}

#[test]
fn rooms_use_only_lower_floors() {
    for (path, room, code) in rooms() {
        let own = floor(&room);
        assert!(own.is_some(), "{room} has no floor: give it one here");
        assert!(
            !code.contains("crate::{"),
            "{path:?}: one `use` per room, so that this test can read it"
        );
        for other in named(&code).into_iter().filter(|other| *other != room) {
            let theirs = floor(other);
            assert!(
                theirs.is_some() && theirs < own,
                "{path:?}: {room} may not use {other}"
            );
        }
    }
}

#[test]
fn pure_rooms_know_nothing_of_the_outside() {
    for (path, room, code) in rooms() {
        if PURE.contains(&room.as_str()) {
            let found = IMPURE.iter().find(|name| code.contains(**name));
            assert_eq!(found, None, "{path:?}");
        }
    }
}

#[test]
fn files_keep_their_budget() {
    for (path, _, code) in rooms() {
        let lines = code.lines().count();
        assert!(lines <= 400, "{path:?} has {lines} lines");
    }
}
