//! The machine's cores and memory, as Triton tells of them: all of the machine's, whatever this process may use of it.
//!
//! Linux tells both in `/proc` (proc(5), `stat` and `meminfo`); where it does not, nothing is told. How busy the cores
//! are is their share of time since it was last asked for, at first since the start.

use std::fs;

use parking_lot::Mutex;

/// What there is to tell at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// The share of the cores' time that they were busy, from 0 to 1.
    pub busy: Option<f64>,
    /// Memory in all, in bytes.
    pub memory: Option<u64>,
    /// Memory that programs have, in bytes.
    pub used: Option<u64>,
}

/// Asks the machine.
#[derive(Debug)]
pub struct Host {
    last: Mutex<(Ticks, Option<f64>)>,
}

/// The cores' time so far, in the kernel's own unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Host {
    /// Begins to watch.
    pub fn new() -> Host {
        let begin = read("/proc/stat").and_then(|text| ticks(&text));
        Host {
            last: Mutex::new((begin.unwrap_or_default(), None)),
        }
    }

    /// What there is to tell now.
    pub fn machine(&self) -> Machine {
        let memory = read("/proc/meminfo").unwrap_or_default();
        let (all, free) = (bytes(&memory, "MemTotal:"), bytes(&memory, "MemAvailable:"));
        Machine {
            busy: self.busy(),
            memory: all,
            used: all.zip(free).map(|(all, free)| all.saturating_sub(free)),
        }
    }

    fn busy(&self) -> Option<f64> {
        let now = read("/proc/stat").and_then(|text| ticks(&text))?;
        let mut last = self.last.lock();
        let (before, known) = *last;
        // Two that ask at once: there is no time between them to have a share of.
        let share = share(before, now).or(known);
        *last = (now, share);
        share
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The first line: user, nice, system, idle, iowait, irq, softirq, steal; what follows is within these.
fn ticks(stat: &str) -> Option<Ticks> {
    let mut words = stat.lines().next()?.split_whitespace();
    words.next().filter(|word| *word == "cpu")?;
    let times: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let idle: u64 = times.get(3..5)?.iter().sum();
    let all: u64 = times.iter().sum();
    Some(Ticks {
        busy: all - idle,
        all,
    })
}

fn share(before: Ticks, now: Ticks) -> Option<f64> {
    let all = now.all.checked_sub(before.all).filter(|all| *all > 0)?;
    let busy = now.busy.saturating_sub(before.busy).min(all);
    Some(busy as f64 / all as f64)
}

/// A line of `meminfo`, which counts in KiB.
fn bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let before = ticks("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 2 3\n").unwrap();
        assert_eq!((before.busy, before.all), (20, 100));
        let now = ticks("cpu  40 0 10 130 20 0 0 0 5 5\n").unwrap();
        assert_eq!(share(before, now), Some(0.3));
        assert_eq!(share(now, now), None);
        assert_eq!(share(now, before), None, "a counter that went back");
        for odd in ["", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5", "cpu a b c d e"] {
            assert_eq!(ticks(odd), None, "{odd:?}");
        }
        let meminfo = "MemTotal:       24 kB\nMemFree:  1 kB\nMemAvailable:    8 kB\nOdd: 7\n";
        assert_eq!(bytes(meminfo, "MemTotal:"), Some(24 << 10));
        assert_eq!(bytes(meminfo, "MemAvailable:"), Some(8 << 10));
        assert_eq!(
            (bytes(meminfo, "Odd:"), bytes(meminfo, "Swap:")),
            (None, None)
        );
    }

    #[test]
    fn a_machine_that_tells_nothing_is_not_guessed_at() {
        let told = Host::new().machine();
        assert!(told.busy.is_none_or(|share| (0.0..=1.0).contains(&share)));
        assert!(told.used <= told.memory, "{told:?}");
    }
}
