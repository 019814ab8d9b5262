//! The fleet's state: the one thing that choices are made from, and the events that change it.
//!
//! The caller holds it under one lock, calls in with the time, and acts on what comes back. The order of a request's
//! life: [`choose`](FleetState::choose), or [`stand_in_line`](FleetState::stand_in_line) until a grant; then at most
//! one [`first_byte`](FleetState::first_byte); then exactly one [`finish`](FleetState::finish).
//!
//! Whoever frees a slot or changes a state (first byte, finish, probe, tick, leave) then calls [`grants`](FleetState::grants), under
//! the same lock. That upholds the line's one invariant: nobody who waits could be served. Therefore an arrival may
//! take any slot it finds free without overtaking anybody.

mod ahead;
mod line;
mod lora;
mod seating;
mod swap;

use std::sync::Arc;

use super::ask::{Ask, Choice, Names, NoChoice, Outcome, Rules, Told, WorkerSpec};
use super::booking::Booking;
use super::by_hand::ByHand;
use super::calibration::{Test, Tests};
use super::considered::{Considered, Shortlist};
use super::health::State;
use super::place::Zones;
use super::queue::{Ticket, WaitingLine};
use super::roster::{Hold, Roster};
use super::speed::SavedSpeeds;
use super::told_load::{Heard, Ours};
use super::view::WorkerView;
use super::worker::Worker;

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
    /// Why it gets no requests.
    pub reason: Option<String>,
    /// When it ends by itself, if it does.
    pub until: Option<Seconds>,
    /// Whether it comes and goes, so that this is no reason to worry.
    pub optional: bool,
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
        let rules = rules.into();
        FleetState {
            roster: Roster::new(workers, rules),
            line: WaitingLine::new(rules.line),
        }
    }

    /// Picks a worker for a request and books a place on it, in one step; never one that was tried.
    ///
    /// # Errors
    /// When nobody knows the model or nobody who does is within the request's zones, the prompt is too long for everybody
    /// who may have it, nobody of them is alive and untried, or all of those are at their cap.
    pub fn choose(
        &mut self,
        ask: &Ask,
        tried: &[WorkerId],
        now: Seconds,
        rng: &mut Rng,
    ) -> Result<Choice, NoChoice> {
        let choice = self.roster.choose(ask, tried, now, rng)?;
        self.line.charge(ask.claim, choice.terms.busy(), now);
        Ok(choice)
    }

    /// Whom a request would be given to now, by the steps of [`choose`](Self::choose) and by these random numbers; nothing is
    /// booked. Whom it [considered](Self::shortlist) is to be read under the same lock.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub fn foresee(
        &mut self,
        ask: &Ask,
        now: Seconds,
        rng: &mut Rng,
    ) -> Result<WorkerId, NoChoice> {
        self.roster.foresee(ask, now, rng)
    }

    /// What keeps each worker that serves a request from taking it.
    #[must_use]
    pub fn holds(&self, ask: &Ask) -> Vec<Hold> {
        self.roster.holds(ask, &[])
    }

    /// Those who could be given a request now, whatever they would cost: what a rule that is not one of our policies picks
    /// from in a simulation, so that it has the same health checks and limits.
    #[must_use]
    pub fn candidates(&self, ask: &Ask, tried: &[WorkerId]) -> Vec<WorkerId> {
        self.roster.candidates(ask, tried)
    }

    /// Whom the last choice considered, also one that a [grant](Self::grants) made or that picked nobody: all who serve
    /// the model and are on the route, in the order of their ids or of the route's list. To be read under the same lock.
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

    /// An error that a worker answered, and that was [doubted](Outcome::Doubted), was its own fault: another did better, or
    /// nobody else was asked. Returns the change if that ejects it. Call [`grants`](Self::grants) next.
    pub fn blame(&mut self, worker: WorkerId, now: Seconds) -> Option<StateChange> {
        let left = self.roster.blame(worker, now)?;
        self.change(worker, left)
    }

    /// The busy time of its machine that has fallen to a request so far; none when its worker has lost it.
    pub fn share_of(&mut self, booking: &Booking, now: Seconds) -> Seconds {
        let found = self.roster.at(booking.worker());
        found.map_or(Seconds::ZERO, |(worker, machine)| {
            worker.share_of(booking, machine, now)
        })
    }

    /// The busy time that a request is expected to need on each worker that may serve it, if nobody else is there.
    #[must_use]
    pub fn forecast(&self, ask: &Ask) -> Vec<(WorkerId, Seconds)> {
        self.roster.forecast(ask)
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

    /// A worker answered a liveness probe, so long after it was sent.
    pub fn replied(&mut self, worker: WorkerId, took: Seconds) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.replied(took);
        }
    }

    /// A worker serves these models now and no others; the names stay known until they are forgotten. Call
    /// [`grants`](Self::grants) next.
    pub fn serves(&mut self, worker: WorkerId, models: &[ModelName]) {
        self.roster.serves(worker, models);
    }

    /// Whether a worker has said what it serves. Call [`grants`](Self::grants) next.
    pub fn names(&mut self, worker: WorkerId, names: Names) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.names = names;
        }
    }

    /// What a worker may be tested with, now that its engine is known.
    pub fn test_with(&mut self, worker: WorkerId, tests: Tests) {
        if let Some(worker) = self.roster.worker_mut(worker) {
            worker.test_with(tests);
        }
    }

    /// An engine says what bounds its work; returns whether that is news. Call [`grants`](Self::grants) next.
    pub fn told(&mut self, worker: WorkerId, told: Told) -> bool {
        let worker = self.roster.worker_mut(worker);
        let Some(worker) = worker.filter(|worker| worker.told != told) else {
            return false;
        };
        worker.told = told;
        self.line.rearrange(|ask| self.roster.barred(ask));
        true
    }

    /// Tokens of a prompt and its answer that fit every worker: a request below needs no closer look.
    #[must_use]
    pub fn least_room(&self) -> f64 {
        self.roster.least_room()
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

    /// A liveness probe found a worker loading its model: alive, of no use yet, and no outage. Call
    /// [`grants`](Self::grants) after a change.
    pub fn loads(&mut self, worker: WorkerId, reason: String, now: Seconds) -> Option<StateChange> {
        let (loading, machine) = self.roster.at(worker)?;
        let (left, life) = (loading.condition().state(), loading.generation());
        loading.loads(reason, machine, now);
        if loading.generation() != life {
            self.roster.reuse.lost(worker);
        }
        self.change(worker, left)
    }

    /// An operator changes a worker by hand. Returns the change of state that this is. Call [`grants`](Self::grants) next.
    pub fn by_hand(
        &mut self,
        worker: WorkerId,
        change: ByHand,
        now: Seconds,
    ) -> Option<StateChange> {
        let changed = self.roster.worker_mut(worker)?;
        let left = changed.condition().state();
        changed.by_hand(change, now);
        self.change(worker, left)
    }

    /// What a worker has of ours now, to be told apart from what its engine then says: see
    /// [`hear_load`](Self::hear_load).
    #[must_use]
    pub fn ours(&self, worker: WorkerId) -> Ours {
        let worker = self.roster.workers().get(worker.index());
        worker.map(Worker::ours).unwrap_or_default()
    }

    /// An engine says how much it has to do.
    pub fn hear_load(&mut self, worker: WorkerId, heard: &Heard, now: Seconds) {
        self.roster.hear_load(worker, heard, now);
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

    /// Whether a worker is within these zones.
    #[must_use]
    pub fn is_within(&self, worker: WorkerId, zones: Option<Zones>) -> bool {
        let worker = self.roster.workers().get(worker.index());
        worker.is_some_and(|worker| worker.spec().place.is_within(zones))
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
        let idle = self.line.samples().find(|ticket| {
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
            optional: worker.spec().optional,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::{Claim, Work};
    use super::super::pick::Policy;
    use super::super::standing::AllDown;
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
            zones: None,
            from: None,
            path: None,
            work: Work::Embed,
            prompt: Length::Tokens(10.0),
            fills: None,
            prefix: Prefix::default(),
            max_tokens: None,
            deadline: None,
            streamed: false,
            claim: Claim::default(),
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
        assert_eq!(views[0].prefill[Work::Embed].samples, 1);
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

    #[test]
    fn a_drained_worker_is_given_nothing_whatever_else_is_left() {
        let rules = Rules {
            all_down: AllDown::TryAll,
            ..Policy::RoundRobin.into()
        };
        let spec = |name: &str| WorkerSpec::new(name, 8);
        let mut fleet = FleetState::new(vec![spec("a"), spec("b")], rules);
        let (a, b, now) = (WorkerId(0), WorkerId(1), Seconds(1.0));
        let drain = ByHand::Drain { within: None };
        let change = fleet.by_hand(a, drain, now).unwrap();
        assert_eq!((change.from, change.to), (State::Starting, State::Draining));
        assert_eq!(fleet.candidates(&ask(), &[]), [b]);
        fleet.by_hand(b, drain, now);
        let refused = fleet.choose(&ask(), &[], now, &mut Rng::seeded(1));
        assert_eq!(refused.unwrap_err(), NoChoice::Down);
        let fates = fleet.considered().iter().map(|one| one.fate.label());
        assert_eq!(fates.collect::<Vec<_>>(), ["draining"; 2]);
        fleet.by_hand(b, ByHand::Resume, now);
        assert_eq!(fleet.candidates(&ask(), &[]), [b]);
        assert_eq!(fleet.check_invariants(), Ok(()));
    }

    #[test]
    fn a_speed_set_by_hand_is_where_learning_starts_from() {
        let mut fleet = fleet();
        let line = |fleet: &FleetState, id: usize| {
            fleet.snapshot(Seconds(1.0))[id].prefill[Work::Generate].line
        };
        let before = line(&fleet, 0);
        fleet.by_hand(WorkerId(0), ByHand::Speed(4.0), Seconds(1.0));
        assert!((before.at(100.0).0 / line(&fleet, 0).at(100.0).0 - 4.0).abs() < 1e-9);
        assert_eq!(line(&fleet, 1), before);
        let held = fleet.snapshot(Seconds(1.0))[0].overridden;
        assert_eq!((held.withheld, held.speed), (None, Some(4.0)));
    }

    #[test]
    fn a_speed_set_by_hand_ends_with_the_process_also_when_little_was_learned_since() {
        let after_one = |speed: Option<f64>| {
            let mut fleet = fleet();
            let hand = speed.map(ByHand::Speed);
            hand.map(|hand| fleet.by_hand(WorkerId(0), hand, Seconds(1.0)));
            let choice = fleet.choose(&ask(), &[WorkerId(1)], Seconds(1.0), &mut Rng::seeded(1));
            let answered = Outcome::Answered {
                prompt_tokens: None,
                cached_tokens: None,
                output_tokens: None,
            };
            fleet.finish(choice.unwrap().booking, answered, Seconds(1.1));
            assert_eq!(
                fleet.snapshot(Seconds(2.0))[0].prefill[Work::Embed].samples,
                1
            );
            let saved = fleet.saved(WorkerId(0)).unwrap();
            let mut next = self::fleet();
            assert!(next.recall(WorkerId(0), &saved));
            next.snapshot(Seconds(2.0))[0].prefill[Work::Embed]
        };
        assert_eq!(after_one(None).samples, 1);
        let (next, prior) = (
            after_one(Some(100.0)),
            fleet().snapshot(Seconds(2.0))[0].prefill[Work::Embed],
        );
        assert_eq!((next.samples, next.line), (0, prior.line));
    }
}
