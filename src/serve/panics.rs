//! What becomes of a panic, which is a mistake of ours: the process ends, with exit code 1.
//!
//! A process that lives on with a task that has died may have lost a listener, or everybody who waits behind it; a
//! service manager starts another. The message of a panic may hold what a client sent, so only its place is told.

use super::diagnostics;

/// From here on a panic on any thread ends the process.
pub(super) fn end_the_process() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let place = place.unwrap_or_else(|| "a place that is not known".to_owned());
        tracing::error!("a mistake of ours at {place}; please report it; ending");
        diagnostics::flush();
        std::process::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::config::plan::LogLevel;

    /// Run by the other test, in a process of its own.
    #[test]
    #[ignore = "it ends its process"]
    fn dies() {
        diagnostics::start(LogLevel::Info).unwrap();
        end_the_process();
        let thread = std::thread::spawn(|| panic!("canary-prompt"));
        let _ = thread.join();
    }

    #[test]
    fn a_panic_on_any_thread_ends_the_process_and_tells_its_place_alone() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "serve::panics::tests::dies",
                "--ignored",
                "--nocapture",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[child.stdout, child.stderr].concat()).into_owned();
        assert_eq!(child.status.code(), Some(1), "{text}");
        assert!(
            text.contains("a mistake of ours at src/serve/panics.rs"),
            "{text}"
        );
        assert!(!text.contains("canary-prompt"), "{text}");
    }
}
