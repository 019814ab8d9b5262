//! What it costs to place a request: choose and book, first byte, finish, and asking the line who is next.
//!
//! Every worker holds eight requests all the while, half of them streaming, so that prices have all their terms; a
//! prompt is the next turn of one of a thousand sessions, whose beginning some worker has. Prints the median and the
//! slowest of the rounds per request, and fails when a median is over its budget. Standard library only: one number per
//! fleet size needs no harness.
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::decide::{Ask, Booking, Claim, FleetState, Outcome, Policy, Work, WorkerSpec};
use forebay::facts::Prefix;
use forebay::rng::Rng;
use forebay::units::{Length, ModelName, Seconds};

/// Workers, and the most a request may cost there.
const BUDGETS: [(u32, Duration); 3] = [
    (2, Duration::from_micros(10)),
    (8, Duration::from_micros(10)),
    (200, Duration::from_micros(50)),
];
const ROUNDS: usize = 21;
const REQUESTS: u32 = 5_000;
const HELD: usize = 8;
const SESSIONS: usize = 1_000;

/// A fleet under steady load.
struct Bench {
    fleet: FleetState,
    rng: Rng,
    ask: Ask,
    now: Seconds,
    held: VecDeque<Booking>,
}

impl Bench {
    fn new(workers: u32) -> Self {
        let model = ModelName::new("model");
        let spec = |id| WorkerSpec {
            models: vec![model.clone()],
            speed: Some(1.0 + f64::from(id % 5)),
            rise: 2,
            fall: 3,
            ..WorkerSpec::new(&format!("worker-{id}"), 64)
        };
        let mut bench = Bench {
            fleet: FleetState::new((0..workers).map(spec).collect(), Policy::LeastTime),
            rng: Rng::seeded(1),
            ask: Ask {
                model: Some(model.clone()),
                only: None,
                zones: None,
                from: None,
                path: None,
                work: Work::Generate,
                prompt: Length::Tokens(700.0),
                fills: None,
                prefix: Prefix {
                    blocks: Arc::default(),
                    each: Length::Tokens(256.0),
                },
                max_tokens: Some(256),
                deadline: None,
                streamed: true,
                claim: Claim::default(),
            },
            now: Seconds::ZERO,
            held: VecDeque::new(),
        };
        while bench.held.len() < workers as usize * HELD {
            bench.place();
        }
        bench
    }

    fn place(&mut self) {
        self.now += Seconds(0.000_1);
        self.turn();
        let choice = self
            .fleet
            .choose(black_box(&self.ask), &[], self.now, &mut self.rng);
        if let Ok(choice) = choice {
            self.held.push_back(choice.booking);
        }
    }

    /// The prompt of the next request: two blocks.
    fn turn(&mut self) {
        let session = self.rng.below(SESSIONS) as u64;
        self.ask.prefix.blocks = [2, 3].map(|block| session << 8 | block).into();
    }

    /// One request comes, an earlier one gets its first byte, the oldest ends.
    fn request(&mut self) {
        self.place();
        let middle = self.held.len() / 2;
        if let Some(booking) = self.held.get_mut(middle) {
            self.fleet.first_byte(booking, self.now);
        }
        if let Some(booking) = self.held.pop_front() {
            let outcome = Outcome::Answered {
                prompt_tokens: Some(700.0),
                cached_tokens: None,
                output_tokens: Some(120.0),
            };
            self.fleet.finish(booking, outcome, self.now);
        }
        black_box(self.fleet.grants(self.now, &mut self.rng));
    }

    /// Each round's time per request, the fastest first.
    fn measure(&mut self) -> Vec<Duration> {
        let mut rounds: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                (0..REQUESTS).for_each(|_| self.request());
                start.elapsed() / REQUESTS
            })
            .collect();
        rounds.sort_unstable();
        rounds
    }
}

fn main() -> ExitCode {
    println!("workers     median    slowest     budget   (per request)");
    let mut kept = true;
    for (workers, budget) in BUDGETS {
        let rounds = Bench::new(workers).measure();
        let (median, slowest) = (rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
        println!("{workers:7} {median:>10.2?} {slowest:>10.2?} {budget:>10.2?}");
        kept &= median <= budget;
    }
    if kept {
        ExitCode::SUCCESS
    } else {
        println!("over budget");
        ExitCode::FAILURE
    }
}
