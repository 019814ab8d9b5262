//! Who may go before the head of the line: see `fleet/ahead.rs`.

use super::lane::{Lane, due};
use super::waiters::Mark;
use super::{Ticket, WaitingLine};
use crate::units::Seconds;

/// Somebody behind a head of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decide) struct Behind {
    pub ticket: Ticket,
    /// Whether the same workers could serve it as the head.
    pub is_alike: bool,
    /// Whether its prompt can be looked up.
    pub has_prefix: bool,
}

impl WaitingLine {
    /// The next few behind a head of the line, of its class and its tenant, in the order of service; none where the head may
    /// not be passed, and none behind one who may not.
    pub(in crate::decide) fn behind(&self, head: Ticket, now: Seconds) -> Vec<Behind> {
        let mark = |ticket| self.waiters.mark(ticket);
        let may_pass = mark(head).is_some_and(|mark| self.yields(mark, now));
        let Some(first) = self.get(head).filter(|_| may_pass) else {
            return Vec::new();
        };
        let (own, claim, most) = (Lane::of(first), first.claim(), self.rules.ahead);
        let from = (due(first), head);
        let lanes = self
            .lanes
            .iter()
            .filter(|(lane, _)| lane.class == claim.class);
        let next = lanes.flat_map(|(lane, members)| {
            let is_alike = *lane == own;
            let next = members.behind(claim.tenant, from).take(most);
            next.map(move |due| (due, is_alike))
        });
        let mut next: Vec<_> = next.collect();
        next.sort_unstable();
        let mut behind = Vec::with_capacity(next.len().min(most));
        for ((_, ticket), is_alike) in next.into_iter().take(most) {
            let Some(mark) = mark(ticket) else { continue };
            behind.push(Behind {
                ticket,
                is_alike,
                has_prefix: mark.has_prefix,
            });
            if !self.yields(mark, now) {
                break;
            }
        }
        behind
    }

    /// Somebody behind this one is served first.
    pub(in crate::decide) fn pass(&mut self, ticket: Ticket) {
        if let Some(mark) = self.waiters.mark_mut(ticket) {
            mark.passed += 1;
        }
    }

    /// Whether another may be served before this one.
    fn yields(&self, mark: &Mark, now: Seconds) -> bool {
        mark.passed < self.rules.passes && !mark.is_hurried && now - mark.since < self.rules.age_up
    }
}
