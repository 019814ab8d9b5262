//! The table itself, in the order in which a file is written.
//!
//! Its two parts are joined here, so that whoever looks a key up looks in one place.

use super::Row;
use super::fleet::FLEET;
use super::process::PROCESS;

/// Every key.
pub const ROWS: &[Row] = &joined();

const fn joined() -> [Row; PROCESS.len() + FLEET.len()] {
    let mut rows = [PROCESS[0]; PROCESS.len() + FLEET.len()];
    let (process, fleet) = rows.split_at_mut(PROCESS.len());
    process.copy_from_slice(PROCESS);
    fleet.copy_from_slice(FLEET);
    rows
}
