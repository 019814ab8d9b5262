//! What prefix knowledge costs: hashing a prompt, looking it up, and keeping what was sent where.
//!
//! Prints the median of the rounds and fails when one is over its budget: 2 GB/s for hashing, 5 µs for looking up a
//! prompt of 32,000 tokens that several workers hold, and the index's bound under ten million inserts. Standard library
//! only.
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use forebay::decide::{Matches, PrefixIndex};
use forebay::facts::{self, Salt};
use forebay::rng::Rng;
use forebay::units::WorkerId;

/// Many short rounds: whatever else runs on the machine then spoils few of them.
const ROUNDS: usize = 201;
/// 32,000 tokens of four bytes in blocks of 1 KiB.
const BLOCKS: usize = 125;
const WORKERS: [u32; 2] = [8, 200];
const LEAST_HASHED: f64 = 2e9;
const MOST_LOOKING: Duration = Duration::from_micros(5);
const INSERTS: usize = 10_000_000;

/// The median time of a call, of which each round makes so many.
fn median(calls: u32, mut call: impl FnMut()) -> Duration {
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| call());
            start.elapsed() / calls
        })
        .collect();
    rounds.sort_unstable();
    rounds[ROUNDS / 2]
}

/// A conversation of about so many bytes: turns of 2 KB, with a line break every 80 characters.
fn conversation(bytes: usize) -> Vec<u8> {
    let line = "The quick brown fox jumps over the lazy dog, and the sun goes down in the sea.\\n";
    let turn = |number: usize| {
        let role = ["user", "assistant"][number % 2];
        format!(
            r#"{{"role":"{role}","content":"{number} {}"}}"#,
            line.repeat(25)
        )
    };
    let turns: Vec<String> = (0..bytes / 2_000).map(turn).collect();
    format!(r#"{{"model":"m","messages":[{}]}}"#, turns.join(",")).into_bytes()
}

fn hashing() -> bool {
    let mut kept = true;
    for (size, calls) in [(8_000, 100), (128_000, 5), (1_000_000, 1)] {
        let body = conversation(size);
        let Ok(peek) = facts::peek(&body) else {
            return false;
        };
        let salt = Salt {
            model: "m",
            tenant: None,
        };
        let took = median(calls, || {
            black_box(facts::prefix(black_box(&body), &peek, salt));
        });
        let speed = body.len() as f64 / took.as_secs_f64();
        println!(
            "hash {:>9} bytes {took:>10.2?} {:>6.1} GB/s",
            body.len(),
            speed / 1e9
        );
        kept &= speed >= LEAST_HASHED;
    }
    kept
}

/// Random hashes.
fn path(rng: &mut Rng, blocks: usize) -> Vec<u64> {
    (0..blocks).map(|_| rng.below(usize::MAX) as u64).collect()
}

fn looking() -> bool {
    let mut kept = true;
    for workers in WORKERS {
        let mut rng = Rng::seeded(1);
        let mut index = PrefixIndex::new(workers as usize);
        let prompts: Vec<Vec<u64>> = (0..100).map(|_| path(&mut rng, BLOCKS)).collect();
        // Everybody holds the first, and as much as it can of others, so that nothing stays in a fast cache by chance.
        for worker in (0..workers).map(WorkerId) {
            for _ in 0..index.share() / BLOCKS {
                index.touch(worker, &path(&mut rng, BLOCKS), usize::MAX);
            }
            index.touch(worker, &prompts[0], usize::MAX);
        }
        for (worker, prompt) in (0..).zip(&prompts[1..]) {
            index.touch(WorkerId(worker % workers), prompt, usize::MAX);
            index.touch(
                WorkerId((worker + 1) % workers),
                &prompt[..BLOCKS / 2],
                usize::MAX,
            );
        }
        let mut matches = Matches::default();
        let hot = median(100, || index.look(black_box(&prompts[0]), &mut matches));
        let mut next = 0;
        let cold = median(100, || {
            next = (next + 1) % prompts.len();
            index.look(black_box(&prompts[next]), &mut matches);
        });
        let new = path(&mut rng, BLOCKS);
        let miss = median(100, || index.look(black_box(&new), &mut matches));
        let again = median(20, || {
            index.touch(WorkerId(0), black_box(&prompts[0]), usize::MAX)
        });
        println!(
            "{workers:3} workers: look up held by all {hot:.2?}, by one or two {cold:.2?}, by nobody {miss:.2?}; touch {again:.2?}"
        );
        kept &= hot.max(cold).max(miss) <= MOST_LOOKING;
    }
    kept
}

fn inserting() -> bool {
    let mut rng = Rng::seeded(2);
    let mut index = PrefixIndex::new(8);
    let start = Instant::now();
    for prompt in 0..INSERTS / BLOCKS {
        let worker = WorkerId((prompt % 8) as u32);
        index.touch(worker, &path(&mut rng, BLOCKS), usize::MAX);
    }
    let each = start.elapsed() / INSERTS as u32;
    println!(
        "{INSERTS} inserts, {each:.2?} each, {} bytes of {}",
        index.bytes(),
        PrefixIndex::MOST_BYTES
    );
    index.check().is_ok()
}

fn main() -> ExitCode {
    let kept = [hashing(), looking(), inserting()];
    if kept == [true; 3] {
        ExitCode::SUCCESS
    } else {
        println!("over budget: hashing, looking, inserting kept it {kept:?}");
        ExitCode::FAILURE
    }
}
