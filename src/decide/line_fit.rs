//! A straight line through what was seen lately: seconds against size.
//!
//! Prefill takes a fixed part and a part per token, decoding a fixed part and a part per stream that shares the card.
//! Two numbers say both, they can be shown to a person, and five sums learn them in constant time and space. A richer
//! model (llm-d trains gradient-boosted trees beside its router) needs traffic to learn from that a handful of machines
//! doesn't have.
//!
//! Least squares with exponential forgetting: all sums shrink by `keep` before a sample is added, so the memory is
//! about 1/(1 − keep) samples. A sample that is off the line by more than [`SURPRISE`] in either direction halves the
//! sums instead. A second in a row in the same direction is no accident: the machine has another speed now, and what is
//! left of the past is read as if it had been measured at that speed. A card that throttles or recovers is believed at
//! the second request. 2026-11-30: believed that halving is enough. Seen that five surprises in a row still leave a line
//! at more than twice the truth, and that at a few requests a second a worker that has recovered is not used again.
//! What has hardly been learned is not read anew: the first samples are off for many reasons.
//!
//! Engines batch: four prompts go in together and four first bytes come out at once, one after a long gap and three
//! after none. Each of the four took a quarter. Samples that follow their predecessor at once are therefore averaged
//! with it into one *bunch*, which counts as one sample. 2026-11-30: believed that each could count for itself. Seen
//! that long gaps and none were both surprises, and that ratios of speed were off by up to four times on workers that
//! batch.
//!
//! Guaranteed: both coefficients are finite and never negative, and the line is above zero for every size above zero.
//! A falling line becomes flat and one that starts below zero goes through the origin, so beyond the sizes seen it errs
//! between "size doesn't matter" and "only size matters", never wilder.

use serde::{Deserialize, Serialize};

use crate::units::Seconds;

/// A sample this many times above or below the line means that the machine has changed.
const SURPRISE: f64 = 3.0;
/// The past is read as this many times slower or faster at most: what is wilder is taken in steps.
const MOST_CHANGE: f64 = 10.0;
/// What is kept of the past at a surprise.
const KEEP_AT_SURPRISE: f64 = 0.5;
/// A line of fewer samples is mostly a prior, and has no past that could be read at another speed.
const KNOWN: u64 = 20;
/// The share of a belief below which it no longer shows in what was learned since.
const OUTWEIGHED: f64 = 0.01;
/// A bunch goes on while all that followed its first sample took less than this share of it.
const BUNCH: f64 = 1.0 / 3.0;
/// Nothing takes no time: keeps ratios of times finite.
const LEAST: f64 = 1e-6;
/// Below this share of spread in size, a slope would be rounding noise.
const LEAST_SPREAD: f64 = 1e-9;
/// A saved line with less weight is none: a line keeps at least about a sample.
const LEAST_WEIGHT: f64 = 0.5;
/// A saved sum above this is none: 20 prompts of a hundred million tokens, squared.
const MOST_SUM: f64 = 1e18;
/// Saved samples above this are not believed.
const MOST_SAMPLES: u64 = 1 << 52;

/// Seconds as a linear function of size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Seconds that every piece of work takes.
    pub base: f64,
    /// Seconds per unit of size.
    pub slope: f64,
}

impl Line {
    /// The seconds for this size.
    #[must_use]
    pub fn at(self, size: f64) -> Seconds {
        Seconds(self.base + self.slope * size)
    }

    /// The same line on a machine that is `speed` times as fast.
    #[must_use]
    pub fn faster(self, speed: f64) -> Line {
        Line {
            base: self.base / speed,
            slope: self.slope / speed,
        }
    }
}

/// What a line was learned from, as it is kept between two processes: the five sums of least squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineSums {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    samples: u64,
}

/// Learns a [`Line`] from samples.
#[derive(Clone, Debug)]
pub(super) struct LineFit {
    keep: f64,
    sums: Sums,
    line: Line,
    bunch: Bunch,
    samples: u64,
    /// How the last bunch was off, if it was.
    surprise: Option<Surprise>,
    surprises: u64,
}

/// How a sample is off the line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Surprise {
    Slower,
    Faster,
}

/// What was measured of one piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Its size.
    pub size: f64,
    /// How long it took.
    pub took: Seconds,
    /// Whether that was measured from the end of the one before, because it was there already.
    pub behind: bool,
}

/// Samples that came out together, and what was known before them.
#[derive(Clone, Copy, Debug, Default)]
struct Bunch {
    sums: Sums,
    line: Line,
    /// How the bunch before was off.
    surprise: Option<Surprise>,
    count: f64,
    size: f64,
    took: f64,
    first: f64,
}

/// The sums of least squares: weight, sizes, seconds and their products.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl LineFit {
    /// Starts from a belief that is worth two samples, one at each of two sizes.
    pub(super) fn believing(prior: Line, sizes: [f64; 2], keep: f64) -> Self {
        let mut sums = Sums::default();
        for size in sizes {
            sums.add(size, prior.at(size).0);
        }
        LineFit {
            keep,
            sums,
            line: prior,
            bunch: Bunch::default(),
            samples: 0,
            surprise: None,
            surprises: 0,
        }
    }

    /// The line as known now.
    pub(super) fn line(&self) -> Line {
        self.line
    }

    /// How many samples it was learned from; the prior counts for none.
    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// How many of these were surprises.
    pub(super) fn surprises(&self) -> u64 {
        self.surprises
    }

    /// What it was learned from. A bunch under way counts as it is.
    pub(super) fn sums(&self) -> LineSums {
        let Sums {
            weight,
            x,
            y,
            xx,
            xy,
        } = self.sums;
        LineSums {
            weight,
            x,
            y,
            xx,
            xy,
            samples: self.samples,
        }
    }

    /// The same of a line whose belief is not the next process's to have: as if nothing had been learned, until samples
    /// have outweighed the belief.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a belief is gone long before 2^53 samples"
    )]
    pub(super) fn sums_without_belief(&self) -> LineSums {
        let left = self.keep.powf(self.samples as f64);
        let samples = if left < OUTWEIGHED { self.samples } else { 0 };
        LineSums {
            samples,
            ..self.sums()
        }
    }

    /// Goes on from what was learned elsewhere, if something was: a belief alone is the other's own. `None` when it is not what a line is learned from: a number that is
    /// negative or not finite, no weight, or sums that give no time above zero. More weight than a line of this memory
    /// can have is scaled down, so that no file makes a belief that new samples can't move.
    pub(super) fn recalling(&self, saved: LineSums) -> Option<LineFit> {
        let LineSums {
            weight,
            x,
            y,
            xx,
            xy,
            samples,
        } = saved;
        if samples == 0 {
            return Some(self.clone());
        }
        let possible = |sum: &f64| (0.0..=MOST_SUM).contains(sum);
        let all_are = [weight, x, y, xx, xy].iter().all(possible);
        if !all_are || weight < LEAST_WEIGHT {
            return None;
        }
        let sums = Sums {
            weight,
            x,
            y,
            xx,
            xy,
        };
        let most = 1.0 / (1.0 - self.keep);
        let sums = sums.faded((most / weight).min(1.0));
        let line = sums.line();
        let time = line.at(1.0).0;
        (time.is_finite() && time > 0.0).then(|| LineFit {
            keep: self.keep,
            sums,
            line,
            bunch: Bunch::default(),
            samples: samples.min(MOST_SAMPLES),
            surprise: None,
            surprises: 0,
        })
    }

    /// Takes in one sample.
    pub(super) fn learn(&mut self, sample: Sample) {
        if !(sample.behind && self.bunch.goes_on(sample.took)) {
            self.bunch = Bunch::after(self);
        }
        self.bunch.add(sample);
        self.samples += 1;

        let (size, took) = self.bunch.mean();
        let off = took / self.bunch.line.at(size).0;
        self.surprise = Surprise::of(off);
        self.surprises += u64::from(self.surprise.is_some());
        let past = self.bunch.sums;
        let is_known = self.samples >= KNOWN;
        let is_again = self.surprise == self.bunch.surprise;
        self.sums = match self.surprise {
            None => past.faded(self.keep),
            Some(_) if is_again && is_known => {
                let times = off.clamp(1.0 / MOST_CHANGE, MOST_CHANGE);
                past.slower(times).faded(KEEP_AT_SURPRISE)
            }
            Some(_) => past.faded(KEEP_AT_SURPRISE),
        };
        self.sums.add(size, took);
        self.line = self.sums.line();
    }
}

/// Whether a time is so far from what was expected that the machine must have changed.
pub(super) fn is_surprise(took: Seconds, expected: Seconds) -> bool {
    Surprise::of(took.0 / expected.0).is_some()
}

impl Surprise {
    /// The surprise at a sample that took so many times as long as expected.
    fn of(off: f64) -> Option<Self> {
        match off {
            slower if slower > SURPRISE => Some(Surprise::Slower),
            faster if faster < 1.0 / SURPRISE => Some(Surprise::Faster),
            _ => None,
        }
    }
}

impl Bunch {
    /// None yet, on top of what is known.
    fn after(known: &LineFit) -> Self {
        Bunch {
            sums: known.sums,
            line: known.line,
            surprise: known.surprise,
            ..Bunch::default()
        }
    }

    /// Whether something that took this long still came out together with the rest.
    fn goes_on(&self, took: Seconds) -> bool {
        self.took - self.first + took.0 < self.first * BUNCH
    }

    fn add(&mut self, sample: Sample) {
        let took = sample.took.0.max(LEAST);
        if self.count == 0.0 {
            self.first = took;
        }
        self.count += 1.0;
        self.size += sample.size;
        self.took += took;
    }

    /// The mean size, and the mean of the seconds.
    fn mean(&self) -> (f64, f64) {
        (self.size / self.count, self.took / self.count)
    }
}

impl Sums {
    fn faded(self, keep: f64) -> Sums {
        Sums {
            weight: self.weight * keep,
            x: self.x * keep,
            y: self.y * keep,
            xx: self.xx * keep,
            xy: self.xy * keep,
        }
    }

    /// The same pieces of work, each of which took that many times as long.
    fn slower(self, times: f64) -> Sums {
        Sums {
            y: self.y * times,
            xy: self.xy * times,
            ..self
        }
    }

    fn add(&mut self, x: f64, y: f64) {
        self.weight += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// The least-squares line with neither coefficient below zero.
    fn line(&self) -> Line {
        let flat = Line {
            base: self.y / self.weight,
            slope: 0.0,
        };
        let spread = self.weight * self.xx - self.x * self.x;
        if spread <= LEAST_SPREAD * self.weight * self.xx {
            return flat;
        }
        let slope = (self.weight * self.xy - self.x * self.y) / spread;
        let base = (self.y - slope * self.x) / self.weight;
        match (base < 0.0, slope < 0.0) {
            (_, true) => flat,
            (true, false) => Line {
                base: 0.0,
                slope: self.xy / self.xx,
            },
            (false, false) => Line { base, slope },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: Line = Line {
        base: 0.01,
        slope: 1e-4,
    };

    fn fit() -> LineFit {
        LineFit::believing(PRIOR, [256.0, 2048.0], 0.95)
    }

    fn alone(size: f64, took: Seconds) -> Sample {
        Sample {
            size,
            took,
            behind: false,
        }
    }

    fn close(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() <= 0.02 * wanted
    }

    #[test]
    fn without_samples_the_line_is_the_prior() {
        assert_eq!(fit().line(), PRIOR);
        assert_eq!(PRIOR.faster(2.0).at(100.0), PRIOR.at(100.0) / 2.0);
    }

    #[test]
    fn a_true_line_is_found_from_its_points() {
        let truth = Line {
            base: 0.05,
            slope: 1e-3,
        };
        let mut fit = fit();
        for sample in 0..200 {
            let size = f64::from(100 + sample * 37 % 900);
            fit.learn(alone(size, truth.at(size)));
        }
        let found = fit.line();
        assert!(
            close(found.base, truth.base) && close(found.slope, truth.slope),
            "{found:?}"
        );
        assert_eq!(fit.samples(), 200);
    }

    #[test]
    fn a_belief_of_this_process_only_is_left_behind_and_what_outweighs_it_is_not() {
        let truth = Line {
            base: 0.05,
            slope: 1e-3,
        };
        let mut told = LineFit::believing(PRIOR.faster(100.0), [100.0, 1_000.0], 0.95);
        let next = |told: &LineFit| fit().recalling(told.sums_without_belief()).unwrap();
        for sample in 0..200 {
            let size = f64::from(100 + sample * 37 % 900);
            told.learn(alone(size, truth.at(size)));
            let kept = told.recalling(told.sums()).unwrap().samples();
            assert_eq!(kept, told.samples());
            if sample < 50 {
                assert_eq!(next(&told).line(), PRIOR, "after {sample}");
            }
        }
        assert!(close(next(&told).line().slope, truth.slope));
        assert_eq!(next(&told).samples(), 200);
    }

    #[test]
    fn a_falling_line_becomes_flat_and_a_negative_base_zero() {
        let mut falling = fit();
        let mut steep = fit();
        for _ in 0..200 {
            for size in [100.0, 200.0] {
                falling.learn(alone(size, Seconds(0.5 - size / 1e3)));
                steep.learn(alone(size, Seconds((size - 90.0) / 1e3)));
            }
        }
        assert_eq!(falling.line().slope, 0.0);
        assert!(close(falling.line().base, 0.35), "{falling:?}");
        assert_eq!(steep.line().base, 0.0);
        assert!(steep.line().slope > 0.0);
    }

    /// The line after a hundred samples of 0.1 s and then these.
    fn after(samples: &[f64]) -> f64 {
        let mut fit = fit();
        for took in [0.1].repeat(100).iter().chain(samples) {
            fit.learn(alone(500.0, Seconds(*took)));
        }
        fit.line().at(500.0).0
    }

    #[test]
    fn a_change_beyond_three_times_is_believed_at_the_second_sample_and_an_accident_is_not() {
        assert!(after(&[0.5]) < 0.15);
        assert!(close(after(&[0.5, 0.5]), 0.5));
        assert!(close(after(&[0.5, 0.5, 0.1, 0.1]), 0.1));
        assert!(after(&[0.5, 0.1, 0.5, 0.1, 0.5]) < 0.25);
        assert!(after(&[0.5, 0.02, 0.5]) < 0.25);
    }

    #[test]
    fn what_has_changed_its_speed_keeps_its_shape() {
        let truth = Line {
            base: 0.05,
            slope: 1e-3,
        };
        let mut fit = fit();
        let learn = |fit: &mut LineFit, speed: f64, sizes: &[f64]| {
            for size in sizes {
                fit.learn(alone(*size, truth.faster(speed).at(*size)));
            }
        };
        learn(&mut fit, 1.0, &[100.0, 900.0].repeat(100));
        let before = fit.surprises();
        learn(&mut fit, 0.2, &[500.0, 500.0]);
        // Far from the sizes of the surprises, and from the 10 s of the truth as it is now.
        let found = fit.line().at(2_000.0).0;
        assert!((8.0..12.0).contains(&found), "{found}");
        assert_eq!(fit.surprises() - before, 2);
    }

    #[test]
    fn equal_sizes_for_ever_stay_finite_and_above_zero() {
        let mut fit = fit();
        for _ in 0..10_000 {
            fit.learn(alone(128.0, Seconds::ZERO));
        }
        let line = fit.line();
        assert!(line.base >= 0.0 && line.slope >= 0.0 && line.at(16.0).0 > 0.0);
        assert!(line.at(1e6).0.is_finite());
    }

    /// The line after these gaps between first bytes came 50 times over, all of them behind another.
    fn after_gaps(gaps: &[f64]) -> f64 {
        let mut fit = fit();
        for gap in gaps.repeat(50) {
            fit.learn(Sample {
                behind: true,
                ..alone(500.0, Seconds(gap))
            });
        }
        fit.line().at(500.0).0
    }

    #[test]
    fn what_comes_out_together_took_its_share_each() {
        assert!(close(after_gaps(&[0.4, 0.0, 0.0, 0.0]), 0.1));
        assert!(close(after_gaps(&[0.4, 0.01, 0.02, 0.01]), 0.11));
        assert!(close(after_gaps(&[0.1]), 0.1));
    }

    #[test]
    fn a_machine_that_recovers_under_load_is_no_bunch() {
        let mut fit = fit();
        for took in [[0.5; 40], [0.1; 40]].concat() {
            fit.learn(Sample {
                behind: true,
                ..alone(500.0, Seconds(took))
            });
        }
        assert!(fit.line().at(500.0).0 < 0.11, "{fit:?}");
    }

    #[test]
    fn a_quick_sample_that_was_not_behind_another_stands_for_itself() {
        let mut fit = fit();
        for took in [0.4, 0.01].repeat(50) {
            fit.learn(alone(500.0, Seconds(took)));
        }
        assert!(fit.line().at(500.0).0 < 0.15, "{fit:?}");
    }
}
