//! The table itself, in the order in which a file is written.
//!
//! Its parts are joined here, so that whoever looks a key up looks in one place.

use super::Row;
use super::fleet::FLEET;
use super::process::PROCESS;
use super::queue::QUEUE;
use super::region::REGIONS;
use super::tenants::TENANTS;

/// Every key.
pub const ROWS: &[Row] = &joined();

const COUNT: usize = PROCESS.len() + QUEUE.len() + REGIONS.len() + FLEET.len() + TENANTS.len();

const fn joined() -> [Row; COUNT] {
    let mut rows = [PROCESS[0]; COUNT];
    let (process, others) = rows.split_at_mut(PROCESS.len());
    let (queue, others) = others.split_at_mut(QUEUE.len());
    let (regions, others) = others.split_at_mut(REGIONS.len());
    let (fleet, tenants) = others.split_at_mut(FLEET.len());
    process.copy_from_slice(PROCESS);
    queue.copy_from_slice(QUEUE);
    regions.copy_from_slice(REGIONS);
    fleet.copy_from_slice(FLEET);
    tenants.copy_from_slice(TENANTS);
    rows
}
