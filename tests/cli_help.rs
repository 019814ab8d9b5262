//! What the command line says of itself: help, completions, manual pages. All come from one table, so all know every
//! verb.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::Write as _;
use std::process::{Command, Stdio};

use support::command::{self, Said};

/// Every verb; those of a verb behind it.
const VERBS: [&[&str]; 18] = [
    &[],
    &["serve"],
    &["check"],
    &["init"],
    &["key"],
    &["key", "new"],
    &["reference"],
    &["simulate"],
    &["workers"],
    &["workers", "list"],
    &["workers", "add"],
    &["workers", "remove"],
    &["workers", "drain"],
    &["workers", "resume"],
    &["workers", "speed"],
    &["requests"],
    &["why"],
    &["completions"],
];

#[track_caller]
fn told(arguments: &[&str]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let said = command::forebay(folder.path(), &[], arguments);
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(0), ""),
        "{arguments:?}"
    );
    said
}

#[test]
fn every_verb_has_help_with_an_example_that_fits_a_terminal() {
    for verb in VERBS {
        let help = told(&[verb, &["--help"]].concat());
        assert!(help.fits(), "{}", help.out);
        let has_example = help.out.contains("Example:\n  forebay ");
        assert!(has_example || verb.is_empty(), "{verb:?}: {}", help.out);
    }
    let all = told(&["--help"]).out;
    for verb in VERBS.iter().filter(|verb| verb.len() == 1) {
        assert!(all.contains(&format!("\n  {} ", verb[0])), "{all}");
    }
}

#[test]
fn completions_know_every_verb_and_the_shell_takes_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = told(&["completions", shell]).out;
        for word in ["workers", "drain", "within", "dry-run"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let script = told(&["completions", "bash"]).out;
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(bash.wait().unwrap().success(), "bash can read it");
}

#[test]
fn every_verb_has_a_page_of_the_manual() {
    for verb in VERBS {
        let page = told(&[&["man"], verb].concat()).out;
        let name = [&["forebay"], verb].concat().join("-");
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        assert!(page.contains("Example") || verb.is_empty(), "{page}");
    }
    let folder = tempfile::tempdir().unwrap();
    let unknown = command::forebay(folder.path(), &[], &["man", "wrokers"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(2), ""));
}
