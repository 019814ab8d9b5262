//! Two engines on one card slow each other: how much is learned from traffic alone.
//!
//! The card serves each of its busy engines at the rate 1/(1 + κ·m) beside m busy others; each takes one request after the
//! other. Requests come at random, so that an engine is alone at times and not at others.

use forebay::decide::{Booking, FleetState, Outcome, Policy, Work, WorkerSpec};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::{ask, spec};

/// Seconds of an embedding of 200 tokens on an engine that is alone.
const ALONE: f64 = 0.1;
const REQUESTS: usize = 600;
const SEEDS: u64 = 16;

/// Two engines at work. Requests are placed one at a time on each.
struct Card {
    fleet: FleetState,
    coupling: f64,
    /// What each does, and how much of it is left in seconds alone.
    work: [Option<(Booking, f64)>; 2],
    now: f64,
    rng: Rng,
}

impl Card {
    fn new(coupling: f64, machine: Option<&str>, seed: u64) -> Self {
        let engine = |name: &str| WorkerSpec {
            machine: machine.map(Into::into),
            ..spec(name, &["m"], 1)
        };
        Card {
            fleet: FleetState::new(vec![engine("a"), engine("b")], Policy::LeastTime),
            coupling,
            work: [None, None],
            now: 0.0,
            rng: Rng::seeded(seed),
        }
    }

    fn rate(&self) -> f64 {
        let busy = self.work.iter().flatten().count();
        if busy > 1 {
            1.0 / (1.0 + self.coupling)
        } else {
            1.0
        }
    }

    /// Lets this much time pass, or as much as there is until an engine is done.
    fn pass(&mut self, most: f64) -> f64 {
        let rate = self.rate();
        let left = self.work.iter().flatten().map(|(_, left)| left / rate);
        let span = left.fold(most, f64::min);
        self.now += span;
        for slot in &mut self.work {
            if let Some((_, left)) = slot {
                *left -= span * rate;
            }
            if let Some((booking, _)) = slot.take_if(|(_, left)| *left < 1e-9) {
                let outcome = Outcome::Answered {
                    prompt_tokens: Some(200.0),
                    cached_tokens: None,
                    output_tokens: None,
                };
                self.fleet.finish(booking, outcome, Seconds(self.now));
            }
        }
        span
    }

    /// Plays random arrivals; those that find both engines busy go elsewhere.
    fn play(&mut self) {
        for _ in 0..REQUESTS {
            let mut gap = self.rng.unit() * 0.3;
            while gap > 1e-9 {
                gap -= self.pass(gap);
            }
            let ask = ask("m", Work::Embed, 200.0);
            let now = Seconds(self.now);
            if let Ok(choice) = self.fleet.choose(&ask, &[], now, &mut self.rng) {
                self.work[choice.worker.index()] = Some((choice.booking, ALONE));
            }
            self.fleet.check_invariants().unwrap();
        }
    }

    /// Whether κ and the speeds alone are what they are, within 30 %.
    fn learned(&self, coupling: f64) -> Result<(), String> {
        for view in self.fleet.snapshot(Seconds(self.now)) {
            let alone = view.prefill[forebay::decide::Work::Embed].line.at(200.0).0;
            if (alone / ALONE - 1.0).abs() > 0.3 {
                return Err(format!("{}: {alone} s alone, it is {ALONE}", view.name));
            }
            if (view.coupling - coupling).abs() > 0.3 * coupling {
                return Err(format!(
                    "{}: κ = {}, it is {coupling}",
                    view.name, view.coupling
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn a_shared_card_is_found_out() {
    for coupling in [1.0, 0.5] {
        for seed in 0..SEEDS {
            let mut card = Card::new(coupling, Some("desk"), seed);
            card.play();
            card.learned(coupling)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn engines_that_do_not_slow_each_other_are_not_held_to() {
    for seed in 0..SEEDS {
        let mut box_of_two = Card::new(0.0, Some("desk"), seed);
        box_of_two.play();
        let views = box_of_two.fleet.snapshot(Seconds(box_of_two.now));
        assert!(
            views[0].coupling < 0.05,
            "seed {seed}: {}",
            views[0].coupling
        );
    }
}

/// Negative control: engines that are not said to share a machine learn no coupling, and that is noticed.
#[test]
fn a_card_that_nobody_named_is_caught() {
    let mut card = Card::new(1.0, None, 1);
    card.play();
    let views = card.fleet.snapshot(Seconds(card.now));
    assert_eq!(views[WorkerId(0).index()].coupling, 0.0);
    card.learned(1.0).unwrap_err();
}
