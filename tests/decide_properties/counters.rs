//! Whatever happens to requests and workers, every request is counted once.
//!
//! A random history of arrivals, first bytes, ends of every kind and workers that die and come back is played to the
//! fleet and to a plain tally beside it. The two must agree after every step, and at the end nothing is left. Meanwhile
//! engines change their minds about how long a prompt they take, and nobody is given one that is longer.

use forebay::decide::{
    Ask, Booking, Choice, FleetState, NoChoice, Outcome, Policy, State, Ticket, Told, Work,
};
use forebay::rng::Rng;
use forebay::units::{Length, Seconds, WorkerId};

use crate::{ask, spec};

const REQUESTS: usize = 1_000;
const WORKERS: u32 = 3;

/// One history under way.
struct History {
    fleet: FleetState,
    rng: Rng,
    now: Seconds,
    held: Vec<Held>,
    waiting: Vec<(Ticket, Ask)>,
    /// Which life each worker is in.
    lives: Vec<u32>,
    /// The context of each worker.
    contexts: Vec<f64>,
    arrived: usize,
    /// Lose every hundredth booking instead of finishing it.
    careless: bool,
}

/// A request that holds a place on a worker.
struct Held {
    booking: Booking,
    /// The life of the worker that it belongs to.
    life: u32,
    /// Whether its tokens stream, once it has begun.
    streams: bool,
    begun: bool,
}

impl History {
    fn new(seed: u64, policy: Policy, careless: bool) -> Self {
        let specs = (0..WORKERS).map(|id| {
            let models: &[&str] = if id == 0 { &["m"] } else { &["m", "n"] };
            spec(&format!("worker-{id}"), models, 4 + id)
        });
        let mut fleet = FleetState::new(specs.collect(), policy);
        let told = Told {
            kv_tokens: Some(800.0),
            ..Told::default()
        };
        fleet.told(WorkerId(1), told);
        History {
            fleet,
            rng: Rng::seeded(seed),
            now: Seconds::ZERO,
            held: Vec::new(),
            waiting: Vec::new(),
            lives: vec![0; WORKERS as usize],
            contexts: vec![f64::INFINITY; WORKERS as usize],
            arrived: 0,
            careless,
        }
    }

    fn play(mut self) -> Result<(), String> {
        while self.arrived < REQUESTS {
            self.now += Seconds(self.rng.unit() * 0.02);
            match self.rng.below(11) {
                0..=3 => self.arrive(),
                4 => self.begin(),
                5..=7 => self.end(),
                8 => self.give_up(),
                9 => self.tell(),
                _ => self.probe(),
            }
            self.compare()?;
        }
        while !self.held.is_empty() || !self.waiting.is_empty() {
            self.end();
            self.give_up();
            self.compare()?;
        }
        Ok(())
    }

    fn arrive(&mut self) {
        self.arrived += 1;
        let work = [Work::Generate, Work::Embed][self.rng.below(2)];
        let mut ask = ask(["m", "n"][self.rng.below(2)], work, 500.0 * self.rng.unit());
        ask.streamed = self.rng.below(2) == 0;
        ask.fills = Some(ask.prompt);
        match self.fleet.choose(&ask, &[], self.now, &mut self.rng) {
            Ok(choice) => self.hold(choice, &ask),
            Err(NoChoice::Busy | NoChoice::Away) => {
                let ticket = self
                    .fleet
                    .stand_in_line(ask.clone(), &[], self.now)
                    .unwrap();
                self.waiting.push((ticket, ask));
            }
            Err(NoChoice::Down | NoChoice::TooLong { .. }) => {}
            Err(unknown) => panic!("{unknown:?}"),
        }
    }

    fn hold(&mut self, choice: Choice, ask: &Ask) {
        let context = self.contexts[choice.worker.index()];
        let Length::Tokens(prompt) = ask.prompt else {
            panic!("{ask:?}")
        };
        assert!(prompt <= context, "{prompt} tokens where {context} fit");
        self.held.push(Held {
            booking: choice.booking,
            life: self.lives[choice.worker.index()],
            streams: ask.streamed && ask.work == Work::Generate,
            begun: false,
        });
    }

    /// Somebody's first byte comes, and a few tokens.
    fn begin(&mut self) {
        let place = self.rng.below(self.held.len());
        if let Some(held) = self.held.get_mut(place) {
            held.begun = true;
            self.fleet.first_byte(&mut held.booking, self.now);
            let tokens = self.rng.unit() * 30.0;
            self.fleet.tokens(held.booking.worker(), tokens, self.now);
            self.grant();
        }
    }

    /// Somebody's request ends, in some way, before or after its first byte.
    fn end(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.rng.below(self.held.len());
        let Held { booking, life, .. } = self.held.swap_remove(place);
        // Nobody misses the booking of an earlier life.
        let counts = life == self.lives[booking.worker().index()];
        if self.careless && counts && self.rng.below(100) == 0 {
            return;
        }
        let outcomes = [
            Outcome::Gone,
            Outcome::Gone,
            Outcome::Failed,
            Outcome::Unsent,
            Outcome::Refused,
            Outcome::Busy { retry_after: None },
            Outcome::Rejected,
            Outcome::Answered {
                prompt_tokens: None,
                cached_tokens: None,
                output_tokens: Some(f64::NAN),
            },
            Outcome::Answered {
                prompt_tokens: Some(300.0),
                cached_tokens: None,
                output_tokens: Some(40.0),
            },
        ];
        let outcome = outcomes[self.rng.below(outcomes.len())];
        self.fleet.finish(booking, outcome, self.now);
        self.grant();
    }

    /// Somebody in line leaves; a second time must not matter.
    fn give_up(&mut self) {
        if !self.waiting.is_empty() {
            let (ticket, _) = self.waiting.swap_remove(self.rng.below(self.waiting.len()));
            self.fleet.leave_line(ticket, self.now);
            self.fleet.leave_line(ticket, self.now);
            self.grant();
        }
    }

    /// Somebody is probed; whoever was out comes back when its time is over.
    fn probe(&mut self) {
        self.fleet.tick(self.now);
        let id = u32::try_from(self.rng.below(WORKERS as usize)).unwrap();
        let verdict = if self.rng.below(3) == 0 {
            Err("no answer".to_owned())
        } else {
            Ok(())
        };
        let change = self.fleet.probe(WorkerId(id), verdict, self.now);
        if change.is_some_and(|change| change.to == State::Down) {
            self.lives[id as usize] += 1;
        }
        self.grant();
    }

    /// Somebody's engine tells another context.
    fn tell(&mut self) {
        let id = self.rng.below(WORKERS as usize);
        let context = [100.0, 300.0, f64::INFINITY][self.rng.below(3)];
        self.contexts[id] = context;
        let told = Told {
            kv_tokens: (id == 1).then_some(800.0),
            context: Some(context),
            ..Told::default()
        };
        self.fleet.told(WorkerId(u32::try_from(id).unwrap()), told);
        self.grant();
    }

    fn grant(&mut self) {
        for grant in self.fleet.grants(self.now, &mut self.rng) {
            let place = self.waiting.iter().position(|(t, _)| *t == grant.ticket);
            let (_, ask) = self.waiting.swap_remove(place.unwrap());
            match grant.result {
                Ok(choice) => self.hold(choice, &ask),
                Err(NoChoice::Down | NoChoice::TooLong { .. }) => {}
                Err(refusal) => panic!("{refusal:?}"),
            }
        }
    }

    /// The fleet's counters against the tally of those who hold a place.
    fn compare(&self) -> Result<(), String> {
        self.fleet.check_invariants()?;
        if self.fleet.waiting() != self.waiting.len() {
            return Err("the line has lost count".into());
        }
        for view in self.fleet.snapshot(self.now) {
            let here = |held: &&Held| {
                let worker = held.booking.worker();
                worker == view.id && held.life == self.lives[worker.index()]
            };
            let here: Vec<&Held> = self.held.iter().filter(here).collect();
            let queued = here.iter().filter(|held| !held.begun).count();
            let decoding = here.iter().filter(|held| held.begun && held.streams);
            let tally = [here.len(), queued, decoding.count()];
            let counted = [view.inflight, view.queued, view.decoding].map(|n| n as usize);
            if counted != tally {
                return Err(format!(
                    "{}: {counted:?} counted, {tally:?} held",
                    view.name
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn every_request_is_counted_once_however_it_ends() {
    let policies = [
        Policy::LeastTime,
        Policy::RoundRobin,
        Policy::LeastInflight,
        Policy::Random,
        Policy::Weighted,
    ];
    for (seed, policy) in (0..32).zip(policies.into_iter().cycle()) {
        History::new(seed, policy, false)
            .play()
            .unwrap_or_else(|error| panic!("seed {seed}, {policy:?}: {error}"));
    }
}

/// Negative control: bookings that are dropped without being finished must be noticed.
#[test]
fn a_forgotten_finish_is_caught() {
    for seed in 0..16 {
        History::new(seed, Policy::LeastTime, true)
            .play()
            .unwrap_err();
    }
}

#[test]
fn a_restarted_worker_neither_goes_negative_nor_keeps_ghosts() {
    let mut rng = Rng::seeded(1);
    let now = Seconds(1.0);
    let mut fleet = FleetState::new(vec![spec("only", &["m"], 4)], Policy::LeastTime);
    let mut book = |fleet: &mut FleetState| {
        let ask = ask("m", Work::Generate, 100.0);
        fleet.choose(&ask, &[], now, &mut rng).unwrap().booking
    };
    let mut old: Vec<Booking> = (0..3).map(|_| book(&mut fleet)).collect();
    fleet.first_byte(&mut old[0], now);
    let only = WorkerId(0);
    let down = fleet.probe(only, Err("connection refused".into()), now);
    assert_eq!(down.unwrap().reason.as_deref(), Some("connection refused"));
    fleet.probe(only, Ok(()), now);
    assert!(fleet.probe(only, Ok(()), now).is_some());

    let mut first = book(&mut fleet);
    fleet.first_byte(&mut first, now);
    let new = [first, book(&mut fleet)];
    let before = fleet.snapshot(now);
    for mut booking in old {
        fleet.first_byte(&mut booking, Seconds(9.0));
        fleet.finish(booking, Outcome::Failed, Seconds(9.0));
    }
    let after = fleet.snapshot(now);
    assert_eq!(
        (after[0].inflight, after[0].queued, after[0].decoding),
        (2, 1, 1)
    );
    assert_eq!(
        after[0].prefill[forebay::decide::Work::Generate],
        before[0].prefill[forebay::decide::Work::Generate]
    );
    assert_eq!(after[0].failed, 3);
    for booking in new {
        fleet.finish(booking, Outcome::Gone, now);
    }
    assert_eq!(fleet.snapshot(now)[0].inflight, 0);
    fleet.check_invariants().unwrap();
}
