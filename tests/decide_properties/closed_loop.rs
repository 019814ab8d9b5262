//! A fixed number of clients, each of which asks again as soon as it is answered, through the fleet to machines.

use forebay::decide::{
    Ask, Booking, Choice, FleetState, Heard, Load as Told, NoChoice, Outcome, Policy, Ticket, Work,
};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::machine::{Job, Machine, Make, Seen};
use crate::{ask, spec};

/// How the clients behave.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What they ask for.
    pub work: Work,
    /// Whether they want tokens as they come.
    pub streamed: bool,
    /// How many they are.
    pub clients: usize,
    /// The most requests that a worker is given.
    pub cap: u32,
    /// The shortest and the longest prompt.
    pub prompts: [f64; 2],
    /// The shortest and the longest answer, for work that generates.
    pub outputs: [u32; 2],
}

/// A request that was placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placed {
    /// On which worker.
    pub worker: usize,
    /// Its prompt tokens.
    pub prompt: f64,
}

/// The whole experiment.
pub struct ClosedLoop {
    pub fleet: FleetState,
    machines: Vec<Machine>,
    load: Load,
    rng: Rng,
    now: f64,
    bookings: Vec<Option<Booking>>,
    wanted: Vec<Wanted>,
    waiting: Vec<(Ticket, usize)>,
    placed: Vec<Placed>,
    tells: Option<Tells>,
    told: f64,
}

/// What a worker, by its number, says of its load when this is the truth.
pub type Tells = fn(usize, Told) -> Told;

/// What a client's present request will turn out to be.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    prompt: f64,
    output: u32,
}

impl ClosedLoop {
    /// Machines of these makes, a policy and clients that have not asked yet.
    pub fn new(makes: &[Make], policy: Policy, load: Load, seed: u64) -> Self {
        let specs = (0..makes.len()).map(|id| spec(&format!("worker-{id}"), &["m"], load.cap));
        ClosedLoop {
            fleet: FleetState::new(specs.collect(), policy),
            machines: makes.iter().copied().map(Machine::new).collect(),
            load,
            rng: Rng::seeded(seed),
            now: 0.0,
            bookings: (0..load.clients).map(|_| None).collect(),
            wanted: vec![Wanted::default(); load.clients],
            waiting: Vec::new(),
            placed: Vec::new(),
            tells: None,
            told: 0.0,
        }
    }

    /// Workers tell their load each second from here on, or no more.
    pub fn tell(&mut self, tells: Option<Tells>) {
        self.tells = tells;
    }

    /// So many streams of others share a worker from here on.
    pub fn share(&mut self, worker: usize, others: usize) {
        self.machines[worker].shared_with(others);
    }

    /// The time.
    pub fn now(&self) -> Seconds {
        Seconds(self.now)
    }

    /// Runs until this many requests were placed. Returns them in order.
    pub fn run(&mut self, requests: usize) -> Vec<Placed> {
        if self.placed.is_empty() {
            (0..self.load.clients).for_each(|client| self.arrive(client));
        }
        while self.placed.len() < requests {
            let (worker, now) = (0..)
                .zip(self.machines.iter().map(Machine::next))
                .min_by(|one, other| one.1.total_cmp(&other.1))
                .expect("a machine");
            self.now = now;
            self.hear();
            for seen in self.machines[worker].step() {
                self.see(worker, seen);
            }
            self.fleet.check_invariants().unwrap();
        }
        self.placed.clone()
    }

    fn hear(&mut self) {
        let Some(tells) = self.tells.filter(|_| self.now >= self.told + 1.0) else {
            return;
        };
        self.told = self.now;
        for (worker, machine) in self.machines.iter().enumerate() {
            let (running, waiting) = machine.load();
            let truth = Told {
                running: Some(running as f64),
                waiting: Some(waiting as f64),
                ..Told::default()
            };
            let id = WorkerId(u32::try_from(worker).unwrap());
            let heard = Heard {
                load: tells(worker, truth),
                asked: self.fleet.ours(id),
                lasts: Seconds(1.0),
            };
            self.fleet.hear_load(id, &heard, Seconds(self.now));
        }
    }

    fn arrive(&mut self, client: usize) {
        let [shortest, longest] = self.load.prompts;
        let prompt = shortest + self.rng.unit() * (longest - shortest);
        let output = match self.load.work {
            Work::Embed | Work::Infer => 0,
            Work::Generate => {
                let [fewest, most] = self.load.outputs;
                fewest + u32::try_from(self.rng.below((most - fewest + 1) as usize)).unwrap()
            }
        };
        self.wanted[client] = Wanted { prompt, output };
        let ask = Ask {
            streamed: self.load.streamed,
            ..ask("m", self.load.work, prompt)
        };
        match self
            .fleet
            .choose(&ask, &[], Seconds(self.now), &mut self.rng)
        {
            Ok(choice) => self.send(client, choice),
            Err(NoChoice::Busy) => {
                let ticket = self
                    .fleet
                    .stand_in_line(ask, &[], Seconds(self.now))
                    .unwrap();
                self.waiting.push((ticket, client));
            }
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    fn send(&mut self, client: usize, choice: Choice) {
        let worker = choice.worker.index();
        let Wanted { prompt, output } = self.wanted[client];
        self.placed.push(Placed { worker, prompt });
        self.bookings[client] = Some(choice.booking);
        let job = Job {
            client,
            prompt,
            output,
        };
        self.machines[worker].take(job, self.now);
    }

    fn see(&mut self, worker: usize, seen: Seen) {
        let now = Seconds(self.now);
        let job = match seen {
            Seen::First(job) => {
                if self.load.streamed || job.output == 0 {
                    let booking = self.bookings[job.client].as_mut().expect("a booking");
                    self.fleet.first_byte(booking, now);
                }
                job
            }
            Seen::Token(job) => {
                if self.load.streamed {
                    let id = WorkerId(u32::try_from(worker).unwrap());
                    self.fleet.tokens(id, 1.0, now);
                }
                job
            }
        };
        if job.output == 0 {
            self.complete(job.client);
        }
    }

    fn complete(&mut self, client: usize) {
        let now = Seconds(self.now);
        let booking = self.bookings[client].take().expect("a booking");
        let Wanted { prompt, output } = self.wanted[client];
        let outcome = Outcome::Answered {
            prompt_tokens: Some(prompt),
            cached_tokens: None,
            output_tokens: (output > 0).then(|| f64::from(output)),
        };
        self.fleet.finish(booking, outcome, now);
        for grant in self.fleet.grants(now, &mut self.rng) {
            let place = self.waiting.iter().position(|(t, _)| *t == grant.ticket);
            let (_, granted) = self.waiting.remove(place.expect("a ticket of ours"));
            self.send(granted, grant.result.unwrap());
        }
        self.arrive(client);
    }
}
