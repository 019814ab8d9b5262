//! Tokens per byte: how long a text is to a model that counts in tokens of its own.
//!
//! A proxy sees bytes, engines work in tokens. How many bytes make a token is a fact about a model's vocabulary and
//! about what its users write: about four of English prose, fewer of code, JSON and most other scripts. A wrong ratio
//! errs the same way on every worker, so it does little to the order of two idle ones; but a backlog of texts is weighed
//! against streams that run, and memory is counted in tokens.
//!
//! So each model has a running mean of what workers report: tokens of a prompt over the bytes that were seen of it. It
//! includes the JSON around the text and what the chat template adds, as the bytes that are multiplied do. A report that
//! can't be one teaches nothing, and neither does a prompt that was counted to begin with.
//!
//! What a prompt makes *at least* is another question: a mean says little of one text. There a letter counts, however
//! many bytes it takes, and pictures don't (`facts/letters.rs`). Six letters make a token at least, which is more than
//! vocabularies of today reach in any script, or more than six where a model's reports are below the prior; reports
//! above it raise nothing, because pictures by address make many tokens of few bytes.

use std::ops::RangeInclusive;

use super::traffic::RunningMean;
use crate::units::Length;

/// Tokens per byte of a model that has reported nothing yet.
const PRIOR: f64 = 0.25;
/// How many times fewer tokens than expected a text may make, to be on the safe side.
const CARE: f64 = 1.5;
/// Ratios that are believed: from base64 pictures, whose bytes are hardly read, to two tokens for each byte.
const BELIEVED: RangeInclusive<f64> = 0.02..=2.0;

/// The most that [`Density::at_least`] can come to, whatever the model.
#[must_use]
pub fn most_at_least(prompt: Length) -> f64 {
    Density::default().at_least(prompt)
}

/// The tokens per byte of one model's prompts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Density(RunningMean);

impl Density {
    /// The tokens of a prompt.
    pub(super) fn tokens(self, prompt: Length) -> f64 {
        match prompt {
            Length::Bytes(bytes) => bytes * self.0.get(),
            Length::Tokens(tokens) => tokens,
        }
    }

    /// The tokens that a prompt makes at least; text is measured in letters.
    pub(super) fn at_least(self, prompt: Length) -> f64 {
        match prompt {
            Length::Bytes(letters) => letters * self.0.get().min(PRIOR) / CARE,
            Length::Tokens(tokens) => tokens,
        }
    }

    /// A worker reports so many tokens for this prompt.
    pub(super) fn learn(&mut self, prompt: Length, reported: f64) {
        if let Length::Bytes(bytes) = prompt
            && BELIEVED.contains(&(reported / bytes))
        {
            self.0.add(reported / bytes);
        }
    }
}

impl Default for Density {
    fn default() -> Self {
        Density(RunningMean::believing(PRIOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_begins_at_four_bytes_and_follows_the_reports() {
        let mut density = Density::default();
        assert_eq!(density.tokens(Length::Bytes(400.0)), 100.0);
        density.learn(Length::Bytes(1_000.0), 1_000.0);
        density.learn(Length::Bytes(10.0), 10.0);
        assert_eq!(density.tokens(Length::Bytes(400.0)), 250.0);
        assert_eq!(density.tokens(Length::Tokens(400.0)), 400.0);
    }

    #[test]
    fn at_least_six_letters_make_a_token_or_more_where_reports_say_so() {
        let after = |reported| {
            let mut density = Density::default();
            density.learn(Length::Bytes(1_000.0), reported);
            density.at_least(Length::Bytes(600.0))
        };
        assert_eq!((after(250.0), after(2_000.0)), (100.0, 100.0));
        assert!((after(100.0) - 80.0).abs() < 1e-9);
        assert_eq!(Density::default().at_least(Length::Tokens(7.0)), 7.0);
    }

    #[test]
    fn no_model_needs_more_at_least_than_any() {
        for reported in [20.0, 100.0, 250.0, 900.0, 2_000.0] {
            let mut density = Density::default();
            density.learn(Length::Bytes(1_000.0), reported);
            for prompt in [Length::Bytes(777.0), Length::Tokens(777.0)] {
                assert!(density.at_least(prompt) <= most_at_least(prompt));
            }
        }
    }

    #[test]
    fn what_cannot_be_a_ratio_teaches_nothing() {
        let mut density = Density::default();
        let reports = [
            (Length::Bytes(100.0), 1.9),
            (Length::Bytes(100.0), 201.0),
            (Length::Bytes(100.0), -10.0),
            (Length::Bytes(100.0), f64::NAN),
            (Length::Bytes(0.0), 0.0),
            (Length::Bytes(0.0), 5.0),
            (Length::Tokens(100.0), 100.0),
        ];
        for (prompt, reported) in reports {
            density.learn(prompt, reported);
        }
        assert_eq!(density.tokens(Length::Bytes(400.0)), 100.0);
    }
}
