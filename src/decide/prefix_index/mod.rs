//! Which worker is believed to hold which blocks of prompts in its cache.
//!
//! A block is a hash that stands for all of a prompt up to its end (`facts/prefix.rs`), so a prompt is a path of
//! hashes, and what a worker can reuse of it is the longest beginning of that path that it holds. Nobody tells us what
//! engines hold; what they were sent is known, and that they forget what was not used for longest. So every worker has
//! a list of blocks in the order of their last use, cut at what its memory takes. A path is touched from its end to its
//! beginning: a block is then never older than those that build on it, and what is forgotten first is always an end, as
//! in vLLM, which frees the blocks of a sequence in reverse for the same reason.
//!
//! Two tables, because the two questions differ: a look-up wants all workers of a block at once (`block_sets.rs`, one
//! bit for each, so that a path costs the same with two workers and with sixty-four), an update wants one block of one
//! worker (`holdings.rs`). Both are open addressing over arrays of a fixed size (`slots.rs`).
//!
//! Guaranteed: the arrays are made at the first touch and never grow, and together they take less than
//! [`PrefixIndex::MOST_BYTES`]; every worker has an equal share of them, so that one with much memory takes nothing from
//! the others. Looking allocates nothing. No hash decides the order of anything.

mod block_sets;
mod holdings;
mod slots;

use block_sets::{AT_ONCE, BlockSets};
use holdings::Holdings;

use crate::units::WorkerId;

/// The most blocks of one worker: of 1 KiB, some two million tokens.
const MOST_EACH: usize = 8_192;

/// Who holds what.
#[derive(Debug)]
pub struct PrefixIndex {
    workers: usize,
    /// The most blocks of one worker.
    share: usize,
    sets: BlockSets,
    holdings: Holdings,
}

/// What a look-up found; kept by who looks, so that the next look-up allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// Blocks from the start, by worker.
    depths: Vec<u32>,
    /// Who has held every block so far.
    holders: Vec<u64>,
}

impl Matches {
    /// How many blocks from the prompt's start a worker holds.
    #[must_use]
    pub fn depth(&self, worker: WorkerId) -> u32 {
        self.depths.get(worker.index()).copied().unwrap_or(0)
    }

    fn reset(&mut self, workers: usize) {
        self.depths.clear();
        self.depths.resize(workers, 0);
        self.holders.clear();
        self.holders.resize(workers.div_ceil(64), u64::MAX);
    }

    /// Only these hold the block at this depth too; false if nobody is left.
    fn keep(&mut self, set: &[u64], depth: u32) -> bool {
        let mut left = 0;
        for word in 0..self.holders.len() {
            let bits = set.get(word).copied().unwrap_or(0);
            let leaving = self.holders[word] & !bits;
            if leaving != 0 && depth > 0 {
                self.part(word, leaving, depth);
            }
            self.holders[word] &= bits;
            left |= self.holders[word];
        }
        left != 0
    }

    /// Those who leave have held exactly so many blocks.
    fn part(&mut self, word: usize, mut leaving: u64, depth: u32) {
        while leaving != 0 {
            let worker = word * 64 + leaving.trailing_zeros() as usize;
            if let Some(found) = self.depths.get_mut(worker) {
                *found = depth;
            }
            leaving &= leaving - 1;
        }
    }
}

impl PrefixIndex {
    /// The most bytes of all tables together.
    pub const MOST_BYTES: usize = 64 << 20;

    /// An index in which nobody holds anything.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        let words = workers.div_ceil(64);
        let cost = Holdings::BYTES_EACH + BlockSets::bytes_each(words);
        let share = (Self::MOST_BYTES / cost / workers.max(1)).min(MOST_EACH);
        PrefixIndex {
            workers,
            share,
            sets: BlockSets::new(share * workers, words),
            holdings: Holdings::new(share * workers, workers),
        }
    }

    /// The same for more workers, each of which then has a smaller share if these tables would be too large.
    #[must_use]
    pub fn widened(&self, workers: usize) -> Self {
        let mut wider = PrefixIndex::new(workers.max(self.workers));
        for worker in (0..).map(WorkerId).take(self.workers) {
            for block in self.holdings.oldest_first(worker) {
                wider.touch(worker, &[block], usize::MAX);
            }
        }
        wider
    }

    /// The most blocks that are remembered of one worker.
    #[must_use]
    pub fn share(&self) -> usize {
        self.share
    }

    /// The bytes that all tables take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sets.bytes() + self.holdings.bytes()
    }

    /// How many blocks of this prompt each worker holds, from its start.
    pub fn look(&self, prompt: &[u64], matches: &mut Matches) {
        matches.reset(self.workers);
        let mut depth = 0;
        for together in prompt.chunks(AT_ONCE) {
            let found = self.sets.find_all(together);
            for place in &found[..together.len()] {
                let set = place.map_or(&[][..], |place| self.sets.set(place));
                if !matches.keep(set, depth) {
                    return;
                }
                depth += 1;
            }
        }
        matches.keep(&[], depth);
    }

    /// A worker is sent this prompt, and holds at most so many blocks in all.
    pub fn touch(&mut self, worker: WorkerId, prompt: &[u64], most: usize) {
        let most = most.min(self.share);
        if worker.index() >= self.workers {
            return;
        }
        for block in prompt.iter().take(most).rev() {
            if self.holdings.refresh(worker, *block) {
                continue;
            }
            if self.holdings.count(worker) >= most {
                self.drop_oldest(worker);
            }
            self.sets.insert(*block, worker);
            self.holdings.insert(worker, *block);
        }
        while self.holdings.count(worker) > most {
            self.drop_oldest(worker);
        }
    }

    /// A worker does not hold these blocks.
    pub fn forget(&mut self, worker: WorkerId, blocks: &[u64]) {
        for block in blocks {
            if self.holdings.remove(worker, *block) {
                self.sets.remove(*block, worker);
            }
        }
    }

    /// A worker holds nothing any more.
    pub fn clear(&mut self, worker: WorkerId) {
        while self.drop_oldest(worker) {}
    }

    /// Whether the tables agree with each other and keep their bounds.
    ///
    /// # Errors
    /// Names the first disagreement.
    pub fn check(&self) -> Result<(), String> {
        self.holdings.check(self.share)?;
        let (held, known) = (self.holdings.all(), self.sets.members());
        if held != known {
            return Err(format!("{held} blocks are held, {known} stand in sets"));
        }
        if self.bytes() > Self::MOST_BYTES {
            return Err(format!("the index takes {} bytes", self.bytes()));
        }
        Ok(())
    }

    fn drop_oldest(&mut self, worker: WorkerId) -> bool {
        let Some(block) = self.holdings.drop_oldest(worker) else {
            return false;
        };
        self.sets.remove(block, worker);
        true
    }
}
