//! What a worker has shown beyond the requests it holds: whether it is to be tested, what outlives the process, and
//! whether its counters agree.

use super::Worker;
use crate::decide::calibration::{Calibration, Shown, Tests};
use crate::decide::health::State;
use crate::decide::speed::SavedSpeeds;
use crate::decide::standing::Standing;
use crate::decide::way::Way;
use crate::units::Seconds;

impl Worker {
    /// Its tests.
    pub(in crate::decide) fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// What it may be tested with.
    pub(in crate::decide) fn test_with(&mut self, tests: Tests) {
        self.spec.tests = tests;
    }

    /// Whether it should be tested now.
    pub(in crate::decide) fn test_is_due(&mut self, now: Seconds) -> bool {
        let condition = &self.condition;
        let is_up = condition.state() == State::Up && condition.standing() == Standing::Free;
        if !is_up || self.spec.tests == Tests::Off {
            return false;
        }
        let shown = Shown {
            samples: self.speeds.samples_read(),
            surprises: self.speeds.surprises(),
        };
        let since = condition.since();
        self.calibration.is_due(since, shown, now) && self.inflight == 0
    }

    /// What it has shown of its speed. What its operator said of it by hand ends with this process.
    pub(in crate::decide) fn saved(&self) -> SavedSpeeds {
        let way = self.way.connect();
        match self.set_speed {
            None => self.speeds.saved(way),
            Some(_) => self.speeds.saved_without_belief(way),
        }
    }

    /// Takes in what it had shown before; false when that can't be.
    pub(in crate::decide) fn recall(&mut self, saved: &SavedSpeeds) -> bool {
        let Some(speeds) = self.speeds.recalling(saved) else {
            return false;
        };
        self.speeds = speeds;
        self.way = Way::recalled(saved.round_trip());
        true
    }

    /// Whether the counters agree with each other.
    pub(in crate::decide) fn check(&self) -> Result<(), String> {
        self.backlog.check()?;
        let (held, cap) = (self.inflight, self.cap());
        let (queued, generating) = (self.backlog.len(), self.backlog.generating());
        let (streams, sharing) = (self.meter.streams(), self.meter.sharing());
        self.memory.check(sharing)?;
        self.loras.check(held)?;
        self.residents.check(held)?;
        // Slots that an engine tells may become fewer than the requests that run.
        let within = (held <= cap || self.told.slots.is_some())
            && queued + streams <= held
            && generating + streams <= sharing
            && sharing <= held
            && self.classes.all() == held;
        if within {
            return Ok(());
        }
        Err(format!(
            "{}: cap {cap}, held {held}, queued {queued} ({generating} generating), streams {streams}, sharing {sharing}",
            self.spec.name
        ))
    }
}
