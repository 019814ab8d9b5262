//! What happens at the workers, and what the proxy does beside requests.

use super::super::agenda::Event;
use super::super::card::BLOCK;
use super::super::engine::{Job, Step};
use super::super::fleet::Condition;
use super::{Attempt, World};
use crate::decide::{Choice, Ending, TEST_OUTPUT, Work};
use crate::units::{Seconds, WorkerId};

/// Time between two looks of the proxy at what its workers' streams gained and at who is due for a test.
const BEAT: Seconds = Seconds(0.2);
/// Time between two probes, and how long one may take: the configuration's defaults.
const PROBE: Seconds = Seconds(2.0);
const PROBE_TIMEOUT: Seconds = Seconds(2.0);

impl World<'_> {
    /// Writes down what happens by itself.
    pub(super) fn start(&mut self) {
        for (id, _) in (0..).zip(&self.stations) {
            self.agenda.add(Seconds::ZERO, Event::Probe(WorkerId(id)));
        }
        for (place, (at, ..)) in self.changes.iter().enumerate() {
            self.agenda.add(*at, Event::Change(place));
        }
        self.agenda.add(BEAT, Event::Beat);
        if let Some(first) = self.requests.first() {
            self.agenda.add(first.at, Event::Arrival);
        }
    }

    /// Sends a request or a test to where its place is booked.
    pub(super) fn dispatch(&mut self, request: Option<usize>, choice: Choice, job: Job) {
        let attempt = self.attempts.len();
        let Choice {
            worker, booking, ..
        } = choice;
        self.attempts.push(Attempt {
            request,
            worker,
            sent: self.now,
            job,
            booking: Some(booking),
            begun: false,
        });
        let held = &mut self.held[worker.index()];
        held.requests += 1;
        held.unread += job.prompt;
        let station = &mut self.stations[worker.index()];
        station.coming.push(job);
        let arrives = self.now + station.one_way();
        self.agenda.add(arrives, Event::Delivery(attempt));
        self.agenda
            .add(self.now + self.fleet.first_byte, Event::Deadline(attempt));
    }

    pub(super) fn delivery(&mut self, attempt: usize) {
        let Attempt { worker, job, .. } = self.attempts[attempt];
        let station = &mut self.stations[worker.index()];
        station.coming.retain(|coming| coming.attempt != attempt);
        if station.condition == Condition::Dead {
            let noticed = self.now + station.one_way();
            self.agenda
                .add(noticed, Event::Loss(attempt, Ending::Refused));
        } else if self.attempts[attempt].booking.is_some() {
            station.engine.push(job, self.now);
            self.go_on(worker);
        }
    }

    /// Lets an engine begin what it can, and writes down when something happens there next.
    fn go_on(&mut self, worker: WorkerId) {
        let station = &mut self.stations[worker.index()];
        let (attempts, requests) = (&mut self.attempts, self.requests);
        while let Some(job) = station.begin_next(|attempt| match attempts[attempt].request {
            Some(request) => &requests[request].blocks,
            None => &[],
        }) {
            attempts[job.attempt].job = job;
        }
        station.version += 1;
        if let Some(next) = station.engine.next() {
            self.agenda
                .add(next, Event::Engine(worker, station.version));
        }
    }

    pub(super) fn engine(&mut self, worker: WorkerId, version: u64) {
        let station = &mut self.stations[worker.index()];
        if station.version != version {
            return;
        }
        let seen = self.now + station.one_way();
        match station.engine.step() {
            Some(Step::FirstToken(job)) => self.agenda.add(seen, Event::FirstByte(job.attempt)),
            Some(Step::Done(job)) => self.agenda.add(seen, Event::LastByte(job.attempt)),
            None => {}
        }
        self.go_on(worker);
    }

    /// A worker that has not begun to answer in time is given up on.
    pub(super) fn deadline(&mut self, attempt: usize) {
        let Attempt {
            worker,
            begun,
            ref booking,
            ..
        } = self.attempts[attempt];
        if begun || booking.is_none() {
            return;
        }
        self.stations[worker.index()]
            .engine
            .cancel(attempt, self.now);
        self.go_on(worker);
        self.loss(attempt, Ending::Timeout);
    }

    pub(super) fn tokens(&mut self, worker: WorkerId, count: f64) {
        self.state.tokens(worker, count, self.now);
    }

    /// The proxy's regular look: tokens are told, ejections end, tests begin.
    pub(super) fn beat(&mut self) {
        for (id, station) in (0..).zip(&mut self.stations) {
            let emitted = station.engine.emitted(self.now);
            let count = emitted - station.told;
            if count > 0.0 {
                station.told = emitted;
                let seen = self.now + station.one_way();
                self.agenda.add(seen, Event::Tokens(WorkerId(id), count));
            }
        }
        self.state.tick(self.now);
        for test in self.state.begin_tests(self.now) {
            let output = match test.work {
                Work::Generate => f64::from(TEST_OUTPUT),
                Work::Embed | Work::Infer => 0.0,
            };
            let job = Job {
                attempt: self.attempts.len(),
                work: test.work,
                prompt: test.prompt,
                cached: 0.0,
                output,
                blocks: ((test.prompt + output) / BLOCK).ceil(),
                adapter: self.door.adapter(&test.model),
                model: self.door.model(&test.model),
            };
            self.dispatch(None, test.choice, job);
        }
        self.grant();
        self.agenda.add(self.now + BEAT, Event::Beat);
    }

    pub(super) fn probe(&mut self, worker: WorkerId) {
        let station = &self.stations[worker.index()];
        let (passed, takes) = match station.condition {
            Condition::Runs(_) => (true, station.round_trip),
            Condition::Dead => (false, station.round_trip),
            Condition::Hung => (false, PROBE_TIMEOUT),
        };
        self.agenda
            .add(self.now + takes, Event::Probed(worker, passed));
        self.agenda
            .add(self.now + PROBE.max(takes), Event::Probe(worker));
    }

    pub(super) fn probed(&mut self, worker: WorkerId, passed: bool) {
        let verdict = if passed {
            Ok(())
        } else {
            Err("no answer".to_owned())
        };
        if passed {
            self.state
                .connected(worker, self.stations[worker.index()].round_trip);
        }
        self.state.probe(worker, verdict, self.now);
        self.grant();
    }

    /// A worker becomes slow, dies, hangs or is well again.
    pub(super) fn change(&mut self, place: usize) {
        let (_, worker, condition) = self.changes[place];
        let station = &mut self.stations[worker.index()];
        station.condition = condition;
        let noticed = self.now + station.one_way();
        match condition {
            Condition::Runs(health) => station.engine.set_health(health, self.now),
            Condition::Hung => station.engine.set_health(0.0, self.now),
            Condition::Dead => {
                station.cache.clear();
                for job in station.engine.crash(self.now) {
                    self.agenda
                        .add(noticed, Event::Loss(job.attempt, Ending::Reset));
                }
            }
        }
        self.go_on(worker);
    }
}
