//! Chats with many LoRA adapters of one model, as a team has that tunes one for each customer or task.
//!
//! There are 16 adapters; u² chooses which, so that four of them are asked half of the time. Arrivals are Poisson, prompts
//! log-normal with a mean of 600 tokens (sigma 0.6, from 32 to 8,192), answers have a median of 110 tokens (sigma 1, at
//! most 1,024). No two prompts begin alike, so that what is seen is the adapters' doing.

use std::sync::Arc;

use super::chance::{exponential, log_normal, mixed};
use crate::decide::Work;
use crate::rng::Rng;
use crate::simulate::request::Request;
use crate::units::Seconds;

const ADAPTERS: f64 = 16.0;
const SIGMA: f64 = 0.6;
const MEAN: f64 = 600.0;
const SHORTEST: f64 = 32.0;
const LONGEST: f64 = 8_192.0;
const LONGEST_ANSWER: f64 = 1_024.0;

/// So many requests at this rate.
#[must_use]
pub fn adapters(rate: f64, requests: usize, seed: u64) -> Vec<Request> {
    let mut rng = Rng::seeded(mixed(seed, 0x10ea));
    let median = MEAN * (-SIGMA * SIGMA / 2.0).exp();
    let mut at = 0.0;
    let mut request = |session| {
        at += exponential(1.0 / rate, &mut rng);
        Request {
            at: Seconds(at),
            work: Work::Generate,
            prompt: log_normal(median, SIGMA, &mut rng)
                .clamp(SHORTEST, LONGEST)
                .round(),
            output: log_normal(110.0, 1.0, &mut rng)
                .round()
                .clamp(1.0, LONGEST_ANSWER),
            blocks: Arc::default(),
            session,
            adapter: Some(adapter(&mut rng)),
        }
    };
    (0..requests as u64).map(&mut request).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number below 16"
)]
fn adapter(rng: &mut Rng) -> u32 {
    (rng.unit().powi(2) * ADAPTERS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_told() {
        let load = adapters(4.0, 20_000, 1);
        let mean = load.iter().map(|request| request.prompt).sum::<f64>() / 20_000.0;
        assert!((mean / MEAN - 1.0).abs() < 0.03, "{mean}");
        let span = load.last().unwrap().at.0;
        assert!((span / 5_000.0 - 1.0).abs() < 0.03, "{span}");
        let asked = |first: u32| {
            let asked = load.iter().filter(|request| request.adapter < Some(first));
            asked.count() as f64 / 20_000.0
        };
        assert!((asked(4) - 0.5).abs() < 0.02, "{}", asked(4));
        assert_eq!(asked(16), 1.0);
        assert_eq!(load, adapters(4.0, 20_000, 1));
    }
}
