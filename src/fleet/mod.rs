//! The one lock around the fleet's state, and everything that must hold it: choosing, booking, releasing, waiting.
//!
//! [`crate::decide::FleetState`] decides; this room gives it the time, keeps the senders of those who stand in line,
//! and hands a freed place to the first of them in the same step that frees it, so that no place is ever free while
//! somebody who could use it waits. A [`Lease`] is a place; dropping it gives it back, whatever happened.
//!
//! Places are handed over after the lock is released: a lease that nobody takes any more returns at once, and returning
//! takes the lock again.

mod calibrate;
mod catalogue;
mod dialect;
mod discover;
mod foresight;
mod interview;
mod lease;
mod line;
mod load_reports;
mod loader;
mod place;
mod probe;
mod remembered;
mod rules;
mod saved;
mod scrape;
mod seating;
mod station;
mod trial;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

pub use calibrate::Calibrator;
pub use catalogue::{Alias, Catalogue};
pub use dialect::authorization;
pub use dialect::orca::{FORMAT, REPORT, TEXT};
pub use foresight::Foresight;
pub use interview::{Interview, interview};
pub use lease::Lease;
pub use line::Joined;
pub use loader::NotLoaded;
pub use probe::watch;
pub use saved::keep_speeds;
pub use scrape::Scraper;
pub use seating::Stations;
pub use station::Station;

use calibrate::Booked;

use discover::Profile;
use line::Waiting;
use remembered::Remembered;

use crate::clock::{self, Clock};
use crate::config::Plan;
use crate::decide::{
    Ask, ByHand, Choice, Claim, Expense, FleetState, Grant, LineFull, NoChoice, Outcome, Shortlist,
    State, StateChange, Test, Ticket, WorkerView,
};
use crate::rng::Rng;
use crate::units::{Seconds, WorkerId};

/// What a choice led to.
#[derive(Debug)]
pub struct Turn {
    /// The place, or why there is none.
    pub place: Result<Lease, NoChoice>,
    /// Who could have given one.
    pub considered: Shortlist,
}

/// The workers as they are now.
pub struct Fleet {
    clock: Clock,
    core: Mutex<Core>,
    /// By worker. Changed under the lock, read without it.
    stations: ArcSwap<Stations>,
    changed: watch::Sender<()>,
    catalogue: ArcSwap<Catalogue>,
    /// Locked for a moment, also while the core is, and never the other way round.
    remembered: Mutex<Remembered>,
    /// Held by whoever writes the file of speeds.
    saving: Mutex<()>,
}

struct Core {
    state: FleetState,
    profiles: Vec<Profile>,
    rng: Rng,
    waiting: BTreeMap<Ticket, Waiting>,
}

impl Fleet {
    /// A fleet in which nothing has happened yet. `seed` decides ties.
    #[must_use]
    pub fn new(plan: &Plan, clock: Clock, seed: u64) -> Arc<Self> {
        let workers = &plan.workers;
        let specs = workers.iter().map(|one| rules::spec(plan, one, one.engine));
        let state = FleetState::new(specs.collect(), rules::rules(plan));
        let core = Core {
            state,
            profiles: workers.iter().map(Profile::typed).collect(),
            rng: Rng::seeded(seed),
            waiting: BTreeMap::new(),
        };
        let station = |worker| Arc::new(Station::new(plan, worker, clock));
        let stations: Stations = workers.iter().map(station).collect();
        let fleet = Fleet {
            clock,
            core: Mutex::new(core),
            stations: ArcSwap::from_pointee(stations),
            changed: watch::Sender::default(),
            catalogue: ArcSwap::default(),
            remembered: Mutex::new(Remembered::read(&plan.state, clock::wall())),
            saving: Mutex::default(),
        };
        fleet.draw(&mut fleet.core.lock());
        Arc::new(fleet)
    }

    /// Picks a worker and books a place on it, in one step.
    pub fn reserve(self: &Arc<Self>, ask: &Ask, tried: &[WorkerId]) -> Turn {
        let now = self.clock.now();
        let mut core = self.core.lock();
        let Core { state, rng, .. } = &mut *core;
        let choice = state.choose(ask, tried, now, rng);
        let considered = state.shortlist();
        drop(core);
        self.turn(choice, considered)
    }

    /// Takes a place in line.
    ///
    /// # Errors
    /// When the line is full.
    pub fn stand_in_line(
        self: &Arc<Self>,
        ask: Ask,
        tried: &[WorkerId],
        id: &str,
    ) -> Result<Joined, LineFull> {
        let now = self.clock.now();
        let (sender, turn) = oneshot::channel();
        let mut core = self.core.lock();
        let ticket = core.state.stand_in_line(ask, tried, now)?;
        let id = id.into();
        core.waiting.insert(ticket, Waiting { id, sender });
        // A place may have been freed between the refusal that led here and now.
        let grants = core.grants(now);
        let position = core.state.position(ticket, now);
        drop(core);
        self.hand_over(grants);
        Ok(Joined {
            ticket,
            position,
            turn,
        })
    }

    /// Ends the wait of everybody who stands in line: there will be no places any more.
    pub fn dismiss(&self) {
        self.core.lock().waiting.clear();
    }

    /// Gives a place in line up; harmless when it was granted meanwhile.
    pub fn leave_line(self: &Arc<Self>, ticket: Ticket) {
        self.change(|core, now| {
            core.waiting.remove(&ticket);
            core.state.leave_line(ticket, now);
        });
    }

    /// Whether a request that lacks this may stand in line.
    #[must_use]
    pub fn may_wait(&self, ask: &Ask, lack: &NoChoice) -> bool {
        self.core.lock().state.may_wait(ask, lack)
    }

    /// What a request waits for, or would.
    #[must_use]
    pub fn lacks(&self, ask: &Ask, tried: &[WorkerId]) -> NoChoice {
        self.core.lock().state.lacks(ask, tried)
    }

    /// Whether such a request would be refused, whatever it asks for.
    #[must_use]
    pub fn sheds(&self, claim: Claim) -> bool {
        self.core.lock().state.sheds(claim)
    }

    /// When a newcomer of this class would be served, by how fast the line moved of late.
    #[must_use]
    pub fn line_clears_in(&self, class: u8) -> Option<Seconds> {
        let now = self.clock.now();
        self.core.lock().state.line_clears_in(class, now)
    }

    /// Requests standing in line.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.core.lock().state.waiting()
    }

    /// A probe's verdict; returns the state that it brought about, if it changed.
    pub fn probed(
        self: &Arc<Self>,
        worker: WorkerId,
        verdict: Result<(), String>,
    ) -> Option<State> {
        let change = self.change(|core, now| core.state.probe(worker, verdict, now))?;
        report(&change);
        if let (State::Up, Some(station)) = (change.to, self.station(worker)) {
            station.pulse.courtesy.renew();
        }
        Some(change.to)
    }

    /// A probe found a worker loading its model; returns the state that this brought about, if it changed.
    pub fn found_loading(self: &Arc<Self>, worker: WorkerId, cause: String) -> Option<State> {
        let change = self.change(|core, now| core.state.loads(worker, cause, now))?;
        report(&change);
        Some(change.to)
    }

    /// An operator changes a worker by hand.
    pub fn by_hand(self: &Arc<Self>, worker: WorkerId, hand: ByHand) {
        let change = self.change(|core, now| core.state.by_hand(worker, hand, now));
        change.iter().for_each(report);
    }

    /// An error that a worker answered was its own fault, and not the request's.
    pub fn blame(self: &Arc<Self>, worker: WorkerId) {
        let change = self.change(|core, now| core.state.blame(worker, now));
        change.iter().for_each(report);
    }

    /// A worker answered that it does not know the path of this request. Who waits for it may now be served elsewhere.
    pub fn unsupported(self: &Arc<Self>, worker: WorkerId, ask: &Ask) {
        self.change(|core, now| core.state.unsupported(worker, ask, now));
    }

    /// The most that a request is expected to take, if it goes alone to the dearest machine that may serve it.
    #[must_use]
    pub fn forecast(&self, ask: &Ask) -> Expense {
        let forecast = self.core.lock().state.forecast(ask);
        let stations = self.stations.load();
        let expenses = forecast.into_iter().map(|(worker, busy)| {
            let hourly = stations.get(worker.index()).and_then(|one| one.hourly);
            Expense::of(busy, hourly)
        });
        expenses.fold(Expense::default(), Expense::or_more)
    }

    /// All workers as they are now, in the plan's order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<WorkerView> {
        let now = self.clock.now();
        let core = self.core.lock();
        let mut views = core.state.snapshot(now);
        for (view, profile) in views.iter_mut().zip(&core.profiles) {
            if view.state == State::Starting {
                view.reason = profile.puzzle();
            }
        }
        views
    }

    /// Lets time pass: turns the tokens that passed since the last call into decode samples, and ends ejections and
    /// holds that are over. To be called every 0.1–0.25 s.
    pub fn beat(self: &Arc<Self>) {
        let changes = self.change(|core, now| {
            for (id, station) in (0..).map(WorkerId).zip(&**self.stations.load()) {
                let tokens = station.pulse.take_tokens();
                core.state.tokens(id, tokens, now);
            }
            core.state.tick(now)
        });
        changes.iter().for_each(report);
    }

    /// Books the test requests that are due, to be sent now.
    fn begin_tests(self: &Arc<Self>) -> Vec<Booked> {
        let booked = |test: Test| {
            Some(Booked {
                lease: self.place(test.choice).ok()?,
                model: test.model,
                work: test.work,
                prompt: test.prompt,
            })
        };
        let due = self.change(|core, now| core.state.begin_tests(now));
        due.into_iter().filter_map(booked).collect()
    }

    /// When bytes of an answer last came from a worker.
    #[must_use]
    pub fn last_heard(&self, worker: WorkerId) -> Option<Seconds> {
        self.station(worker)?.pulse.last_heard()
    }

    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Core, Seconds) -> T) -> T {
        let now = self.clock.now();
        self.change_at(now, |core| change(core, now))
    }

    /// Changes the state, then hands places that this freed to those who wait for them.
    fn change_at<T>(self: &Arc<Self>, now: Seconds, change: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.core.lock();
        let result = change(&mut core);
        let grants = core.grants(now);
        drop(core);
        self.hand_over(grants);
        result
    }

    fn hand_over(self: &Arc<Self>, grants: Vec<(oneshot::Sender<Turn>, Grant)>) {
        for (sender, grant) in grants {
            let turn = self.turn(grant.result, grant.considered);
            // Who left meanwhile does not take it: the lease comes back and is dropped, which frees the place.
            drop(sender.send(turn));
        }
    }

    fn turn(self: &Arc<Self>, choice: Result<Choice, NoChoice>, considered: Shortlist) -> Turn {
        let place = choice.and_then(|choice| self.place(choice));
        Turn { place, considered }
    }

    /// The place that was booked. Every worker that can be booked has a station: it has it first.
    fn place(self: &Arc<Self>, choice: Choice) -> Result<Lease, NoChoice> {
        let Some(station) = self.station(choice.worker) else {
            self.change(|core, now| core.state.finish(choice.booking, Outcome::Unsent, now));
            return Err(NoChoice::Down);
        };
        Ok(Lease::new(self.clone(), station, choice))
    }
}

impl Core {
    fn grants(&mut self, now: Seconds) -> Vec<(oneshot::Sender<Turn>, Grant)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let granted = self.state.grants(now, &mut self.rng);
        let Core { waiting, .. } = self;
        granted
            .into_iter()
            .filter_map(|grant| Some((waiting.remove(&grant.ticket)?.sender, grant)))
            .collect()
    }
}

/// A worker that is out or comes back is news at every level that an operator chooses; one that comes and goes is not,
/// nor is what an operator did, which was logged when it was done.
fn report(change: &StateChange) {
    let (worker, from, to) = (&*change.name, change.from.label(), change.to.label());
    match &change.reason {
        Some(reason)
            if change.optional || matches!(change.to, State::Loading | State::Draining) =>
        {
            tracing::info!(worker, from, to, reason, "worker changed state");
        }
        Some(reason) => tracing::warn!(worker, from, to, reason, "worker changed state"),
        None => tracing::info!(worker, from, to, "worker changed state"),
    }
}
