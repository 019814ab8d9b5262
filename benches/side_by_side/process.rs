//! What processes cost, read from /proc.

use std::fs;

use forebay::units::Seconds;

/// CPU time since they began and memory now, all processes together.
pub struct Usage {
    /// Run time of all living threads, to the nanosecond.
    pub cpu: Seconds,
    /// Resident memory.
    pub rss_kib: u64,
}

impl Usage {
    /// Reads it now. Processes that are gone count nothing.
    pub fn of(pids: &[u32]) -> Self {
        Usage {
            cpu: Seconds(pids.iter().flat_map(|pid| threads(*pid)).sum::<f64>() / 1e9),
            rss_kib: pids.iter().filter_map(|pid| rss(*pid)).sum(),
        }
    }
}

/// "12,34" → 12 and 34.
pub fn pids(text: &str) -> Vec<u32> {
    text.split(',').filter_map(|pid| pid.parse().ok()).collect()
}

/// Nanoseconds that each thread ran: the first number of its `schedstat`.
fn threads(pid: u32) -> Vec<f64> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let stats = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    stats
        .filter_map(|stat| stat.split(' ').next()?.parse().ok())
        .collect()
}

fn rss(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
