//! The fleet that is simulated: its machines, how far they are, and what goes wrong with them.

use std::sync::Arc;

use super::card::Card;
use crate::units::{Seconds, WorkerId};

/// A fleet, and what it is simulated with unless the caller says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// Requests a second.
    pub rate: Option<f64>,
    /// How many requests.
    pub requests: Option<usize>,
    /// The models that are asked for; every worker serves all of them.
    pub models: u32,
    /// How many times its KV memory an engine remembers of prompts: more than one means that it keeps them in the
    /// machine's memory too, and gets them back for free.
    pub cache: f64,
    /// How long the proxy waits for an answer to begin.
    pub first_byte: Seconds,
    /// The workers.
    pub members: Vec<Member>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// One worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: Arc<str>,
    /// Its card.
    pub card: Card,
    /// The most requests that the proxy gives it at a time, where the operator says so; engines queue what they can't run.
    pub max_inflight: Option<u32>,
    /// From the proxy to the worker and back.
    pub round_trip: Seconds,
    /// Who is asked first: the lowest tier that somebody is up in.
    pub tier: u8,
    /// What a second of it is worth, in seconds.
    pub price: f64,
}

/// Something goes wrong with a worker for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// With which.
    pub worker: WorkerId,
    /// What.
    pub kind: FaultKind,
    /// When it begins.
    pub from: Seconds,
    /// How long it lasts.
    pub lasts: Seconds,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Everything takes so many times as long.
    Slow(f64),
    /// It refuses connections; what it held and remembered is lost.
    Dead,
    /// It accepts and says nothing.
    Hung,
    /// Dead for the first of these spans in each of the second.
    Flapping(Seconds, Seconds),
}

/// What a worker can do at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Condition {
    /// It runs at this share of its speed.
    Runs(f64),
    /// It is gone.
    Dead,
    /// It accepts and says nothing.
    Hung,
}

impl Fleet {
    /// Takes a worker out, and what would have gone wrong with it; false when there is none of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(place) = self.members.iter().position(|member| *member.name == *name) else {
            return false;
        };
        self.members.remove(place);
        self.faults.retain(|fault| fault.worker.index() != place);
        for fault in &mut self.faults {
            if fault.worker.index() > place {
                fault.worker.0 -= 1;
            }
        }
        true
    }

    /// Whether something is wrong with somebody at this time.
    #[must_use]
    pub fn suffers(&self, at: Seconds) -> bool {
        let lasts = |fault: &Fault| (fault.from.0..(fault.from + fault.lasts).0).contains(&at.0);
        self.faults.iter().any(lasts)
    }

    /// Every change of a worker's condition: when, whose, to what.
    pub(super) fn changes(&self) -> Vec<(Seconds, WorkerId, Condition)> {
        let mut changes = Vec::new();
        for fault in &self.faults {
            let until = fault.from + fault.lasts;
            let mut spell = |from: Seconds, until: Seconds, condition| {
                changes.push((from, fault.worker, condition));
                changes.push((until, fault.worker, Condition::Runs(1.0)));
            };
            match fault.kind {
                FaultKind::Slow(factor) => spell(fault.from, until, Condition::Runs(1.0 / factor)),
                FaultKind::Dead => spell(fault.from, until, Condition::Dead),
                FaultKind::Hung => spell(fault.from, until, Condition::Hung),
                FaultKind::Flapping(down, every) => {
                    let mut from = fault.from;
                    while from.0 < until.0 && every.0 > 0.0 {
                        spell(from, (from + down).min(until), Condition::Dead);
                        from += every;
                    }
                }
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flapping_worker_dies_again_and_again_and_ends_alive() {
        let fault = Fault {
            worker: WorkerId(0),
            kind: FaultKind::Flapping(Seconds(3.0), Seconds(10.0)),
            from: Seconds(100.0),
            lasts: Seconds(22.0),
        };
        let fleet = Fleet {
            rate: None,
            requests: None,
            models: 1,
            cache: 1.0,
            first_byte: Seconds(300.0),
            members: Vec::new(),
            faults: vec![fault],
        };
        let times: Vec<f64> = fleet.changes().iter().map(|change| change.0.0).collect();
        assert_eq!(times, [100.0, 103.0, 110.0, 113.0, 120.0, 122.0]);
        assert_eq!(fleet.changes()[5].2, Condition::Runs(1.0));
        let suffers = [99.0, 100.0, 105.0, 121.9, 122.0].map(|at| fleet.suffers(Seconds(at)));
        assert_eq!(suffers, [false, true, true, true, false]);
    }

    #[test]
    fn who_is_taken_out_takes_its_faults_along() {
        let fault = |worker| Fault {
            worker: WorkerId(worker),
            kind: FaultKind::Dead,
            from: Seconds(1.0),
            lasts: Seconds(1.0),
        };
        let member = |name: &str| Member {
            name: Arc::from(name),
            card: Card::named("T4").unwrap(),
            max_inflight: Some(1),
            round_trip: Seconds::ZERO,
            tier: 0,
            price: 0.0,
        };
        let mut fleet = Fleet {
            rate: None,
            requests: None,
            models: 1,
            cache: 1.0,
            first_byte: Seconds(300.0),
            members: ["a", "b", "c"].map(member).into(),
            faults: [0, 1, 2].map(fault).into(),
        };
        assert!(fleet.remove("b") && !fleet.remove("b"));
        let workers: Vec<u32> = fleet.faults.iter().map(|fault| fault.worker.0).collect();
        assert_eq!((workers, &*fleet.members[1].name), (vec![0, 1], "c"));
    }
}
