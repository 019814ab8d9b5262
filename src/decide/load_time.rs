//! What it takes to bring an adapter onto a card, or a model into memory, learned from loads that were seen.

use crate::units::Seconds;

/// The least that a new sample counts in what is believed.
const GAIN: f64 = 0.2;
/// The most that a sample counts as, in times of what is believed …
const SURPRISE: f64 = 3.0;
/// … and this beside it, so that a load which took no time can be seen to take some again.
const LEAST: Seconds = Seconds(0.05);

/// The time of a load, and from how many it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoadTime {
    pub seconds: Seconds,
    pub samples: u64,
}

impl LoadTime {
    /// Nothing was seen yet, and this is the guess.
    pub(super) const fn guessed(seconds: Seconds) -> Self {
        LoadTime {
            seconds,
            samples: 0,
        }
    }

    /// A load took so long.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the first few loads are what counts"
    )]
    pub(super) fn learn(&mut self, took: Seconds) {
        let most = self.seconds * SURPRISE + LEAST;
        // What is no number is dropped by `max`.
        let took = took.max(Seconds::ZERO).min(most);
        self.samples += 1;
        let gain = GAIN.max(1.0 / (self.samples + 1) as f64);
        self.seconds += (took - self.seconds) * gain;
    }
}
