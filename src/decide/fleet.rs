//! The fleet's state: the one thing that choices are made from, and the events that change it.
//!
//! The caller holds it under one lock, calls in with the time, and acts on what comes back. The order of a request's
//! life: [`choose`](FleetState::choose), or [`stand_in_line`](FleetState::stand_in_line) until a grant; then at most
//! one [`first_byte`](FleetState::first_byte); then exactly one [`finish`](FleetState::finish).
//!
//! Whoever frees a slot or changes a state (finish, probe, leave) then calls [`grants`](FleetState::grants), under
//! the same lock. That upholds the line's one invariant: nobody who waits could be served. Therefore an arrival may
//! take any slot it finds free without overtaking anybody.

use super::ask::{Ask, Choice, NoChoice, Outcome, Rules, Told, WorkerSpec};
use super::health::State;
use super::queue::{LineFull, Ticket, Waiter, WaitingLine};
use super::roster::Roster;
use super::view::WorkerView;
use super::worker::{Booking, Worker};
use crate::rng::Rng;
use crate::units::{ModelName, Seconds, WorkerId};

/// Workers, their load and speed, and the requests that wait for them.
#[derive(Debug)]
pub struct FleetState {
    roster: Roster,
    line: WaitingLine,
}

/// A probe changed a worker's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// Whose.
    pub worker: WorkerId,
    /// What it was.
    pub from: State,
    /// What it is.
    pub to: State,
    /// Why it is down.
    pub reason: Option<String>,
}

/// The end of somebody's wait.
#[derive(Debug)]
pub struct Grant {
    /// Whose.
    pub ticket: Ticket,
    /// The place booked, or why there will be none.
    pub result: Result<Choice, NoChoice>,
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
    /// When nobody knows the model, nobody who does is alive and untried, or all of those are at their cap.
    pub fn choose(
        &mut self,
        ask: &Ask,
        tried: &[WorkerId],
        now: Seconds,
        rng: &mut Rng,
    ) -> Result<Choice, NoChoice> {
        self.roster.choose(ask, tried, now, rng)
    }

    /// The first byte of a good answer's body came. Answers that are errors have none in this sense; for an answer that
    /// comes in one piece, [`finish`](Self::finish) is enough.
    pub fn first_byte(&mut self, booking: &mut Booking, now: Seconds) {
        if let Some(worker) = self.roster.worker_mut(booking.worker()) {
            worker.first_byte(booking, now);
        }
    }

    /// A request ended, however it did: its place is free. Call [`grants`](Self::grants) next.
    pub fn finish(&mut self, booking: Booking, outcome: Outcome, now: Seconds) {
        self.roster.finish(booking, outcome, now);
    }

    /// Output tokens of streamed answers passed, those after an answer's first. Called several times a second, for all
    /// of a worker's streams together or for each.
    pub fn tokens(&mut self, worker: WorkerId, count: f64, now: Seconds) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.tokens(count, now);
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

    /// An engine says what bounds its work. Call [`grants`](Self::grants) next.
    pub fn told(&mut self, worker: WorkerId, told: Told) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.told = told;
        }
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
        let probed = self.roster.worker_mut(worker)?;
        let from = probed.probe(verdict, now)?;
        Some(StateChange {
            worker,
            from,
            to: probed.health().state(),
            reason: probed.health().reason().map(str::to_owned),
        })
    }

    /// Waits for a slot, after [`NoChoice::Busy`]; workers already tried are not waited for.
    ///
    /// # Errors
    /// When as many wait as may.
    pub fn stand_in_line(&mut self, ask: Ask, tried: &[WorkerId]) -> Result<Ticket, LineFull> {
        let tried = tried.to_vec();
        self.line.join(Waiter { ask, tried })
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
            let Some(Waiter { ask, tried }) = self.line.get(ticket) else {
                continue;
            };
            let result = self.roster.choose(ask, tried, now, rng);
            if matches!(result, Err(NoChoice::Busy)) {
                continue;
            }
            heads.extend(self.line.leave(ticket));
            grants.push(Grant { ticket, result });
        }
        grants
    }

    /// Every worker at this moment, in the order of their ids.
    #[must_use]
    pub fn snapshot(&self, now: Seconds) -> Vec<WorkerView> {
        let workers = self.roster.workers();
        let picks = workers.iter().map(|worker| worker.record().picks).sum();
        workers
            .iter()
            .map(|worker| WorkerView::of(worker, self.roster.traffic(), picks, now))
            .collect()
    }

    /// Whether all counters agree and nobody waits who could be served. For tests and simulations, after
    /// [`grants`](Self::grants).
    ///
    /// # Errors
    /// Names the first disagreement.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.roster.workers().iter().try_for_each(Worker::check)?;
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
}

#[cfg(test)]
mod tests {
    use super::super::ask::Work;
    use super::super::pick::Policy;
    use super::*;
    use crate::units::Tokens;

    fn fleet() -> FleetState {
        let spec = |name: &str| WorkerSpec {
            name: name.into(),
            models: Vec::new(),
            cap: 8,
            speed: None,
            rise: 1,
            fall: 1,
        };
        FleetState::new(vec![spec("a"), spec("b")], Policy::RoundRobin)
    }

    fn ask() -> Ask {
        Ask {
            model: None,
            only: None,
            work: Work::Embed,
            prompt: Tokens(10.0),
            max_tokens: None,
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
