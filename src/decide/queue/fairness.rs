//! What each tenant of a class has had, so that the one that has had least is next.
//!
//! Start-time fair queueing (P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996), with predicted
//! worker-seconds in the place of packet lengths: a request is charged to its tenant when it gets its place, and whoever
//! has been charged least goes first. Who comes back after a pause is charged at least what the class had reached by
//! then, so that silence saves nothing up and nobody is punished for what it used while nobody else wanted it.
//!
//! Seconds and not requests: one tenant's prompts of 27,000 tokens weigh what they cost.

use std::collections::BTreeMap;

use crate::units::Seconds;

/// The accounts of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    had: BTreeMap<u32, f64>,
    /// What whoever was served last had had.
    reached: f64,
}

impl Accounts {
    /// What a tenant has had.
    pub(super) fn had(&self, tenant: u32) -> f64 {
        self.had
            .get(&tenant)
            .map_or(self.reached, |had| had.max(0.0))
    }

    /// A request of a tenant that has none waiting begins to wait.
    pub(super) fn joins(&mut self, tenant: u32) {
        let had = self.had(tenant).max(self.reached);
        self.had.insert(tenant, had);
    }

    /// A tenant gets a place for so long. What is no number counts for nothing.
    pub(super) fn charge(&mut self, tenant: u32, seconds: Seconds, waited: bool) {
        let had = if waited {
            self.had(tenant)
        } else {
            self.had(tenant).max(self.reached)
        };
        self.reached = self.reached.max(had);
        let cost = Some(seconds.0).filter(|cost| cost.is_finite() && *cost > 0.0);
        self.had.insert(tenant, had + cost.unwrap_or(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_had_least_is_behind_nobody() {
        let mut accounts = Accounts::default();
        for tenant in [1, 2] {
            accounts.joins(tenant);
        }
        accounts.charge(1, Seconds(3.0), true);
        assert!(accounts.had(2) < accounts.had(1));
        accounts.charge(2, Seconds(5.0), true);
        assert!(accounts.had(1) < accounts.had(2));
    }

    #[test]
    fn a_pause_saves_nothing_up() {
        let mut accounts = Accounts::default();
        accounts.joins(1);
        for _ in 0..100 {
            accounts.charge(1, Seconds(1.0), true);
        }
        accounts.joins(2);
        assert_eq!(accounts.had(2), 99.0, "as far as the last had come");
        accounts.charge(2, Seconds(2.0), true);
        assert!(accounts.had(1) < accounts.had(2));
    }

    #[test]
    fn what_is_no_time_costs_nothing() {
        let mut accounts = Accounts::default();
        for odd in [f64::NAN, f64::INFINITY, -1.0] {
            accounts.charge(1, Seconds(odd), false);
        }
        assert_eq!(accounts.had(1), 0.0);
    }
}
