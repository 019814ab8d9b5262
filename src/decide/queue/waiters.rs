//! Who waits, by ticket.
//!
//! A ticket says where its waiter is kept, so that to find one is a step, however many wait. What is asked of many for
//! each that is served (whether they may be passed) is kept apart from what they ask for: those few bytes of 100,000
//! waiters stay in a processor's cache, and the whole of them does not.

use super::{Ticket, Waiter};
use crate::units::Seconds;

/// What is known of a waiter without a look at what it asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The number of the ticket that this is kept for; void once it has left.
    number: u64,
    /// Since when it waits.
    pub since: Seconds,
    /// How often somebody behind it was served first.
    pub passed: u32,
    /// Whether it says when its client leaves.
    pub is_hurried: bool,
    /// Whether its prompt can be looked up.
    pub has_prefix: bool,
}

/// The number of no ticket.
const VOID: u64 = u64::MAX;

/// Everybody who waits.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    marks: Vec<Mark>,
    waiters: Vec<Option<Waiter>>,
    /// Places among these that are free.
    free: Vec<u32>,
    /// Tickets that were given.
    given: u64,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.waiters.len() - self.free.len()
    }

    /// One more; `None` when there are more than places can be numbered.
    pub(super) fn add(&mut self, waiter: Waiter) -> Option<Ticket> {
        let number = self.given;
        let mark = Mark {
            number,
            since: waiter.since,
            passed: 0,
            is_hurried: waiter.ask.deadline.is_some(),
            has_prefix: !waiter.ask.prefix.blocks.is_empty(),
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.marks[slot as usize] = mark;
            self.waiters[slot as usize] = Some(waiter);
            slot
        } else {
            let slot = u32::try_from(self.waiters.len()).ok()?;
            self.marks.push(mark);
            self.waiters.push(Some(waiter));
            slot
        };
        self.given += 1;
        Some(Ticket { number, slot })
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        self.mark_mut(ticket)?.number = VOID;
        self.free.push(ticket.slot);
        self.waiters.get_mut(ticket.slot as usize)?.take()
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.mark(ticket)?;
        self.waiters.get(ticket.slot as usize)?.as_ref()
    }

    pub(super) fn mark(&self, ticket: Ticket) -> Option<&Mark> {
        let mark = self.marks.get(ticket.slot as usize);
        mark.filter(|mark| mark.number == ticket.number)
    }

    pub(super) fn mark_mut(&mut self, ticket: Ticket) -> Option<&mut Mark> {
        let mark = self.marks.get_mut(ticket.slot as usize);
        mark.filter(|mark| mark.number == ticket.number)
    }

    /// Everybody, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ticket, &Waiter)> {
        let places = (0..).zip(self.marks.iter().zip(&self.waiters));
        places.filter_map(|(slot, (mark, waiter))| {
            let number = mark.number;
            Some((Ticket { number, slot }, waiter.as_ref()?))
        })
    }

    /// Everybody, in no order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Ticket, &mut Waiter)> {
        let places = (0..).zip(self.marks.iter().zip(&mut self.waiters));
        places.filter_map(|(slot, (mark, waiter))| {
            let number = mark.number;
            Some((Ticket { number, slot }, waiter.as_mut()?))
        })
    }
}
