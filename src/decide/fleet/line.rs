//! Standing in line: who waits for a slot, what it lacks, and who is next.

use super::super::ask::{Ask, Claim, NoChoice};
use super::super::considered::Shortlist;
use super::super::queue::{Group, LineFull, LineView, Ticket, Waiter, WaiterView};
use super::super::roster::Outlook;
use super::{FleetState, Grant};
use crate::rng::Rng;
use crate::units::{Seconds, WorkerId};

impl FleetState {
    /// Waits for a slot, after [`NoChoice::Busy`] or [`NoChoice::Away`], or for a worker, after [`NoChoice::Down`]; those
    /// already tried are not waited for. Others may have to leave for it: call [`grants`](Self::grants) next.
    ///
    /// # Errors
    /// When as many wait as may, and nobody of a lower class.
    pub fn stand_in_line(
        &mut self,
        ask: Ask,
        tried: &[WorkerId],
        now: Seconds,
    ) -> Result<Ticket, LineFull> {
        let ask = self.roster.measured(ask);
        let barred = self.roster.barred(&ask);
        let tried = tried.to_vec();
        self.line.join(Waiter {
            ask,
            tried,
            barred,
            since: now,
        })
    }

    /// Stops waiting; nothing happens when the ticket was granted or given up before. Call [`grants`](Self::grants) next.
    pub fn leave_line(&mut self, ticket: Ticket, now: Seconds) {
        self.line.leave(ticket, now);
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// When those who are before a newcomer of this class will have been served, by how fast the line moved of late.
    #[must_use]
    pub fn line_clears_in(&self, class: u8, now: Seconds) -> Option<Seconds> {
        self.line.clears_in(class, now)
    }

    /// The place in line of somebody who waits, 1 being the next: see the line's own word on it.
    #[must_use]
    pub fn position(&self, ticket: Ticket, now: Seconds) -> Option<usize> {
        self.line.position(ticket, now)
    }

    /// The line as it is now.
    #[must_use]
    pub fn line_view(&self, now: Seconds) -> LineView {
        self.line.view(now)
    }

    /// The first who wait, by class and arrival.
    #[must_use]
    pub fn first_in_line(&self, most: usize) -> Vec<Ticket> {
        self.line.first(most)
    }

    /// Somebody who waits, and why.
    #[must_use]
    pub fn waiter_view(&self, ticket: Ticket, now: Seconds) -> Option<WaiterView> {
        let waiter = self.line.get(ticket)?;
        Some(WaiterView {
            claim: waiter.ask.claim,
            model: waiter.ask.model.clone(),
            waited: now - waiter.since,
            position: self.line.position(ticket, now)?,
            holds: self.roster.holds(&waiter.ask, &waiter.tried),
        })
    }

    /// When somebody who waits and has a deadline could have the whole answer, counted from now on. `None` when nothing is
    /// certain.
    pub fn outlook(&mut self, ticket: Ticket, now: Seconds) -> Option<Outlook> {
        let waiter = self.line.get(ticket)?;
        waiter.ask.deadline?;
        let answer = self.roster.outlook(&waiter.ask, &waiter.tried, now)?;
        Some(answer.after(self.line.wait_of(ticket, now)?))
    }

    /// What a request waits for, or would.
    #[must_use]
    pub fn lacks(&self, ask: &Ask, tried: &[WorkerId]) -> NoChoice {
        self.roster.lacks(ask, tried)
    }

    /// Whether a request that lacks this may stand in line.
    #[must_use]
    pub fn may_wait(&self, ask: &Ask, lack: &NoChoice) -> bool {
        match lack {
            NoChoice::Busy | NoChoice::Away => true,
            NoChoice::Down => self.line.holds() && self.roster.is_awaited(ask),
            NoChoice::UnknownModel { awaited, .. } => *awaited && self.line.holds(),
            _ => false,
        }
    }

    /// Whether such a request would be refused, whatever it asks for: nobody has a place, and the line has no room.
    #[must_use]
    pub fn sheds(&self, claim: Claim) -> bool {
        !self.line.has_room(claim) && !self.roster.takes_any()
    }

    /// Whether such a request could stand in line.
    #[must_use]
    pub fn line_has_room(&self, claim: Claim) -> bool {
        self.line.has_room(claim)
    }

    /// Ends the wait of everybody who can be served now, in the order of the line, and of everybody who waits for
    /// nothing: a request that has found no worker alive waits on only if it may wait for one, and was not tried yet; one
    /// of a low class may have had to make room.
    pub fn grants(&mut self, now: Seconds, rng: &mut Rng) -> Vec<Grant> {
        let displaced = self.line.displaced().into_iter().map(|ticket| Grant {
            ticket,
            result: Err(NoChoice::Displaced),
            considered: Shortlist::default(),
        });
        let mut grants: Vec<_> = displaced.collect();
        loop {
            self.heed_line(now);
            let before = grants.len();
            self.grant_heads(&mut grants, now, rng);
            // Where workers swap, those who left may have been what kept another model out.
            if grants.len() == before || !self.roster.swaps() {
                return grants;
            }
        }
    }

    fn grant_heads(&mut self, grants: &mut Vec<Grant>, now: Seconds, rng: &mut Rng) {
        let mut heads = self.line.heads(now);
        while let Some(turn) = heads.pop_first() {
            if self.waits_on(turn.ticket) {
                continue;
            }
            // Who was served meanwhile has had more, also where it stands in another lane.
            if let Some(now_due) = self.line.turn_beside(turn.ticket, now)
                && now_due != turn
            {
                heads.insert(now_due);
                continue;
            }
            let ticket = self.first_for_the_place(turn.ticket, now);
            let Some(Waiter { ask, tried, .. }) = self.line.get(ticket) else {
                continue;
            };
            let result = self.roster.choose(ask, tried, now, rng);
            if let Ok(choice) = &result {
                let (claim, busy) = (ask.claim, choice.terms.busy());
                let group = Group::of(ask);
                self.line.charge(claim, busy, now);
                self.line.served(turn, &group, now);
            }
            heads.extend(self.line.leave(ticket, now));
            if ticket != turn.ticket {
                heads.extend(self.line.turn_beside(turn.ticket, now));
            }
            grants.push(Grant {
                ticket,
                result,
                considered: self.roster.shortlist(),
            });
        }
    }

    /// Whether there is no place for this request yet, and it has something to wait for. Cheaper than to choose in vain.
    fn waits_on(&self, ticket: Ticket) -> bool {
        let Some(Waiter { ask, tried, .. }) = self.line.get(ticket) else {
            return true;
        };
        if self.roster.fits(ask, tried) {
            return false;
        }
        match self.roster.lacks(ask, tried) {
            NoChoice::Busy | NoChoice::Away => true,
            lack => tried.is_empty() && self.may_wait(ask, &lack),
        }
    }
}
