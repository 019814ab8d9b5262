//! How much of the prompts was reused, and how much could have been.
//!
//! The regret has two parts. *best* less *matched* was given up on purpose: the worker that had more of the prompt was
//! dearer all the same. *matched* less *reported* was believed and not there; it means something only where workers
//! report what they reuse. Counted once for each request that was sent, when it ends, by its last choice.

use std::io;

use prometheus::IntCounter;

use super::decisions::Made;
use super::kinds::Counters;

/// The series of `forebay_prefix_tokens_total`.
#[derive(Clone, Debug)]
pub(super) struct ReuseSeries {
    prompt: IntCounter,
    best: IntCounter,
    matched: IntCounter,
    reported: IntCounter,
}

impl ReuseSeries {
    pub(super) fn new(family: &Counters<1>) -> io::Result<Self> {
        Ok(ReuseSeries {
            prompt: family.series(["prompt"])?,
            best: family.series(["best"])?,
            matched: family.series(["matched"])?,
            reported: family.series(["reported"])?,
        })
    }

    /// Counts a request by the choices made for it and what its worker reports to have reused.
    pub(super) fn count(&self, made: &Made, reported: Option<u64>) {
        let Some(choice) = made.last_sent().filter(|choice| choice.prompt > 0.0) else {
            return;
        };
        self.prompt.inc_by(whole(choice.prompt));
        self.best.inc_by(whole(choice.best));
        self.matched.inc_by(whole(choice.matched()));
        self.reported.inc_by(reported.unwrap_or(0));
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
fn whole(tokens: f32) -> u64 {
    tokens.round() as u64
}
