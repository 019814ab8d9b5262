//! What each tenant of a class has had of late, so that the one that has had least is next.
//!
//! A request is charged to its tenant when it gets its place, with the worker-seconds that it is expected to take: one
//! tenant's prompts of 27,000 tokens weigh what they cost. What was charged is forgotten exponentially, over a minute: a
//! pause saves nothing up, and nobody is long behind for what it used while nobody else wanted it.
//!
//! 2026-11-30: built as start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), with one virtual time for each class.
//! Seen that this time runs on with whoever is alone on another model, so that a newcomer began behind everything that
//! a tenant which floods its own had ever sent. Fair queues know one link; a class has many, and decay needs no clock.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::units::Seconds;

/// After so long a charge counts for 1/e.
const MEMORY: Seconds = Seconds(60.0);

/// What a tenant has had of late, in the order of tenants: the natural logarithm of seconds as of the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Had(f64);

impl Had {
    /// Nothing yet.
    pub(super) const NOTHING: Had = Had(f64::NEG_INFINITY);

    /// With so much more. What is no number counts for nothing.
    fn and(self, seconds: Seconds, now: Seconds) -> Had {
        let cost = Some(seconds.0).filter(|cost| cost.is_finite() && *cost > 0.0);
        let Some(cost) = cost else { return self };
        let age = now.0 / MEMORY.0;
        let left = (self.0 - age).exp();
        Had((left + cost).ln() + age)
    }
}

impl Ord for Had {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Had {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Had {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Had {}

/// The accounts of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts(BTreeMap<u32, Had>);

impl Accounts {
    /// What a tenant has had of late.
    pub(super) fn had(&self, tenant: u32) -> Had {
        self.0.get(&tenant).copied().unwrap_or(Had::NOTHING)
    }

    /// A tenant gets a worker for so long. Returns what it has had then.
    pub(super) fn charge(&mut self, tenant: u32, seconds: Seconds, now: Seconds) -> Had {
        let had = self.had(tenant).and(seconds, now);
        self.0.insert(tenant, had);
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Seconds = Seconds(1.0);

    fn charged(seconds: f64, now: Seconds) -> Had {
        Had::NOTHING.and(Seconds(seconds), now)
    }

    #[test]
    fn who_had_less_is_known_and_a_newcomer_had_nothing() {
        let mut accounts = Accounts::default();
        accounts.charge(1, Seconds(3.0), NOW);
        accounts.charge(2, Seconds(5.0), NOW);
        assert!(accounts.had(1) < accounts.had(2));
        assert!(accounts.had(3) < accounts.had(1));
        accounts.charge(1, Seconds(2.1), NOW);
        assert!(accounts.had(1) > accounts.had(2));
    }

    #[test]
    fn a_minute_forgets_all_but_a_third() {
        for start in [1.0, 1e8].map(Seconds) {
            let early = charged(100.0, start);
            let later = |seconds| charged(seconds, start + MEMORY);
            assert!(later(36.0) < early && early < later(37.5));
            assert!(charged(0.01, start + MEMORY * 10.0) > early);
        }
    }

    #[test]
    fn a_charge_adds_to_what_is_left() {
        let both = charged(100.0, NOW).and(Seconds(10.0), NOW + MEMORY);
        let later = |seconds| charged(seconds, NOW + MEMORY);
        assert!(later(46.0) < both && both < later(47.5));
    }

    #[test]
    fn what_is_no_time_costs_nothing() {
        let mut accounts = Accounts::default();
        for odd in [f64::NAN, f64::INFINITY, -1.0] {
            accounts.charge(1, Seconds(odd), NOW);
        }
        assert_eq!(accounts.had(1), Had::NOTHING);
    }
}
