//! What others do on a worker, and what it costs ours: see `told_load.rs`.

use super::Worker;
use crate::decide::ask::Work;
use crate::decide::cost::{LEAST_PROMPT, Size};
use crate::decide::told_load::{Foreign, Heard, MeanPrompts, Ours, Said};
use crate::units::Seconds;

/// Streams that come or go are other company when they are more than this share of those that stay.
const OTHER_COMPANY: f64 = 0.5;

impl Worker {
    /// What it has of ours now.
    pub(in crate::decide) fn ours(&self) -> Ours {
        Ours {
            generation: self.generation,
            inflight: self.inflight,
            queued: self.backlog.len(),
            embedding: self.inflight.saturating_sub(self.meter.sharing()),
            given: self.record.picks,
            tokens: self.memory.tokens(),
        }
    }

    /// Its engine says how much it has to do. If others came or went since it last did, what was learned meanwhile was
    /// learned beside a wrong number of streams, and is forgotten; not twice in a row, so that others who come and go all
    /// the time don't keep it from learning.
    pub(in crate::decide) fn hear_load(
        &mut self,
        heard: &Heard,
        prompts: MeanPrompts,
        now: Seconds,
    ) {
        let (ours, kv_tokens) = (self.ours(), self.told.kv_tokens);
        let before = self.foreign(now);
        self.load.hear(heard, ours, (kv_tokens, prompts), now);
        let after = self.foreign(now);
        let sharing = f64::from(self.meter.sharing()) + before.running.min(after.running);
        let is_other = (after.running - before.running).abs() > OTHER_COMPANY * sharing.max(1.0);
        match self.settled.take().filter(|_| is_other) {
            Some(settled) => self.speeds = settled,
            None => self.settled = Some(self.speeds.clone()),
        }
    }

    /// What its engine said of its load.
    pub(in crate::decide) fn said(&self, now: Seconds) -> Option<Said> {
        self.load.said(now)
    }

    /// What is not ours there.
    pub(in crate::decide) fn foreign(&self, now: Seconds) -> Foreign {
        self.load.foreign(now)
    }

    /// Seconds per output token once one more request shares the card with ours and with others.
    pub(in crate::decide) fn pace_with_one_more(&self, foreign: Foreign) -> Seconds {
        let sharing = f64::from(self.meter.sharing() + 1) + foreign.running;
        let sharing = sharing.min(f64::from(self.cap()));
        self.speeds.decode().at(sharing)
    }

    /// The time that foreign prompts ahead of one of ours take, as long as nobody slows it.
    pub(in crate::decide) fn foreign_ahead(&self, foreign: Foreign, work: Work) -> Seconds {
        let prompt = self.load.mean_prompt(work).max(LEAST_PROMPT);
        self.speeds.prefill(work).at(prompt) * foreign.waiting
    }

    /// How long a request with this prefill and decode time waits for a slot, where the engine tells how many it has and
    /// others take some. Whoever must end before is taken to be like it and half way through, as in `memory.rs`.
    pub(in crate::decide) fn slot_wait(
        &self,
        foreign: Foreign,
        own: Seconds,
        decode: Seconds,
    ) -> Seconds {
        let others = foreign.running + foreign.waiting;
        let Some(slots) = self.told.slots.map(f64::from).filter(|_| others > 0.0) else {
            return Seconds::ZERO;
        };
        let excess = f64::from(self.inflight) + others + 1.0 - slots;
        (decode * 0.5 + own) * (excess.max(0.0) / slots.max(1.0))
    }

    /// The part of this time to a first byte that was not spent behind foreign prompts.
    pub(in crate::decide) fn without_foreign(
        &self,
        took: Seconds,
        size: Size,
        now: Seconds,
    ) -> Seconds {
        let foreign = self.foreign(now);
        if foreign.waiting <= 0.0 {
            return took;
        }
        let own = self.speeds.prefill(size.work).at(size.fresh());
        let ahead = self.foreign_ahead(foreign, size.work);
        took * (own.0 / (own + ahead).0)
    }
}
