//! Who may go before the head of the line: see `fleet/ahead.rs`.

use super::lane::due;
use super::{Ticket, Waiter, WaitingLine};
use crate::units::Seconds;

impl WaitingLine {
    /// The next few behind a head of the line, of its class and its tenant, in the order of service; none where the head may
    /// not be passed, and none behind one who may not.
    pub(in crate::decide) fn behind(&self, head: Ticket, now: Seconds) -> Vec<Ticket> {
        let may_pass = |ticket: &Ticket| self.get(*ticket).is_some_and(|one| self.yields(one, now));
        let Some(first) = self.get(head).filter(|_| may_pass(&head)) else {
            return Vec::new();
        };
        let (claim, most) = (first.claim(), self.rules.ahead);
        let from = (due(first), head);
        let lanes = self
            .lanes
            .iter()
            .filter(|(lane, _)| lane.class == claim.class);
        let mut behind: Vec<_> = lanes
            .flat_map(|(_, members)| members.behind(claim.tenant, from).take(most))
            .collect();
        behind.sort_unstable();
        let mut behind: Vec<_> = behind.into_iter().map(|(_, ticket)| ticket).collect();
        let open = behind.iter().take_while(|ticket| may_pass(ticket)).count() + 1;
        behind.truncate(most.min(open));
        behind
    }

    /// Somebody behind this one is served first.
    pub(in crate::decide) fn pass(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.passed += 1;
        }
    }

    /// Whether another may be served before this one.
    fn yields(&self, waiter: &Waiter, now: Seconds) -> bool {
        waiter.passed < self.rules.passes
            && waiter.ask.deadline.is_none()
            && now - waiter.since < self.rules.age_up
    }
}

impl Waiter {
    /// Whether the same workers could serve it as that one.
    pub(in crate::decide) fn goes_where(&self, other: &Waiter) -> bool {
        let (own, others) = (&self.ask, &other.ask);
        own.model == others.model
            && own.only == others.only
            && own.zones == others.zones
            && own.path == others.path
            && self.tried == other.tried
            && self.barred == other.barred
    }
}
