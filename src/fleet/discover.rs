//! Learning what a worker is and what it serves, by asking it.
//!
//! What is learned goes to the fleet, which tells who serves a name, and into the [`Catalogue`] that requests read. A
//! model that a worker stops listing is no longer sent there; its name stays known for a week, so that a client is told
//! to come back (503) and not that it is mistaken (404).

mod adapters;
mod inquirer;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::catalogue::{self, Alias, Catalogue, Offer};
use super::dialect::load;
use super::{Core, Fleet, trial};
use crate::clock;
use crate::config::plan::{Engine, LoraPlan, Models, TestPlan, WorkerPlan};
use crate::decide::{EngineName, Names, State, Told, Zones};
use crate::units::{ModelName, WorkerId};
use adapters::Listing;
pub(super) use inquirer::{Inquirer, Silence, headers};

/// What is known of a worker beside its load.
#[derive(Debug)]
pub(super) struct Profile {
    /// Its name.
    name: Arc<str>,
    /// What it serves, as typed.
    typed: Models,
    /// Its adapters, as typed.
    lora: LoraPlan,
    /// Whether the operator says how much it is given at a time.
    cap_is_typed: bool,
    /// What the configuration says of test requests.
    test: TestPlan,
    /// What it is.
    pub(super) engine: Option<Engine>,
    /// Why that is not known yet.
    puzzle: Option<String>,
    /// What it lists.
    listing: Listing,
    /// Whether it has said so, or can't be asked.
    has_told: bool,
    /// Those of its models that are in its memory, where it says so.
    pub(super) resident: Option<Vec<ModelName>>,
}

impl Profile {
    /// What the configuration says.
    pub(super) fn typed(plan: &WorkerPlan) -> Self {
        Profile {
            name: plan.name.clone(),
            typed: plan.models.clone(),
            lora: plan.lora.clone(),
            cap_is_typed: plan.max_inflight.is_some(),
            test: plan.test.clone(),
            engine: plan.engine,
            puzzle: None,
            listing: Listing::default(),
            has_told: false,
            resident: None,
        }
    }

    /// What another plan says; what it is and what it lists stays.
    pub(super) fn replan(&mut self, plan: &WorkerPlan) {
        let typed = Profile::typed(plan);
        self.typed = typed.typed;
        self.lora = typed.lora;
        self.cap_is_typed = typed.cap_is_typed;
        self.test = typed.test;
        self.engine = typed.engine.or(self.engine);
    }

    /// It is in the plan no more: it serves nothing, and is asked nothing.
    pub(super) fn leave(&mut self) {
        self.typed = Models::Named(Vec::new());
        self.lora = LoraPlan::default();
        self.listing = Listing::default();
        self.has_told = false;
    }

    /// Whether it will say by itself what it serves, and has not yet.
    fn owes_names(&self) -> bool {
        self.typed == Models::Reported && !self.has_told
    }

    /// The same, for the choice of a worker.
    fn names(&self, inherited: bool) -> Names {
        match (self.owes_names(), inherited) {
            (false, _) => Names::Told,
            (true, false) => Names::Owed,
            (true, true) => Names::Remembered,
        }
    }

    /// What its engine calls its models, where it tells which are in its memory.
    fn called(&self, aliases: &[Alias]) -> Vec<EngineName> {
        let engine = self.engine.unwrap_or(Engine::Generic);
        let bases = aliases.iter().filter(|alias| alias.adapter.is_none());
        bases
            .map(|alias| EngineName {
                client: alias.client.clone(),
                engine: load::called(engine, &alias.worker),
            })
            .collect()
    }

    /// Why it is not known what it is, in words; `None` when it is.
    pub(super) fn puzzle(&self) -> Option<String> {
        if self.engine.is_some() {
            return None;
        }
        let why = self.puzzle.as_deref().unwrap_or("not asked yet");
        Some(unknown_engine(why))
    }
}

/// In words.
pub(super) fn unknown_engine(why: &str) -> String {
    format!("its engine is not known yet: {why}")
}

impl Fleet {
    /// All models now.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.catalogue.load_full()
    }

    /// What a worker is, once that is known.
    #[must_use]
    pub fn engine(&self, worker: WorkerId) -> Option<Engine> {
        self.core.lock().profiles.get(worker.index())?.engine
    }

    /// What a worker is can't be told yet. Returns whether the cause is news.
    pub(super) fn puzzled(&self, worker: WorkerId, cause: &str) -> bool {
        let mut core = self.core.lock();
        let Some(profile) = core.profiles.get_mut(worker.index()) else {
            return false;
        };
        let is_news = profile.puzzle.as_deref() != Some(cause);
        profile.puzzle = Some(cause.to_owned());
        is_news
    }

    /// A worker turned out to be this. Returns whether that is news.
    pub(super) fn found(&self, worker: WorkerId, engine: Engine) -> bool {
        let mut core = self.core.lock();
        let Some(profile) = core.profiles.get_mut(worker.index()) else {
            return false;
        };
        let tests = trial::tests(&profile.test, Some(engine));
        let is_news = profile.engine.replace(engine) != Some(engine);
        core.state.test_with(worker, tests);
        is_news
    }

    /// A worker says what bounds its work. The operator's word on how much it is given counts for more.
    pub(super) fn told(self: &Arc<Self>, worker: WorkerId, told: Told) {
        self.change(|core, _now| {
            let profile = core.profiles.get(worker.index());
            let typed = profile.is_some_and(|profile| profile.cap_is_typed);
            let slots = told.slots.filter(|_| !typed);
            if core.state.told(worker, Told { slots, ..told }) {
                self.draw(core);
            }
        });
    }

    /// A worker, among these only, that a name which nobody knows may belong to, because it has not said yet what it
    /// serves. Names that an earlier process left speak for one that is down.
    #[must_use]
    pub fn yet_to_tell(&self, only: Option<&[WorkerId]>, zones: Option<Zones>) -> Option<Arc<str>> {
        let inherited = self.remembered.lock().inherited();
        self.silent(only, zones, inherited)
    }

    /// The models of workers within these zones, by the names that clients say.
    #[must_use]
    pub fn models_within(&self, zones: Zones) -> BTreeSet<ModelName> {
        let catalogue = self.catalogue();
        let core = self.core.lock();
        let workers = (0..).map(WorkerId).take(core.profiles.len());
        workers
            .filter(|id| core.state.is_within(*id, Some(zones)))
            .flat_map(|id| catalogue.of(id))
            .map(|alias| alias.client.clone())
            .collect()
    }

    /// A worker, among these only, that a name which others have may belong to as well, because it has not said yet
    /// what it serves.
    #[must_use]
    pub fn may_serve_too(
        &self,
        only: Option<&[WorkerId]>,
        zones: Option<Zones>,
    ) -> Option<Arc<str>> {
        self.silent(only, zones, false)
    }

    fn silent(
        &self,
        only: Option<&[WorkerId]>,
        zones: Option<Zones>,
        inherited: bool,
    ) -> Option<Arc<str>> {
        let core = self.core.lock();
        let silent = (0..).zip(&core.profiles).find(|(id, profile)| {
            let listed = only.is_none_or(|only| only.contains(&WorkerId(*id)));
            let allowed = listed && core.state.is_within(WorkerId(*id), zones);
            let away = || {
                matches!(
                    core.state.state(WorkerId(*id)),
                    Some(State::Down | State::Loading)
                )
            };
            let spoken_for = || inherited && away();
            allowed && profile.owes_names() && !spoken_for()
        });
        silent.map(|(_, profile)| profile.name.clone())
    }

    /// A worker lists these models and no others. Returns whether that is news.
    pub(super) fn listed(self: &Arc<Self>, worker: WorkerId, listing: Listing) -> bool {
        if let Some(station) = self.station(worker) {
            station.loader.listed(&listing.adapters);
        }
        self.change(|core, _now| {
            let Some(profile) = core.profiles.get_mut(worker.index()) else {
                return false;
            };
            profile.has_told = true;
            core.state.names(worker, Names::Told);
            // What the operator left out is nobody's name.
            if catalogue::is_open(&profile.typed) {
                let mut remembered = self.remembered.lock();
                remembered.report(&listing.models, clock::wall());
            }
            let is_news = profile.listing != listing;
            if is_news {
                profile.listing = listing;
                self.draw(core);
            }
            is_news
        })
    }

    /// Forgets the names that nobody has listed for too long.
    pub(super) fn forget_stale(self: &Arc<Self>) {
        let stale = self.remembered.lock().forget(clock::wall());
        if stale.is_empty() {
            return;
        }
        self.change(|core, _now| {
            for profile in &mut core.profiles {
                profile.listing.models.retain(|name| !stale.contains(name));
            }
            self.draw(core);
            let catalogue = self.catalogue();
            for name in stale.iter().filter(|name| !catalogue.knows(name)) {
                core.state.forget(name);
            }
        });
    }

    /// Tells the state who serves what, and draws the picture anew.
    pub(super) fn draw(&self, core: &mut Core) {
        let Core {
            state, profiles, ..
        } = core;
        let inherited = self.remembered.lock().inherited();
        let serve = |(id, profile): (u32, &Profile)| {
            let offer = Offer {
                listed: &profile.listing.models,
                adapters: &profile.adapters(),
            };
            let aliases = catalogue::aliases(&profile.typed, offer);
            let clients: Vec<_> = aliases.iter().map(|alias| alias.client.clone()).collect();
            state.names(WorkerId(id), profile.names(inherited));
            state.serves(WorkerId(id), &clients);
            state.adapts(WorkerId(id), &adapters::of(&aliases));
            state.calls(WorkerId(id), &profile.called(&aliases));
            aliases
        };
        let workers = (0..).zip(profiles.iter()).map(serve).collect();
        let typed = profiles.iter().flat_map(|profile| profile.typed.named());
        let adapters = profiles.iter().flat_map(|profile| &profile.lora.adapters);
        let typed = typed
            .map(|alias| alias.client.clone())
            .chain(adapters.map(|adapter| adapter.name.clone()));
        let remembered: Vec<_> = self.remembered.lock().names().cloned().collect();
        // Where the operator types all names, one that is typed no more is gone.
        let (may_return, gone) = if profiles.iter().any(|one| catalogue::is_open(&one.typed)) {
            (remembered, Vec::new())
        } else {
            (Vec::new(), remembered)
        };
        let room = state.least_room();
        let catalogue = Catalogue::new(workers, typed, may_return.into_iter(), room);
        let gone = gone.iter().filter(|name| !catalogue.knows(name));
        gone.for_each(|name| state.forget(name));
        catalogue.known().for_each(|name| state.know(name));
        self.catalogue.store(Arc::new(catalogue));
    }
}
