//! Runs that prove a promise to its last figure, and take longer than a suite should: `NEXTEST_PROFILE=long`.

/// So many times, or as often as the promise says when a long run was asked for.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever runs the tests says how long they may take"
)]
pub fn times(usual: usize, promised: usize) -> usize {
    match std::env::var("NEXTEST_PROFILE") {
        Ok(profile) if profile == "long" => promised,
        _ => usual,
    }
}
