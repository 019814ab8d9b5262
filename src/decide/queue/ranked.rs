//! Requests in the order of their deadlines, with the place that each has in it.
//!
//! A B-tree would have to be walked to tell how many stand before somebody, and everybody in line is told that, under the
//! fleet's lock: 100,000 steps each where so many wait. Here they stand in blocks. A place is the sum of the lengths of
//! those before one's own, which is a look at some hundred numbers, and coming and going moves no more than one block.

use super::Ticket;

/// When a client leaves, in microseconds, and who it is.
pub(super) type Due = (u64, Ticket);

/// The longest block.
const LONGEST: usize = 256;

/// A sorted set. No block of it is empty.
#[derive(Debug, Default)]
pub(super) struct Ranked(Vec<Vec<Due>>);

impl Ranked {
    /// The block in which this is, or would be.
    fn block_of(&self, due: Due) -> usize {
        self.0.partition_point(|block| block.last() < Some(&due))
    }

    pub(super) fn insert(&mut self, due: Due) {
        let at = self.block_of(due).min(self.0.len().saturating_sub(1));
        let Some(block) = self.0.get_mut(at) else {
            self.0.push(vec![due]);
            return;
        };
        if let Err(place) = block.binary_search(&due) {
            block.insert(place, due);
        }
        if block.len() > LONGEST {
            let half = block.split_off(LONGEST / 2);
            self.0.insert(at + 1, half);
        }
    }

    pub(super) fn remove(&mut self, due: Due) {
        let at = self.block_of(due);
        let Some(block) = self.0.get_mut(at) else {
            return;
        };
        if let Ok(place) = block.binary_search(&due) {
            block.remove(place);
        }
        if block.is_empty() {
            self.0.remove(at);
        }
    }

    pub(super) fn has(&self, due: Due) -> bool {
        let block = self.0.get(self.block_of(due));
        block.is_some_and(|block| block.binary_search(&due).is_ok())
    }

    pub(super) fn first(&self) -> Option<Due> {
        self.0.first()?.first().copied()
    }

    pub(super) fn last(&self) -> Option<Due> {
        self.0.last()?.last().copied()
    }

    /// How many stand before this one.
    pub(super) fn before(&self, due: Due) -> usize {
        let at = self.block_of(due);
        let whole: usize = self.0[..at].iter().map(Vec::len).sum();
        let block = self.0.get(at);
        whole + block.map_or(0, |block| block.partition_point(|one| *one < due))
    }

    /// Who stands behind this one, in order.
    pub(super) fn behind(&self, due: Due) -> impl Iterator<Item = Due> {
        let mut blocks = self.0[self.block_of(due)..].iter();
        let own = blocks.next().map_or(&[][..], |block| {
            &block[block.partition_point(|one| *one <= due)..]
        });
        own.iter().chain(blocks.flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::Rng;

    fn ticket(number: u64) -> Ticket {
        Ticket { number, slot: 0 }
    }

    #[test]
    fn it_is_a_set_that_knows_places() {
        for seed in 0..8 {
            let mut rng = Rng::seeded(seed);
            let (mut ranked, mut set) = (Ranked::default(), BTreeSet::new());
            for round in 0..4_000 {
                let due = (rng.below(40) as u64, ticket(rng.below(100) as u64));
                // It grows, and then shrinks to nothing.
                if rng.below(4_000) > round {
                    ranked.insert(due);
                    set.insert(due);
                } else {
                    let due = set.range(due..).next().copied().unwrap_or(due);
                    ranked.remove(due);
                    set.remove(&due);
                }
                assert_eq!(ranked.has(due), set.contains(&due));
                assert_eq!(
                    (ranked.first(), ranked.last()),
                    (set.first().copied(), set.last().copied())
                );
                assert_eq!(ranked.before(due), set.range(..due).count());
                if round % 64 == 0 {
                    let behind = (std::ops::Bound::Excluded(due), std::ops::Bound::Unbounded);
                    assert!(ranked.behind(due).eq(set.range(behind).copied()));
                    assert!(
                        ranked
                            .0
                            .iter()
                            .all(|block| (1..=LONGEST).contains(&block.len()))
                    );
                }
            }
        }
    }
}
