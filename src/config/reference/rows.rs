//! The table itself, in the order in which a file is written.
//!
//! Its parts are joined here, so that whoever looks a key up looks in one place.

use super::Row;
use super::fleet::FLEET;
use super::process::PROCESS;
use super::queue::QUEUE;

/// Every key.
pub const ROWS: &[Row] = &joined();

const COUNT: usize = PROCESS.len() + QUEUE.len() + FLEET.len();

const fn joined() -> [Row; COUNT] {
    let mut rows = [PROCESS[0]; COUNT];
    let (process, rest) = rows.split_at_mut(PROCESS.len());
    let (queue, fleet) = rest.split_at_mut(QUEUE.len());
    process.copy_from_slice(PROCESS);
    queue.copy_from_slice(QUEUE);
    fleet.copy_from_slice(FLEET);
    rows
}
