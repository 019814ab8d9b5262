//! The waiting line: requests for which every fitting worker is at its cap.
//!
//! First come, first served, among those that could use the same slot. A request that waits for a busy worker must not
//! hold up one behind it whose worker is free, so the line has lanes: all requests of a lane can be served by the same
//! workers, also by the length of their prompts. Only the head of each lane can be next, and looking at the heads in order of arrival is as good as looking
//! at everybody: with 10,000 waiting a free slot costs as many looks as there are lanes.
//!
//! Tickets are numbers given in order of arrival; leaving twice does nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ask::Ask;
use super::place::Zones;
use crate::units::{ModelName, WorkerId};

/// The most requests that wait at a time.
pub const MOST_WAITING: usize = 10_000;

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// [`MOST_WAITING`] are waiting already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFull;

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    /// What it asks for.
    pub ask: Ask,
    /// Workers that it must not get.
    pub tried: Vec<WorkerId>,
    /// Workers that its prompt is too long for.
    pub barred: Vec<WorkerId>,
}

/// What decides which workers fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    model: Option<ModelName>,
    only: Option<Arc<[WorkerId]>>,
    zones: Option<Zones>,
    path: Option<&'static str>,
    tried: Vec<WorkerId>,
    barred: Vec<WorkerId>,
}

/// Everybody who waits.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    waiters: BTreeMap<Ticket, Waiter>,
    lanes: BTreeMap<Lane, BTreeSet<Ticket>>,
    given: u64,
}

impl Waiter {
    fn lane(&self) -> Lane {
        Lane {
            model: self.ask.model.clone(),
            only: self.ask.only.clone(),
            zones: self.ask.zones,
            path: self.ask.path,
            tried: self.tried.clone(),
            barred: self.barred.clone(),
        }
    }
}

impl WaitingLine {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Takes the last place.
    pub(super) fn join(&mut self, waiter: Waiter) -> Result<Ticket, LineFull> {
        if self.len() >= MOST_WAITING {
            return Err(LineFull);
        }
        let ticket = Ticket(self.given);
        self.given += 1;
        self.lanes.entry(waiter.lane()).or_default().insert(ticket);
        self.waiters.insert(ticket, waiter);
        Ok(ticket)
    }

    /// Gives the place up. Returns who is now first in its lane.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Ticket> {
        let lane = self.waiters.remove(&ticket)?.lane();
        let tickets = self.lanes.get_mut(&lane)?;
        tickets.remove(&ticket);
        let next = tickets.first().copied();
        if next.is_none() {
            self.lanes.remove(&lane);
        }
        next
    }

    /// A worker's bounds have changed: whom a prompt is too long for is found out anew.
    pub(super) fn rearrange(&mut self, barred: impl Fn(&Ask) -> Vec<WorkerId>) {
        self.lanes.clear();
        for (ticket, waiter) in &mut self.waiters {
            waiter.barred = barred(&waiter.ask);
            self.lanes.entry(waiter.lane()).or_default().insert(*ticket);
        }
    }

    /// The request behind a ticket.
    pub(super) fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.waiters.get(&ticket)
    }

    /// The first of each lane, in order of arrival.
    pub(super) fn heads(&self) -> BTreeSet<Ticket> {
        self.lanes
            .values()
            .filter_map(|tickets| tickets.first().copied())
            .collect()
    }

    /// Whether lanes and waiters name the same tickets.
    pub(super) fn check(&self) -> Result<(), String> {
        let in_lanes: usize = self.lanes.values().map(BTreeSet::len).sum();
        if in_lanes != self.waiters.len() || self.lanes.values().any(BTreeSet::is_empty) {
            let waiting = self.waiters.len();
            return Err(format!("{waiting} waiting, {in_lanes} in lanes"));
        }
        let astray = self.waiters.iter().find(|(ticket, waiter)| {
            !self
                .lanes
                .get(&waiter.lane())
                .is_some_and(|tickets| tickets.contains(ticket))
        });
        match astray {
            Some((ticket, _)) => Err(format!("{ticket:?} is in no lane")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Work;
    use crate::facts::Prefix;
    use crate::units::Length;

    fn waiter(model: &str, only: Option<WorkerId>, tried: &[WorkerId]) -> Waiter {
        let ask = Ask {
            model: Some(ModelName::new(model)),
            only: only.map(|id| [id].into()),
            zones: None,
            from: None,
            path: None,
            work: Work::Embed,
            prompt: Length::Tokens(1.0),
            fills: None,
            prefix: Prefix::default(),
            max_tokens: None,
            deadline: None,
            streamed: false,
        };
        Waiter {
            ask,
            tried: tried.to_vec(),
            barred: Vec::new(),
        }
    }

    #[test]
    fn each_lane_has_one_head_and_heads_stand_in_order_of_arrival() {
        let mut line = WaitingLine::default();
        let mut join = |model, only, tried: &[WorkerId]| {
            let waiter = waiter(model, only, tried);
            line.join(waiter).unwrap()
        };
        let first = join("z", None, &[]);
        let second = join("a", None, &[]);
        let third = join("z", None, &[]);
        let fourth = join("z", None, &[WorkerId(1)]);
        let fifth = join("z", Some(WorkerId(1)), &[]);
        let heads: Vec<_> = line.heads().into_iter().collect();
        assert_eq!(heads, [first, second, fourth, fifth]);
        assert_eq!(line.leave(first), Some(third));
        assert_eq!(line.leave(first), None);
        assert_eq!(line.leave(second), None);
        let heads: Vec<_> = line.heads().into_iter().collect();
        assert_eq!(heads, [third, fourth, fifth]);
        assert_eq!(line.check(), Ok(()));
    }

    #[test]
    fn a_ticket_in_no_lane_is_noticed() {
        let mut line = WaitingLine::default();
        let ticket = line.join(waiter("a", None, &[])).unwrap();
        line.waiters.insert(ticket, waiter("b", None, &[]));
        assert!(line.check().is_err());
        line.lanes.clear();
        assert!(line.check().is_err());
    }
}
