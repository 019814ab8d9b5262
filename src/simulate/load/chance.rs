//! The distributions that loads are drawn from.

use crate::rng::Rng;

/// Exponential, with this mean.
pub(super) fn exponential(mean: f64, rng: &mut Rng) -> f64 {
    -mean * (1.0 - rng.unit()).ln()
}

/// Log-normal, with this median and this sigma of its logarithm (G. Box and M. Muller, "A Note on the Generation of Random
/// Normal Deviates", 1958).
pub(super) fn log_normal(median: f64, sigma: f64, rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    let angle = std::f64::consts::TAU * rng.unit();
    median * (sigma * radius * angle.cos()).exp()
}

/// Well mixed bits of two numbers (G. Steele, D. Lea and C. Flood, "Fast Splittable Pseudorandom Number Generators",
/// 2014): the names of blocks and sessions.
#[must_use]
pub(in crate::simulate) fn mixed(one: u64, other: u64) -> u64 {
    let mut bits = one
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(other)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_medians_are_those_asked_for() {
        let mut rng = Rng::seeded(1);
        let mut draws: Vec<f64> = (0..20_000)
            .map(|_| log_normal(8.0, 0.6, &mut rng))
            .collect();
        draws.sort_by(f64::total_cmp);
        assert!((draws[10_000] / 8.0 - 1.0).abs() < 0.03);
        let mean = |draws: &[f64]| draws.iter().sum::<f64>() / 20_000.0;
        assert!((mean(&draws) / (8.0 * 0.18_f64.exp()) - 1.0).abs() < 0.03);
        let waits: Vec<f64> = (0..20_000).map(|_| exponential(3.0, &mut rng)).collect();
        assert!((mean(&waits) / 3.0 - 1.0).abs() < 0.03);
    }

    #[test]
    fn mixed_bits_depend_on_both() {
        assert_ne!(mixed(1, 2), mixed(2, 1));
        assert_ne!(mixed(1, 2), mixed(1, 3));
    }
}
