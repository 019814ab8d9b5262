//! Requests that the same workers could serve, of one class.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::{Ticket, Waiter};
use crate::decide::Zones;
use crate::units::{ModelName, WorkerId};

/// What decides which workers fit, and the class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    pub(super) class: u8,
    model: Option<ModelName>,
    only: Option<Arc<[WorkerId]>>,
    zones: Option<Zones>,
    path: Option<&'static str>,
    tried: Vec<WorkerId>,
    barred: Vec<WorkerId>,
}

impl Lane {
    /// That of a request.
    pub(super) fn of(waiter: &Waiter) -> Self {
        Lane {
            class: waiter.ask.claim.class,
            model: waiter.ask.model.clone(),
            only: waiter.ask.only.clone(),
            zones: waiter.ask.zones,
            path: waiter.ask.path,
            tried: waiter.tried.clone(),
            barred: waiter.barred.clone(),
        }
    }
}

/// Who waits in a lane: by tenant in the order of their deadlines, and all of them in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Members {
    tenants: BTreeMap<u32, BTreeSet<(u64, Ticket)>>,
    arrived: BTreeSet<Ticket>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.arrived.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// One more.
    pub(super) fn add(&mut self, waiter: &Waiter, ticket: Ticket) {
        self.arrived.insert(ticket);
        let own = self.tenants.entry(waiter.ask.claim.tenant).or_default();
        own.insert((due(waiter), ticket));
    }

    /// One less.
    pub(super) fn remove(&mut self, waiter: &Waiter, ticket: Ticket) {
        self.arrived.remove(&ticket);
        let tenant = waiter.ask.claim.tenant;
        if let Some(own) = self.tenants.get_mut(&tenant) {
            own.remove(&(due(waiter), ticket));
            if own.is_empty() {
                self.tenants.remove(&tenant);
            }
        }
    }

    /// Whether a request is where it should be.
    pub(super) fn has(&self, waiter: &Waiter, ticket: Ticket) -> bool {
        let own = self.tenants.get(&waiter.ask.claim.tenant);
        self.arrived.contains(&ticket)
            && own.is_some_and(|own| own.contains(&(due(waiter), ticket)))
    }

    /// Who came first.
    pub(super) fn eldest(&self) -> Option<Ticket> {
        self.arrived.first().copied()
    }

    /// Who of a tenant comes behind this one, in order, each with its deadline.
    pub(super) fn behind(
        &self,
        tenant: u32,
        from: (u64, Ticket),
    ) -> impl Iterator<Item = (u64, Ticket)> {
        let own = self.tenants.get(&tenant).into_iter();
        let after = (Bound::Excluded(from), Bound::Unbounded);
        own.flat_map(move |own| own.range(after).copied())
    }

    /// Who is next of each tenant, with its deadline.
    pub(super) fn firsts(&self) -> impl Iterator<Item = (u32, (u64, Ticket))> {
        let first =
            |(tenant, own): (&u32, &BTreeSet<(u64, Ticket)>)| Some((*tenant, *own.first()?));
        self.tenants.iter().filter_map(first)
    }
}

/// When its client leaves, in whole microseconds of our time; last of all when it does not say.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates; nothing is before the start"
)]
pub(super) fn due(waiter: &Waiter) -> u64 {
    let deadline = waiter.ask.deadline;
    deadline.map_or(u64::MAX, |moment| (moment.0 * 1e6) as u64)
}
