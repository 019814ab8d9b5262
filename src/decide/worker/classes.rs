//! How many requests of each class a worker has.

use super::Worker;
use crate::decide::ask::MOST_CLASSES;

/// Counts by class; what lies beyond the last class counts as the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classes([u32; MOST_CLASSES]);

impl Classes {
    /// One more.
    pub(super) fn enter(&mut self, class: u8) {
        self.0[place(class)] += 1;
    }

    /// One less.
    pub(super) fn leave(&mut self, class: u8) {
        let held = &mut self.0[place(class)];
        *held = held.saturating_sub(1);
    }

    /// All of them.
    pub(super) fn all(&self) -> u32 {
        self.0.iter().sum()
    }
}

impl Worker {
    /// Requests of this class and of lower ones that it has.
    pub(in crate::decide) fn held_from(&self, class: u8) -> u32 {
        self.classes.0[place(class)..].iter().sum()
    }
}

fn place(class: u8) -> usize {
    usize::from(class).min(MOST_CLASSES - 1)
}
