//! How much memory a process has, as Linux tells it.

/// Bytes of this process that are in memory now.
#[track_caller]
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let line = lines.find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}
