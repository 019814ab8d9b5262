//! By worker, the blocks that it holds, in the order of their last use.

use super::block_sets::number;
use super::slots::Slots;
use crate::units::WorkerId;

/// No other block.
const NONE: u32 = u32::MAX;
/// Keeps one block's keys for different workers apart; odd, so that no two are equal.
const APART: u64 = 0xd6e8_feb8_6659_fd93;

/// What all workers hold.
#[derive(Debug)]
pub(super) struct Holdings {
    /// The most blocks of all workers together.
    room: usize,
    slots: Slots,
    held: Vec<Held>,
    /// Entries that were dropped, linked by `older`.
    spare: u32,
    lists: Vec<List>,
}

/// A block that a worker holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    block: u64,
    worker: WorkerId,
    newer: u32,
    older: u32,
}

/// One worker's blocks, linked.
#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    count: usize,
}

impl Held {
    fn key(&self) -> u64 {
        key(self.worker, self.block)
    }
}

impl Holdings {
    /// The bytes that a block of a worker takes.
    pub(super) const BYTES_EACH: usize = Slots::BYTES_EACH + size_of::<Held>();

    pub(super) fn new(room: usize, workers: usize) -> Self {
        let empty = List {
            newest: NONE,
            oldest: NONE,
            count: 0,
        };
        Holdings {
            room,
            slots: Slots::default(),
            held: Vec::new(),
            spare: NONE,
            lists: vec![empty; workers],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.bytes() + self.held.capacity() * size_of::<Held>()
    }

    /// How many blocks a worker holds.
    pub(super) fn count(&self, worker: WorkerId) -> usize {
        self.lists[worker.index()].count
    }

    /// How many all workers hold together.
    pub(super) fn all(&self) -> usize {
        self.lists.iter().map(|list| list.count).sum()
    }

    /// A worker's blocks, from the one that was not used for longest.
    pub(super) fn oldest_first(&self, worker: WorkerId) -> impl Iterator<Item = u64> {
        let mut at = self.lists[worker.index()].oldest;
        std::iter::from_fn(move || {
            let held = self.held.get(at as usize)?;
            at = held.newer;
            Some(held.block)
        })
    }

    /// A block is used; false if the worker does not hold it.
    pub(super) fn refresh(&mut self, worker: WorkerId, block: u64) -> bool {
        let Some(at) = self.find(worker, block) else {
            return false;
        };
        if self.lists[worker.index()].newest != at {
            self.unlink(at);
            self.link(at);
        }
        true
    }

    /// A worker holds a block that it did not.
    pub(super) fn insert(&mut self, worker: WorkerId, block: u64) {
        if self.held.capacity() == 0 {
            self.slots = Slots::with_room(self.room);
            self.held.reserve_exact(self.room);
        }
        let fresh = Held {
            block,
            worker,
            newer: NONE,
            older: NONE,
        };
        let at = match self.held.get_mut(self.spare as usize) {
            Some(spare) => {
                let at = std::mem::replace(&mut self.spare, spare.older);
                *spare = fresh;
                at
            }
            None => {
                self.held.push(fresh);
                number(self.held.len() - 1)
            }
        };
        self.slots.insert(fresh.key(), at);
        self.link(at);
    }

    /// Drops a block; false if the worker does not hold it.
    pub(super) fn remove(&mut self, worker: WorkerId, block: u64) -> bool {
        let found = self.find(worker, block);
        found.is_some_and(|at| {
            self.release(at);
            true
        })
    }

    /// Drops the block that was not used for longest, and returns it.
    pub(super) fn drop_oldest(&mut self, worker: WorkerId) -> Option<u64> {
        let oldest = self.lists.get(worker.index())?.oldest;
        let block = self.held.get(oldest as usize)?.block;
        self.release(oldest);
        Some(block)
    }

    /// Whether every list is as long as it says, and no longer than this.
    pub(super) fn check(&self, most: usize) -> Result<(), String> {
        for (worker, list) in self.lists.iter().enumerate() {
            let mut at = list.newest;
            let mut counted = 0;
            while let Some(held) = self.held.get(at as usize) {
                if held.worker.index() != worker || self.find(held.worker, held.block) != Some(at) {
                    return Err(format!("worker {worker} does not find what it holds"));
                }
                counted += 1;
                at = held.older;
            }
            if counted != list.count || counted > most {
                return Err(format!(
                    "worker {worker} holds {counted} blocks of {most}, {} counted",
                    list.count
                ));
            }
        }
        Ok(())
    }

    fn find(&self, worker: WorkerId, block: u64) -> Option<u32> {
        self.slots.find(key(worker, block), |at| {
            let held = &self.held[at as usize];
            held.block == block && held.worker == worker
        })
    }

    fn release(&mut self, at: u32) {
        self.unlink(at);
        let held = &self.held;
        let key = held[at as usize].key();
        self.slots
            .remove(key, at, |other| held[other as usize].key());
        self.held[at as usize].older = std::mem::replace(&mut self.spare, at);
    }

    /// Makes an entry its worker's newest.
    fn link(&mut self, at: u32) {
        let worker = self.held[at as usize].worker;
        let list = &mut self.lists[worker.index()];
        let second = std::mem::replace(&mut list.newest, at);
        list.count += 1;
        if second == NONE {
            list.oldest = at;
        } else {
            self.held[second as usize].newer = at;
        }
        let held = &mut self.held[at as usize];
        (held.newer, held.older) = (NONE, second);
    }

    fn unlink(&mut self, at: u32) {
        let Held {
            worker,
            newer,
            older,
            ..
        } = self.held[at as usize];
        let list = &mut self.lists[worker.index()];
        list.count -= 1;
        match newer {
            NONE => list.newest = older,
            newer => self.held[newer as usize].older = older,
        }
        match older {
            NONE => list.oldest = newer,
            older => self.held[older as usize].newer = newer,
        }
    }
}

fn key(worker: WorkerId, block: u64) -> u64 {
    block ^ u64::from(worker.0 + 1).wrapping_mul(APART)
}
