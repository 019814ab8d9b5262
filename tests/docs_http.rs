//! The manual of HTTP against the code: no header that a file of `src/` names is missing in it.
//!
//! Its paths and refusals are held against their tables where these stand: `admin/routes.rs`, `facts/built_in.rs`,
//! `forward/refusal.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Begins the names that are ours.
const OURS: &str = "\"x-forebay-";
/// Begins any other name that a constant holds.
const NAMED: &str = "HeaderName::from_static(\"";
/// The last line of a file that is not tests.
const TESTS: &str = "#[cfg(test)]";

fn rust_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The header names that a file holds outside of its tests.
fn names(text: &str) -> BTreeSet<String> {
    let code = text.split(TESTS).next().unwrap();
    let after = |mark: &'static str, prefix: &'static str| {
        let ends = |tail: &str| tail.split('"').next().unwrap().to_owned();
        code.split(mark)
            .skip(1)
            .map(move |tail| format!("{prefix}{}", ends(tail)))
    };
    let named = after(OURS, "x-forebay-").chain(after(NAMED, ""));
    // What ends in a dash begins names, and is none.
    named.filter(|name| !name.ends_with('-')).collect()
}

#[test]
fn the_manual_has_every_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manual = fs::read_to_string(root.join("docs/http.md")).unwrap();
    let files = rust_files(&root.join("src")).unwrap();
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let named: BTreeSet<_> = texts.flat_map(|text| names(&text)).collect();
    assert!(named.len() > 15, "{named:?}");
    let missing: Vec<_> = named
        .iter()
        .filter(|name| !manual.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_guard_sees_what_it_guards_against() {
    let text = "const A: &str = \"x-forebay-new\";\nlet b = HeaderName::from_static(\"x-other\");\n#[cfg(test)]\n\"x-forebay-test\"";
    let seen: Vec<_> = names(text).into_iter().collect();
    assert_eq!(seen, ["x-forebay-new", "x-other"]);
}
