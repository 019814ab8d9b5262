//! When an outage of a worker begins and ends, so that it counts once however many requests it takes along.
//!
//! It begins with the first evidence while none is open: a request that fails, or two failed probes in a row (one may be
//! a lost packet). It ends with evidence of the same kind: the first success of a request that was sent after it began (an
//! answer that was under way says nothing of a worker that has failed since), or `rise` passed probes in a row.

use crate::units::Seconds;

/// Failed probes in a row that are evidence.
const FAILED_PROBES: u32 = 2;

/// The outage of one worker that is open, if any, and how its last probes went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outage {
    began: Option<Seconds>,
    passed: u32,
    failed: u32,
}

impl Outage {
    /// A request failed. Whether an outage begins.
    pub(super) fn error(&mut self, now: Seconds) -> bool {
        self.passed = 0;
        self.open(now)
    }

    /// A request that was sent then succeeded.
    pub(super) fn success(&mut self, sent: Seconds) {
        if self.began.is_some_and(|began| sent >= began) {
            self.began = None;
        }
    }

    /// A probe passed or failed. Whether an outage begins.
    pub(super) fn probe(&mut self, passed: bool, rise: u32, now: Seconds) -> bool {
        if passed {
            self.passed = self.passed.saturating_add(1);
            self.failed = 0;
            if self.passed >= rise {
                self.began = None;
            }
            return false;
        }
        self.failed = self.failed.saturating_add(1);
        self.passed = 0;
        self.failed >= FAILED_PROBES && self.open(now)
    }

    fn open(&mut self, now: Seconds) -> bool {
        let begins = self.began.is_none();
        self.began = self.began.or(Some(now));
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outages that begin in this history, a second per sign: `x` a request fails, `o` one sent now succeeds, `~` one
    /// sent before all this does, `-` a probe fails, `+` one passes, with `rise = 2`.
    fn outages(history: &str) -> usize {
        let mut outage = Outage::default();
        let mut begins = |(second, sign): (u32, char)| {
            let now = Seconds(f64::from(second));
            match sign {
                'x' => return outage.error(now),
                'o' => outage.success(now),
                '~' => outage.success(Seconds::ZERO),
                probe => return outage.probe(probe == '+', 2, now),
            }
            false
        };
        (1..)
            .zip(history.chars())
            .filter(|step| begins(*step))
            .count()
    }

    #[test]
    fn an_outage_counts_once_however_many_requests_it_takes_along() {
        assert_eq!(outages("xxxx"), 1);
        assert_eq!(outages("xoxo"), 2);
        assert_eq!(outages("xx~x~x"), 1);
    }

    #[test]
    fn two_failed_probes_begin_one_and_passed_ones_end_it() {
        assert_eq!(outages("-+-+-+"), 0);
        assert_eq!(outages("----"), 1);
        assert_eq!(outages("x--x--"), 1);
        assert_eq!(outages("x+x+x"), 1);
        assert_eq!(outages("x++x++x"), 3);
    }
}
