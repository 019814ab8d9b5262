//! How fast one worker is, learned from its own traffic: four lines.
//!
//! - prefill for [`Work::Generate`]: seconds to the first token against prompt tokens;
//! - prefill for [`Work::Embed`]: seconds to the answer against input tokens;
//! - prefill for [`Work::Infer`]: seconds to the answer against rows times elements;
//! - decode: seconds per output token against generating requests that the worker holds.
//!
//! Prefill has a line per kind because a worker that serves a chat model and an embedding model runs two models of
//! very different size: one line through both would price an embedding like a chat turn. The same holds of an embedder
//! and a classifier that takes tensors, whose sizes are not even counted in the same unit. The backlog sums all kinds, each
//! on its own line, since they share the card.
//!
//! All workers start from the same lines (a typed `speed` scales them), worth two samples. The priors are a fast
//! card's, so a worker nobody has tried yet looks cheap next to a slow one that has been measured, and is tried.
//!
//! An answer that was not streamed shows only its total. It is split between prefill and decode in the proportion
//! expected of it, and both lines learn.
//!
//! 2026-11-30: believed that (out − 1)·tau should be taken off such a total and the rest given to prefill. Seen that
//! on a worker with no other answers tau is then never learned, and that the rest is negative on one faster than the
//! prior, which stayed expensive for ever. Done now as above.
//!
//! What is believed of a worker changes only while it is used. `pick` tries one again that few requests have shown slow;
//! one that many have, and that has become faster since, is found by tests (`calibration.rs`).

use super::ask::{ByWork, Work};
use serde::{Deserialize, Serialize};

use super::line_fit::{Line, LineFit, LineSums, Sample};
use crate::units::Seconds;

/// The prior for generating: a mid-sized model on a recent card.
const GENERATE: Line = Line {
    base: 0.010,
    slope: 1.0 / 6_000.0,
};
/// The prior for embedding and the like: a small model on the same.
const ONE_PASS: Line = Line {
    base: 0.000_5,
    slope: 1.0 / 200_000.0,
};
/// The prior of an output token.
const DECODE: Line = Line {
    base: 0.020,
    slope: 0.000_5,
};
/// Where the two samples lie that a prefill prior is worth, in tokens.
const PREFILL_SIZES: [f64; 2] = [256.0, 2_048.0];
/// Likewise for decode, in requests.
const DECODE_SIZES: [f64; 2] = [1.0, 16.0];
/// What a prefill line keeps of its past at each sample: a memory of 20 requests.
const PREFILL_KEEP: f64 = 0.95;
/// Likewise for decode, which is sampled several times a second.
const DECODE_KEEP: f64 = 0.97;
/// A saved round trip above this is none, in seconds.
const LONGEST_ROUND_TRIP: f64 = 60.0;

/// The learned lines of one worker.
#[derive(Clone, Debug)]
pub(super) struct Speeds {
    prefill: ByWork<LineFit>,
    decode: LineFit,
}

/// What one worker has shown of its speed, as it is kept between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSpeeds {
    generate: LineSums,
    embed: LineSums,
    /// Absent in files of versions that learned it with the texts.
    #[serde(default)]
    infer: Option<LineSums>,
    decode: LineSums,
    /// Seconds; absent when none was measured.
    round_trip: Option<f64>,
}

impl SavedSpeeds {
    /// The smoothed round trip.
    pub(super) fn round_trip(&self) -> Option<Seconds> {
        self.round_trip.map(Seconds)
    }
}

/// What is known of an answer that came in one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    /// From its arrival at the worker to its first byte.
    pub took: Seconds,
    /// The wait that was expected in there.
    pub wait: Seconds,
    /// Prompt tokens.
    pub prompt: f64,
    /// Output tokens.
    pub output: f64,
    /// The mean of generating requests that shared the card.
    pub sharing: f64,
}

impl Speeds {
    /// The prior lines, on a machine that is `speed` times as fast.
    pub(super) fn believing(speed: f64) -> Self {
        let prefill =
            |line: Line| LineFit::believing(line.faster(speed), PREFILL_SIZES, PREFILL_KEEP);
        Speeds {
            prefill: ByWork::of(|work| match work {
                Work::Generate => prefill(GENERATE),
                Work::Embed | Work::Infer => prefill(ONE_PASS),
            }),
            decode: LineFit::believing(DECODE.faster(speed), DECODE_SIZES, DECODE_KEEP),
        }
    }

    /// What is kept of these lines.
    pub(super) fn saved(&self, round_trip: Option<Seconds>) -> SavedSpeeds {
        SavedSpeeds {
            generate: self.prefill[Work::Generate].sums(),
            embed: self.prefill[Work::Embed].sums(),
            infer: Some(self.prefill[Work::Infer].sums()),
            decode: self.decode.sums(),
            round_trip: round_trip.map(|span| span.0),
        }
    }

    /// The same where the belief that they began with holds in this process only.
    pub(super) fn saved_without_belief(&self, round_trip: Option<Seconds>) -> SavedSpeeds {
        SavedSpeeds {
            generate: self.prefill[Work::Generate].sums_without_belief(),
            embed: self.prefill[Work::Embed].sums_without_belief(),
            infer: Some(self.prefill[Work::Infer].sums_without_belief()),
            decode: self.decode.sums_without_belief(),
            round_trip: round_trip.map(|span| span.0),
        }
    }

    /// These lines with what was kept; `None` when some of it is not what lines are learned from.
    pub(super) fn recalling(&self, saved: &SavedSpeeds) -> Option<Speeds> {
        let possible = |span: f64| (0.0..=LONGEST_ROUND_TRIP).contains(&span);
        saved.round_trip.is_none_or(possible).then_some(())?;
        let mut prefill = self.prefill.clone();
        let kept = [Some(saved.generate), Some(saved.embed), saved.infer];
        for (work, kept) in Work::ALL.into_iter().zip(kept) {
            if let Some(kept) = kept {
                prefill[work] = prefill[work].recalling(kept)?;
            }
        }
        Some(Speeds {
            prefill,
            decode: self.decode.recalling(saved.decode)?,
        })
    }

    /// The prefill line of a kind of work.
    pub(super) fn prefill(&self, work: Work) -> Line {
        self.prefill[work].line()
    }

    /// The decode line.
    pub(super) fn decode(&self) -> Line {
        self.decode.line()
    }

    /// Seconds from the first to the last of so many output tokens, while so many requests share the card.
    pub(super) fn decoding(&self, output: f64, sharing: f64) -> Seconds {
        self.decode.line().at(sharing) * (output - 1.0).max(0.0)
    }

    /// What a generated answer that comes in one piece should take.
    pub(super) fn expected(&self, answer: &Whole) -> Seconds {
        let own = self.prefill(Work::Generate).at(answer.prompt);
        answer.wait + own + self.decoding(answer.output, answer.sharing)
    }

    /// Samples behind a prefill line.
    pub(super) fn prefill_samples(&self, work: Work) -> u64 {
        self.prefill[work].samples()
    }

    /// Samples behind all prefill lines.
    pub(super) fn samples_read(&self) -> u64 {
        Work::ALL
            .map(|work| self.prefill_samples(work))
            .iter()
            .sum()
    }

    /// Whether no line has a sample.
    pub(super) fn is_untried(&self) -> bool {
        self.samples_read() == 0 && self.decode_samples() == 0
    }

    /// Samples behind the decode line.
    pub(super) fn decode_samples(&self) -> u64 {
        self.decode.samples()
    }

    /// Samples behind all lines that showed another speed than was believed.
    pub(super) fn surprises(&self) -> u64 {
        let read = Work::ALL.map(|work| self.prefill[work].surprises());
        read.iter().sum::<u64>() + self.decode.surprises()
    }

    /// A first byte came: the size is in prompt tokens.
    pub(super) fn learn_prefill(&mut self, work: Work, sample: Sample) {
        self.prefill[work].learn(sample);
    }

    /// Output tokens passed: with this many requests sharing the card each took this long.
    pub(super) fn learn_decode(&mut self, sharing: f64, took: Seconds) {
        self.decode.learn(alone(sharing, took));
    }

    /// A generated answer came in one piece.
    pub(super) fn learn_whole(&mut self, answer: Whole) {
        let own = self.prefill(Work::Generate).at(answer.prompt);
        let tau = self.decode.line().at(answer.sharing);
        let ratio = answer.took.max(Seconds::ZERO).0 / self.expected(&answer).0;
        self.prefill[Work::Generate].learn(alone(answer.prompt, own * ratio));
        if answer.output > 1.0 {
            self.decode.learn(alone(answer.sharing, tau * ratio));
        }
    }
}

/// A sample that was not measured from the end of another.
fn alone(size: f64, took: Seconds) -> Sample {
    Sample {
        size,
        took,
        behind: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_tensors_are_learned_apart_and_kept_so() {
        let mut speeds = Speeds::believing(1.0);
        let before = speeds.prefill(Work::Embed);
        speeds.learn_prefill(Work::Infer, alone(1_000.0, Seconds(3.0)));
        assert_eq!(speeds.prefill(Work::Embed), before);
        assert_eq!(
            [1, 0],
            [Work::Infer, Work::Embed].map(|work| speeds.prefill_samples(work))
        );
        let saved = serde_json::to_value(speeds.saved(None)).unwrap();
        let recalled = |saved: serde_json::Value| {
            let saved = serde_json::from_value(saved).unwrap();
            Speeds::believing(1.0)
                .recalling(&saved)
                .unwrap()
                .prefill(Work::Infer)
        };
        assert_eq!(recalled(saved.clone()), speeds.prefill(Work::Infer));
        let mut older = saved;
        older.as_object_mut().unwrap().remove("infer");
        assert_eq!(recalled(older), before);
    }

    #[test]
    fn a_typed_speed_scales_every_line() {
        let (plain, fast) = (Speeds::believing(1.0), Speeds::believing(4.0));
        for work in Work::ALL {
            let (slow, quick) = (plain.prefill(work).at(100.0), fast.prefill(work).at(100.0));
            assert!((slow.0 / quick.0 - 4.0).abs() < 1e-9);
        }
        assert!((plain.decode().at(1.0).0 / fast.decode().at(1.0).0 - 4.0).abs() < 1e-9);
    }

    #[test]
    fn kinds_of_work_learn_apart() {
        let mut speeds = Speeds::believing(1.0);
        let before = speeds.prefill(Work::Embed);
        speeds.learn_prefill(Work::Generate, alone(1_000.0, Seconds(3.0)));
        assert_eq!(speeds.prefill(Work::Embed), before);
        assert_eq!(speeds.prefill_samples(Work::Generate), 1);
        assert_eq!(speeds.prefill_samples(Work::Embed), 0);
    }

    /// The seconds expected of a whole answer after 100 that took this long.
    fn learned(took: Seconds, wait: Seconds) -> f64 {
        let mut speeds = Speeds::believing(1.0);
        for _ in 0..100 {
            speeds.learn_whole(Whole {
                took,
                wait,
                prompt: 200.0,
                output: 100.0,
                sharing: 1.0,
            });
        }
        (speeds.prefill(Work::Generate).at(200.0) + speeds.decode().at(1.0) * 99.0).0
    }

    #[test]
    fn totals_alone_teach_a_fast_and_a_slow_worker() {
        for took in [0.4, 10.0] {
            let found = learned(Seconds(took), Seconds::ZERO);
            assert!((found / took - 1.0).abs() < 0.05, "{found} {took}");
        }
    }

    #[test]
    fn the_wait_in_a_total_is_not_taken_for_work() {
        let found = learned(Seconds(6.0), Seconds(2.0));
        assert!((found / 4.0 - 1.0).abs() < 0.05, "{found}");
    }
}
