//! Answers in the order in which their batches were taken, for models that ask for it (`preserve_ordering`).
//!
//! With several instances a later batch may be done first; it is then held back until those before it are. Each batch
//! takes a ticket with its turn and hands its answers in with it.

use std::collections::BTreeMap;

/// Which ticket is next, and the answers that wait for theirs.
#[derive(Debug)]
pub struct Order<T> {
    taken: u64,
    next: u64,
    held: BTreeMap<u64, Vec<T>>,
}

impl<T> Order<T> {
    /// Nothing taken yet.
    pub fn new() -> Self {
        Order {
            taken: 0,
            next: 0,
            held: BTreeMap::new(),
        }
    }

    /// The ticket of the batch that begins now.
    pub fn take(&mut self) -> u64 {
        let ticket = self.taken;
        self.taken += 1;
        ticket
    }

    /// The answers that may leave now that this batch is done.
    pub fn done(&mut self, ticket: u64, answers: Vec<T>) -> Vec<T> {
        self.held.insert(ticket, answers);
        let mut free = Vec::new();
        while let Some(answers) = self.held.remove(&self.next) {
            free.extend(answers);
            self.next += 1;
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_batch_waits_for_the_one_before() {
        let mut order = Order::new();
        let [first, second, third] = [(); 3].map(|()| order.take());
        assert!(order.done(second, vec![3, 4]).is_empty());
        assert_eq!(order.done(first, vec![1, 2]), [1, 2, 3, 4]);
        assert!(order.done(third, vec![]).is_empty());
        let fourth = order.take();
        assert_eq!(order.done(fourth, vec![5]), [5]);
    }
}
