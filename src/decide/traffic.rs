//! What requests look like: prompt lengths by kind of work, and answer lengths by model.
//!
//! An answer's length can't be known before it is complete. Its expectation is one running mean per model, which is a
//! fact about the model and its users rather than about a worker, so what one worker shows serves all. A client that
//! sets `max_tokens` bounds it.

use super::ask::Work;
use super::cost::Size;
use super::line_fit::Line;
use super::speed::Speeds;

/// Output tokens expected of a model nobody has used yet.
const OUTPUT_PRIOR: f64 = 200.0;
/// A mean never moves by less than this share of a new sample's distance: a memory of about 100 requests.
const LEAST_RATE: f64 = 0.01;
/// The batch at which workers are compared by speed.
const COMPARED_BATCH: u32 = 16;

/// A mean that starts as the plain mean of all samples and ends as one of the last hundred or so.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningMean {
    mean: f64,
    samples: f64,
}

impl RunningMean {
    /// The expected answer length of a model, in tokens; the prior is worth two samples.
    pub(super) fn of_outputs() -> Self {
        RunningMean {
            mean: OUTPUT_PRIOR,
            samples: 2.0,
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

/// The mix of requests that the fleet sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    generate: RunningMean,
    embed: RunningMean,
    output: RunningMean,
    /// The share of requests that generate.
    generating: RunningMean,
}

impl Traffic {
    /// Nothing seen yet.
    pub(super) fn new() -> Self {
        let nothing = RunningMean {
            mean: 0.0,
            samples: 0.0,
        };
        Traffic {
            generate: nothing,
            embed: nothing,
            output: RunningMean::of_outputs(),
            generating: nothing,
        }
    }

    /// A request was placed.
    pub(super) fn placed(&mut self, size: Size) {
        let (mean, generates) = match size.work {
            Work::Generate => (&mut self.generate, 1.0),
            Work::Embed => (&mut self.embed, 0.0),
        };
        mean.add(size.prompt);
        self.generating.add(generates);
    }

    /// An answer of this many tokens was completed.
    pub(super) fn answered(&mut self, output: f64) {
        self.output.add(output);
    }

    /// Requests of this mix that a worker with these lines and this many slots serves in a second.
    pub(super) fn rate(&self, speeds: &Speeds, cap: u32) -> f64 {
        let batch = f64::from(cap.clamp(1, COMPARED_BATCH));
        let prefill = |work, mean: RunningMean| {
            let line: Line = speeds.prefill(work);
            line.at(mean.get().max(1.0)).0
        };
        let decode = self.output.get() * speeds.decode().at(batch).0 / batch;
        let generate = prefill(Work::Generate, self.generate) + decode;
        let embed = prefill(Work::Embed, self.embed);
        let share = self.generating.get();
        1.0 / (share * generate + (1.0 - share) * embed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(seconds(&traffic, 1), 1_100.0 + 200.0 * 205.0);
        assert_eq!(seconds(&traffic, 99), 1_100.0 + 200.0 * 280.0 / 16.0);
        (0..1_000).for_each(|_| traffic.answered(20.0));
        assert_eq!(seconds(&traffic, 1), 1_100.0 + 20.0 * 205.0);
        traffic.placed(Size::new(Work::Embed, 2_000.0, 0.0));
        assert_eq!(
            seconds(&traffic, 1),
            (5_200.0_f64 / 2.0 + 105.0 / 2.0).round()
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
