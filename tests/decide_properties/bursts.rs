//! A burst onto idle workers: equals share it equally, though what was learned of each differs by noise.
//!
//! Each worker is taught by requests of its own, one after the other, whose times scatter about the same truth. Then 64
//! requests come at one moment. Nothing is typed and nothing is told: all that sets the workers apart is noise.

use forebay::decide::{Ask, FleetState, Outcome, Policy, Work};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::{ask, spec};

const WORKERS: u32 = 4;
const BURST: usize = 64;
const SEEDS: u64 = 64;

/// What is asked for, and how a worker answers it.
#[derive(Clone, Copy, Debug)]
struct Truth {
    work: Work,
    prompts: [f64; 2],
    outputs: [f64; 2],
    /// Seconds of a prompt: fixed, and per token.
    prefill: [f64; 2],
    /// Seconds of a token of an answer alone.
    token: f64,
    /// All times scatter by this share in either direction.
    noise: f64,
}

const CHAT: Truth = Truth {
    work: Work::Generate,
    prompts: [200.0, 1_000.0],
    outputs: [50.0, 200.0],
    prefill: [0.02, 0.000_2],
    token: 0.03,
    noise: 0.1,
};
/// The way is long from the end of its prompt to that of its answer, so that a little noise there weighs much.
const ESSAY: Truth = Truth {
    prompts: [50.0, 100.0],
    outputs: [400.0, 600.0],
    ..CHAT
};
const EMBEDDING: Truth = Truth {
    work: Work::Embed,
    prefill: [0.002, 0.000_01],
    ..CHAT
};

struct Burst {
    fleet: FleetState,
    rng: Rng,
    now: f64,
}

impl Burst {
    fn new(seed: u64) -> Self {
        let specs = (0..WORKERS).map(|id| spec(&format!("w{id}"), &["m"], 256));
        Burst {
            fleet: FleetState::new(specs.collect(), Policy::LeastTime),
            rng: Rng::seeded(seed),
            now: 1.0,
        }
    }

    fn within(&mut self, [least, most]: [f64; 2]) -> f64 {
        least + self.rng.unit() * (most - least)
    }

    /// One request to this worker, which is so many times as slow as the truth.
    fn teach(&mut self, worker: WorkerId, truth: Truth, slow: f64) {
        let (prompt, output) = (self.within(truth.prompts), self.within(truth.outputs));
        let ask = Ask {
            only: Some([worker].into()),
            ..ask("m", truth.work, prompt)
        };
        let choice = self
            .fleet
            .choose(&ask, &[], Seconds(self.now), &mut self.rng);
        let mut booking = choice.unwrap().booking;
        let scatter = [1.0 - truth.noise, 1.0 + truth.noise].map(|times| times * slow);
        self.now += (truth.prefill[0] + truth.prefill[1] * prompt) * self.within(scatter);
        self.fleet.first_byte(&mut booking, Seconds(self.now));
        let mut left = if truth.work == Work::Generate {
            output - 1.0
        } else {
            0.0
        };
        while left > 0.0 {
            let count = left.min(8.0);
            self.now += count * truth.token * self.within(scatter);
            self.fleet.tokens(worker, count, Seconds(self.now));
            left -= count;
        }
        let outcome = Outcome::Answered {
            prompt_tokens: Some(prompt),
            cached_tokens: None,
            output_tokens: (truth.work == Work::Generate).then_some(output),
        };
        self.fleet.finish(booking, outcome, Seconds(self.now));
        self.now += 0.1;
    }

    /// How many of a burst each worker gets.
    fn shares(&mut self, truth: Truth) -> Vec<usize> {
        let mut got = vec![0; WORKERS as usize];
        let mut held = Vec::new();
        for _ in 0..BURST {
            let ask = ask("m", truth.work, truth.prompts[1]);
            let now = Seconds(self.now);
            let choice = self.fleet.choose(&ask, &[], now, &mut self.rng).unwrap();
            got[choice.worker.index()] += 1;
            held.push(choice.booking);
        }
        self.fleet.check_invariants().unwrap();
        got
    }
}

/// The shares of a burst after so many lessons for each, of workers of which the first takes so many times as long.
fn shares(truth: Truth, lessons: usize, slow: f64, seed: u64) -> Vec<usize> {
    let mut burst = Burst::new(seed);
    for _ in 0..lessons {
        for id in 0..WORKERS {
            let slow = if id == 0 { slow } else { 1.0 };
            burst.teach(WorkerId(id), truth, slow);
        }
    }
    burst.shares(truth)
}

fn are_equal(got: &[usize]) -> bool {
    got.iter().all(|one| (15..=17).contains(one))
}

#[test]
fn equals_that_learned_under_noise_share_a_burst_equally() {
    // Few embeddings are still far from what they converge to: that is no noise.
    let cases = [
        (CHAT, 4),
        (CHAT, 20),
        (ESSAY, 4),
        (ESSAY, 20),
        (EMBEDDING, 100),
    ];
    for (truth, lessons) in cases {
        for seed in 0..SEEDS {
            let got = shares(truth, lessons, 1.0, seed);
            assert!(
                are_equal(&got),
                "seed {seed}, {lessons} of {truth:?}: {got:?}"
            );
        }
    }
}

/// Negative control: one that takes half as long again gets less, however the noise falls.
#[test]
fn a_slower_one_gets_less_of_a_burst() {
    for truth in [CHAT, ESSAY, EMBEDDING] {
        for slow in [1.5, 4.0] {
            for seed in 0..SEEDS {
                let got = shares(truth, 20, slow, seed);
                assert!(got[0] < 15, "seed {seed}, {slow} of {truth:?}: {got:?}");
                assert!(!are_equal(&got), "{got:?}");
            }
        }
    }
}
