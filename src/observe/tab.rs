//! What a request takes of machines, written down by each of its places when that is given back.
//!
//! A place may be given back where nobody looks any more: its client has left, and all that a request had is dropped.
//! So places write here by themselves, and the exchange, which ends last, reads the sum.

use parking_lot::Mutex;

use crate::decide::Expense;

/// The sum so far.
#[derive(Debug, Default)]
pub struct Tab(Mutex<Expense>);

impl Tab {
    /// So much more.
    pub fn add(&self, expense: Expense) {
        let mut sum = self.0.lock();
        *sum = sum.and(expense);
    }

    pub(super) fn sum(&self) -> Expense {
        *self.0.lock()
    }
}
