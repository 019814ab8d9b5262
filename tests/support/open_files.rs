//! How many files a test may have open, for those that open thousands of connections.

use std::process::Command;

/// The limits of this process: the one that holds, and the one up to which it may be raised.
fn limits() -> (usize, usize) {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let mut rows = limits.lines();
    let row = rows.find_map(|row| row.strip_prefix("Max open files"));
    let mut numbers = row.unwrap().split_whitespace();
    let mut number = || numbers.next().unwrap().parse().unwrap_or(usize::MAX);
    (number(), number())
}

/// How many files may be open, of this many wanted.
pub fn allowed(wanted: usize) -> usize {
    wanted.min(limits().1)
}

/// Whether this process may open so many; if not, the test has run in another that may, and has passed.
#[track_caller]
pub fn may_open(files: usize, test: &str) -> bool {
    if limits().0 >= files {
        return true;
    }
    let raised = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
    let passed = Command::new("sh")
        .args(["-c", &raised])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .status();
    assert!(
        passed.unwrap().success(),
        "{test} failed with {files} files"
    );
    false
}
