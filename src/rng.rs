//! A seeded generator: one seed, one sequence, on every machine and in every version.
//!
//! `rand`'s `StdRng` may change its algorithm between versions, which would change what a simulation prints; the
//! algorithm is therefore named here: xoshiro256++ (D. Blackman and S. Vigna, "Scrambled Linear Pseudorandom Number
//! Generators", ACM TOMS 2021). It is for ties and sampling, never for secrets.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, SeedableRng};

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The generator that this seed stands for.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A whole number below `bound`; zero when `bound` is zero. Uniform up to a bias of `bound`/2⁶⁴.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.0.next_u64()) * bound as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number in 0…1, 1 excluded, from the upper 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_sequence() {
        let draw = |seed| {
            let mut rng = Rng::seeded(seed);
            (0..8).map(|_| rng.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut rng = Rng::seeded(1);
        assert!((0..1_000).all(|_| rng.below(3) < 3 && rng.unit() < 1.0));
        assert_eq!(rng.below(0), 0);
    }
}
