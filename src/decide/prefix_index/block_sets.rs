//! By block, the set of the workers that hold it: a bit for each.

use super::slots::{Slots, VACANT};
use crate::units::WorkerId;

/// So many blocks are looked for at a time.
pub(super) const AT_ONCE: usize = 16;

/// The sets of all blocks that somebody holds.
#[derive(Debug)]
pub(super) struct BlockSets {
    /// The most blocks there can be.
    room: usize,
    /// Words of 64 bits in a set.
    words: usize,
    slots: Slots,
    /// Each block's hash and then its set, so that both come in one trip to memory.
    sets: Vec<u64>,
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
            sets: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let sets = self.sets.capacity() * size_of::<u64>();
        self.slots.bytes() + sets + self.spare.capacity() * size_of::<u32>()
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
            let (sets, stride) = (&self.sets, 1 + self.words);
            let hash = |other| sets[other as usize * stride];
            self.slots.remove(block, at, hash);
            self.spare.push(at);
        }
    }

    /// How many workers all sets have together.
    pub(super) fn members(&self) -> usize {
        let sets = self.sets.chunks_exact(1 + self.words);
        let bits = sets.flat_map(|set| &set[1..]);
        bits.map(|bits| bits.count_ones() as usize).sum()
    }

    /// Where the sets of these blocks are, at most [`AT_ONCE`], of those that anybody holds.
    pub(super) fn find_all(&self, blocks: &[u64]) -> [Option<u32>; AT_ONCE] {
        let mut firsts = [VACANT; AT_ONCE];
        for (first, block) in firsts.iter_mut().zip(blocks) {
            *first = self.slots.first(*block);
        }
        let mut found = [None; AT_ONCE];
        for ((found, first), block) in found.iter_mut().zip(firsts).zip(blocks) {
            let is = |at| self.sets[self.start(at)] == *block;
            *found = self.slots.find_from(*block, first, is);
        }
        found
    }

    fn find(&self, block: u64) -> Option<u32> {
        let is = |at| self.sets[self.start(at)] == block;
        self.slots.find(block, is)
    }

    /// An empty set for a block that has none.
    fn begin(&mut self, block: u64) -> u32 {
        if self.sets.capacity() == 0 {
            self.slots = Slots::with_room(self.room);
            self.sets.reserve_exact(self.room * (1 + self.words));
            self.spare.reserve_exact(self.room);
        }
        let at = match self.spare.pop() {
            Some(at) => {
                let start = self.start(at);
                self.sets[start] = block;
                at
            }
            None => {
                let at = number(self.sets.len() / (1 + self.words));
                self.sets.push(block);
                self.sets.resize(self.sets.len() + self.words, 0);
                at
            }
        };
        self.slots.insert(block, at);
        at
    }

    /// Who holds the block whose set is there.
    pub(super) fn set(&self, at: u32) -> &[u64] {
        &self.sets[self.start(at) + 1..][..self.words]
    }

    fn set_mut(&mut self, at: u32) -> &mut [u64] {
        let start = self.start(at) + 1;
        &mut self.sets[start..][..self.words]
    }

    fn start(&self, at: u32) -> usize {
        at as usize * (1 + self.words)
    }
}

fn place(worker: WorkerId) -> (usize, u64) {
    (worker.index() / 64, 1 << (worker.index() % 64))
}

/// A place in a table that has fewer than 2³².
#[expect(clippy::cast_possible_truncation, reason = "tables are far smaller")]
pub(super) fn number(place: usize) -> u32 {
    place as u32
}
