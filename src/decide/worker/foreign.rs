//! What others do on a worker, and what it costs ours: see `told_load.rs`.

use super::Worker;
use crate::decide::ask::{ByWork, Work};
use crate::decide::cost::{LEAST_PROMPT, Size};
use crate::decide::told_load::{FADED, Foreign, Heard, Ours, Said};
use crate::units::Seconds;

/// Less than this share of the time that foreign prompts take is none.
const NO_TIME: f64 = 0.25;
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
            given: self.record.picks + self.record.tests,
            tokens: self.memory.tokens(),
        }
    }

    /// Its engine says how much it has to do. If others came or went since it last did, what was learned meanwhile was
    /// learned beside a wrong number of streams, and is forgotten; not twice in a row, so that others who come and go all
    /// the time don't keep it from learning, and not if it was silent for long meanwhile.
    pub(in crate::decide) fn hear_load(
        &mut self,
        heard: &Heard,
        prompts: ByWork<f64>,
        now: Seconds,
    ) {
        let (ours, kv_tokens) = (self.ours(), self.told.kv_tokens);
        let before = self.foreign(now);
        self.load.hear(heard, ours, (kv_tokens, prompts), now);
        let after = self.foreign(now);
        let sharing = f64::from(self.meter.sharing()) + before.running.min(after.running);
        let is_other = (after.running - before.running).abs() > OTHER_COMPANY * sharing.max(1.0);
        let is_of_late = |at: Seconds| now - at <= heard.lasts * FADED;
        match self
            .settled
            .take()
            .filter(|(_, at)| is_other && is_of_late(*at))
        {
            Some((settled, _)) => self.speeds = settled,
            None => self.settled = Some((self.speeds.clone(), now)),
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
        let ours = (self.meter.sharing() + 1).min(self.cap());
        let slots = self.told.slots.map_or(f64::INFINITY, f64::from);
        let sharing = (f64::from(ours) + foreign.running).min(slots);
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

    /// A request was first in turn and had its first byte after this time: no foreign prompts were ahead of it if there was
    /// no time for them.
    pub(in crate::decide) fn disprove_waiting(&mut self, took: Seconds, size: Size, now: Seconds) {
        let foreign = self.foreign(now);
        let own = self.own(size);
        let ahead = self.foreign_ahead(foreign, size.work);
        let is_known = self.speeds.prefill_samples(size.work) > 0;
        if is_known && ahead > own && took <= own + ahead * NO_TIME {
            self.load.nobody_waits();
        }
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
        let own = self.own(size);
        let ahead = self.foreign_ahead(foreign, size.work);
        took * (own.0 / (own + ahead).0)
    }
}

#[cfg(test)]
mod tests {
    use crate::decide::{
        Ask, Claim, FleetState, Heard, Load, Outcome, Policy, Terms, Told, Work, WorkerSpec,
    };
    use crate::facts::Prefix;
    use crate::rng::Rng;
    use crate::units::{Length, Seconds, WorkerId};

    const WORKER: WorkerId = WorkerId(0);
    const NOW: Seconds = Seconds(9.0);
    /// By the prior, of 600 tokens.
    const OWN: f64 = 0.110_75;

    /// The price of a chat of 600 tokens, whose answer is expected to have 200, where an engine tells this.
    fn price(told: Told, load: Load) -> Terms {
        let mut fleet = FleetState::new(vec![WorkerSpec::new("w", 8)], Policy::LeastTime);
        fleet.told(WORKER, told);
        let heard = Heard {
            load,
            asked: fleet.ours(WORKER),
            lasts: Seconds(1.0),
        };
        fleet.hear_load(WORKER, &heard, NOW);
        let choice = fleet.choose(&ask(), &[], NOW, &mut Rng::seeded(1)).unwrap();
        fleet.finish(choice.booking, Outcome::Gone, NOW);
        choice.terms
    }

    fn ask() -> Ask {
        Ask {
            model: None,
            only: None,
            zones: None,
            from: None,
            path: None,
            work: Work::Generate,
            prompt: Length::Tokens(600.0),
            fills: None,
            prefix: Prefix::default(),
            max_tokens: None,
            deadline: None,
            streamed: true,
            claim: Claim::default(),
        }
    }

    fn load(running: f64, waiting: f64) -> Load {
        Load {
            running: Some(running),
            waiting: Some(waiting),
            ..Load::default()
        }
    }

    #[track_caller]
    fn near(found: Seconds, expected: f64) {
        assert!((found.0 - expected).abs() < 1e-9, "{found} {expected}");
    }

    /// Decode time beside so many.
    fn decode(sharing: f64) -> f64 {
        199.0 * (0.02 + 0.000_5 * sharing)
    }

    #[test]
    fn streams_of_others_share_the_card_and_are_held_up() {
        let terms = price(Told::default(), load(4.0, 0.0));
        near(terms.decode, decode(5.0));
        near(terms.external, 0.5 * 4.0 * (0.000_5 * 200.0 + 0.5 * OWN));
        near(terms.wait, 0.0);
        near(
            price(Told::default(), load(99.0, 0.0)).decode,
            decode(100.0),
        );
    }

    #[test]
    fn prompts_of_others_are_ahead() {
        let terms = price(Told::default(), load(0.0, 3.0));
        near(terms.wait, 3.0 * (0.01 + 16.0 / 6_000.0));
        near(terms.decode, decode(1.0));
    }

    /// The wait of a second chat after a first that took so long, while forty of others are said to wait, and then as many
    /// as this.
    fn wait_after(took: f64, then: f64) -> f64 {
        let mut fleet = FleetState::new(vec![WorkerSpec::new("w", 8)], Policy::LeastTime);
        let hear = |fleet: &mut FleetState, waiting, now| {
            let heard = Heard {
                load: load(0.0, waiting),
                asked: fleet.ours(WORKER),
                lasts: Seconds(100.0),
            };
            fleet.hear_load(WORKER, &heard, now);
        };
        let chat = |fleet: &mut FleetState, took: f64, now| {
            let choice = fleet.choose(&ask(), &[], now, &mut Rng::seeded(1));
            let mut choice = choice.unwrap();
            let now = now + Seconds(took);
            fleet.first_byte(&mut choice.booking, now);
            fleet.finish(choice.booking, Outcome::Gone, now);
            choice.terms.wait.0
        };
        let [first, later, last] = [0.0, 10.0, 30.0].map(|after| NOW + Seconds(after));
        chat(&mut fleet, OWN, first);
        hear(&mut fleet, 40.0, later);
        chat(&mut fleet, took, later);
        hear(&mut fleet, then, last);
        chat(&mut fleet, OWN, last)
    }

    #[test]
    fn a_queue_that_delays_nobody_is_not_believed_until_it_changes() {
        assert_eq!(wait_after(OWN, 40.0), 0.0);
        assert!(wait_after(OWN, 41.0) > 4.0, "news");
        assert!(wait_after(41.0 * OWN, 40.0) > 1.0, "it did delay");
    }

    #[test]
    fn who_finds_all_slots_taken_by_others_waits_for_one() {
        let told = Told {
            slots: Some(4),
            ..Told::default()
        };
        near(price(told, load(3.0, 0.0)).wait, 0.0);
        let one = 0.5 * decode(4.0) + OWN;
        near(price(told, load(4.0, 0.0)).wait, one / 4.0);
        near(price(told, load(4.0, 2.0)).wait, 3.0 * one / 4.0);
    }

    #[test]
    fn memory_of_others_is_not_free() {
        let told = Told {
            kv_tokens: Some(1_000.0),
            ..Told::default()
        };
        let used = |kv_use| Load {
            kv_use: Some(kv_use),
            ..Load::default()
        };
        near(price(told, used(0.2)).wait, 0.0);
        // Nine hundred tokens of requests that need eight hundred each; seven hundred of them are wanted.
        let ends = 700.0 / 800.0;
        near(
            price(told, used(0.9)).wait,
            ends * (0.5 * decode(1.0) + OWN),
        );
        let running = Load {
            running: Some(3.0),
            ..used(0.9)
        };
        let ends = 700.0 / 300.0 / 3.0;
        near(price(told, running).wait, ends * (0.5 * decode(4.0) + OWN));
        near(price(Told::default(), used(0.9)).wait, 0.0);
    }
}
