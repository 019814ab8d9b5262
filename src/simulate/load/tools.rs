//! Agents that call tools: long shared prompts, short answers, several turns that each add to the one before.
//!
//! A stand-in for Mooncake's tool-agent trace, tuned to its published means (8,596 tokens in, 182 out). There are 80
//! agents, each with a prompt of its own of 8 blocks on average (log-normal, sigma 0.6, from 1 to 60); u³ chooses which,
//! so that a few are asked most. A session has 1 + Exp(1.2) turns, each adding 5 blocks on average (sigma 0.9); answers
//! have a median of 110 tokens (sigma 1). The next turn comes after 30 ms a token and Exp(15 s): when the answer would have been
//! read on a fast machine, whatever machine it is on, so that all policies are given the same load.

use super::chance::{exponential, log_normal, mixed};
use crate::decide::Work;
use crate::rng::Rng;
use crate::simulate::card::BLOCK;
use crate::simulate::request::Request;
use crate::units::Seconds;

const AGENTS: u64 = 80;
/// The mean of the turns beyond a session's first, before they are rounded down.
const MORE_TURNS: f64 = 1.2;
const READING: f64 = 0.03;
const THINKING: f64 = 15.0;
const LONGEST_ANSWER: f64 = 4_096.0;

/// So many requests at this rate.
#[must_use]
pub fn tools(rate: f64, requests: usize, seed: u64) -> Vec<Request> {
    let mut rng = Rng::seeded(mixed(seed, 0x7001));
    let agents: Vec<f64> = (0..AGENTS)
        .map(|_| {
            log_normal(median(8.0, 0.6), 0.6, &mut rng)
                .round()
                .clamp(1.0, 60.0)
        })
        .collect();
    // The mean of what is left of an exponential when it is rounded down.
    let turns = 1.0 + 1.0 / ((1.0 / MORE_TURNS).exp() - 1.0);
    let mut load = Vec::with_capacity(requests);
    let mut at = 0.0;
    let mut sessions = 0;
    // Turns come later than their session: half as many again are drawn, so that the last of those kept are not thinner.
    while load.len() < requests + requests / 2 {
        at += exponential(turns / rate, &mut rng);
        session(&mut load, sessions, (at, &agents), &mut rng);
        sessions += 1;
    }
    load.sort_by(|one: &Request, other| one.at.0.total_cmp(&other.at.0));
    load.truncate(requests);
    load
}

/// The median of a log-normal distribution with this mean.
fn median(mean: f64, sigma: f64) -> f64 {
    mean * (-sigma * sigma / 2.0).exp()
}

/// All turns of one session, which begins at this time.
fn session(load: &mut Vec<Request>, session: u64, (at, agents): (f64, &[f64]), rng: &mut Rng) {
    let mut at = at;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place among 80"
    )]
    let agent = (rng.unit().powi(3) * AGENTS as f64) as usize;
    let shared = agents.get(agent).copied().unwrap_or(1.0);
    let mut own = 0.0;
    let mut left = 1.0 + exponential(MORE_TURNS, rng).floor();
    while left > 0.0 {
        own += log_normal(median(5.0, 0.9), 0.9, rng).max(0.1);
        let output = log_normal(110.0, 1.0, rng)
            .round()
            .clamp(1.0, LONGEST_ANSWER);
        load.push(Request {
            at: Seconds(at),
            work: Work::Generate,
            prompt: ((shared + own) * BLOCK).round(),
            output,
            blocks: blocks(agent as u64, session, (shared, own)).into(),
            session,
            adapter: None,
        });
        at += output * READING + exponential(THINKING, rng);
        left -= 1.0;
    }
}

/// The names of so many shared blocks and of those of the session after them; one that is not full is not kept by engines.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some dozens of blocks"
)]
fn blocks(agent: u64, session: u64, (shared, own): (f64, f64)) -> Vec<u64> {
    let common = (0..shared as u64).map(|block| mixed(mixed(1, agent), block));
    let further = (0..own as u64).map(|block| mixed(mixed(2, session), block));
    common.chain(further).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_published_means() {
        let load = tools(1.0, 20_000, 1);
        let mean = |of: fn(&Request) -> f64| load.iter().map(of).sum::<f64>() / 20_000.0;
        let (prompt, output) = (mean(|one| one.prompt), mean(|one| one.output));
        assert!((7_500.0..9_700.0).contains(&prompt), "{prompt}");
        assert!((output / 182.0 - 1.0).abs() < 0.1, "{output}");
        let span = load.last().unwrap().at.0;
        assert!((span / 20_000.0 - 1.0).abs() < 0.1, "{span}");
    }

    #[test]
    fn turns_begin_with_what_came_before() {
        let load = tools(1.0, 2_000, 1);
        let with_next = load.iter().enumerate().filter_map(|(at, one)| {
            let next = load[at + 1..]
                .iter()
                .find(|other| other.session == one.session)?;
            Some((one, next))
        });
        let pairs: Vec<_> = with_next.collect();
        assert!(pairs.len() > 200);
        assert!(
            pairs
                .iter()
                .all(|(one, next)| next.blocks.starts_with(&one.blocks))
        );
    }
}
