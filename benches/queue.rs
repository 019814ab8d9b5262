//! What it costs to stand in line: joining it, and being served, while so many wait.
//!
//! One worker of one place, so that everybody waits, for one of two models. Either no request suits a place better than
//! another, or they are of a thousand sessions whose beginnings the worker's cache may have, so that looking ahead has
//! something to find. A line of each length is filled and kept so long: each round one joins, is told its place and one is
//! served, and all three are timed. Prints the medians of the rounds. Serving looks at one tenant of each kind of request and
//! at a few requests behind it, so what it costs grows with how far these lie apart in memory.
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::decide::{
    Ask, Booking, Claim, FleetState, LineRules, Outcome, Policy, Rules, Work, WorkerSpec,
};
use forebay::facts::Prefix;
use forebay::rng::Rng;
use forebay::units::{Length, ModelName, Seconds};

const LENGTHS: [usize; 3] = [100, 10_000, 100_000];
const TENANTS: [usize; 3] = [1, 10, 100];
const MODELS: [&str; 2] = ["one", "other"];
const ROUNDS: usize = 4_001;
/// The blocks of 256 tokens of a session's prompt.
const BLOCKS: u64 = 8;

/// A line in front of a worker that is never idle.
struct Bench {
    fleet: FleetState,
    rng: Rng,
    now: Seconds,
    held: Option<Booking>,
    tenants: usize,
    sessions: bool,
}

impl Bench {
    fn new(waiting: usize, tenants: usize, sessions: bool) -> Self {
        let spec = WorkerSpec {
            models: MODELS.map(ModelName::new).into(),
            ..WorkerSpec::new("w", 1)
        };
        let line = LineRules {
            entries: usize::MAX,
            bytes: u64::MAX,
            ..LineRules::default()
        };
        let rules = Rules {
            line,
            ..Policy::LeastTime.into()
        };
        let mut bench = Bench {
            fleet: FleetState::new(vec![spec], rules),
            rng: Rng::seeded(1),
            now: Seconds(1.0),
            held: None,
            tenants,
            sessions,
        };
        let first = bench.ask();
        let choice = bench.fleet.choose(&first, &[], bench.now, &mut bench.rng);
        bench.held = choice.ok().map(|choice| choice.booking);
        for _ in 0..waiting {
            bench.join();
        }
        bench
    }

    fn ask(&mut self) -> Ask {
        let session = self.rng.below(1_000) as u64;
        let blocks: Arc<[u64]> = if self.sessions {
            (0..BLOCKS).map(|at| session * BLOCKS + at).collect()
        } else {
            Arc::default()
        };
        Ask {
            model: Some(ModelName::new(MODELS[self.rng.below(2)])),
            only: None,
            zones: None,
            from: None,
            path: None,
            work: Work::Generate,
            prompt: Length::Tokens(2_200.0),
            fills: None,
            prefix: Prefix {
                blocks,
                each: Length::Tokens(256.0),
            },
            max_tokens: Some(256),
            deadline: None,
            streamed: true,
            claim: Claim {
                class: 0,
                tenant: self.rng.below(self.tenants) as u32,
                bytes: 1_000,
            },
        }
    }

    /// One more waits. How long that took, and to find its place.
    fn join(&mut self) -> (Duration, Duration) {
        let ask = self.ask();
        self.now += Seconds(1e-5);
        let start = Instant::now();
        let ticket = self.fleet.stand_in_line(black_box(ask), &[], self.now);
        let joined = start.elapsed();
        let place = ticket.map(|ticket| self.fleet.position(ticket, self.now));
        black_box(place).ok();
        (joined, start.elapsed() - joined)
    }

    /// The place is freed, and goes to the next. How long it took to find that one and to give it the place.
    fn serve(&mut self) -> Duration {
        if let Some(booking) = self.held.take() {
            self.fleet.finish(booking, Outcome::Gone, self.now);
        }
        let start = Instant::now();
        let mut grants = self.fleet.grants(black_box(self.now), &mut self.rng);
        let took = start.elapsed();
        let choice = grants.pop().and_then(|grant| grant.result.ok());
        self.held = choice.map(|choice| choice.booking);
        took
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    println!("waiting tenants sessions       join      place      serve   (medians)");
    for sessions in [false, true] {
        for (waiting, tenants) in LENGTHS
            .into_iter()
            .flat_map(|waiting| TENANTS.map(|one| (waiting, one)))
        {
            let mut bench = Bench::new(waiting, tenants, sessions);
            let rounds: Vec<_> = (0..ROUNDS).map(|_| (bench.join(), bench.serve())).collect();
            let (arrivals, serves): (Vec<_>, _) = rounds.into_iter().unzip();
            let (joins, places) = arrivals.into_iter().unzip();
            let [join, place, serve] = [joins, places, serves].map(median);
            println!(
                "{waiting:7} {tenants:7} {sessions:8} {join:>10.2?} {place:>10.2?} {serve:>10.2?}"
            );
        }
    }
}
