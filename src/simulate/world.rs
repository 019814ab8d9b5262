//! The simulated world: clients, one proxy, its workers, and virtual time.
//!
//! A request's life is the proxy's own (`line.rs`, `forward/`): a place is chosen and booked, or the request stands in
//! line; it is sent, and its first and last byte come back half a round trip after they happened; an attempt that was
//! lost is judged by `decide`'s own rules and perhaps sent elsewhere. Every choice, count and verdict is made by
//! [`FleetState`] itself. What the proxy does in tasks (beats, probes, test requests) are events here, in `machines.rs`.
//!
//! Guaranteed: every request ends exactly once; the same fleet, load and seed give the same ends.
//!
//! Left out: the longest waits in line (30 s, 5 s for a retry), which only matter when nobody is alive or all are full,
//! and the timer on silent streams: one that hangs goes on when its worker does.

mod machines;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::agenda::{Agenda, Event};
use super::door::Door;
use super::fleet::{Condition, Fleet};
use super::request::{End, Request};
use super::rivals::{Arrival, Held, Rival, Sight};
use super::station::Station;
use crate::decide::{
    Booking, Choice, Ending, FleetState, NoChoice, Outcome, Permit, Policy, RetryBudget,
    RetryRules, Tally, Ticket, Verdict,
};
use crate::rng::Rng;
use crate::units::{Seconds, WorkerId};

/// How often a request is sent again at most: the configuration's default.
const EXTRA: u32 = 2;
/// So long after the last arrival whoever is not done counts as failed: a policy that is overloaded for a day is broken.
const PATIENCE: Seconds = Seconds(86_400.0);

/// Who chooses.
pub(super) enum Chooser {
    /// A policy of `decide`.
    Policy(Policy),
    /// A rule that is not ours.
    Rival(Box<dyn Rival>),
}

/// One run of a load through a fleet.
pub(super) struct World<'a> {
    fleet: &'a Fleet,
    requests: &'a [Request],
    door: Door,
    state: FleetState,
    rival: Option<Box<dyn Rival>>,
    rng: Rng,
    agenda: Agenda,
    now: Seconds,
    stations: Vec<Station>,
    held: Vec<Held>,
    changes: Vec<(Seconds, WorkerId, Condition)>,
    cases: Vec<Case>,
    attempts: Vec<Attempt>,
    line: BTreeMap<Ticket, usize>,
    budget: RetryBudget,
    arrived: usize,
    ended: usize,
}

/// A request and what has become of it.
struct Case {
    tally: Tally,
    tried: Vec<WorkerId>,
    first_token: Option<Seconds>,
    end: Option<End>,
}

/// One time that a request was sent, or a test.
struct Attempt {
    /// Whose; `None` for a test.
    request: Option<usize>,
    worker: WorkerId,
    sent: Seconds,
    /// What it is to the engine.
    job: super::engine::Job,
    /// Held until it is over.
    booking: Option<Booking>,
    /// Whether its first byte has come.
    begun: bool,
}

impl<'a> World<'a> {
    /// Before anything has happened.
    pub(super) fn new(
        fleet: &'a Fleet,
        requests: &'a [Request],
        chooser: Chooser,
        seed: u64,
    ) -> Self {
        let door = Door::of(fleet, requests);
        let (policy, rival) = match chooser {
            Chooser::Policy(policy) => (policy, None),
            // Only for whom the line lets in when everybody was full.
            Chooser::Rival(rival) => (Policy::LeastInflight, Some(rival)),
        };
        let is_ours = rival.is_none();
        let specs = fleet.members.iter();
        let specs = specs.map(|member| door.spec(member, is_ours));
        let mut state = FleetState::new(specs.collect(), policy);
        for (id, member) in (0..).zip(&fleet.members) {
            state.told(WorkerId(id), Door::told(member, fleet.cache));
            state.adapts(WorkerId(id), &door.adapters());
            state.calls(WorkerId(id), &door.models());
        }
        let case = |_: &Request| Case {
            tally: Tally::new(Permit::Everything, RetryRules::all(EXTRA)),
            tried: Vec::new(),
            first_token: None,
            end: None,
        };
        let station = |member| Station::idle(member, fleet.cache).serving(fleet.models);
        World {
            fleet,
            requests,
            door,
            state,
            rival,
            rng: Rng::seeded(seed),
            agenda: Agenda::default(),
            now: Seconds::ZERO,
            stations: fleet.members.iter().map(station).collect(),
            held: vec![Held::default(); fleet.members.len()],
            changes: fleet.changes(),
            cases: requests.iter().map(case).collect(),
            attempts: Vec::with_capacity(requests.len()),
            line: BTreeMap::new(),
            budget: RetryBudget::default(),
            arrived: 0,
            ended: 0,
        }
    }

    /// Lets everything happen; the end of each request, in their order, if it came to one.
    pub(super) fn run(mut self) -> Vec<Option<End>> {
        self.play();
        self.cases.into_iter().map(|case| case.end).collect()
    }

    fn play(&mut self) {
        self.start();
        let last = self.requests.last().map_or(Seconds::ZERO, |last| last.at);
        while self.ended < self.requests.len() {
            let Some((at, event)) = self.agenda.pop() else {
                break;
            };
            if at.0 > (last + PATIENCE).0 {
                break;
            }
            self.now = at;
            self.happen(event);
            #[cfg(test)]
            assert_eq!(self.state.check_invariants(), Ok(()), "{at:?} {event:?}");
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival => self.arrival(),
            Event::Delivery(attempt) => self.delivery(attempt),
            Event::Engine(worker, version) => self.engine(worker, version),
            Event::FirstByte(attempt) => self.first_byte(attempt),
            Event::LastByte(attempt) => self.last_byte(attempt),
            Event::Loss(attempt, ending) => self.loss(attempt, ending),
            Event::Deadline(attempt) => self.deadline(attempt),
            Event::Tokens(worker, count) => self.tokens(worker, count),
            Event::Beat => self.beat(),
            Event::Probe(worker) => self.probe(worker),
            Event::Probed(worker, passed) => self.probed(worker, passed),
            Event::Change(place) => self.change(place),
        }
    }

    fn arrival(&mut self) {
        let request = self.arrived;
        self.arrived += 1;
        if let Some(next) = self.requests.get(self.arrived) {
            self.agenda.add(next.at, Event::Arrival);
        }
        self.place(request);
    }

    /// Gives a request a place, or lets it stand in line.
    fn place(&mut self, request: usize) {
        match self.choose(request) {
            Ok(choice) => self.send(request, choice),
            Err(NoChoice::Busy | NoChoice::Away) => {
                let ask = self.door.ask(&self.requests[request]);
                match self
                    .state
                    .stand_in_line(ask, &self.cases[request].tried, self.now)
                {
                    Ok(ticket) => {
                        self.line.insert(ticket, request);
                    }
                    Err(_) => self.end(request, End::Failed),
                }
            }
            Err(_) => self.end(request, End::Failed),
        }
    }

    /// The one call that chooses, by our policy or by a rival's rule; `decide` books either way.
    fn choose(&mut self, request: usize) -> Result<Choice, NoChoice> {
        let asked = &self.requests[request];
        let tried = &self.cases[request].tried;
        let mut ask = self.door.ask(asked);
        if let Some(rival) = &mut self.rival {
            let candidates = self.state.candidates(&ask, tried);
            if !candidates.is_empty() {
                let arrival = Arrival {
                    request: asked,
                    candidates: &candidates,
                    now: self.now,
                };
                let sight = Sight {
                    stations: &self.stations,
                    held: &self.held,
                };
                ask.only = Some([rival.pick(&arrival, &sight, &mut self.rng)].into());
            }
        }
        self.state.choose(&ask, tried, self.now, &mut self.rng)
    }

    fn send(&mut self, request: usize, choice: Choice) {
        let worker = choice.worker;
        self.cases[request].tried.push(worker);
        let job = self.stations[worker.index()].job(self.attempts.len(), &self.requests[request]);
        self.dispatch(Some(request), choice, job);
    }

    fn first_byte(&mut self, attempt: usize) {
        let now = self.now;
        let Attempt {
            request,
            worker,
            job,
            booking,
            begun,
            ..
        } = &mut self.attempts[attempt];
        let Some(booking) = booking else { return };
        *begun = true;
        let (request, worker, unread) = (*request, *worker, job.prompt);
        self.state.first_byte(booking, now);
        self.held[worker.index()].unread -= unread;
        if let Some(request) = request {
            self.cases[request].first_token = Some(now - self.requests[request].at);
        }
        self.grant();
    }

    fn last_byte(&mut self, attempt: usize) {
        let Attempt {
            request,
            worker,
            sent,
            job,
            ..
        } = self.attempts[attempt];
        let Some(()) = self.finish(attempt, Door::answered(&job)) else {
            return;
        };
        if let Some(rival) = &mut self.rival {
            rival.answered(worker, self.now - sent, self.now);
        }
        if let Some(request) = request {
            let total = self.now - self.requests[request].at;
            let end = End::Answered {
                first_token: self.cases[request].first_token.unwrap_or(total),
                total,
                cached: job.cached,
            };
            self.end(request, end);
        }
        self.grant();
    }

    /// An attempt is lost: with a first byte shown to the client for good, else perhaps not.
    fn loss(&mut self, attempt: usize, ending: Ending) {
        let Attempt { request, begun, .. } = self.attempts[attempt];
        let outcome = match ending {
            Ending::Refused => Outcome::Refused,
            Ending::Reset => Outcome::Lost,
            _ => Outcome::Failed,
        };
        let Some(()) = self.finish(attempt, outcome) else {
            return;
        };
        if let Some(request) = request {
            let live = self.arrived - self.ended;
            let tally = &mut self.cases[request].tally;
            let again =
                !begun && tally.verdict(ending, live, &mut self.budget) == Verdict::Elsewhere;
            if again {
                self.place(request);
            } else {
                self.end(request, End::Failed);
            }
        }
        self.grant();
    }

    /// Gives an attempt's place back, once; `None` when it was given back before.
    fn finish(&mut self, attempt: usize, outcome: Outcome) -> Option<()> {
        let Attempt {
            worker,
            job,
            booking,
            begun,
            ..
        } = &mut self.attempts[attempt];
        let booking = booking.take()?;
        let held = &mut self.held[worker.index()];
        held.requests -= 1;
        if !*begun {
            held.unread -= job.prompt;
        }
        self.state.finish(booking, outcome, self.now);
        Some(())
    }

    /// Whoever waits and can be served now is.
    fn grant(&mut self) {
        for grant in self.state.grants(self.now, &mut self.rng) {
            let Some(request) = self.line.remove(&grant.ticket) else {
                continue;
            };
            match grant.result {
                Ok(choice) => self.send(request, choice),
                Err(_) => self.end(request, End::Failed),
            }
        }
    }

    fn end(&mut self, request: usize, end: End) {
        let case = &mut self.cases[request];
        debug_assert_eq!(case.end, None, "request {request} ends twice");
        if case.tally.is_budgeted() {
            self.budget.end();
        }
        case.end = Some(end);
        self.ended += 1;
    }
}
