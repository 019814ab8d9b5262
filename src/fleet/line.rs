//! What is told of the line to those who stand in it.

use tokio::sync::oneshot;

use super::{Core, Fleet, Turn};
use crate::decide::{Claim, LineView, Outlook, Ticket, WaiterView};
use crate::units::Seconds;

/// A place in line.
#[derive(Debug)]
pub struct Joined {
    /// Its number.
    pub ticket: Ticket,
    /// Where it is, 1 being the next; `None` when the wait is over already.
    pub position: Option<usize>,
    /// Gets a place on a worker, or learns that nobody is left who could serve it.
    pub turn: oneshot::Receiver<Turn>,
}

/// Somebody who stands in line.
pub(super) struct Waiting {
    /// The request's id.
    pub id: Box<str>,
    /// Where its turn is sent.
    pub sender: oneshot::Sender<Turn>,
}

impl Fleet {
    /// Where somebody stands in line, while he does.
    #[must_use]
    pub fn position(&self, ticket: Ticket) -> Option<usize> {
        let now = self.clock.now();
        self.core.lock().state.position(ticket, now)
    }

    /// When somebody who stands in line and has a deadline could have the whole answer, counted from now on; `None`
    /// when nothing is certain.
    #[must_use]
    pub fn outlook(&self, ticket: Ticket) -> Option<Outlook> {
        let now = self.clock.now();
        self.core.lock().state.outlook(ticket, now)
    }

    /// Whether such a request could stand in line, if need be instead of others.
    #[must_use]
    pub fn has_room(&self, claim: Claim) -> bool {
        self.core.lock().state.line_has_room(claim)
    }

    /// The line as it is now, and the first who wait in it, with their ids.
    #[must_use]
    pub fn line(&self, most: usize) -> (LineView, Vec<(Box<str>, WaiterView)>) {
        let now = self.clock.now();
        let core = self.core.lock();
        let first = core.state.first_in_line(most);
        core.picture(&first, now)
    }

    /// The same, with those who have this id instead of the first.
    #[must_use]
    pub fn line_of(&self, id: &str) -> (LineView, Vec<(Box<str>, WaiterView)>) {
        let now = self.clock.now();
        let core = self.core.lock();
        let waiting = core.waiting.iter();
        let named: Vec<_> = waiting
            .filter(|(_, waiting)| &*waiting.id == id)
            .map(|(ticket, _)| *ticket)
            .collect();
        core.picture(&named, now)
    }
}

impl Core {
    fn picture(&self, tickets: &[Ticket], now: Seconds) -> (LineView, Vec<(Box<str>, WaiterView)>) {
        let seen = tickets.iter().filter_map(|ticket| {
            let waiting = self.waiting.get(ticket)?;
            Some((waiting.id.clone(), self.state.waiter_view(*ticket, now)?))
        });
        (self.state.line_view(now), seen.collect())
    }
}
