//! LoRA adapters on one worker: which are believed to be on its card, and what a request of one has to wait for.
//!
//! An adapter is a model with a name of its own that an engine serves on top of a base. The card holds a few of them;
//! the others lie in the host's memory or on a disk and are brought in when a request of theirs is begun, in place of
//! the one that was used longest ago. In seconds on that worker:
//!
//! ```text
//! lora = 0                         the adapter is on the card, or a request before this one brings it there
//!      = load                      else
//! wait ≥ turns·(½·decode + own)    turns: adapters in use beyond the slots, over the slots
//! ```
//!
//! A load is part of the work of the request that brings it about, so whoever comes behind it waits for it (`backlog.rs`),
//! whatever adapter that one is for: an engine does nothing else meanwhile. So requests of one adapter stay together where
//! it is loaded, and no longer than that is cheaper: behind a long queue its load elsewhere is paid. The last line is
//! vLLM's scheduler, which begins no request of a further adapter while as many as there are slots have requests in its
//! batch; each is taken to be like the request that is priced and half way through its answer, as in `memory.rs`.
//!
//! What is believed comes from the worker's own requests: who is sent there is on the card from its first byte on, and
//! pushes out the idle one that was used longest ago. An engine that tells who runs corrects it; when as many run as
//! there are slots, nobody else is there. Where neither engine nor operator tell the slots, nothing is ever pushed out.
//!
//! The load is learned from what a first byte took beyond the prefill that was expected, of requests that had their
//! adapter brought in, or from a load that was asked for. A sample counts as three times what is believed at most, and
//! the last few count most: one slow disk read moves it little, a slow disk soon. Nothing else is learned from such a
//! request: its time is not the card's.
//!
//! Who is pushed out will have to be loaded again, which is a delay laid on others: half of a load is added to the
//! external term of a request that would push somebody out. 2026-11-30: believed that the term above is enough. Seen
//! with two adapters, two idle cards and a slot on each: as long as both adapters had come to the same card, each pushed
//! the other out, and a load there cost no more than on the empty one.
//!
//! An adapter that can't be loaded is left alone there for ten seconds, and twice as long each time, up to five
//! minutes. That concerns it alone: neither the worker nor another adapter is less for it. (Where one bad adapter stopped
//! the loading of all others: gateway-api-inference-extension, issue 584.)
//!
//! Two weaknesses are known. What other proxies send is seen only where the engine tells who runs, and SGLang does not.
//! And of answers in one piece no load is learned unless it was asked for: nobody knows how much of their time it was.
//!
//! Sources: vLLM `v1/core/sched/scheduler.py` (`max_loras`), `lora/worker_manager.py` (least recently used goes); the
//! prior of half a second is a guess between an H100's 0.3 s and a T4's 1 s.

mod adapter;
mod vocabulary;

pub use vocabulary::{AdapterName, LoraNews, LoraTold, LoraView};

use super::load_time::LoadTime;
use crate::units::{ModelName, Seconds};
use adapter::Adapter;

/// What a load is believed to take before one was seen.
const PRIOR: Seconds = Seconds(0.5);

/// What a request waits for because of its adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Toll {
    /// Until it is on the card.
    pub load: Seconds,
    /// How often its own time until it has a slot there.
    pub turns: f64,
    /// What it lays on the adapter that it pushes out.
    pub evicts: Seconds,
    /// Whether its time tells nothing of the card's speed.
    pub clouds: bool,
}

/// An adapter that a request uses.
#[derive(Clone, Debug)]
pub(super) struct Borrowed {
    name: ModelName,
    /// Whether it is brought in for this request, and at once.
    begins: bool,
}

/// The adapters of one worker.
#[derive(Clone, Debug)]
pub(super) struct Loras {
    adapters: Vec<Adapter>,
    /// The rows of models that are adapters here, in order, each with its place among them.
    rows: Vec<(usize, usize)>,
    typed_slots: Option<u32>,
    told_slots: Option<u32>,
    load: LoadTime,
    uses: u64,
}

impl Loras {
    /// None yet; the operator may say how many the card holds.
    pub(super) fn new(slots: Option<u32>) -> Self {
        Loras {
            adapters: Vec::new(),
            rows: Vec::new(),
            typed_slots: slots,
            told_slots: None,
            load: LoadTime::guessed(PRIOR),
            uses: 0,
        }
    }

    /// The operator says something else of how many the card holds.
    pub(super) fn replan(&mut self, slots: Option<u32>) {
        self.typed_slots = slots;
    }

    /// Its models in these rows are these adapters, and no others are any.
    pub(super) fn are(&mut self, listed: &[(usize, ModelName)]) {
        let is_listed = |name: &ModelName| listed.iter().any(|(_, other)| other == name);
        self.adapters
            .retain(|adapter| adapter.inflight > 0 || is_listed(&adapter.name));
        self.rows.clear();
        for (row, name) in listed {
            let place = self.place(name).unwrap_or_else(|| {
                self.adapters.push(Adapter::new(name));
                self.adapters.len() - 1
            });
            self.rows.push((*row, place));
        }
        self.rows.sort_unstable();
    }

    /// The worker starts anew, with nothing on its card. What a load takes is still believed.
    pub(super) fn lost(&mut self) {
        for adapter in &mut self.adapters {
            *adapter = Adapter::new(&adapter.name);
        }
    }

    /// What a request of the model in this row waits for.
    pub(super) fn toll(&self, row: usize) -> Toll {
        let Some(adapter) = self.at(row) else {
            return Toll::default();
        };
        let turns = self.turns(adapter);
        let load = |pays: bool| {
            if pays {
                self.load.seconds
            } else {
                Seconds::ZERO
            }
        };
        let absent = !adapter.takes_slot();
        Toll {
            load: load(absent),
            turns,
            evicts: load(absent && self.is_full()),
            clouds: !adapter.on_card || turns > 0.0,
        }
    }

    /// Whether the model in this row can't be loaded.
    pub(super) fn refuses(&self, row: usize) -> bool {
        self.at(row)
            .is_some_and(|adapter| adapter.refused.is_some())
    }

    /// A request of the model in this row is sent, with this toll; what it uses, if the model is an adapter.
    pub(super) fn lend(&mut self, row: usize, toll: Toll) -> Option<Borrowed> {
        let (_, place) = self.rows[self.rows.binary_search_by_key(&row, |(row, _)| *row).ok()?];
        self.uses += 1;
        let uses = self.uses;
        let adapter = self.adapters.get_mut(place)?;
        if adapter.inflight == 0 {
            adapter.since = uses;
        }
        adapter.inflight += 1;
        adapter.used = uses;
        let absent = !adapter.takes_slot();
        adapter.loading |= absent;
        let borrowed = Borrowed {
            name: adapter.name.clone(),
            begins: absent && toll.turns <= 0.0,
        };
        self.make_room();
        Some(borrowed)
    }

    /// The first byte of such a request came, so much later than without a load, if that can be told.
    pub(super) fn begun(&mut self, borrowed: &Borrowed, late: Option<Seconds>) {
        let Some(place) = self.place(&borrowed.name) else {
            return;
        };
        let adapter = &mut self.adapters[place];
        let was_loading = adapter.settle();
        if let Some(late) = late.filter(|_| was_loading && borrowed.begins) {
            self.load.learn(late);
        }
        self.make_room();
    }

    /// Such a request ended.
    pub(super) fn give_back(&mut self, borrowed: &Borrowed) {
        if let Some(place) = self.place(&borrowed.name) {
            let adapter = &mut self.adapters[place];
            adapter.inflight = adapter.inflight.saturating_sub(1);
            if adapter.inflight == 0 {
                adapter.loading = false;
            }
        }
    }

    /// The engine tells.
    pub(super) fn told(&mut self, told: &LoraTold) {
        self.told_slots = told.slots.or(self.told_slots);
        let full = self
            .slots()
            .is_some_and(|slots| told.running.len() >= slots);
        for adapter in &mut self.adapters {
            adapter.waits = told.waiting.contains(&adapter.name);
            if told.running.contains(&adapter.name) {
                self.uses += 1;
                adapter.used = self.uses;
                // What is being loaded counts as running, too: its first byte will tell.
                adapter.on_card = true;
            } else if full {
                adapter.on_card = false;
            }
        }
        self.make_room();
    }

    /// Something became known of an adapter.
    pub(super) fn heard(&mut self, name: &ModelName, news: LoraNews, now: Seconds) {
        let Some(place) = self.place(name) else {
            return;
        };
        let adapter = &mut self.adapters[place];
        match news {
            LoraNews::Loaded(took) => {
                adapter.settle();
                self.load.learn(took);
                self.make_room();
            }
            LoraNews::Refused => adapter.refuse(now),
            LoraNews::Gone => adapter.leave(),
        }
    }

    /// Time has passed: adapters that could not be loaded may be tried again.
    pub(super) fn expire(&mut self, now: Seconds) {
        for adapter in &mut self.adapters {
            adapter.refused.take_if(|until| *until <= now);
        }
    }

    /// The one of these that is not in use and was used longest ago: what is unloaded when an engine is full.
    pub(super) fn idlest(&self, among: &[ModelName]) -> Option<&ModelName> {
        let idle = self.adapters.iter().filter(|adapter| adapter.inflight == 0);
        let idle = idle.filter(|adapter| among.contains(&adapter.name));
        Some(&idle.min_by_key(|adapter| adapter.used)?.name)
    }

    /// Whether it counts as many requests as there may be.
    pub(super) fn check(&self, held: u32) -> Result<(), String> {
        let lent: u32 = self.adapters.iter().map(|adapter| adapter.inflight).sum();
        let places = self
            .rows
            .iter()
            .all(|(_, place)| *place < self.adapters.len());
        if lent <= held && places {
            return Ok(());
        }
        Err(format!("{lent} requests use adapters, {held} are held"))
    }

    /// As people see them; `None` when the worker has none.
    pub(super) fn view(&self) -> Option<LoraView> {
        if self.adapters.is_empty() && self.slots().is_none() {
            return None;
        }
        let mut by_use: Vec<&Adapter> = self.adapters.iter().collect();
        by_use.sort_by_key(|adapter| adapter.used);
        let named = |holds: fn(&Adapter) -> bool| {
            let adapters = by_use.iter().filter(|adapter| holds(adapter));
            adapters.map(|adapter| adapter.name.clone()).collect()
        };
        Some(LoraView {
            slots: self.typed_slots.or(self.told_slots),
            loaded: named(|adapter| adapter.on_card),
            waiting: named(|adapter| adapter.waits || (adapter.inflight > 0 && !adapter.on_card)),
            refused: named(|adapter| adapter.refused.is_some()),
            load: self.load.seconds,
            loads: self.load.samples,
        })
    }

    /// The operator's word counts for more than the engine's.
    fn slots(&self) -> Option<usize> {
        let slots = self.typed_slots.or(self.told_slots)?;
        Some(slots.max(1) as usize)
    }

    fn at(&self, row: usize) -> Option<&Adapter> {
        let at = self.rows.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        self.adapters.get(self.rows[at].1)
    }

    fn place(&self, name: &ModelName) -> Option<usize> {
        self.adapters
            .iter()
            .position(|adapter| adapter.name == *name)
    }

    /// How often its own time a request of this adapter waits until one of those in use before it is done.
    fn turns(&self, adapter: &Adapter) -> f64 {
        let Some(slots) = self.slots() else {
            return 0.0;
        };
        let ahead = self.adapters.iter().filter(|other| {
            let before = adapter.inflight == 0 || other.since < adapter.since;
            other.inflight > 0 && before && other.name != adapter.name
        });
        let over = (ahead.count() + 1).saturating_sub(slots);
        #[expect(clippy::cast_precision_loss, reason = "some dozens of adapters")]
        let turns = over as f64 / slots as f64;
        turns
    }

    fn is_full(&self) -> bool {
        self.slots().is_some_and(|slots| self.taken() >= slots)
    }

    fn taken(&self) -> usize {
        let taken = self.adapters.iter().filter(|adapter| adapter.takes_slot());
        taken.count()
    }

    /// Pushes out who is idle and was used longest ago, until those that are there or on their way fit.
    fn make_room(&mut self) {
        let Some(slots) = self.slots() else {
            return;
        };
        for _ in slots..self.taken() {
            let idle = |adapter: &&mut Adapter| adapter.on_card && adapter.inflight == 0;
            let idle = self.adapters.iter_mut().filter(idle);
            if let Some(oldest) = idle.min_by_key(|adapter| adapter.used) {
                oldest.on_card = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ModelName {
        ModelName::new(name)
    }

    /// Adapters a to d in rows 1 to 4, on a card with so many slots.
    fn card(slots: Option<u32>) -> Loras {
        let mut loras = Loras::new(slots);
        let listed = [
            (1, name("a")),
            (2, name("b")),
            (3, name("c")),
            (4, name("d")),
        ];
        loras.are(&listed);
        loras
    }

    /// A request of the adapter in this row is sent.
    fn send(loras: &mut Loras, row: usize) -> Borrowed {
        let toll = loras.toll(row);
        loras.lend(row, toll).unwrap()
    }

    /// One that is answered after a load of so many seconds.
    fn answered(loras: &mut Loras, row: usize, load: f64) {
        let borrowed = send(loras, row);
        loras.begun(&borrowed, Some(Seconds(load)));
        loras.give_back(&borrowed);
    }

    fn loads(loras: &Loras) -> Vec<f64> {
        (1..=4).map(|row| loras.toll(row).load.0).collect()
    }

    #[test]
    fn what_was_used_is_there_and_pushes_out_what_was_used_longest_ago() {
        let mut loras = card(Some(2));
        for row in [1, 2, 1, 3] {
            answered(&mut loras, row, PRIOR.0);
        }
        assert_eq!(loads(&loras), [0.0, 0.5, 0.0, 0.5]);
        assert_eq!(loras.toll(0), Toll::default(), "no adapter");
        let mut endless = card(None);
        (1..=4).for_each(|row| answered(&mut endless, row, PRIOR.0));
        assert_eq!(loads(&endless), [0.0; 4], "nobody knows the slots");
    }

    #[test]
    fn a_load_under_way_is_the_work_of_who_brought_it_about() {
        let mut loras = card(Some(1));
        assert_eq!(loras.toll(1).evicts, Seconds::ZERO);
        let held = send(&mut loras, 1);
        assert_eq!(loads(&loras), [0.0, 0.5, 0.5, 0.5]);
        assert!(loras.toll(1).clouds, "nobody has seen it there");
        assert_eq!(loras.toll(2).evicts, PRIOR, "there is one slot");
        loras.give_back(&held);
        assert_eq!(loads(&loras), [0.5; 4], "it was not answered");
    }

    #[test]
    fn an_adapter_in_use_is_not_pushed_out_and_others_wait_their_turn() {
        let mut loras = card(Some(2));
        let held = [1, 2].map(|row| send(&mut loras, row));
        held.iter().for_each(|one| loras.begun(one, None));
        let turns = |loras: &Loras| [1, 3].map(|row| loras.toll(row).turns);
        assert_eq!(turns(&loras), [0.0, 0.5]);
        let waiting = send(&mut loras, 3);
        assert_eq!(
            turns(&loras),
            [0.0, 0.5],
            "its own request is not before it"
        );
        assert_eq!(loras.toll(4).turns, 1.0);
        assert_eq!(loads(&loras)[..2], [0.0, 0.0]);
        loras.give_back(&held[0]);
        assert_eq!(loras.toll(3).turns, 0.0);
        let before = loras.load;
        loras.begun(&waiting, Some(Seconds(9.0)));
        assert_eq!(loras.load, before, "the wait for a slot is no load");
        assert_eq!(loads(&loras)[..3], [0.5, 0.0, 0.0]);
        assert_eq!(loras.check(2), Ok(()));
        loras.check(1).unwrap_err();
    }

    #[test]
    fn loads_are_learned_and_a_strange_one_moves_them_little() {
        let mut loras = card(Some(1));
        let learn = |loras: &mut Loras, load| (1..=2).for_each(|row| answered(loras, row, load));
        (0..20).for_each(|_| learn(&mut loras, 2.0));
        assert!(
            (loras.load.seconds.0 - 2.0).abs() < 0.05,
            "{:?}",
            loras.load
        );
        answered(&mut loras, 1, 1_000.0);
        assert!(loras.load.seconds < Seconds(3.0), "{:?}", loras.load);
        answered(&mut loras, 2, f64::NAN);
        (0..20).for_each(|_| learn(&mut loras, -1.0));
        assert!(loras.load.seconds < Seconds(0.01), "{:?}", loras.load);
        (0..40).for_each(|_| learn(&mut loras, 1.0));
        assert!(
            (loras.load.seconds.0 - 1.0).abs() < 0.05,
            "it takes time again"
        );
        let mut told = card(Some(2));
        told.heard(&name("a"), LoraNews::Loaded(Seconds(0.8)), Seconds(1.0));
        assert_eq!((loads(&told)[0], told.load.samples), (0.0, 1));
    }

    #[test]
    fn what_the_engine_tells_corrects_what_is_believed() {
        let mut loras = card(None);
        answered(&mut loras, 1, 0.5);
        let told = |running: &[&str]| LoraTold {
            slots: Some(2),
            running: running.iter().map(|running| name(running)).collect(),
            waiting: vec![name("d")],
        };
        loras.told(&told(&["b"]));
        assert_eq!(loads(&loras)[..3], [0.0, 0.0, loras.load.seconds.0]);
        loras.told(&told(&["b", "c"]));
        assert_eq!(loads(&loras)[1..3], [0.0, 0.0]);
        assert!(loads(&loras)[0] > 0.0, "two run on two slots");
        let view = loras.view().unwrap();
        assert_eq!(view.loaded, [name("b"), name("c")]);
        assert_eq!((view.slots, view.waiting), (Some(2), vec![name("d")]));
        let mut typed = card(Some(1));
        typed.told(&told(&[]));
        assert_eq!(typed.view().unwrap().slots, Some(1), "the operator knows");
    }

    #[test]
    fn who_can_t_be_loaded_is_left_alone_longer_each_time() {
        let mut loras = card(Some(2));
        let mut spans = Vec::new();
        let mut now = Seconds(1.0);
        for _ in 0..7 {
            loras.heard(&name("a"), LoraNews::Refused, now);
            assert!(loras.refuses(1) && !loras.refuses(2));
            let began = now;
            while loras.refuses(1) {
                now += Seconds(1.0);
                loras.expire(now);
            }
            spans.push((now - began).0);
        }
        assert_eq!(spans, [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]);
        answered(&mut loras, 1, 0.5);
        loras.heard(&name("a"), LoraNews::Refused, now);
        loras.expire(now + Seconds(10.0));
        assert!(!loras.refuses(1), "it could be loaded meanwhile");
    }

    #[test]
    fn only_an_idle_one_is_spared_and_of_these_the_one_used_longest_ago() {
        let mut loras = card(Some(4));
        (1..=3).for_each(|row| answered(&mut loras, row, 0.5));
        let held = send(&mut loras, 1);
        let all = ["a", "b", "c"].map(name);
        assert_eq!(loras.idlest(&all), Some(&name("b")));
        assert_eq!(loras.idlest(&all[..1]), None);
        loras.give_back(&held);
        assert_eq!(loras.idlest(&all[..1]), Some(&name("a")));
    }

    #[test]
    fn a_worker_that_starts_anew_has_nothing_and_models_come_and_go() {
        let mut loras = card(Some(2));
        answered(&mut loras, 1, 2.0);
        let load = loras.load;
        loras.lost();
        assert_eq!(loads(&loras), [load.seconds.0; 4]);
        let held = send(&mut loras, 1);
        loras.are(&[(7, name("b"))]);
        assert_eq!(loads(&loras), [0.0; 4], "these rows are others' now");
        assert_eq!(loras.check(1), Ok(()));
        loras.give_back(&held);
        loras.are(&[]);
        assert_eq!(loras.adapters.len(), 0);
    }
}
