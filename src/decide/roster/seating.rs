//! Another plan: who stays, who begins, who leaves, and who is on which machine from now on.
//!
//! A machine keeps its risk and its coupling as long as a worker stays on it. One that moves takes its requests along and
//! leaves what was learned of the box behind.

use std::sync::Arc;

use super::super::ask::{Rules, WorkerSpec};
use super::super::machine::Machine;
use super::super::seat::Seat;
use super::super::worker::Worker;
use super::{Model, Roster};
use crate::units::{Seconds, WorkerId};

impl Roster {
    /// Takes another plan over, in which this becomes of each worker.
    pub(in crate::decide) fn reseat(&mut self, seats: Vec<Seat>, rules: Rules, now: Seconds) {
        self.rules = rules;
        self.reuse.seat(seats.len());
        for (id, seat) in (0..).map(WorkerId).zip(seats) {
            match seat {
                Seat::Stays(spec) => self.stays(id, *spec, now),
                Seat::Begins(spec) => self.begins(id, *spec, now),
                Seat::Leaves => self.leaves(id, now),
            }
        }
    }

    fn stays(&mut self, id: WorkerId, spec: WorkerSpec, now: Seconds) {
        let Some(worker) = self.workers.get(id.index()) else {
            return self.begins(id, spec, now);
        };
        if worker.spec().machine != spec.machine {
            self.house(id, spec.machine.as_ref(), now);
        }
        if let Some(worker) = self.worker_mut(id) {
            worker.replan(spec, now);
        }
        self.models[Model::NAMELESS].gain(id);
    }

    fn begins(&mut self, id: WorkerId, spec: WorkerSpec, now: Seconds) {
        self.reuse.lost(id);
        self.serves(id, &[]);
        if let Some((worker, machine)) = self.at(id) {
            machine.lose(worker.inflight(), now);
            let machine = spec.machine.clone();
            worker.begin_anew(spec, now);
            self.house(id, machine.as_ref(), now);
        } else {
            let home = self.home_for(id, spec.machine.as_ref());
            self.homes.push(home);
            let mut worker = Worker::new(id, spec.clone());
            worker.begin_anew(spec, now);
            self.workers.push(worker);
        }
        self.models[Model::NAMELESS].gain(id);
    }

    fn leaves(&mut self, id: WorkerId, now: Seconds) {
        self.reuse.lost(id);
        self.serves(id, &[]);
        self.models[Model::NAMELESS].lose(id);
        if let Some(worker) = self.worker_mut(id) {
            worker.leave(now);
        }
    }

    /// Puts a worker on the machine of this name, with what it holds.
    fn house(&mut self, id: WorkerId, machine: Option<&Arc<str>>, now: Seconds) {
        let home = self.home_for(id, machine);
        let held = self.workers[id.index()].inflight();
        let old = std::mem::replace(&mut self.homes[id.index()], home);
        self.machines[old].lose(held, now);
        self.machines[home].move_in(held, now);
    }

    /// The machine of this name that another worker is on; a new one where there is none.
    fn home_for(&mut self, id: WorkerId, machine: Option<&Arc<str>>) -> usize {
        let is_there = |worker: &&Worker| {
            let is_other = worker.id() != id && !worker.condition().has_left();
            is_other && machine.is_some() && worker.spec().machine.as_ref() == machine
        };
        if let Some(neighbour) = self.workers.iter().find(is_there) {
            return self.homes[neighbour.id().index()];
        }
        let vacant = (0..self.machines.len()).find(|home| !self.homes.contains(home));
        let home = vacant.unwrap_or(self.machines.len());
        let fresh = Machine::numbered(self.tenancies);
        self.tenancies += 1;
        match self.machines.get_mut(home) {
            Some(machine) => *machine = fresh,
            None => self.machines.push(fresh),
        }
        home
    }
}
