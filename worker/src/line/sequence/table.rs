//! Which sequences are alive. Pure: `now` goes in, and whether there is room comes out.
//!
//! A sequence is alive from its first request to its last, or until it has been idle for too long. Beginning one anew
//! replaces it; what still runs of the old one can change nothing of the new, since each has a number of its own.

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

/// The sequences that are alive, each with a state.
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

    /// Begins a sequence and gives its number, or `None` when as many are alive as may.
    pub fn begin(&mut self, id: &Id, state: S, now: Seconds) -> Option<u64> {
        self.expire(now);
        if !self.alive.contains_key(id) && self.alive.len() >= self.most {
            return None;
        }
        self.begun += 1;
        let alive = Alive {
            state,
            number: self.begun,
            live: 1,
            last: now,
        };
        self.alive.insert(id.clone(), alive);
        Some(self.begun)
    }

    /// The state and number of a sequence that goes on, if it is alive.
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

    #[test]
    fn a_sequence_lives_from_its_first_request_to_its_last() {
        let mut table = table();
        assert!(table.go_on(&A, Seconds(0.0)).is_none());
        let number = table.begin(&A, "a", Seconds(0.0)).unwrap();
        table.done(&A, number, false, Seconds(0.0));
        assert_eq!(table.go_on(&A, Seconds(0.5)), Some(("a", number)));
        table.done(&A, number, true, Seconds(0.5));
        assert!(table.go_on(&A, Seconds(0.5)).is_none());
    }

    #[test]
    fn the_idle_are_forgotten_and_those_that_run_are_not() {
        let mut table = table();
        let number = table.begin(&A, "a", Seconds(0.0)).unwrap();
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
        let first = table.begin(&A, "a", Seconds(0.0)).unwrap();
        table.begin(&B, "b", Seconds(0.0)).unwrap();
        let third = Id::Text("c".into());
        assert!(table.begin(&third, "c", Seconds(0.0)).is_none());
        table.done(&A, first, true, Seconds(0.0));
        assert!(table.begin(&third, "c", Seconds(0.0)).is_some());
    }

    #[test]
    fn one_that_begins_anew_is_left_alone_by_what_was_before() {
        let mut table = table();
        let old = table.begin(&A, "old", Seconds(0.0)).unwrap();
        let new = table.begin(&A, "new", Seconds(0.0)).unwrap();
        table.done(&A, old, true, Seconds(0.0));
        assert_eq!(table.go_on(&A, Seconds(0.0)), Some(("new", new)));
    }
}
