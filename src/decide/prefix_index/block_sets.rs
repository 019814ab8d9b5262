//! By block, the set of the workers that hold it: a bit for each.

use super::slots::Slots;
use crate::units::WorkerId;

/// The sets of all blocks that somebody holds.
#[derive(Debug)]
pub(super) struct BlockSets {
    /// The most blocks there can be.
    room: usize,
    /// Words of 64 bits in a set.
    words: usize,
    slots: Slots,
    hashes: Vec<u64>,
    bits: Vec<u64>,
    /// Places of sets that became empty.
    spare: Vec<u32>,
}

impl BlockSets {
    /// The bytes that a block takes.
    pub(super) fn bytes_each(words: usize) -> usize {
        Slots::BYTES_EACH + size_of::<u64>() * (1 + words) + size_of::<u32>()
    }

    pub(super) fn new(room: usize, words: usize) -> Self {
        BlockSets {
            room,
            words,
            slots: Slots::default(),
            hashes: Vec::new(),
            bits: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let words = self.hashes.capacity() + self.bits.capacity();
        self.slots.bytes() + words * size_of::<u64>() + self.spare.capacity() * size_of::<u32>()
    }

    /// Who holds a block.
    pub(super) fn of(&self, block: u64) -> Option<&[u64]> {
        self.find(block).map(|at| self.set(at))
    }

    pub(super) fn insert(&mut self, block: u64, worker: WorkerId) {
        let at = self.find(block).unwrap_or_else(|| self.begin(block));
        let (word, bit) = place(worker);
        if let Some(bits) = self.set_mut(at).get_mut(word) {
            *bits |= bit;
        }
    }

    pub(super) fn remove(&mut self, block: u64, worker: WorkerId) {
        let Some(at) = self.find(block) else { return };
        let (word, bit) = place(worker);
        let set = self.set_mut(at);
        if let Some(bits) = set.get_mut(word) {
            *bits &= !bit;
        }
        if set.iter().all(|bits| *bits == 0) {
            let hashes = &self.hashes;
            self.slots.remove(block, at, |other| hashes[other as usize]);
            self.spare.push(at);
        }
    }

    /// How many workers all sets have together.
    pub(super) fn members(&self) -> usize {
        self.bits
            .iter()
            .map(|bits| bits.count_ones() as usize)
            .sum()
    }

    fn find(&self, block: u64) -> Option<u32> {
        self.slots
            .find(block, |at| self.hashes[at as usize] == block)
    }

    /// An empty set for a block that has none.
    fn begin(&mut self, block: u64) -> u32 {
        if self.hashes.capacity() == 0 {
            self.slots = Slots::with_room(self.room);
            self.hashes.reserve_exact(self.room);
            self.bits.reserve_exact(self.room * self.words);
            self.spare.reserve_exact(self.room);
        }
        let at = match self.spare.pop() {
            Some(at) => {
                self.hashes[at as usize] = block;
                at
            }
            None => {
                self.hashes.push(block);
                self.bits.resize(self.hashes.len() * self.words, 0);
                last_place(&self.hashes)
            }
        };
        self.slots.insert(block, at);
        at
    }

    fn set(&self, at: u32) -> &[u64] {
        &self.bits[at as usize * self.words..][..self.words]
    }

    fn set_mut(&mut self, at: u32) -> &mut [u64] {
        &mut self.bits[at as usize * self.words..][..self.words]
    }
}

fn place(worker: WorkerId) -> (usize, u64) {
    (worker.index() / 64, 1 << (worker.index() % 64))
}

/// The last place of a table that has fewer than 2³².
#[expect(clippy::cast_possible_truncation, reason = "tables are far smaller")]
pub(super) fn last_place<T>(table: &[T]) -> u32 {
    table.len().saturating_sub(1) as u32
}
