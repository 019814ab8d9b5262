//! Another plan while requests are under way.

use super::super::ask::Rules;
use super::super::seat::Seat;
use super::FleetState;
use crate::units::Seconds;

impl FleetState {
    /// Takes another plan over. `seats` says what becomes of each worker, in the order of their ids, and goes on with those
    /// who are new; none is left out. What a worker serves is to be told next, then [`grants`](Self::grants) is to be called: of those who
    /// wait some may have somebody now, and some nobody any more.
    pub fn reseat(&mut self, seats: Vec<Seat>, rules: Rules, now: Seconds) {
        self.roster.reseat(seats, rules, now);
        self.line.replan(rules.line);
        self.line.rearrange(|ask| self.roster.barred(ask));
    }

    /// Whether a worker is in the plan no more and holds nothing either.
    #[must_use]
    pub fn is_gone(&self, worker: crate::units::WorkerId) -> bool {
        let worker = self.roster.workers().get(worker.index());
        worker.is_none_or(|worker| worker.condition().has_left() && worker.inflight() == 0)
    }
}
