//! The power of two choices: of two workers drawn at random, the one with fewer requests.
//!
//! Source: M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001; Envoy's `LEAST_REQUEST` with
//! equal weights and its default of two choices.

use super::{Arrival, Rival, Sight};
use crate::rng::Rng;
use crate::units::WorkerId;

/// Compares two.
#[derive(Debug)]
pub struct P2c;

impl Rival for P2c {
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, rng: &mut Rng) -> WorkerId {
        let (one, other) = arrival.two(rng);
        if sight.held(other).requests < sight.held(one).requests {
            other
        } else {
            one
        }
    }
}
