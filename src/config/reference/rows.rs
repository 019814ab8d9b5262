//! The table itself, in the order in which a file is written.
//!
//! Its parts are joined here, so that whoever looks a key up looks in one place.

use super::Row;
use super::fleet::FLEET;
use super::process::PROCESS;
use super::tenants::TENANTS;

/// Every key.
pub const ROWS: &[Row] = &joined();

const COUNT: usize = PROCESS.len() + FLEET.len() + TENANTS.len();

const fn joined() -> [Row; COUNT] {
    let mut rows = [PROCESS[0]; COUNT];
    let (process, rest) = rows.split_at_mut(PROCESS.len());
    let (fleet, tenants) = rest.split_at_mut(FLEET.len());
    process.copy_from_slice(PROCESS);
    fleet.copy_from_slice(FLEET);
    tenants.copy_from_slice(TENANTS);
    rows
}
