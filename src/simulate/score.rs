//! What a run was worth, in the figures that operators compare.

use serde::Serialize;

use super::request::{End, Request};
use crate::decide::Work;
use crate::units::Seconds;

/// An answer is in time when its first token comes within this and so much more for each token of the prompt;
const PATIENCE: Seconds = Seconds(2.0);
const PER_TOKEN: Seconds = Seconds(0.000_25);
/// one without tokens, when it is complete within this.
const PATIENCE_WHOLE: Seconds = Seconds(0.5);

/// The figures of one policy. Times are of the requests that were answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Its name.
    pub policy: &'static str,
    /// The mean time until an answer is complete,
    pub e2e_mean_s: f64,
    /// and the time that 95 % keep within.
    pub e2e_p95_s: f64,
    /// The time until the first token: of half,
    pub ttft_p50_s: f64,
    /// of 95 %,
    pub ttft_p95_s: f64,
    /// and of 99 %.
    pub ttft_p99_s: f64,
    /// The share of all requests that were answered in time.
    pub goodput: f64,
    /// The share of prompt tokens that did not have to be read again.
    pub hit_ratio: f64,
    /// Requests that were not answered.
    pub errors: usize,
}

impl Score {
    /// What these ends of these requests are worth.
    #[must_use]
    pub fn of<'a>(
        policy: &'static str,
        ends: impl IntoIterator<Item = (&'a Request, &'a End)>,
    ) -> Self {
        let (mut firsts, mut totals) = (Vec::new(), Vec::new());
        let (mut all, mut in_time) = (0_usize, 0_usize);
        let (mut prompt, mut reused) = (0.0, 0.0);
        for (request, end) in ends {
            all += 1;
            let End::Answered {
                first_token,
                total,
                cached,
            } = *end
            else {
                continue;
            };
            firsts.push(first_token.0);
            totals.push(total.0);
            prompt += request.prompt;
            reused += cached;
            in_time += usize::from(is_in_time(request, first_token, total));
        }
        firsts.sort_by(f64::total_cmp);
        totals.sort_by(f64::total_cmp);
        Score {
            policy,
            e2e_mean_s: rounded(
                totals.iter().fold(0.0, |sum, one| sum + one) / count(totals.len()),
            ),
            e2e_p95_s: rounded(quantile(&totals, 95)),
            ttft_p50_s: rounded(quantile(&firsts, 50)),
            ttft_p95_s: rounded(quantile(&firsts, 95)),
            ttft_p99_s: rounded(quantile(&firsts, 99)),
            goodput: rounded(count(in_time) / count(all)),
            hit_ratio: rounded(if prompt > 0.0 { reused / prompt } else { 0.0 }),
            errors: all - totals.len(),
        }
    }
}

fn is_in_time(request: &Request, first_token: Seconds, total: Seconds) -> bool {
    match request.work {
        Work::Generate => first_token.0 <= (PATIENCE + PER_TOKEN * request.prompt).0,
        Work::Embed | Work::Infer => total.0 <= PATIENCE_WHOLE.0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of requests")]
fn count(number: usize) -> f64 {
    number.max(1) as f64
}

/// The value that so many of a hundred keep within (nearest rank); zero of nothing.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// To a microsecond or a millionth: more is noise.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_reckoned_from_ends() {
        let request = Request {
            at: Seconds::ZERO,
            work: Work::Generate,
            prompt: 1_000.0,
            output: 10.0,
            blocks: std::sync::Arc::default(),
            session: 0,
            adapter: None,
        };
        let answered = |number: u32| End::Answered {
            first_token: Seconds(f64::from(number) / 10.0),
            total: Seconds(f64::from(number)),
            cached: 250.0,
        };
        let ends: Vec<End> = (1..=99).map(answered).chain([End::Failed]).collect();
        let score = Score::of("x", ends.iter().map(|end| (&request, end)));
        let found = [
            score.e2e_mean_s,
            score.e2e_p95_s,
            score.ttft_p50_s,
            score.ttft_p99_s,
        ];
        assert_eq!(found, [50.0, 95.0, 5.0, 9.9]);
        assert_eq!(
            (score.goodput, score.hit_ratio, score.errors),
            (0.22, 0.25, 1)
        );
        let nothing = Score::of("x", []);
        assert_eq!((nothing.e2e_mean_s, nothing.errors), (0.0, 0));
    }
}
