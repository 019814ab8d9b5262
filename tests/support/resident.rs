//! What a process takes of memory and processors, as Linux tells it.

use forebay::units::Seconds;

/// Linux counts processor time in hundredths of seconds, whatever its own clock does (`USER_HZ`).
const TICK: Seconds = Seconds(0.01);

/// Processor time that this process has had.
#[track_caller]
pub fn worked(pid: u32) -> Seconds {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Its name, the second field, may hold anything and ends with the last bracket.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    TICK * ticks
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum::<f64>()
}

/// Bytes of this process that are in memory now.
#[track_caller]
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let line = lines.find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}
