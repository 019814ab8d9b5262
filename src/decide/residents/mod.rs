//! The models in one worker's memory, where it holds a few of those that it serves and swaps: Ollama, llama.cpp's router.
//!
//! Such an engine loads a model when a request asks for it, and unloads another when there is no room. That takes seconds
//! or minutes, in which the worker does nothing else. So it is a term of the price:
//!
//! ```text
//! swap = 0          the model is in memory, or a request before this one brings it there
//!      = learned    else; for each model there, 10 s before a swap was seen
//! ```
//!
//! A swap is work of the request that brings it about, so whoever comes behind it waits for it (`backlog.rs`), and half
//! of what it will take to bring back the one that is pushed out is laid on others: each model settles on a worker of its
//! own where there are enough. What a first byte took beyond the prefill that was expected is the sample; nothing else
//! is learned from such a request. Where nobody knows whether the model was in memory, nothing is learned at all.
//!
//! Where the operator says how many models fit (`resident`), two rules come on top.
//!
//! **Nothing in use is unloaded.** A request for one more model has no place while all that are there have requests in
//! flight: it stands in line. llama.cpp's router used to stop a model in the middle of an answer to make room
//! (ggml-org/llama.cpp#20137, pull request 23640); Ollama waits, but holds everybody up who comes behind.
//!
//! **Requests of one model stay together.** Sent by turns, each of A, B, A, B would be a swap. So an idle model is kept while
//! somebody waits who could use it, and B waits while requests of A keep coming; when they are over, the swap is at once.
//! But not for ever: when B has waited for `swap_after`, and A has had as long since it came, one of those in memory
//! takes no more requests, empties, and leaves. So B waits no longer than that for each model that wants the worker, and
//! for the answers under way. Until then grouping outranks class and fairness: a swap costs everybody there more than a
//! short wait costs one of them. While one that has B in its memory is up, B waits for a place there, which is no reason to
//! swap elsewhere.
//!
//! What is believed comes from the worker's own requests, as for adapters: who is sent there is in memory from its first
//! byte on, in place of the idle one that was used longest ago. An engine that tells what is in its memory corrects that,
//! but for models that have requests in flight. One that tells and has no `resident` is only priced: nobody knows its bound.
//! Models that others use past this proxy take no place here: they are not known to be in use.

mod resident;
mod vocabulary;

pub use vocabulary::{EngineName, ResidentsView};

use super::considered::Exclusion;
use crate::units::{ModelName, Seconds};
use resident::Resident;
pub(super) use vocabulary::Swap;

/// A model that a request uses.
#[derive(Clone, Debug)]
pub(super) struct Stay {
    name: ModelName,
    /// Whether it is brought in for this request, as far as anybody knows.
    swaps: bool,
}

/// The models of one worker.
#[derive(Clone, Debug)]
pub(super) struct Residents {
    most: Option<u32>,
    /// Whether the engine has told what is in its memory, in this life.
    is_told: bool,
    models: Vec<Resident>,
    /// The rows of models, in order, each with its place among them.
    rows: Vec<(usize, usize)>,
    uses: u64,
    /// When a model last came in.
    came: Seconds,
    awaited: Option<ModelName>,
}

impl Residents {
    /// Nothing is known; the operator may say how many models fit.
    pub(super) fn new(most: Option<u32>) -> Self {
        Residents {
            most,
            is_told: false,
            models: Vec::new(),
            rows: Vec::new(),
            uses: 0,
            came: Seconds::ZERO,
            awaited: None,
        }
    }

    /// The operator says something else of how many models fit.
    pub(super) fn replan(&mut self, most: Option<u32>) {
        self.most = most;
        self.awaited = self.awaited.take().filter(|_| most.is_some());
    }

    /// Whether not all of its models fit.
    pub(super) fn is_bounded(&self) -> bool {
        self.most.is_some()
    }

    /// These are its models, by their rows; what was learned of one outlives its absence only while it is in use.
    pub(super) fn are(&mut self, listed: &[(usize, ModelName)]) {
        let is_listed = |name: &ModelName| listed.iter().any(|(_, other)| other == name);
        self.models
            .retain(|model| model.inflight > 0 || is_listed(&model.name));
        self.rows.clear();
        for (row, name) in listed {
            let place = self.place(name).unwrap_or_else(|| {
                self.models.push(Resident::new(name));
                self.models.len() - 1
            });
            self.rows.push((*row, place));
        }
        self.rows.sort_unstable();
    }

    /// The worker starts anew, with nothing in its memory. What swaps take is still believed.
    pub(super) fn lost(&mut self) {
        for model in &mut self.models {
            let swap = model.swap;
            *model = Resident {
                swap,
                ..Resident::new(&model.name)
            };
        }
        (self.is_told, self.awaited) = (false, None);
    }

    /// What a request of the model in this row waits for.
    pub(super) fn swap(&self, row: usize) -> Swap {
        let is_known = self.is_told || self.is_bounded();
        let Some(model) = self.at(row).filter(|_| is_known) else {
            return Swap::NONE;
        };
        if model.takes_place() {
            return Swap {
                clouds: !model.loaded,
                ..Swap::NONE
            };
        }
        let goes = self.next_to_go().filter(|_| self.is_full());
        Swap {
            takes: model.swap.seconds,
            evicts: goes.map_or(Seconds::ZERO, |place| self.models[place].swap.seconds),
            clouds: true,
        }
    }

    /// What speaks against sending a request of the model in this row.
    pub(super) fn bars(&self, row: usize) -> Option<Exclusion> {
        let model = self.at(row).filter(|_| self.is_bounded())?;
        if model.takes_place() {
            return model.leaves.then_some(Exclusion::Leaving);
        }
        let has_place = !self.is_full() || self.models.iter().any(Resident::is_spare);
        (!has_place).then_some(Exclusion::Occupied)
    }

    /// A request of the model in this row is sent; what it uses, if that is known.
    pub(super) fn lend(&mut self, row: usize) -> Option<Stay> {
        let (_, place) = self.rows[self.rows.binary_search_by_key(&row, |(row, _)| *row).ok()?];
        let was_sure = self.is_told || self.is_full();
        self.uses += 1;
        let model = self.models.get_mut(place)?;
        let absent = !model.takes_place();
        model.loading |= absent;
        model.inflight += 1;
        model.used = self.uses;
        let name = model.name.clone();
        self.make_room();
        if self.awaited.as_ref() == Some(&name) {
            self.calm();
        }
        Some(Stay {
            name,
            swaps: absent && was_sure,
        })
    }

    /// The first byte of such a request came, so much later than without a swap, if that can be told.
    pub(super) fn begun(&mut self, stay: &Stay, late: Option<Seconds>, now: Seconds) {
        let Some(place) = self.place(&stay.name) else {
            return;
        };
        let model = &mut self.models[place];
        model.loaded = true;
        if std::mem::take(&mut model.loading) {
            self.came = now;
        }
        if let Some(late) = late {
            self.took(stay, late);
        }
        self.make_room();
    }

    /// Such a request took so much longer than without a swap.
    pub(super) fn took(&mut self, stay: &Stay, late: Seconds) {
        if let Some(place) = self.place(&stay.name).filter(|_| stay.swaps) {
            self.models[place].swap.learn(late);
        }
    }

    /// Such a request ended.
    pub(super) fn give_back(&mut self, stay: &Stay) {
        if let Some(place) = self.place(&stay.name) {
            let model = &mut self.models[place];
            model.inflight = model.inflight.saturating_sub(1);
            if model.inflight == 0 {
                model.loading = false;
            }
        }
    }

    /// The engine tells what is in its memory.
    pub(super) fn told(&mut self, loaded: &[ModelName]) {
        self.is_told = true;
        for model in &mut self.models {
            if model.inflight == 0 {
                model.loaded = loaded.contains(&model.name);
                model.leaves &= model.loaded;
            }
        }
        self.make_room();
    }

    /// These rows are waited for here, and no others.
    pub(super) fn want(&mut self, rows: &[usize]) {
        for model in &mut self.models {
            model.wanted = false;
        }
        for (row, place) in &self.rows {
            self.models[*place].wanted |= rows.contains(row);
        }
    }

    /// Whether room is being made for the model in this row.
    pub(super) fn awaits(&self, row: usize) -> bool {
        let model = self.at(row).filter(|_| self.is_leaving());
        model.is_some_and(|model| self.awaited.as_ref() == Some(&model.name))
    }

    /// How many requests must end before a model can leave; `None` while none may: one has just come, or leaves already.
    pub(super) fn burden(&self, swap_after: Seconds, now: Seconds) -> Option<u32> {
        let moves = self.models.iter().any(|model| model.loading);
        let settled = !moves && !self.is_leaving() && now - self.came >= swap_after;
        let victim = self.victim().filter(|_| settled)?;
        Some(self.models[victim].inflight)
    }

    /// One of those in memory takes no more requests, for the sake of the model in this row.
    pub(super) fn make_way(&mut self, row: usize) {
        let name = self.at(row).map(|model| model.name.clone());
        if let (Some(name), Some(victim)) = (name, self.victim()) {
            self.models[victim].leaves = true;
            self.awaited = Some(name);
        }
    }

    /// Nobody has to leave any more.
    pub(super) fn calm(&mut self) {
        self.awaited = None;
        for model in &mut self.models {
            model.leaves = false;
        }
    }

    /// Whether it counts as many requests as there may be, and holds no more than fits but for what is in use.
    pub(super) fn check(&self, held: u32) -> Result<(), String> {
        let lent: u32 = self.models.iter().map(|model| model.inflight).sum();
        if lent > held {
            return Err(format!("{lent} requests use models, {held} are held"));
        }
        let over = self.most().is_some_and(|most| self.taken() > most);
        if over && self.models.iter().any(Resident::is_idle) {
            return Err(format!("{} models in a full memory", self.taken()));
        }
        Ok(())
    }

    /// As people see them; `None` where all of them are always there, or nothing is known.
    pub(super) fn view(&self) -> Option<ResidentsView> {
        if !self.is_told && !self.is_bounded() {
            return None;
        }
        let mut by_use: Vec<&Resident> = self.models.iter().collect();
        by_use.sort_by_key(|model| model.used);
        let loaded = by_use.iter().filter(|model| model.loaded);
        let seen = self.models.iter().filter(|model| model.swap.samples > 0);
        Some(ResidentsView {
            most: self.most,
            loaded: loaded.map(|model| model.name.clone()).collect(),
            awaited: self.awaited.clone().filter(|_| self.is_leaving()),
            swaps: seen
                .map(|model| (model.name.clone(), model.swap.seconds))
                .collect(),
        })
    }

    fn most(&self) -> Option<usize> {
        Some(self.most?.max(1) as usize)
    }

    fn at(&self, row: usize) -> Option<&Resident> {
        let at = self.rows.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        self.models.get(self.rows[at].1)
    }

    fn place(&self, name: &ModelName) -> Option<usize> {
        self.models.iter().position(|model| model.name == *name)
    }

    fn taken(&self) -> usize {
        self.models
            .iter()
            .filter(|model| model.takes_place())
            .count()
    }

    fn is_leaving(&self) -> bool {
        self.models.iter().any(|model| model.leaves)
    }

    fn is_full(&self) -> bool {
        self.most().is_some_and(|most| self.taken() >= most)
    }

    /// The place of the idle one that is unloaded next: one that leaves, else one that nobody waits for, the one that was
    /// used longest ago.
    fn next_to_go(&self) -> Option<usize> {
        let places = 0..self.models.len();
        places
            .filter(|place| self.models[*place].is_idle())
            .min_by_key(|place| {
                let model = &self.models[*place];
                (!model.leaves, model.wanted, model.used)
            })
    }

    /// The place of the one in memory that is empty soonest.
    fn victim(&self) -> Option<usize> {
        let places = 0..self.models.len();
        places
            .filter(|place| self.models[*place].loaded)
            .min_by_key(|place| (self.models[*place].inflight, self.models[*place].used))
    }

    /// Unloads who is idle, until those that are there or on their way fit.
    fn make_room(&mut self) {
        let Some(most) = self.most() else { return };
        while self.taken() > most {
            let Some(place) = self.next_to_go() else {
                return;
            };
            self.models[place].unload();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::resident::PRIOR;
    use super::*;

    const NOW: Seconds = Seconds(1.0);

    /// Models a to d in rows 1 to 4, of which so many fit.
    fn memory(most: Option<u32>) -> Residents {
        let mut residents = Residents::new(most);
        let listed = [(1, "a"), (2, "b"), (3, "c"), (4, "d")];
        residents.are(&listed.map(|(row, name)| (row, ModelName::new(name))));
        residents
    }

    fn answered(residents: &mut Residents, row: usize, late: f64) {
        let stay = residents.lend(row).unwrap();
        residents.begun(&stay, Some(Seconds(late)), NOW);
        residents.give_back(&stay);
        assert_eq!(residents.check(8), Ok(()));
    }

    fn loaded(residents: &Residents) -> Vec<String> {
        let view = residents.view().unwrap();
        view.loaded.iter().map(ModelName::to_string).collect()
    }

    #[test]
    fn the_idle_one_used_longest_ago_makes_room_and_one_in_use_never() {
        let mut residents = memory(Some(2));
        (1..=3).for_each(|row| answered(&mut residents, row, 5.0));
        assert_eq!(loaded(&residents), ["b", "c"]);
        let held = residents.lend(2).unwrap();
        answered(&mut residents, 4, 5.0);
        assert_eq!(loaded(&residents), ["b", "d"]);
        let other = residents.lend(4).unwrap();
        assert_eq!(residents.bars(1), Some(Exclusion::Occupied));
        residents.give_back(&other);
        assert_eq!(residents.bars(1), None);
        residents.want(&[4]);
        assert_eq!(residents.bars(1), Some(Exclusion::Occupied));
        residents.give_back(&held);
        assert_eq!(residents.bars(1), None, "nobody wants the other one");
        answered(&mut residents, 1, 5.0);
        assert_eq!(loaded(&residents), ["d", "a"]);
    }

    #[test]
    fn who_has_to_leave_takes_no_more_and_goes_first() {
        let mut residents = memory(Some(2));
        let busy = [1, 2].map(|row| {
            let stay = residents.lend(row).unwrap();
            residents.begun(&stay, None, NOW);
            stay
        });
        let also = residents.lend(1).unwrap();
        assert_eq!(residents.burden(Seconds(10.0), Seconds(5.0)), None);
        assert_eq!(residents.burden(Seconds(10.0), Seconds(11.0)), Some(1));
        residents.make_way(3);
        assert_eq!(residents.bars(2), Some(Exclusion::Leaving));
        assert_eq!(residents.bars(1), None);
        assert!(residents.awaits(3) && !residents.awaits(4));
        assert_eq!(residents.burden(Seconds(10.0), Seconds(11.0)), None);
        residents.want(&[2]);
        residents.give_back(&busy[1]);
        assert_eq!(residents.bars(3), None, "wanted or not");
        answered(&mut residents, 3, 5.0);
        assert!(!residents.awaits(3));
        assert_eq!(loaded(&residents), ["a", "c"]);
        residents.give_back(&busy[0]);
        residents.give_back(&also);
    }

    #[test]
    fn what_nobody_knows_is_not_learned_and_what_is_learned_outlives_a_restart() {
        let swaps = |residents: &Residents| residents.view().unwrap().swaps;
        let mut residents = memory(Some(1));
        answered(&mut residents, 1, 0.0);
        assert_eq!(swaps(&residents), [], "it may have been there");
        answered(&mut residents, 2, 12.0);
        assert_eq!(swaps(&residents), [(ModelName::new("b"), Seconds(11.0))]);
        residents.lost();
        assert_eq!((loaded(&residents), swaps(&residents).len()), (vec![], 1));
        assert_eq!(memory(None).swap(1), Swap::NONE);
    }

    #[test]
    fn the_engine_is_believed_but_for_what_is_in_use() {
        let mut residents = memory(Some(1));
        let held = residents.lend(1).unwrap();
        residents.told(&[ModelName::new("b"), ModelName::new("stranger")]);
        assert_eq!(loaded(&residents), [""; 0], "a is on its way");
        residents.begun(&held, None, NOW);
        residents.give_back(&held);
        assert_eq!(loaded(&residents), ["a"]);
        residents.told(&[ModelName::new("b")]);
        assert_eq!(loaded(&residents), ["b"]);
        assert_eq!(residents.swap(2), Swap::NONE);
        let swap = residents.swap(1);
        assert_eq!((swap.takes, swap.evicts, swap.clouds), (PRIOR, PRIOR, true));
    }
}
