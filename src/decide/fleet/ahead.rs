//! Looking ahead in the line: a place that is freed goes to the request that it suits best.
//!
//! The head of the line is next, whoever it is; but of the requests right behind it, one may find its prompt in that very
//! worker's cache, or its adapter on the card. If it goes first, those seconds are saved, and nobody else is asked to pay
//! them; if it waits its turn, the cache may have moved on. So of the first few of the same class and tenant that could
//! have this place, the one goes first that saves most seconds on this worker, and saves more than the head.
//!
//! Nobody is passed more than a few times (`LineRules`), nor when it has waited for `age_up` or says when its client leaves.
//! Classes and fairness between tenants are as without it: it is still the same tenant's turn. Where the head could have
//! several places nobody looks: then there is one for those behind it, too. A model that has to be swapped in has rules of
//! its own (`residents.rs`), which leave no choice here; its seconds count all the same.

use super::super::queue::Ticket;
use super::FleetState;
use crate::units::Seconds;

/// What is not worth passing anybody for.
const LEAST: Seconds = Seconds(0.01);

impl FleetState {
    /// Who gets the place that this head of the line could have: itself, unless another saves more there. Those who are
    /// passed are counted as passed.
    pub(super) fn first_for_the_place(&mut self, head: Ticket, now: Seconds) -> Ticket {
        let behind = self.line.behind(head, now);
        let Some(first) = self.line.get(head).filter(|_| !behind.is_empty()) else {
            return head;
        };
        let Some(place) = self.roster.only_place(first) else {
            return head;
        };
        let mut best = None;
        let mut most = self.roster.saves(place, &first.ask) + LEAST;
        for (at, next) in behind.iter().enumerate() {
            // Without a prompt that can be looked up it saves nothing: at best it has nothing to bring in.
            let is_hopeless = next.is_alike || most >= Seconds::ZERO;
            if is_hopeless && !next.has_prefix {
                continue;
            }
            let Some(waiter) = self.line.get(next.ticket) else {
                continue;
            };
            if next.is_alike || self.roster.only_place(waiter) == Some(place) {
                let saves = self.roster.saves(place, &waiter.ask);
                if saves > most {
                    (best, most) = (Some(at), saves);
                }
            }
        }
        let Some(at) = best else { return head };
        self.line.pass(head);
        behind[..at]
            .iter()
            .for_each(|passed| self.line.pass(passed.ticket));
        behind[at].ticket
    }
}
