//! How fast the line moves, so that whoever is refused can be told when to come back, and whoever would wait too long is
//! refused at once.
//!
//! Each group of requests that ask for the same has a pace of its own: one that waits for a model whose only worker is down
//! says nothing of how fast the others move. Requests that got their place are counted with exponential forgetting over half a minute: long enough to see the
//! answers of a slow machine, short enough to forget the one that died. The time for which somebody stood in line is
//! counted in the same way, and the pace is the one by the other: while nobody waits nobody is served from the line, and
//! that says nothing of how fast it moves.

use super::super::roster::Outlook;
use crate::units::Seconds;

/// After so long a request counts for 1/e.
const MEMORY: Seconds = Seconds(30.0);
/// With less than so much of a request nothing is known.
const FORGOTTEN: f64 = 0.001;
/// With fewer requests than this nothing is certain.
const CERTAIN: f64 = 8.0;

/// Those who left the line with a place, lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drain {
    served: f64,
    /// The seconds for which somebody stood in line.
    stood: f64,
    /// How many wait.
    waiting: usize,
    at: Seconds,
}

impl Drain {
    /// One more waits.
    pub(super) fn joins(&mut self, now: Seconds) {
        *self = self.lately(now);
        self.waiting += 1;
    }

    /// One less.
    pub(super) fn leaves(&mut self, now: Seconds) {
        *self = self.lately(now);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Whether it can be forgotten.
    pub(super) fn tells_nothing(self, now: Seconds) -> bool {
        self.waiting == 0 && self.lately(now).served < FORGOTTEN
    }

    /// One more.
    pub(super) fn served(&mut self, now: Seconds) {
        let lately = self.lately(now);
        *self = Drain {
            served: lately.served + 1.0,
            ..lately
        };
    }

    /// Requests a second, while somebody waits; `None` when nothing was seen of late.
    pub(super) fn pace(self, now: Seconds) -> Option<f64> {
        let lately = self.lately(now);
        let pace = lately.served / lately.stood;
        Some(pace).filter(|pace| pace.is_finite() && *pace > 0.0)
    }

    /// When so many more will have been served; never, when nobody was of late.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn time_for(self, requests: usize, now: Seconds) -> Option<Seconds> {
        let lately = self.lately(now);
        let span = Seconds(lately.stood * (requests as f64 / lately.served));
        span.0.is_finite().then_some(span)
    }

    /// The wait until so many more will have been served. What is certain of it is two standard deviations below what is
    /// expected, for places that are freed independently of each other: nothing for a few requests.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn wait_for(self, requests: usize, now: Seconds) -> Outlook {
        let takes = self.time_for(requests, now).unwrap_or_default();
        let known = self.lately(now).served >= CERTAIN;
        let sure = (1.0 - 2.0 / (requests as f64).sqrt()).max(0.0);
        Outlook {
            takes,
            least: takes * if known { sure } else { 0.0 },
        }
    }

    fn lately(self, now: Seconds) -> Drain {
        let kept = (-(now - self.at).0.max(0.0) / MEMORY.0).exp();
        let stood = if self.waiting > 0 {
            MEMORY.0 * (1.0 - kept)
        } else {
            0.0
        };
        Drain {
            served: self.served * kept,
            stood: self.stood * kept + stood,
            waiting: self.waiting,
            at: now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has served ten a second since 0 s.
    fn steady(until: f64) -> Drain {
        let mut drain = Drain::default();
        drain.joins(Seconds::ZERO);
        let mut served = 0.0;
        while served < until {
            drain.served(Seconds(served));
            served += 0.1;
        }
        drain
    }

    #[test]
    fn a_steady_pace_is_told_from_the_start_and_forgotten() {
        assert_eq!(Drain::default().time_for(1, Seconds(1.0)), None);
        for age in [2.0, 300.0] {
            let drain = steady(age);
            let told = |after: f64| drain.time_for(100, Seconds(age + after)).unwrap().0;
            assert!((told(0.0) - 10.0).abs() < 0.6, "{age}: {}", told(0.0));
            assert!(told(30.0) > 2.5 * told(0.0));
        }
    }

    #[test]
    fn while_nobody_waits_the_line_is_not_slow() {
        let mut drain = steady(60.0);
        drain.leaves(Seconds(60.0));
        let told = drain.time_for(100, Seconds(90.0)).unwrap().0;
        assert!((told - 10.0).abs() < 0.6, "{told}");
    }

    #[test]
    fn of_a_few_places_nothing_is_certain_and_of_many_nearly_all() {
        let drain = steady(300.0);
        let wait = |requests| drain.wait_for(requests, Seconds(300.0));
        assert_eq!(wait(4).least, Seconds::ZERO);
        assert!((wait(400).least.0 - 36.0).abs() < 1.0, "{:?}", wait(400));
        assert_eq!(steady(0.5).wait_for(400, Seconds(0.5)).least, Seconds::ZERO);
    }
}
