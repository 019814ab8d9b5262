//! Requests that the same workers could serve, of one class.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fairness::Had;
use super::ranked::{Due, Ranked};
use super::{Ticket, Waiter};
use crate::decide::{Ask, Claim, Zones};
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

    /// What those in it ask for.
    pub(super) fn group(&self) -> Group {
        Group {
            model: self.model.clone(),
            only: self.only.clone(),
            zones: self.zones,
            path: self.path,
        }
    }

    /// Whether those of the other ask for the same, whatever their class: one who goes before the other is in its way.
    pub(super) fn competes(&self, other: &Lane) -> bool {
        self.model == other.model
            && self.only == other.only
            && self.zones == other.zones
            && self.path == other.path
    }
}

/// What is asked for: who asks for the same waits for the same places, whatever their class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::decide) struct Group {
    model: Option<ModelName>,
    only: Option<Arc<[WorkerId]>>,
    zones: Option<Zones>,
    path: Option<&'static str>,
}

impl Group {
    /// That of a request.
    pub(in crate::decide) fn of(ask: &Ask) -> Self {
        Group {
            model: ask.model.clone(),
            only: ask.only.clone(),
            zones: ask.zones,
            path: ask.path,
        }
    }
}

/// Who waits in a lane: by tenant, the tenants in the order of what they have had, and all in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Members {
    tenants: BTreeMap<u32, Own>,
    turns: BTreeSet<(Had, u32)>,
    arrived: BTreeSet<Ticket>,
    bytes: u64,
}

/// One tenant's in a lane: in the order of their deadlines, and in the order in which they came.
#[derive(Debug)]
pub(super) struct Own {
    had: Had,
    due: Ranked,
    arrived: BTreeSet<Ticket>,
}

/// The deadline of those that have none.
const NEVER: u64 = u64::MAX;

impl Own {
    fn of(had: Had) -> Self {
        Own {
            had,
            due: Ranked::default(),
            arrived: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Who came first.
    pub(super) fn eldest(&self) -> Option<Ticket> {
        self.arrived.first().copied()
    }

    /// Who is next: whose client leaves first, of those that say when; else who came first, or last.
    pub(super) fn next(&self, newest_first: bool) -> Option<Due> {
        let first = self.due.first()?;
        if newest_first && first.0 == NEVER {
            return self.due.last();
        }
        Some(first)
    }

    /// How many go before this one.
    pub(super) fn before(&self, own: Due, newest_first: bool) -> usize {
        let before = self.due.before(own);
        if newest_first && own.0 == NEVER {
            let hurried = self.due.before((NEVER, Ticket::FIRST));
            return hurried + self.len().saturating_sub(1 + before);
        }
        before
    }
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.arrived.len()
    }

    /// The bytes of their bodies.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// One more, of a tenant that has had so much.
    pub(super) fn add(&mut self, claim: Claim, due: Due, had: Had) {
        let Claim { tenant, bytes, .. } = claim;
        self.arrived.insert(due.1);
        self.bytes += bytes;
        self.turns.insert((had, tenant));
        let own = self.tenants.entry(tenant).or_insert(Own::of(had));
        own.due.insert(due);
        own.arrived.insert(due.1);
    }

    /// One less.
    pub(super) fn remove(&mut self, claim: Claim, due: Due) {
        let Claim { tenant, bytes, .. } = claim;
        self.arrived.remove(&due.1);
        self.bytes -= bytes;
        if let Some(own) = self.tenants.get_mut(&tenant) {
            own.due.remove(due);
            own.arrived.remove(&due.1);
            if own.arrived.is_empty() {
                self.turns.remove(&(own.had, tenant));
                self.tenants.remove(&tenant);
            }
        }
    }

    /// A tenant has had so much by now.
    pub(super) fn charged(&mut self, tenant: u32, had: Had) {
        if let Some(own) = self.tenants.get_mut(&tenant) {
            self.turns.remove(&(own.had, tenant));
            self.turns.insert((had, tenant));
            own.had = had;
        }
    }

    /// Those of the tenants that have had least: of one, unless several have had the same.
    pub(super) fn poorest(&self) -> impl Iterator<Item = (Had, &Own)> {
        let least = self.turns.first().map(|(had, _)| *had);
        let turns = self.turns.iter();
        let turns = turns.take_while(move |(had, _)| Some(*had) == least);
        turns.filter_map(|(had, tenant)| Some((*had, self.tenants.get(tenant)?)))
    }

    /// Whether a request is where it should be.
    pub(super) fn has(&self, claim: Claim, due: Due) -> bool {
        let own = self.tenants.get(&claim.tenant);
        self.arrived.contains(&due.1)
            && own.is_some_and(|own| {
                self.turns.contains(&(own.had, claim.tenant))
                    && own.due.has(due)
                    && own.arrived.contains(&due.1)
            })
    }

    /// Who came first.
    pub(super) fn eldest(&self) -> Option<Ticket> {
        self.arrived.first().copied()
    }

    /// Who came last.
    pub(super) fn newest(&self) -> Option<Ticket> {
        self.arrived.last().copied()
    }

    /// Those of each tenant.
    pub(super) fn tenants(&self) -> impl Iterator<Item = (u32, &Own)> {
        self.tenants.iter().map(|(tenant, own)| (*tenant, own))
    }

    /// Who of a tenant comes behind this one, in order, each with its deadline.
    pub(super) fn behind(&self, tenant: u32, from: Due) -> impl Iterator<Item = Due> {
        let own = self.tenants.get(&tenant).into_iter();
        own.flat_map(move |own| own.due.behind(from))
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
    deadline.map_or(NEVER, |moment| (moment.0 * 1e6) as u64)
}
