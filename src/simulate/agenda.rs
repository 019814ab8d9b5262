//! What is going to happen, the soonest first; at the same time, in the order in which it was written down.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::decide::Ending;
use crate::units::{Seconds, WorkerId};

/// Something that is going to happen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next request comes.
    Arrival,
    /// An attempt reaches its worker.
    Delivery(usize),
    /// A worker's engine has done something, unless this version of its plans is void.
    Engine(WorkerId, u64),
    /// The first byte of an attempt's answer reaches the proxy.
    FirstByte(usize),
    /// The last byte does.
    LastByte(usize),
    /// The proxy notices that an attempt is lost.
    Loss(usize, Ending),
    /// An attempt has had time enough to begin its answer.
    Deadline(usize),
    /// A worker's output tokens reach the proxy.
    Tokens(WorkerId, f64),
    /// The proxy looks around, as it does several times a second.
    Beat,
    /// A worker is probed.
    Probe(WorkerId),
    /// The probe's answer is there: passed or not.
    Probed(WorkerId, bool),
    /// A worker's condition changes: the place in the list of changes.
    Change(usize),
}

#[derive(Debug)]
struct Entry {
    at: Seconds,
    number: u64,
    event: Event,
}

/// All that is going to happen.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    written: u64,
}

impl Agenda {
    /// Writes something down.
    pub(super) fn add(&mut self, at: Seconds, event: Event) {
        self.written += 1;
        self.entries.push(Reverse(Entry {
            at,
            number: self.written,
            event,
        }));
    }

    /// What happens next, and when.
    pub(super) fn pop(&mut self) -> Option<(Seconds, Event)> {
        let Reverse(entry) = self.entries.pop()?;
        Some((entry.at, entry.event))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.at.0.total_cmp(&other.at.0);
        by_time.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_comes_first_and_ties_keep_their_order() {
        let mut agenda = Agenda::default();
        for (at, worker) in [(2.0, 0), (1.0, 1), (2.0, 2), (0.5, 3)] {
            agenda.add(Seconds(at), Event::Probe(WorkerId(worker)));
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop())
            .map(|(_, event)| match event {
                Event::Probe(worker) => worker.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(order, [3, 1, 0, 2]);
    }
}
