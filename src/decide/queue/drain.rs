//! How fast the line moves, so that whoever is refused can be told when to come back.
//!
//! Requests that got their place are counted with exponential forgetting over half a minute: long enough to see the
//! answers of a slow machine, short enough to forget the one that died.

use crate::units::Seconds;

/// After so long a request counts for 1/e.
const MEMORY: Seconds = Seconds(30.0);

/// Those who left the line with a place, lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drain {
    served: f64,
    at: Seconds,
}

impl Drain {
    /// One more.
    pub(super) fn served(&mut self, now: Seconds) {
        self.served = self.lately(now) + 1.0;
        self.at = now;
    }

    /// When so many more will have been served; never, when nobody was of late.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn time_for(self, requests: usize, now: Seconds) -> Option<Seconds> {
        let span = MEMORY * (requests as f64 / self.lately(now));
        span.0.is_finite().then_some(span)
    }

    fn lately(self, now: Seconds) -> f64 {
        self.served * (-(now - self.at).0 / MEMORY.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_pace_is_told_and_forgotten() {
        let mut drain = Drain::default();
        assert_eq!(drain.time_for(1, Seconds(1.0)), None);
        for tenth in 0..3_000 {
            drain.served(Seconds(f64::from(tenth) / 10.0));
        }
        let told = |after: f64| drain.time_for(100, Seconds(299.9 + after)).unwrap().0;
        assert!((told(0.0) - 10.0).abs() < 0.1, "{}", told(0.0));
        assert!(told(30.0) > 2.5 * told(0.0));
    }
}
