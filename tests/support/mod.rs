//! What the integration tests stand on: a scripted worker, the real proxy, and clients that see every byte.
//!
//! The worker ([`Engine`]) runs on a thread and a runtime of its own, so tests are plain blocking functions: a test
//! that waits for an answer cannot starve the worker that owes it. Nothing here sleeps; a test waits for a condition
//! with a deadline ([`wait_until`]). Only the worker uses timers, because taking time is what it models.
#![expect(dead_code, reason = "each suite uses its part of the support")]

pub mod browser;
pub mod client;
pub mod command;
pub mod dns;
pub mod engine;
pub mod greeting;
pub mod grpc;
pub mod h2_client;
pub mod h2_frames;
pub mod listener;
pub mod load;
pub mod long;
pub mod manager;
pub mod mmdb;
pub mod open_files;
pub mod prompt;
pub mod proxy;
pub mod queue;
pub mod refusal;
pub mod relay;
pub mod resident;
pub mod tenant;
pub mod tls;
pub mod websocket;

use std::time::Duration;

use forebay::clock::Clock;
use forebay::units::Seconds;

/// The longest any test waits for anything that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `condition` holds, at most for `deadline`; says whether it came to hold.
#[must_use]
pub fn wait_until(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let clock = Clock::start();
    loop {
        if condition() {
            return true;
        }
        if clock.now() > Seconds::from(deadline) {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits like [`wait_until`] and fails the test, naming what did not happen, when the deadline passes.
#[track_caller]
pub fn expect_soon(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        wait_until(PATIENCE, condition),
        "waited {PATIENCE:?} in vain until {what}"
    );
}
