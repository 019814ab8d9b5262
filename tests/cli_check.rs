//! The real binary: exit codes and what is said where.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::process::{Command, Stdio};

use support::command::{self, Said};
use tempfile::TempDir;

const GOOD: &str =
    "[[worker]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\nengine = \"vllm\"\nmodels = [\"m\"]\n";

/// Runs the binary in a folder of its own.
fn forebay(folder: &TempDir, arguments: &[&str]) -> Said {
    let home = [("HOME", folder.path().to_str().unwrap())];
    command::forebay(folder.path(), &home, arguments)
}

fn folder_with(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("forebay.toml"), text).unwrap();
    folder
}

#[test]
fn a_good_file_is_0() {
    let folder = folder_with(GOOD);
    let found = forebay(&folder, &["check"]);
    assert_eq!(found.code, Some(0), "{}", found.err);
    assert_eq!(
        found.out,
        "./forebay.toml is good: 1 worker, 0 routes, 0 tenants\n"
    );
    let named = forebay(&folder, &["check", "--config", "forebay.toml"]);
    assert_eq!(named.code, Some(0), "{}", named.err);
}

#[test]
fn a_key_is_new_each_time_and_its_line_lets_it_in() {
    let folder = folder_with(GOOD);
    let made = forebay(&folder, &["key", "new", "--json"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let made: serde_json::Value = serde_json::from_str(&made.out).unwrap();
    let text = |key: &str| made[key].as_str().unwrap();
    assert!(text("key").starts_with("fb_") && text("key").len() == 46);
    assert_eq!(made.as_object().unwrap().len(), 2);

    let told = forebay(&folder, &["key", "new"]).out;
    assert!(!told.contains(text("key")), "{told}");
    let line = told.lines().find(|line| line.contains("key_hash = "));
    let tenant = format!("[[tenant]]\nname = \"app\"\n{}\n", line.unwrap());
    fs::write(
        folder.path().join("forebay.toml"),
        format!("{GOOD}{tenant}"),
    )
    .unwrap();
    let checked = forebay(&folder, &["check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.err);
    assert_eq!(forebay(&folder, &["key"]).code, Some(2));
}

#[test]
fn a_secret_file_that_is_too_long_to_be_one_is_2() {
    let folder = folder_with(&format!("{GOOD}key = {{ file = \"key\" }}\n"));
    for (length, code) in [(64 << 10, 0), ((64 << 10) + 1, 2)] {
        fs::write(folder.path().join("key"), "k".repeat(length)).unwrap();
        let said = forebay(&folder, &["check"]);
        assert_eq!(said.code, Some(code), "{}", said.err);
        assert_eq!(said.err.contains("larger than 64 KiB"), code == 2);
    }
}

#[test]
fn a_wrong_file_is_2_with_everything_on_stderr() {
    let folder = folder_with("drain = 60\n[limits]\nidle = 60\n");
    let said = forebay(&folder, &["check"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    for part in [
        "forebay.toml:1:9: drain",
        "forebay.toml:3:8: limits.idle",
        "worker: this key is required",
    ] {
        assert!(said.err.contains(part), "{part}\n{}", said.err);
    }
}

#[test]
fn no_file_is_2_and_says_where_it_looked() {
    let folder = tempfile::tempdir().unwrap();
    let said = forebay(&folder, &["check", "--config", "nowhere.toml"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err.contains("nowhere.toml: can't be read"),
        "{}",
        said.err
    );
    // A machine may have a configuration of its own in /etc; then there is nothing to see here.
    if !fs::exists("/etc/forebay/forebay.toml").unwrap() {
        let said = forebay(&folder, &["check"]);
        assert_eq!(said.code, Some(2));
        assert!(
            said.err
                .contains("./forebay.toml and /etc/forebay/forebay.toml"),
            "{}",
            said.err
        );
    }
}

#[test]
fn wrong_arguments_are_2_and_help_is_0() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(forebay(&folder, &["chek"]).code, Some(2));
    assert_eq!(forebay(&folder, &["check", "--conf"]).code, Some(2));
    assert_eq!(forebay(&folder, &[]).code, Some(2));
    for verb in ["check", "reference"] {
        let said = forebay(&folder, &[verb, "--help"]);
        assert_eq!(said.code, Some(0));
        assert!(said.out.contains("Example:\n  forebay "), "{}", said.out);
    }
}

#[test]
fn the_reference_finds_keys_and_suggests() {
    let folder = tempfile::tempdir().unwrap();
    let all = forebay(&folder, &["reference"]);
    assert_eq!(all.code, Some(0));
    assert!(all.out.contains("\nlimits.body\n") && all.out.contains("\nworker.url\n"));
    let one = forebay(&folder, &["reference", "limits.body"]);
    assert!(
        one.out
            .starts_with("limits.body\n  syntax    body = SIZE\n"),
        "{}",
        one.out
    );
    assert!(one.out.contains("  default   \"32MiB\"\n"), "{}", one.out);
    let none = forebay(&folder, &["reference", "limits.boddy"]);
    assert_eq!((none.code, none.out.as_str()), (Some(2), ""));
    assert!(
        none.err.contains("Did you mean limits.body?"),
        "{}",
        none.err
    );
}

/// `forebay reference | head` ends quietly.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("reference")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn what_does_nothing_is_said_and_is_no_error() {
    let hash = "sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821";
    let text = format!(
        "[queue]\nclasses = [\"paid\", \"free\"]\nwait = \"30s\"\nage_up = \"60s\"\n\
         [[region]]\nname = \"home\"\nzone = \"eu\"\n\
         [[tenant]]\nname = \"app\"\nkey_hash = \"{hash}\"\nmodels = [\"m\", \"gone\"]\nzones = [\"eu\"]\n{GOOD}"
    );
    let found = forebay(&folder_with(&text), &["check"]);
    assert_eq!(found.code, Some(0), "{}", found.err);
    let said: Vec<_> = found.err.lines().collect();
    assert_eq!(
        said,
        [
            "warning: tenant app: no worker is configured to have the model gone",
            "warning: tenant app: no worker is in the zone eu",
            "warning: queue: age_up = 1m never helps the class free, which waits no longer than 30s",
        ]
    );
    let untyped = text
        .replace("age_up = \"60s\"\n", "")
        .replace("\"gone\"", "\"m2\"");
    let untyped = untyped.replace("models = [\"m\"]", "models = [\"m\", \"m2\"]");
    let found = forebay(&folder_with(&untyped), &["check"]);
    assert_eq!(
        found.err,
        "warning: tenant app: no worker is in the zone eu\n"
    );
}

#[test]
fn settings_that_have_no_effect_beside_each_other_are_said() {
    let hash = "sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821";
    let text = format!(
        "[timeouts]\nping = \"5m\"\n\
         [queue]\nclasses = [\"paid\", \"free\"]\nwait = {{ paid = \"1m\", free = \"8s\" }}\nwait_no_worker = \"0s\"\n\
         newest_first = {{ free = \"9s\" }}\nheartbeat = \"2m\"\nreserve = {{ free = 0.1 }}\n\
         [[machine]]\nname = \"big\"\nprice_per_hour = \"1.20 EUR\"\n\
         [[tenant]]\nname = \"app\"\nkey_hash = \"{hash}\"\nbudget = \"5 EUR/day\"\n\
         {GOOD}resident = 1\n\
         [[worker]]\nname = \"b\"\nurl = \"http://127.0.0.1:2\"\nmachine = \"big\"\n"
    );
    let found = forebay(&folder_with(&text), &["check"]);
    assert_eq!(found.code, Some(0), "{}", found.err);
    let said: Vec<_> = found.err.lines().collect();
    assert_eq!(
        said,
        [
            "warning: tenant app: what worker a does costs nothing of its budget, as no [[machine]] of it has a price_per_hour",
            "warning: queue: newest_first = 9s never comes for the class free, which waits no longer than 8s",
            "warning: timeouts: ping = 5m never comes: between_bytes = 5m closes a silent WebSocket before",
            "warning: queue: swap_after = 10s swaps no model in for the class free, which waits no longer than 8s, while another model is in demand",
            "warning: queue: heartbeat = 2m never comes: nobody waits longer than 1m",
            "warning: queue: reserve for free keeps nothing free: no class is lower",
        ]
    );
}
