//! The fleet's state: the one thing that choices are made from, and the events that change it.
//!
//! The caller holds it under one lock, calls in with the time, and acts on what comes back. The order of a request's
//! life: [`choose`](FleetState::choose), or [`stand_in_line`](FleetState::stand_in_line) until a grant; then at most
//! one [`first_byte`](FleetState::first_byte); then exactly one [`finish`](FleetState::finish).
//!
//! Whoever frees a slot or changes a state (first byte, finish, probe, tick, leave) then calls [`grants`](FleetState::grants), under
//! the same lock. That upholds the line's one invariant: nobody who waits could be served. Therefore an arrival may
//! take any slot it finds free without overtaking anybody.

use std::sync::Arc;

use super::ask::{Ask, Choice, NoChoice, Outcome, Rules, Told, WorkerSpec};
use super::booking::Booking;
use super::calibration::{Test, Tests};
use super::considered::{Considered, Shortlist};
use super::health::State;
use super::lora::{AdapterName, LoraNews, LoraTold};
use super::queue::{LineFull, Ticket, Waiter, WaitingLine};
use super::roster::Roster;
use super::speed::SavedSpeeds;
use super::view::WorkerView;

use crate::rng::Rng;
use crate::units::{ModelName, Seconds, WorkerId};

/// Workers, their load and speed, and the requests that wait for them.
#[derive(Debug)]
pub struct FleetState {
    roster: Roster,
    line: WaitingLine,
}

/// A worker's state changed.
#[derive(Clone, Debug, PartialEq)]
pub struct StateChange {
    /// Whose.
    pub worker: WorkerId,
    /// Its name.
    pub name: Arc<str>,
    /// What it was.
    pub from: State,
    /// What it is.
    pub to: State,
    /// Why it is down or ejected.
    pub reason: Option<String>,
    /// When it ends by itself, if it does.
    pub until: Option<Seconds>,
}

/// The end of somebody's wait.
#[derive(Debug)]
pub struct Grant {
    /// Whose.
    pub ticket: Ticket,
    /// The place booked, or why there will be none.
    pub result: Result<Choice, NoChoice>,
    /// Whom it considered.
    pub considered: Shortlist,
}

impl FleetState {
    /// A fleet that has seen nothing yet. A worker's place in the list is its id.
    #[must_use]
    pub fn new(workers: Vec<WorkerSpec>, rules: impl Into<Rules>) -> Self {
        FleetState {
            roster: Roster::new(workers, rules.into()),
            line: WaitingLine::default(),
        }
    }

    /// Picks a worker for a request and books a place on it, in one step; never one that was tried.
    ///
    /// # Errors
    /// When nobody knows the model, the prompt is too long for everybody who does, nobody of them is alive and untried, or
    /// all of those are at their cap.
    pub fn choose(
        &mut self,
        ask: &Ask,
        tried: &[WorkerId],
        now: Seconds,
        rng: &mut Rng,
    ) -> Result<Choice, NoChoice> {
        self.roster.choose(ask, tried, now, rng)
    }

    /// Those who could be given a request now, whatever they would cost: what a rule that is not one of our policies picks
    /// from in a simulation, so that it has the same health checks and limits.
    #[must_use]
    pub fn candidates(&self, ask: &Ask, tried: &[WorkerId]) -> Vec<WorkerId> {
        self.roster.candidates(ask, tried)
    }

    /// Whom the last choice considered, also one that a [grant](Self::grants) made or that picked nobody: all who serve
    /// the model and are allowed, in the order of their ids or of the route's list. To be read under the same lock.
    #[must_use]
    pub fn considered(&self) -> &[Considered] {
        self.roster.considered()
    }

    /// The same, as it is kept when the next choice is made.
    #[must_use]
    pub fn shortlist(&self) -> Shortlist {
        self.roster.shortlist()
    }

    /// The first byte of a good answer's body came. Answers that are errors have none in this sense; for an answer that
    /// comes in one piece, [`finish`](Self::finish) is enough. Call [`grants`](Self::grants) next: a worker that is
    /// back may have more.
    pub fn first_byte(&mut self, booking: &mut Booking, now: Seconds) {
        if let Some((worker, machine)) = self.roster.at(booking.worker()) {
            worker.first_byte(booking, machine, now);
        }
    }

    /// A request ended, however it did: its place is free. Returns the change if that ejected its worker. Call
    /// [`grants`](Self::grants) next.
    pub fn finish(
        &mut self,
        booking: Booking,
        outcome: Outcome,
        now: Seconds,
    ) -> Option<StateChange> {
        let id = booking.worker();
        let left = self.roster.finish(booking, outcome, now)?;
        self.change(id, left)
    }

    /// Time has passed: ejections and holds end. Called several times a second; call [`grants`](Self::grants) next.
    pub fn tick(&mut self, now: Seconds) -> Vec<StateChange> {
        let left: Vec<_> = self.roster.tick(now).collect();
        left.into_iter()
            .filter_map(|(id, left)| self.change(id, left))
            .collect()
    }

    /// A worker answered that it does not know the path of this request: others are asked first from now on.
    pub fn unsupported(&mut self, worker: WorkerId, ask: &Ask, now: Seconds) {
        self.roster.unsupported(worker, ask, now);
    }

    /// Output tokens of streamed answers passed, those after an answer's first. Called several times a second, for all
    /// of a worker's streams together or for each.
    pub fn tokens(&mut self, worker: WorkerId, count: f64, now: Seconds) {
        if let Some((worker, machine)) = self.roster.at(worker) {
            worker.tokens(count, machine, now);
        }
    }

    /// A connection to a worker was opened, which took one round trip.
    pub fn connected(&mut self, worker: WorkerId, round_trip: Seconds) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.connected(round_trip);
        }
    }

    /// A worker serves these models now and no others; the names stay known until they are forgotten. Call
    /// [`grants`](Self::grants) next.
    pub fn serves(&mut self, worker: WorkerId, models: &[ModelName]) {
        self.roster.serves(worker, models);
    }

    /// What a worker may be tested with, now that its engine is known.
    pub fn test_with(&mut self, worker: WorkerId, tests: Tests) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.test_with(tests);
        }
    }

    /// An engine says what bounds its work. Call [`grants`](Self::grants) next.
    pub fn told(&mut self, worker: WorkerId, told: Told) {
        let Some(worker) = self.roster.worker_mut(worker) else {
            return;
        };
        if worker.told != told {
            worker.told = told;
            self.line.rearrange(|ask| self.roster.barred(ask));
        }
    }

    /// These of a worker's models are LoRA adapters and no others; to be told after what it [serves](Self::serves).
    pub fn adapts(&mut self, worker: WorkerId, adapters: &[AdapterName]) {
        self.roster.adapts(worker, adapters);
    }

    /// An engine tells of its adapters.
    pub fn lora_told(&mut self, worker: WorkerId, told: &LoraTold) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.loras.told(told);
        }
    }

    /// Something became known of one adapter, by the engine's name. Call [`grants`](Self::grants) next: nobody may be
    /// left who can load it.
    pub fn lora_heard(
        &mut self,
        worker: WorkerId,
        adapter: &ModelName,
        news: LoraNews,
        now: Seconds,
    ) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.loras.heard(adapter, news, now);
        }
    }

    /// The one of these adapters that could be unloaded: not in use, and used longest ago.
    #[must_use]
    pub fn lora_to_spare(&self, worker: WorkerId, among: &[ModelName]) -> Option<ModelName> {
        let worker = self.roster.workers().get(worker.index())?;
        worker.loras.idlest(among).cloned()
    }

    /// A model of this name exists, whoever serves it: a request for it is refused as [`NoChoice::Down`].
    pub fn know(&mut self, model: &ModelName) {
        self.roster.know(model);
    }

    /// There is no model of this name any more, unless somebody serves it.
    pub fn forget(&mut self, model: &ModelName) {
        self.roster.forget(model);
    }

    /// A liveness probe passed, or failed for a reason. Call [`grants`](Self::grants) after a change.
    pub fn probe(
        &mut self,
        worker: WorkerId,
        verdict: Result<(), String>,
        now: Seconds,
    ) -> Option<StateChange> {
        let (probed, machine) = self.roster.at(worker)?;
        let (left, life) = (probed.condition().state(), probed.generation());
        probed.probe(verdict, machine, now);
        if probed.generation() != life {
            self.roster.reuse.lost(worker);
        }
        self.change(worker, left)
    }

    /// Books a test on every worker that is due for one: to be sent there at once. Called several times a second.
    pub fn begin_tests(&mut self, now: Seconds) -> Vec<Test> {
        self.roster.begin_tests(now)
    }

    /// What a worker has shown of its speed, to be kept for the next process.
    #[must_use]
    pub fn saved(&self, worker: WorkerId) -> Option<SavedSpeeds> {
        self.roster.saved(worker)
    }

    /// Takes in what a worker had shown to an earlier process. False, and nothing has changed, when it can't have.
    pub fn recall(&mut self, worker: WorkerId, saved: &SavedSpeeds) -> bool {
        self.roster.recall(worker, saved)
    }

    /// Waits for a slot, after [`NoChoice::Busy`]; workers already tried are not waited for.
    ///
    /// # Errors
    /// When as many wait as may.
    pub fn stand_in_line(&mut self, ask: Ask, tried: &[WorkerId]) -> Result<Ticket, LineFull> {
        let ask = self.roster.measured(ask);
        let barred = self.roster.barred(&ask);
        let tried = tried.to_vec();
        self.line.join(Waiter { ask, tried, barred })
    }

    /// Stops waiting; nothing happens when the ticket was granted or given up before.
    pub fn leave_line(&mut self, ticket: Ticket) {
        self.line.leave(ticket);
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Ends the wait of everybody who can be served now, first come, first served, and of everybody whose workers are
    /// all down.
    pub fn grants(&mut self, now: Seconds, rng: &mut Rng) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut heads = self.line.heads();
        while let Some(ticket) = heads.pop_first() {
            let Some(Waiter { ask, tried, .. }) = self.line.get(ticket) else {
                continue;
            };
            let result = self.roster.choose(ask, tried, now, rng);
            if matches!(result, Err(NoChoice::Busy | NoChoice::Away)) {
                continue;
            }
            heads.extend(self.line.leave(ticket));
            grants.push(Grant {
                ticket,
                result,
                considered: self.roster.shortlist(),
            });
        }
        grants
    }

    /// A worker's state.
    #[must_use]
    pub fn state(&self, worker: WorkerId) -> Option<State> {
        let worker = self.roster.workers().get(worker.index())?;
        Some(worker.condition().state())
    }

    /// Every worker at this moment, in the order of their ids.
    #[must_use]
    pub fn snapshot(&self, now: Seconds) -> Vec<WorkerView> {
        let workers = self.roster.workers();
        let picks = workers.iter().map(|worker| worker.record().picks).sum();
        workers
            .iter()
            .map(|worker| WorkerView::of(worker, &self.roster, picks, now))
            .collect()
    }

    /// Whether all counters agree and nobody waits who could be served. For tests and simulations, after
    /// [`grants`](Self::grants).
    ///
    /// # Errors
    /// Names the first disagreement.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.roster.check()?;
        self.line.check()?;
        let idle = self.line.heads().into_iter().find(|ticket| {
            self.line
                .get(*ticket)
                .is_some_and(|waiter| self.roster.fits(&waiter.ask, &waiter.tried))
        });
        match idle {
            Some(ticket) => Err(format!("{ticket:?} waits though a slot is free")),
            None => Ok(()),
        }
    }

    /// The change of a worker that was in this state, if it is one.
    fn change(&self, id: WorkerId, from: State) -> Option<StateChange> {
        let worker = self.roster.workers().get(id.index())?;
        let to = worker.condition().state();
        (to != from).then(|| StateChange {
            worker: id,
            name: worker.spec().name.clone(),
            from,
            to,
            reason: worker.condition().reason(),
            until: worker.condition().until(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::Work;
    use super::super::pick::Policy;
    use super::*;
    use crate::facts::Prefix;
    use crate::units::Length;

    fn fleet() -> FleetState {
        let spec = |name: &str| WorkerSpec::new(name, 8);
        FleetState::new(vec![spec("a"), spec("b")], Policy::RoundRobin)
    }

    fn ask() -> Ask {
        Ask {
            model: None,
            only: None,
            path: None,
            work: Work::Embed,
            prompt: Length::Tokens(10.0),
            fills: None,
            prefix: Prefix::default(),
            max_tokens: None,
            deadline: None,
            streamed: false,
        }
    }

    #[test]
    fn a_snapshot_tells_state_load_and_history() {
        let mut fleet = fleet();
        let mut rng = Rng::seeded(1);
        let mut choices: Vec<_> = (0..4)
            .map(|_| fleet.choose(&ask(), &[], Seconds(1.0), &mut rng).unwrap())
            .collect();
        let answered = Outcome::Answered {
            prompt_tokens: None,
            cached_tokens: None,
            output_tokens: None,
        };
        for outcome in [answered, Outcome::Failed, Outcome::Gone] {
            fleet.finish(choices.remove(0).booking, outcome, Seconds(1.5));
        }
        fleet.probe(WorkerId(0), Ok(()), Seconds(2.0));
        let views = fleet.snapshot(Seconds(5.0));
        let told = |view: &WorkerView| {
            let history = (view.picks, view.answered, view.failed);
            (
                view.state,
                view.state_age.0,
                view.share,
                view.inflight,
                history,
            )
        };
        assert_eq!(told(&views[0]), (State::Up, 3.0, 0.5, 0, (2, 1, 0)));
        assert_eq!(told(&views[1]), (State::Starting, 5.0, 0.5, 1, (2, 0, 1)));
        assert_eq!(views[0].embed.samples, 1);
    }

    #[test]
    fn workers_that_are_not_there_change_nothing() {
        let mut fleet = fleet();
        let nobody = WorkerId(9);
        fleet.tokens(nobody, 3.0, Seconds(1.0));
        fleet.connected(nobody, Seconds(1.0));
        assert_eq!(fleet.probe(nobody, Ok(()), Seconds(1.0)), None);
        assert_eq!(fleet.check_invariants(), Ok(()));
    }
}
