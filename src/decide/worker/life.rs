//! A worker's lives: what its probes say, and the fresh start when one has ended.

use super::Worker;
use super::classes::Classes;
use crate::decide::condition::Probed;
use crate::decide::decode_meter::DecodeMeter;
use crate::decide::machine::Machine;
use crate::decide::memory::Memory;
use crate::decide::saturation::Saturation;
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
