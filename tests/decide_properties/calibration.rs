//! The fastest worker becomes slow and is well again: clients leave it soon, and it gets its share back, because test
//! requests go where no client is sent.
//!
//! Clients come at random, few enough for one machine: nobody is sent to a machine that is known to be slow because the
//! other is full. Its share is what it had in the time before; a fair share of two equal machines would say nothing here,
//! because one that is a little dearer rightly gets nearly nothing at so little load.
//!
//! Negative control: without tests it mostly does not come back. But for two chats a second: clients that find the other
//! machine busy then try it by themselves.

use forebay::decide::{Ask, Booking, FleetState, Outcome, Policy, Test, Tests, Work, WorkerSpec};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::machine::{Job, Machine, Make, Seen};
use crate::{ask, spec};

const SEEDS: u64 = 16;
/// The fleet looks whether tests are due this often.
const BEAT: f64 = 0.2;
/// How many times as fast as the second the first machine is,
const FASTER: f64 = 1.25;
/// when it becomes slow and when it is well again,
const SLOW: f64 = 60.0;
const WELL: f64 = 120.0;
/// and how much slower it is meanwhile.
const SLOWDOWN: f64 = 5.0;
/// The times in which shares are counted: once speeds are learned, once the slow-down is, once the recovery is.
const BEFORE: [f64; 2] = [20.0, SLOW];
const MEANWHILE: [f64; 2] = [SLOW + 10.0, WELL];
const AFTER: [f64; 2] = [WELL + 120.0, WELL + 180.0];

/// What clients ask, and how many a second.
#[derive(Clone, Copy, Debug)]
struct Load {
    work: Work,
    rate: f64,
}

const EMBED: Load = Load {
    work: Work::Embed,
    rate: 10.0,
};
const LOADS: [Load; 4] = [
    EMBED,
    Load { rate: 1.0, ..EMBED },
    Load {
        work: Work::Generate,
        rate: 1.0,
    },
    Load {
        work: Work::Generate,
        rate: 2.0,
    },
];

impl Load {
    fn ask(self, prompt: f64) -> Ask {
        let embeds = self.work == Work::Embed;
        Ask {
            path: embeds.then_some("/v1/embeddings"),
            streamed: !embeds,
            ..ask("m", self.work, prompt)
        }
    }
}

/// Two machines, and the requests they were given.
struct Experiment {
    fleet: FleetState,
    machines: [Machine; 2],
    load: Load,
    rng: Rng,
    held: Vec<Option<Booking>>,
    /// When clients' requests were placed, and whether on the first machine.
    placed: Vec<(f64, bool)>,
    tests: Vec<f64>,
}

impl Experiment {
    fn new(load: Load, tests: Tests, seed: u64) -> Self {
        let worker = |name| WorkerSpec {
            tests,
            ..spec(name, &["m"], 16)
        };
        let mut fleet = FleetState::new(vec![worker("a"), worker("b")], Policy::LeastTime);
        for id in [0, 1] {
            (0..2).for_each(|_| drop(fleet.probe(WorkerId(id), Ok(()), Seconds::ZERO)));
        }
        Experiment {
            fleet,
            machines: [FASTER, 1.0].map(|speed| Machine::new(Make::PLAIN.faster(speed))),
            load,
            rng: Rng::seeded(seed),
            held: Vec::new(),
            placed: Vec::new(),
            tests: Vec::new(),
        }
    }

    /// Lets clients come until they stop and the beat go on until the end.
    fn run(&mut self, clients_stop: f64, end: f64) {
        let (mut arrival, mut beat) = (0.0_f64, 0.0_f64);
        loop {
            let steps = self.machines.each_ref().map(Machine::next);
            let now = steps.into_iter().fold(beat.min(arrival), f64::min);
            if now >= end {
                return;
            }
            if now == arrival {
                self.arrive(now);
                let gap = -(1.0 - self.rng.unit()).ln() / self.load.rate;
                arrival = Some(now + gap)
                    .filter(|next| *next < clients_stop)
                    .unwrap_or(f64::INFINITY);
            } else if now == beat {
                self.beat(now);
                beat += BEAT;
            } else {
                let machine = usize::from(steps[0] > now);
                for seen in self.machines[machine].step() {
                    self.see(machine, seen, Seconds(now));
                }
            }
            self.fleet.check_invariants().unwrap();
        }
    }

    fn arrive(&mut self, now: f64) {
        let prompt = 180.0 + self.rng.unit() * 40.0;
        let asked = self.load.ask(prompt);
        let choice = self.fleet.choose(&asked, &[], Seconds(now), &mut self.rng);
        let choice = choice.expect("room on one of two");
        let output = match self.load.work {
            Work::Embed | Work::Infer => 0,
            Work::Generate => 20,
        };
        self.placed.push((now, choice.worker.index() == 0));
        self.send(choice.booking, prompt, output, now);
    }

    fn beat(&mut self, now: f64) {
        let slowed = (SLOW..WELL).contains(&now);
        let speed = if slowed { FASTER / SLOWDOWN } else { FASTER };
        self.machines[0].becomes(Make::PLAIN.faster(speed));
        for id in [0, 1] {
            self.fleet.tokens(WorkerId(id), 0.0, Seconds(now));
        }
        for Test {
            work,
            prompt,
            choice,
            ..
        } in self.fleet.begin_tests(Seconds(now))
        {
            self.tests.push(now);
            let output = if work == Work::Embed { 0 } else { 4 };
            self.send(choice.booking, prompt, output, now);
        }
    }

    fn send(&mut self, booking: Booking, prompt: f64, output: u32, now: f64) {
        let machine = booking.worker().index();
        let client = self.held.len();
        self.held.push(Some(booking));
        let job = Job {
            client,
            prompt,
            output,
        };
        self.machines[machine].take(job, now);
    }

    fn see(&mut self, machine: usize, seen: Seen, now: Seconds) {
        let job = match seen {
            Seen::First(job) => {
                let booking = self.held[job.client].as_mut().expect("a booking");
                self.fleet.first_byte(booking, now);
                job
            }
            Seen::Token(job) => {
                let id = WorkerId(u32::try_from(machine).unwrap());
                self.fleet.tokens(id, 1.0, now);
                job
            }
        };
        if job.output == 0 {
            let booking = self.held[job.client].take().expect("a booking");
            let outcome = Outcome::Answered {
                prompt_tokens: None,
                cached_tokens: None,
                output_tokens: None,
            };
            self.fleet.finish(booking, outcome, now);
        }
    }

    /// The share of the first machine between two times.
    #[expect(clippy::cast_precision_loss, reason = "some hundred requests")]
    fn share(&self, [from, to]: [f64; 2]) -> f64 {
        let within: Vec<_> = self
            .placed
            .iter()
            .filter(|(at, _)| (from..to).contains(at))
            .collect();
        within.iter().filter(|(_, first)| *first).count() as f64 / within.len() as f64
    }
}

/// The share of the first machine before, while it is slow, and after.
fn shares(load: Load, tests: Tests, seed: u64) -> [f64; 3] {
    let mut experiment = Experiment::new(load, tests, seed);
    experiment.run(f64::INFINITY, AFTER[1]);
    [BEFORE, MEANWHILE, AFTER].map(|times| experiment.share(times))
}

#[test]
fn a_worker_that_is_slow_is_left_and_well_again_gets_its_share_back_within_two_minutes() {
    for load in LOADS {
        for seed in 0..SEEDS {
            let [before, meanwhile, after] = shares(load, Tests::MadeUp, seed);
            assert!(before > 0.5, "seed {seed}, {load:?}: {before:.2}");
            assert!(meanwhile <= 0.4, "seed {seed}, {load:?}: {meanwhile:.2}");
            let back = after / before;
            assert!(back >= 0.8, "seed {seed}, {load:?}: {back:.2}");
        }
    }
}

#[test]
fn without_tests_it_does_not() {
    for load in &LOADS[..3] {
        let runs = (0..SEEDS).map(|seed| shares(*load, Tests::Off, seed));
        let [before, after] = runs.fold([0.0, 0.0], |sums, [before, _, after]| {
            [sums[0] + before, sums[1] + after]
        });
        let back = after / before;
        assert!(back < 0.5, "{load:?}: {back:.2}");
    }
}

#[test]
fn nobody_is_tested_once_no_client_has_asked_for_five_minutes() {
    let mut experiment = Experiment::new(EMBED, Tests::MadeUp, 1);
    experiment.run(20.0, 900.0);
    let last = experiment.tests.last().copied().unwrap();
    assert!((280.0..=320.2).contains(&last), "{last}");
    let picks: u64 = experiment
        .fleet
        .snapshot(Seconds(900.0))
        .iter()
        .map(|view| view.picks)
        .sum();
    assert_eq!(picks, experiment.placed.len() as u64);
}
