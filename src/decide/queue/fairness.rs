//! What each tenant of a class has had of late, so that the one that has had least is next.
//!
//! A request is charged to its tenant when it gets its place, with the worker-seconds that it is expected to take: one
//! tenant's prompts of 27,000 tokens weigh what they cost. What was charged is forgotten exponentially, over a minute: a
//! pause saves nothing up, and nobody is long behind for what it used while nobody else wanted it.
//!
//! 2026-11-30: built as start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), with one virtual time for each class.
//! Seen that this time runs on with whoever is alone on another model, so that a newcomer began behind everything that
//! a tenant which floods its own had ever sent. Fair queues know one link; a class has many, and decay needs no clock.

use std::collections::BTreeMap;

use crate::units::Seconds;

/// After so long a charge counts for 1/e.
const MEMORY: Seconds = Seconds(60.0);

/// The accounts of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts(BTreeMap<u32, Account>);

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    had: f64,
    at: Seconds,
}

impl Accounts {
    /// What a tenant has had of late, zero or more.
    pub(super) fn had(&self, tenant: u32, now: Seconds) -> f64 {
        let account = self.0.get(&tenant).copied().unwrap_or_default();
        account.had * (-(now - account.at).0.max(0.0) / MEMORY.0).exp()
    }

    /// A tenant gets a worker for so long. What is no number counts for nothing.
    pub(super) fn charge(&mut self, tenant: u32, seconds: Seconds, now: Seconds) {
        let cost = Some(seconds.0).filter(|cost| cost.is_finite() && *cost > 0.0);
        let had = self.had(tenant, now) + cost.unwrap_or(0.0);
        self.0.insert(tenant, Account { had, at: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Seconds = Seconds(1.0);

    #[test]
    fn who_had_less_is_known_and_a_newcomer_had_nothing() {
        let mut accounts = Accounts::default();
        accounts.charge(1, Seconds(3.0), NOW);
        accounts.charge(2, Seconds(5.0), NOW);
        assert!(accounts.had(1, NOW) < accounts.had(2, NOW));
        assert_eq!(accounts.had(3, NOW), 0.0);
    }

    #[test]
    fn a_minute_forgets() {
        let mut accounts = Accounts::default();
        accounts.charge(1, Seconds(100.0), NOW);
        let later = |minutes: f64| accounts.had(1, NOW + MEMORY * minutes);
        assert!((later(1.0) - 100.0 / std::f64::consts::E).abs() < 1e-9);
        assert!(later(10.0) < 0.01);
    }

    #[test]
    fn what_is_no_time_costs_nothing() {
        let mut accounts = Accounts::default();
        for odd in [f64::NAN, f64::INFINITY, -1.0] {
            accounts.charge(1, Seconds(odd), NOW);
        }
        assert_eq!(accounts.had(1, NOW), 0.0);
    }
}
