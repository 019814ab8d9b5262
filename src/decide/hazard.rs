//! How long a machine is expected to infer before it fails: the *fail timeout*, 1/λ.
//!
//! ```text
//! λ = (1 + F)/(600 s + U)      F: outages, U: busy seconds; both halve every 600 s
//! ```
//!
//! One outage counts once, however many requests it takes along: `outage` says when one begins. A busy second is a
//! second of wall time with at least one request in flight, not one per request, so that a machine that batches does not
//! look sturdier than one that does not. The prior, one outage in 600 s, is worth as much as ten minutes of work: a new
//! machine is neither trusted blindly nor condemned by its first failure.

use crate::units::Seconds;

/// The busy time in which a machine of which nothing is known is expected to fail once.
const PRIOR: f64 = 600.0;
/// The time in which outages and busy seconds lose half of their weight.
const HALF_LIFE: f64 = 600.0;

/// Outages and busy time of one machine, the older the fainter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hazard {
    outages: f64,
    busy: f64,
    /// Its workers that hold a request.
    working: u32,
    updated: Seconds,
}

impl Hazard {
    /// A worker of it gets its first request.
    pub(super) fn begin(&mut self, now: Seconds) {
        self.advance(now);
        self.working += 1;
    }

    /// A worker of it has no request any more.
    pub(super) fn end(&mut self, now: Seconds) {
        self.advance(now);
        self.working = self.working.saturating_sub(1);
    }

    /// An outage begins.
    pub(super) fn outage(&mut self, now: Seconds) {
        self.advance(now);
        self.outages += 1.0;
    }

    /// λ: expected outages per busy second.
    pub(super) fn rate(mut self, now: Seconds) -> f64 {
        self.advance(now);
        (1.0 + self.outages) / (PRIOR + self.busy)
    }

    /// Both counts fade; the busy one grows meanwhile if a worker works. In closed form, so that nobody has to call.
    fn advance(&mut self, now: Seconds) {
        let span = (now - self.updated).max(Seconds::ZERO).0;
        let kept = (-span / HALF_LIFE).exp2();
        self.outages *= kept;
        self.busy *= kept;
        if self.working > 0 {
            self.busy += (1.0 - kept) * HALF_LIFE / std::f64::consts::LN_2;
        }
        self.updated = self.updated.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail_timeout(hazard: Hazard, now: f64) -> f64 {
        (1.0 / hazard.rate(Seconds(now))).round()
    }

    #[test]
    fn a_new_machine_is_expected_to_work_ten_minutes_and_an_outage_halves_that() {
        let mut hazard = Hazard::default();
        assert_eq!(fail_timeout(hazard, 0.0), 600.0);
        hazard.outage(Seconds(5.0));
        assert_eq!(fail_timeout(hazard, 5.0), 300.0);
        assert_eq!(fail_timeout(hazard, 605.0), 400.0);
        assert_eq!(fail_timeout(hazard, 1e6), 600.0);
    }

    #[test]
    fn busy_time_counts_once_however_many_workers_work() {
        let one = {
            let mut hazard = Hazard::default();
            hazard.begin(Seconds(0.0));
            hazard
        };
        let mut three = one;
        three.begin(Seconds(0.0));
        three.begin(Seconds(0.0));
        assert_eq!(fail_timeout(one, 60.0), fail_timeout(three, 60.0));
        assert_eq!(fail_timeout(one, 60.0), 658.0);
        three.end(Seconds(60.0));
        assert!(fail_timeout(three, 120.0) > 700.0);
        three.end(Seconds(120.0));
        three.end(Seconds(120.0));
        assert!(fail_timeout(three, 1_200.0) < 700.0);
    }

    #[test]
    fn a_machine_that_always_works_is_trusted_up_to_a_bound() {
        let mut hazard = Hazard::default();
        hazard.begin(Seconds(0.0));
        let most = 600.0 + 600.0 / std::f64::consts::LN_2;
        assert_eq!(fail_timeout(hazard, 1e9), most.round());
    }
}
