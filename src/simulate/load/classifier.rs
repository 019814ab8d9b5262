//! The load of the story that Forebay began with: a classifier that is asked 200 times a second.
//!
//! Arrivals are Poisson, prompts log-normal with a mean of 2,000 tokens (sigma 0.6, from 32 to 8,192), and there is no
//! answer to decode. No two prompts begin alike.

use std::sync::Arc;

use super::chance::{exponential, log_normal, mixed};
use crate::decide::Work;
use crate::rng::Rng;
use crate::simulate::request::Request;
use crate::units::Seconds;

const SIGMA: f64 = 0.6;
const MEAN: f64 = 2_000.0;
const SHORTEST: f64 = 32.0;
const LONGEST: f64 = 8_192.0;

/// So many requests at this rate.
#[must_use]
pub fn classifier(rate: f64, requests: usize, seed: u64) -> Vec<Request> {
    let mut rng = Rng::seeded(mixed(seed, 0xc1a5));
    let median = MEAN * (-SIGMA * SIGMA / 2.0).exp();
    let mut at = 0.0;
    let mut request = |session| {
        at += exponential(1.0 / rate, &mut rng);
        Request {
            at: Seconds(at),
            work: Work::Embed,
            prompt: log_normal(median, SIGMA, &mut rng)
                .clamp(SHORTEST, LONGEST)
                .round(),
            output: 0.0,
            blocks: Arc::default(),
            session,
            adapter: None,
        }
    };
    (0..requests as u64).map(&mut request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_told() {
        let load = classifier(200.0, 20_000, 1);
        let mean = load.iter().map(|request| request.prompt).sum::<f64>() / 20_000.0;
        assert!((mean / MEAN - 1.0).abs() < 0.03, "{mean}");
        let span = load.last().unwrap().at.0;
        assert!((span / 100.0 - 1.0).abs() < 0.03, "{span}");
        assert_eq!(load, classifier(200.0, 20_000, 1));
        assert_ne!(load, classifier(200.0, 20_000, 2));
    }
}
