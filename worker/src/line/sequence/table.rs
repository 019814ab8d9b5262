//! Which sequences are alive. Pure: `now` goes in, and whether there is room comes out.
//!
//! A sequence is known from when its first request comes, so that those behind it find it; it is alive once it has a
//! place, and until its last request or until it has been idle for too long. Beginning one anew replaces it, on its
//! place; what still runs of the old one can change nothing of the new, since each has a number of its own.

use std::collections::BTreeMap;

use crate::units::Seconds;

/// What a client calls a sequence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// By number.
    Number(u64),
    /// By name.
    Text(String),
}

/// The sequences that are alive or wait for a place, each with a state.
#[derive(Debug)]
pub struct Table<S> {
    most: usize,
    idle: Seconds,
    begun: u64,
    alive: BTreeMap<Id, Alive<S>>,
}

#[derive(Debug)]
struct Alive<S> {
    state: S,
    number: u64,
    /// Requests that wait or run.
    live: usize,
    last: Seconds,
    /// Whether it is one of those of which only so many may be.
    placed: bool,
}

impl<S: Clone> Table<S> {
    /// Nothing begun yet; at most so many at a time, each idle for at most so long.
    pub fn new(most: usize, idle: Seconds) -> Self {
        Table {
            most,
            idle,
            begun: 0,
            alive: BTreeMap::new(),
        }
    }

    /// Makes a sequence known and gives its number; when it may run, [`Table::place`] says.
    pub fn begin(&mut self, id: &Id, state: S, now: Seconds) -> u64 {
        self.expire(now);
        let placed = self.alive.get(id).is_some_and(|old| old.placed);
        self.begun += 1;
        let alive = Alive {
            state,
            number: self.begun,
            live: 1,
            last: now,
            placed,
        };
        self.alive.insert(id.clone(), alive);
        self.begun
    }

    /// Whether a sequence has a place, which it gets when there is one. Who was replaced needs none: it only runs out.
    pub fn place(&mut self, id: &Id, number: u64, now: Seconds) -> bool {
        self.expire(now);
        let placed = self.alive.values().filter(|alive| alive.placed).count();
        match self.alive.get_mut(id) {
            Some(alive) if alive.number == number => {
                alive.placed |= placed < self.most;
                alive.placed
            }
            _ => true,
        }
    }

    /// The state and number of a sequence that goes on, if it is known.
    pub fn go_on(&mut self, id: &Id, now: Seconds) -> Option<(S, u64)> {
        self.expire(now);
        let alive = self.alive.get_mut(id)?;
        alive.live += 1;
        Some((alive.state.clone(), alive.number))
    }

    /// A request is done; `over` where the sequence is.
    pub fn done(&mut self, id: &Id, number: u64, over: bool, now: Seconds) {
        let Some(alive) = self.alive.get_mut(id) else {
            return;
        };
        if alive.number != number {
            return;
        }
        alive.live = alive.live.saturating_sub(1);
        alive.last = now;
        if over {
            self.alive.remove(id);
        }
    }

    /// When the next sequence will have been idle for too long, if nothing comes.
    pub fn next_expiry(&self) -> Option<Seconds> {
        let idle = self.alive.values().filter(|alive| alive.live == 0);
        let ends = idle.map(|alive| alive.last + self.idle);
        ends.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn expire(&mut self, now: Seconds) {
        let idle = self.idle;
        let stays = |alive: &Alive<S>| alive.live > 0 || now < alive.last + idle;
        self.alive.retain(|_, alive| stays(alive));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<&'static str> {
        Table::new(2, Seconds(1.0))
    }

    const A: Id = Id::Number(1);
    const B: Id = Id::Number(2);

    /// Begins a sequence that gets its place at once.
    fn placed(table: &mut Table<&'static str>, id: &Id, state: &'static str) -> u64 {
        let number = table.begin(id, state, Seconds(0.0));
        assert!(table.place(id, number, Seconds(0.0)));
        number
    }

    #[test]
    fn a_sequence_lives_from_its_first_request_to_its_last() {
        let mut table = table();
        assert!(table.go_on(&A, Seconds(0.0)).is_none());
        let number = placed(&mut table, &A, "a");
        table.done(&A, number, false, Seconds(0.0));
        assert_eq!(table.go_on(&A, Seconds(0.5)), Some(("a", number)));
        table.done(&A, number, true, Seconds(0.5));
        assert!(table.go_on(&A, Seconds(0.5)).is_none());
    }

    #[test]
    fn the_idle_are_forgotten_and_those_that_run_are_not() {
        let mut table = table();
        let number = placed(&mut table, &A, "a");
        assert_eq!(table.next_expiry(), None);
        assert!(table.go_on(&A, Seconds(9.0)).is_some());
        table.done(&A, number, false, Seconds(9.0));
        table.done(&A, number, false, Seconds(9.0));
        assert_eq!(table.next_expiry(), Some(Seconds(10.0)));
        assert!(table.go_on(&A, Seconds(10.0)).is_none());
    }

    #[test]
    fn only_so_many_are_alive_and_a_place_comes_free() {
        let mut table = table();
        let first = placed(&mut table, &A, "a");
        placed(&mut table, &B, "b");
        let third = Id::Text("c".into());
        let number = table.begin(&third, "c", Seconds(0.0));
        assert!(!table.place(&third, number, Seconds(0.0)));
        assert_eq!(table.go_on(&third, Seconds(0.0)), Some(("c", number)));
        table.done(&A, first, true, Seconds(0.0));
        assert!(table.place(&third, number, Seconds(0.0)));
    }

    #[test]
    fn who_waits_for_a_place_lets_go_when_it_is_begun_anew() {
        let mut table = table();
        placed(&mut table, &A, "a");
        placed(&mut table, &B, "b");
        let third = Id::Text("c".into());
        let old = table.begin(&third, "old", Seconds(0.0));
        let new = table.begin(&third, "new", Seconds(0.0));
        assert!(table.place(&third, old, Seconds(0.0)));
        assert!(!table.place(&third, new, Seconds(0.0)));
    }

    #[test]
    fn one_that_begins_anew_is_left_alone_by_what_was_before() {
        let mut table = table();
        let old = placed(&mut table, &A, "old");
        placed(&mut table, &B, "b");
        let new = placed(&mut table, &A, "new");
        table.done(&A, old, true, Seconds(0.0));
        assert_eq!(table.go_on(&A, Seconds(0.0)), Some(("new", new)));
    }
}
