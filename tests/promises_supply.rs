//! Promise P42: what goes into the binaries is known, locked and checked.
#![expect(
    clippy::unwrap_used,
    reason = "a test may stop where a file can't be read"
)]

use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                rust_files(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn p42_our_crates_hold_no_unsafe_code() {
    for (root, mark) in [
        ("src/lib.rs", "#![forbid(unsafe_code)]"),
        ("src/main.rs", "#![forbid(unsafe_code)]"),
        ("worker/src/main.rs", "(unsafe_code)]"),
    ] {
        assert!(read(root).contains(mark), "{root} does not say {mark}");
    }
    let excused = rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("worker/src"))
        .into_iter()
        .find(|file| {
            fs::read_to_string(file)
                .unwrap()
                .contains("(unsafe_code, reason")
        });
    assert_eq!(excused, None, "the worker excuses unsafe code");
}

#[test]
fn p42_every_package_comes_from_the_registry_with_a_check_sum() {
    let lock = read("Cargo.lock");
    let packages: Vec<&str> = lock.split("[[package]]\n").skip(1).collect();
    assert!(packages.len() > 100);
    for package in packages {
        let ours = package.starts_with("name = \"forebay");
        let source =
            "\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"";
        assert_eq!(package.contains(source), !ours, "{package}");
        assert_eq!(package.contains("\nsource = "), !ours, "{package}");
    }
}

#[test]
fn p42_every_dependency_has_a_reason() {
    for manifest in ["Cargo.toml", "worker/Cargo.toml"] {
        let unexplained = without_reason(&read(manifest));
        assert_eq!(unexplained, Vec::<String>::new(), "{manifest}");
    }
    assert_eq!(
        without_reason("[dependencies]\na = \"1\"\nb = \"2\" # why\n[features]\nc = []"),
        ["a = \"1\""]
    );
}

/// Lines of dependencies without a comment; one that points at the workspace has its reason there.
fn without_reason(manifest: &str) -> Vec<String> {
    let mut here = false;
    let mut unexplained = Vec::new();
    for line in manifest.lines().filter(|line| !line.is_empty()) {
        if line.starts_with('[') {
            here = line.ends_with("dependencies]");
        } else if here && !line.contains('#') && !line.contains("workspace = true") {
            unexplained.push(line.to_owned());
        }
    }
    unexplained
}

#[test]
fn p42_what_ci_runs_is_locked_and_checks_licences_bans_and_sources() {
    let run = read("run");
    assert!(run.contains("cargo deny --locked check --hide-inclusion-graph licenses bans sources"));
    for line in run
        .lines()
        .map(str::trim)
        .filter(|line| line.contains("cargo ") && !line.contains("cargo fmt"))
    {
        assert!(line.contains("--locked"), "not locked: {line}");
    }
    let deny = read("deny.toml");
    for rule in ["wildcards", "unknown-registry", "unknown-git", "yanked"] {
        assert!(
            deny.contains(&format!("\n{rule} = \"deny\"\n")),
            "deny.toml lets {rule} in"
        );
    }
}
