//! A worker's lives: what its probes, its errors and its operator say, and the fresh start when one has ended.

use super::Worker;
use super::classes::Classes;
use crate::decide::ask::{Names, Outcome, WorkerSpec};
use crate::decide::by_hand::{ByHand, Override, Why};
use crate::decide::condition::{Condition, Probed};
use crate::decide::decode_meter::DecodeMeter;
use crate::decide::eject::EjectCause;
use crate::decide::machine::Machine;
use crate::decide::memory::Memory;
use crate::decide::saturation::Saturation;
use crate::decide::speed::Speeds;
use crate::decide::told_load::ToldLoad;
use crate::units::Seconds;

impl Worker {
    /// A probe passed or failed.
    pub(in crate::decide) fn probe(
        &mut self,
        verdict: Result<(), String>,
        machine: &mut Machine,
        now: Seconds,
    ) {
        let probed = self.condition.probe(verdict, now);
        self.probed(probed, machine, now);
    }

    /// A probe found it loading its model, for a reason.
    pub(in crate::decide) fn loads(&mut self, reason: String, machine: &mut Machine, now: Seconds) {
        let probed = self.condition.load(reason, now);
        self.probed(probed, machine, now);
    }

    /// An error that it answered was its own fault after all. Returns what it should be ejected for, if it should.
    pub(in crate::decide) fn blame(
        &mut self,
        machine: &mut Machine,
        now: Seconds,
    ) -> Option<EjectCause> {
        self.record.ended(Outcome::Failed);
        let weighed = self.condition.weigh(now, Outcome::Failed, now);
        if weighed.outage_begins {
            machine.outage(now);
        }
        weighed.eject_for
    }

    /// Its operator changes it.
    pub(in crate::decide) fn by_hand(&mut self, change: ByHand, now: Seconds) {
        if let ByHand::Speed(speed) = change {
            self.set_speed = Some(speed);
            self.speeds = Speeds::believing(speed);
            self.settled = None;
        }
        self.condition.by_hand(change, now);
    }

    /// What its operator changed and holds.
    pub(in crate::decide) fn overridden(&self) -> Override {
        Override {
            withheld: self.condition.withheld().filter(|why| *why != Why::Removed),
            speed: self.set_speed,
        }
    }

    /// Another machine behind this name: nothing of what was learned holds, and what is under way at the old one counts no
    /// more here.
    pub(in crate::decide) fn begin_anew(&mut self, spec: WorkerSpec, now: Seconds) {
        let condition = Condition::joining(&spec, now);
        *self = Worker {
            condition,
            generation: self.generation + 1,
            ..Worker::new(self.id, spec)
        };
    }

    /// Its plan says something else; what it has shown stays. One that had left is back.
    pub(in crate::decide) fn replan(&mut self, spec: WorkerSpec, now: Seconds) {
        let is_untried = self.speeds.is_untried() && self.set_speed.is_none();
        if is_untried && spec.speed != self.spec.speed {
            self.speeds = Speeds::believing(spec.speed.unwrap_or(1.0));
        }
        if self.condition.has_left() {
            self.condition = Condition::joining(&spec, now);
        } else {
            self.condition.replan(&spec);
        }
        self.loras.replan(spec.lora_slots);
        self.residents.replan(spec.resident);
        self.spec = spec;
        self.reckon();
    }

    /// It is in the plan no more: what it holds goes on to its end.
    pub(in crate::decide) fn leave(&mut self, now: Seconds) {
        if !self.condition.has_left() {
            self.condition.leave(now);
        }
        self.names = Names::Told;
        self.residents.replan(None);
    }

    fn probed(&mut self, probed: Probed, machine: &mut Machine, now: Seconds) {
        if probed.outage_begins {
            machine.outage(now);
        }
        if !probed.goes_down {
            return;
        }
        machine.lose(self.inflight, now);
        self.generation += 1;
        self.inflight = 0;
        self.classes = Classes::default();
        self.backlog.clear();
        self.meter = DecodeMeter::default();
        self.memory = Memory::default();
        self.saturation = Saturation::default();
        self.shown = None;
        self.loras.lost();
        self.residents.lost();
        self.load = ToldLoad::default();
        self.settled = None;
    }
}
