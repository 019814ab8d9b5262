//! What requests look like: prompt lengths by kind of work, less what is cached; answer lengths by model; and what a
//! failure costs.
//!
//! An answer's length can't be known before it is complete. Its expectation is a fact about the model and its users
//! rather than about a worker, so what one worker shows serves all. Clients that set `max_tokens` are of several kinds
//! (a title wants 16 tokens, an agent allows 4,096 and uses 50), so there is a mean for each range of the bound; one
//! that has no samples yet borrows that of the model. Whatever is expected, the client's bound holds.
//!
//! From rates comes what a worker is worth. Its *weight* is the number of requests it is expected to finish within the
//! horizon T before it fails, at a rate v and λ outages a second:
//!
//! ```text
//! w = ∫₀ᵀ v·exp(−λt) dt = v·(1 − exp(−λ·T))/λ
//! ```

use super::ask::{ByWork, Work};
use super::cost::Size;
use super::speed::Speeds;
use crate::units::Seconds;

/// Output tokens expected of a model nobody has used yet.
pub(super) const OUTPUT_PRIOR: f64 = 200.0;
/// A mean never moves by less than this share of a new sample's distance: a memory of about 100 requests.
const LEAST_RATE: f64 = 0.01;
/// The bounds between the ranges of `max_tokens`.
const RANGES: [u32; 5] = [16, 64, 256, 1_024, 4_096];
/// The seconds that a failed request is taken to lose until one has shown it.
const LOSS_PRIOR: Seconds = Seconds(1.0);
/// The share of a new loss in the mean.
const LOSS_RATE: f64 = 0.1;
/// The batch at which workers are compared by speed.
const COMPARED_BATCH: u32 = 16;

/// The greatest token count that is believed of a worker's report.
pub(super) const MOST_TOKENS: f64 = 1e8;

/// A count that a worker reports, if it can be one.
pub(super) fn believable(count: Option<f64>) -> Option<f64> {
    count.filter(|count| (0.0..=MOST_TOKENS).contains(count))
}

/// A mean that starts as the plain mean of all samples and ends as one of the last hundred or so.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningMean {
    mean: f64,
    samples: f64,
}

impl RunningMean {
    /// A prior that is worth two samples.
    pub(super) fn believing(mean: f64) -> Self {
        RunningMean { mean, samples: 2.0 }
    }

    /// The expected answer length of a model, in tokens.
    fn of_outputs() -> Self {
        RunningMean::believing(OUTPUT_PRIOR)
    }

    /// No belief: the first sample is the mean.
    fn of_nothing() -> Self {
        RunningMean {
            mean: 0.0,
            samples: 0.0,
        }
    }

    /// The mean.
    pub(super) fn get(self) -> f64 {
        self.mean
    }

    /// Takes in one sample.
    pub(super) fn add(&mut self, sample: f64) {
        self.samples += 1.0;
        self.mean += (sample - self.mean) * (1.0 / self.samples).max(LEAST_RATE);
    }
}

/// The answer lengths of one model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outputs {
    all: RunningMean,
    /// First those of requests without a bound, then by range, last those above all ranges.
    by_bound: [RunningMean; RANGES.len() + 2],
    /// How far they were from that mean, either way, in the same order.
    spread: [RunningMean; RANGES.len() + 2],
}

impl Outputs {
    /// Nothing seen yet.
    pub(super) fn new() -> Self {
        Outputs {
            all: RunningMean::of_outputs(),
            by_bound: [RunningMean::of_nothing(); RANGES.len() + 2],
            spread: [RunningMean::of_nothing(); RANGES.len() + 2],
        }
    }

    /// The expected length of an answer that may be this long.
    pub(super) fn expected(&self, bound: Option<u32>) -> f64 {
        let ours = self.by_bound[place(bound)];
        let mean = if ours.samples > 0.0 { ours } else { self.all }.get();
        bound.map_or(mean, |most| mean.min(f64::from(most)))
    }

    /// The length that nearly every answer that may be this long has at least: two mean deviations below the mean, and one
    /// token where fewer than `known` were seen. Answers of one length are told to the token, and of those that are as
    /// often short as long nothing is.
    #[expect(clippy::cast_precision_loss, reason = "a handful of samples")]
    pub(super) fn least(&self, bound: Option<u32>, known: u64) -> f64 {
        let (mean, spread) = (self.by_bound[place(bound)], self.spread[place(bound)]);
        if mean.samples < known as f64 {
            return 1.0;
        }
        let least = (mean.get() - 2.0 * spread.get()).max(1.0);
        bound.map_or(least, |most| least.min(f64::from(most)))
    }

    /// An answer that might have been this long was completed.
    pub(super) fn add(&mut self, bound: Option<u32>, output: f64) {
        self.all.add(output);
        let mean = &mut self.by_bound[place(bound)];
        if mean.samples > 0.0 {
            self.spread[place(bound)].add((output - mean.get()).abs());
        }
        mean.add(output);
    }
}

/// Where the answers with this bound are kept.
fn place(bound: Option<u32>) -> usize {
    bound.map_or(0, |most| 1 + RANGES.partition_point(|range| *range < most))
}

/// The mix of requests that the fleet sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    prompts: ByWork<RunningMean>,
    output: RunningMean,
    /// The share of requests of each kind.
    shares: ByWork<RunningMean>,
    /// The seconds that a failed request has lost.
    loss: Seconds,
}

impl Traffic {
    /// Nothing seen yet.
    pub(super) fn new() -> Self {
        let nothing = RunningMean::of_nothing();
        Traffic {
            prompts: ByWork::of(|_| nothing),
            output: RunningMean::of_outputs(),
            shares: ByWork::of(|_| nothing),
            loss: LOSS_PRIOR,
        }
    }

    /// A request was placed.
    pub(super) fn placed(&mut self, size: Size) {
        self.prompts[size.work].add(size.reading());
        for work in Work::ALL {
            self.shares[work].add(f64::from(u8::from(work == size.work)));
        }
    }

    /// The mean sizes of prompts.
    pub(super) fn prompts(&self) -> ByWork<f64> {
        ByWork::of(|work| self.prompts[work].get())
    }

    /// An answer of this many tokens was completed.
    pub(super) fn answered(&mut self, output: f64) {
        self.output.add(output);
    }

    /// A request failed so long after it was sent.
    pub(super) fn lost(&mut self, seconds: Seconds) {
        self.loss += (seconds.max(Seconds::ZERO) - self.loss) * LOSS_RATE;
    }

    /// The seconds that a failed request loses, of late.
    pub(super) fn loss(&self) -> Seconds {
        self.loss
    }

    /// Requests of this mix that a worker with these lines and this many slots serves in a second.
    pub(super) fn rate(&self, speeds: &Speeds, cap: u32) -> f64 {
        let [generate, _, infer] = Work::ALL.map(|work| self.shares[work].get());
        let shares = [generate, 1.0 - generate - infer, infer];
        let each = Work::ALL.into_iter().zip(shares);
        let mean = |(work, share)| share / self.rate_of(work, speeds, cap);
        1.0 / each.map(mean).sum::<f64>()
    }

    /// The same if all were of this kind.
    pub(super) fn rate_of(&self, work: Work, speeds: &Speeds, cap: u32) -> f64 {
        let read = speeds.prefill(work).at(self.prompts[work].get().max(1.0)).0;
        let batch = f64::from(cap.clamp(1, COMPARED_BATCH));
        let written = match work {
            Work::Generate => self.output.get() * speeds.decode().at(batch).0 / batch,
            Work::Embed | Work::Infer => 0.0,
        };
        1.0 / (read + written)
    }
}

/// Requests that a worker with this rate and this hazard is expected to finish within the horizon.
pub(super) fn weight(rate: f64, hazard: f64, horizon: Seconds) -> f64 {
    rate * -(-hazard * horizon.0).exp_m1() / hazard
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_expected_by_the_bound_that_clients_set() {
        let mut outputs = Outputs::new();
        assert_eq!(outputs.expected(None), 200.0);
        assert_eq!(outputs.expected(Some(7)), 7.0);
        for _ in 0..10 {
            outputs.add(Some(64), 40.0);
            outputs.add(Some(2_000), 900.0);
        }
        assert_eq!(outputs.expected(Some(17)), 17.0);
        assert_eq!(outputs.expected(Some(50)), 40.0);
        assert_eq!(outputs.expected(Some(4_096)), 900.0);
        let borrowed = outputs.expected(Some(5_000));
        assert!(borrowed > 300.0 && borrowed < 500.0, "{borrowed}");
        assert_eq!(outputs.expected(None), borrowed);
    }

    #[test]
    fn answers_of_one_length_are_sure_and_of_many_lengths_nothing_is() {
        let mut outputs = Outputs::new();
        let least = |outputs: &Outputs| outputs.least(Some(64), 3);
        (0..2).for_each(|_| outputs.add(Some(64), 40.0));
        assert_eq!(least(&outputs), 1.0, "too few");
        (0..2).for_each(|_| outputs.add(Some(64), 40.0));
        assert_eq!(least(&outputs), 40.0);
        assert_eq!(outputs.least(Some(17), 3), 17.0);
        assert_eq!(outputs.least(None, 3), 1.0, "another bound");
        for _ in 0..20 {
            outputs.add(Some(64), 2.0);
            outputs.add(Some(64), 60.0);
        }
        assert_eq!(least(&outputs), 1.0);
    }

    #[test]
    fn ranges_of_bounds_meet_without_a_gap() {
        let places = [
            None,
            Some(0),
            Some(16),
            Some(17),
            Some(4_096),
            Some(4_097),
            Some(u32::MAX),
        ]
        .map(place);
        assert_eq!(places, [0, 1, 1, 2, 5, 6, 6]);
    }

    #[test]
    fn a_weight_is_what_is_finished_before_the_failure() {
        let horizon = Seconds(60.0);
        assert!((weight(2.0, 1e-12, horizon) - 120.0).abs() < 1e-3);
        let often = weight(2.0, 1.0, horizon);
        assert!((often - 2.0).abs() < 1e-9);
        assert!(weight(2.0, 0.01, horizon) < weight(2.0, 0.001, horizon));
    }

    #[test]
    fn losses_are_remembered_for_about_ten_failures() {
        let mut traffic = Traffic::new();
        assert_eq!(traffic.loss(), Seconds(1.0));
        traffic.lost(Seconds(11.0));
        assert_eq!(traffic.loss(), Seconds(2.0));
        (0..100).for_each(|_| traffic.lost(Seconds(-3.0)));
        assert!(traffic.loss() < Seconds(0.01) && traffic.loss() >= Seconds::ZERO);
    }

    #[test]
    fn a_mean_forgets_its_prior_and_then_its_past() {
        let mut output = RunningMean::of_outputs();
        for _ in 0..50 {
            output.add(20.0);
        }
        assert!(output.get() < 30.0);
        for _ in 0..500 {
            output.add(400.0);
        }
        assert!(output.get() > 390.0);
    }

    /// Seconds per request on a worker that is as fast as the prior, in tenths of milliseconds.
    fn seconds(traffic: &Traffic, cap: u32) -> f64 {
        (1e4 / traffic.rate(&Speeds::believing(1.0), cap)).round()
    }

    #[test]
    fn a_rate_is_that_of_the_mix_seen() {
        let mut traffic = Traffic::new();
        traffic.placed(Size::new(Work::Embed, 1_000.0, 0.0));
        traffic.placed(Size::new(Work::Embed, 3_000.0, 0.0));
        assert_eq!(seconds(&traffic, 8), 105.0);
        let mut traffic = Traffic::new();
        traffic.placed(Size::new(Work::Generate, 600.0, 0.0));
        assert_eq!(seconds(&traffic, 1), 1_108.0 + 200.0 * 205.0);
        assert_eq!(seconds(&traffic, 99), 1_108.0 + 200.0 * 280.0 / 16.0);
        (0..1_000).for_each(|_| traffic.answered(20.0));
        assert_eq!(seconds(&traffic, 1), 1_108.0 + 20.0 * 205.0);
        traffic.placed(Size::new(Work::Embed, 2_000.0, 0.0));
        assert_eq!(
            seconds(&traffic, 1),
            (5_207.5_f64 / 2.0 + 105.0 / 2.0).round()
        );
    }

    #[test]
    fn a_worker_four_times_as_fast_has_four_times_the_rate() {
        let mut traffic = Traffic::new();
        for work in [Work::Generate, Work::Embed, Work::Embed] {
            traffic.placed(Size::new(work, 300.0, 200.0));
            let rate = |speed| traffic.rate(&Speeds::believing(speed), 8);
            assert!((rate(4.0) / rate(1.0) - 4.0).abs() < 1e-9);
        }
    }
}
