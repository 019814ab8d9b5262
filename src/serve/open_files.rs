//! How many files the process may have open, connections among them.

use std::fs;

/// Where Linux says what a process may use.
const LIMITS: &str = "/proc/self/limits";
const ROW: &str = "Max open files";

/// The number; what can't be found out bounds nothing.
pub(super) fn most() -> usize {
    let limits = fs::read_to_string(LIMITS).unwrap_or_default();
    soft(&limits).unwrap_or(usize::MAX)
}

/// The limit that holds now, from a table with a row for each: name, soft limit, hard limit, unit.
fn soft(limits: &str) -> Option<usize> {
    let mut rows = limits.lines();
    let row = rows.find_map(|row| row.strip_prefix(ROW))?;
    row.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_read_and_unlimited_is_none() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max processes             95555                95555                processes \n\
                     Max open files            1024                 524288               files     \n";
        assert_eq!(soft(table), Some(1024));
        assert_eq!(soft(&table.replace("1024 ", "unlimited ")), None);
        assert!(most() > 0);
    }
}
