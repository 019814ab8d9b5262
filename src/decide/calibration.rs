//! Test requests: who is due for one, so that what is believed of a worker can change while nobody uses it.
//!
//! A worker that was slow once is dear, so clients are not sent there, so nothing shows that it is fast again.
//! (Simulated: after a minute at a fifth of its speed it gets 7 % of its share back without tests, 87 % with them.)
//! A test goes to a worker that is up, holds nothing and has shown nothing for [`IDLE`]; the first [`FIRST`] after it
//! joined or came back follow each other at [`HASTE`], since then nothing, or nothing that still holds, is known of it.
//! So do those after a surprise, a sample far off its line: the machine may have become another. What clients show pays
//! for those too.
//!
//! Tests are like what clients ask: of models that were asked for within [`ASKED`], in turn, and of the kind that was
//! asked last. A made-up test is a chat or an embedding; a model that clients use in other ways (rerank, KServe) can be
//! tested only by a body of the operator's. Two sizes take turns, because a line needs two points; those of embeddings
//! are small, because many such models take 512 tokens at most.
//!
//! Guaranteed: a worker has one test at a time and only while it has nothing else; tests are in no pick, share or
//! expected length and in no mix that weights are built on; they do teach lines, and a failure is one. A worker that
//! refuses a test of a model (4xx) is not tested with it for [`REFUSED`].

use std::collections::BTreeMap;

use super::ask::{Choice, Work};
use super::cost::Size;
use crate::units::{ModelName, Seconds};

/// How long a worker shows nothing before it is tested.
const IDLE: Seconds = Seconds(15.0);
/// How many samples are wanted soon of one that joined or came back,
const FIRST: u64 = 6;
/// and the time between two of them.
const HASTE: Seconds = Seconds(1.0);
/// The least time between two reasons for haste: a worker that surprises all the time is not tested all the time.
const CALM: Seconds = Seconds(60.0);
/// How long a client's request for a model is a reason to test it.
const ASKED: Seconds = Seconds(300.0);
/// How long a worker is not tested with a model whose test it refused.
const REFUSED: Seconds = Seconds(600.0);
/// Prompt tokens of made-up tests that generate, by turns.
const CHATS: [f64; 2] = [256.0, 2_048.0];
/// Prompt tokens of made-up embeddings.
const EMBEDDINGS: [f64; 2] = [32.0, 256.0];
/// The path of made-up embeddings, and of clients' that they are like.
const EMBEDDINGS_PATH: &str = "/v1/embeddings";
/// The most output tokens of a made-up test.
pub const TEST_OUTPUT: u32 = 4;

/// What a worker may be tested with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Tests {
    /// Nothing.
    #[default]
    Off,
    /// Chats and embeddings made up for it.
    MadeUp,
    /// A body of the operator's.
    Given {
        /// What kind of work it is.
        work: Work,
        /// The estimated length of its prompt.
        prompt: f64,
        /// Whether its answer comes token by token.
        streamed: bool,
    },
}

/// A test that is to be sent now: its place is booked.
#[derive(Debug)]
pub struct Test {
    /// The model, by the name that clients say.
    pub model: ModelName,
    /// What kind of work it is.
    pub work: Work,
    /// The length of its prompt.
    pub prompt: f64,
    /// Where.
    pub choice: Choice,
}

/// What clients last wanted of a model.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Its name.
    pub model: ModelName,
    /// When.
    pub at: Seconds,
    /// What kind of work it was.
    pub work: Work,
    /// The built-in path that it was sent to.
    pub path: Option<&'static str>,
}

/// What a test asks of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// How much.
    pub size: Size,
    /// Whether its answer comes token by token.
    pub streamed: bool,
}

impl Tests {
    /// The trial that is like what clients want of a model, the longer or the shorter; `None` when there is none.
    pub(super) fn like(self, asked: &Asked, long: bool, now: Seconds) -> Option<Trial> {
        if now - asked.at > ASKED {
            return None;
        }
        let output = f64::from(TEST_OUTPUT);
        match self {
            Tests::MadeUp if asked.work == Work::Generate => Some(Trial {
                size: Size::new(Work::Generate, CHATS[usize::from(long)], output),
                streamed: true,
            }),
            Tests::MadeUp if asked.path == Some(EMBEDDINGS_PATH) => Some(Trial {
                size: Size::new(Work::Embed, EMBEDDINGS[usize::from(long)], output),
                streamed: false,
            }),
            Tests::Given {
                work,
                prompt,
                streamed,
            } if work == asked.work => Some(Trial {
                size: Size::new(work, prompt, output),
                streamed,
            }),
            Tests::Off | Tests::MadeUp | Tests::Given { .. } => None,
        }
    }
}

/// How much a worker has shown of its speed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    /// Samples of its prefill.
    pub samples: u64,
    /// Samples of any kind that were far off what was believed.
    pub surprises: u64,
}

/// The tests of one worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Calibration {
    /// When its present time up began.
    up_since: Option<Seconds>,
    /// Samples still wanted soon.
    owed: u64,
    /// When they were last said to be.
    hurried: Seconds,
    /// What it has shown.
    shown: Shown,
    /// How many of the next samples are a test's own.
    awaited: u64,
    /// When the last sample was noticed or the last test booked.
    last: Option<Seconds>,
    /// Tests so far.
    made: usize,
    /// Until when it is not tested with which model.
    refused: BTreeMap<usize, Seconds>,
}

impl Calibration {
    /// Whether a worker that has been up since then and has shown so much should be tested now. To be asked several times
    /// a second.
    pub(super) fn is_due(&mut self, up_since: Seconds, shown: Shown, now: Seconds) -> bool {
        match self.up_since {
            // What it has shown before it was first looked at, in this process or in another, is known.
            None => self.hurry(FIRST.saturating_sub(shown.samples), now),
            Some(before) if before != up_since => self.hurry(FIRST, now),
            Some(_) => {}
        }
        self.up_since = Some(up_since);
        let seen = std::mem::replace(&mut self.shown, shown);
        if shown.samples > seen.samples {
            let others = (shown.samples - seen.samples).saturating_sub(self.awaited);
            self.owed = self.owed.saturating_sub(others);
            (self.awaited, self.last) = (0, Some(now));
        }
        if shown.surprises > seen.surprises && now - self.hurried >= CALM {
            self.hurry(FIRST, now);
        }
        let pause = if self.owed > 0 { HASTE } else { IDLE };
        self.last.is_none_or(|last| now - last >= pause)
    }

    /// So many samples are wanted soon.
    fn hurry(&mut self, samples: u64, now: Seconds) {
        (self.owed, self.hurried) = (samples, now);
    }

    /// Which of so many models is tested next, and whether with the longer prompt.
    pub(super) fn turn(&self, models: usize) -> (usize, bool) {
        let models = models.max(1);
        (self.made % models, (self.made / models) % 2 == 1)
    }

    /// A test was booked.
    pub(super) fn begin(&mut self, now: Seconds) {
        self.owed = self.owed.saturating_sub(1);
        self.made = self.made.wrapping_add(1);
        (self.awaited, self.last) = (1, Some(now));
    }

    /// It refused a test of this model.
    pub(super) fn refused(&mut self, model: usize, now: Seconds) {
        self.refused.insert(model, now + REFUSED);
    }

    /// Whether it may be tested with this model.
    pub(super) fn allows(&self, model: usize, now: Seconds) -> bool {
        self.refused.get(&model).is_none_or(|until| now >= *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many samples, none of which was a surprise.
    fn calm(samples: u64) -> Shown {
        Shown {
            samples,
            surprises: 0,
        }
    }

    /// The times at which a worker is tested that shows a sample at each of these times, looked at every 0.2 s.
    fn tested(
        calibration: &mut Calibration,
        span: std::ops::Range<u32>,
        shows: &[u32],
    ) -> Vec<f64> {
        let mut samples = calibration.shown.samples;
        let mut times = Vec::new();
        for beat in span.start * 5..span.end * 5 {
            let now = f64::from(beat) / 5.0;
            samples += shows.iter().filter(|at| **at * 5 == beat).count() as u64;
            if calibration.is_due(Seconds::ZERO, calm(samples), Seconds(now)) {
                calibration.begin(Seconds(now));
                samples += 1;
                times.push(now);
            }
        }
        times
    }

    #[test]
    fn the_first_six_come_soon_and_the_next_when_nothing_is_shown() {
        let times = tested(&mut Calibration::default(), 0..40, &[]);
        let whole: Vec<f64> = times.iter().map(|at| at.round()).collect();
        assert_eq!(whole.len(), 8, "{times:?}");
        let gaps: Vec<f64> = whole.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            gaps[..5].iter().all(|gap| (1.0..=2.0).contains(gap)),
            "{times:?}"
        );
        assert!(
            gaps[5..].iter().all(|gap| (15.0..=16.0).contains(gap)),
            "{times:?}"
        );
    }

    #[test]
    fn what_clients_show_pays_for_tests() {
        let shows: Vec<u32> = (0..60).collect();
        let times = tested(&mut Calibration::default(), 0..60, &shows);
        assert!(times.is_empty(), "{times:?}");
    }

    #[test]
    fn one_that_comes_back_is_tested_soon_again_and_one_that_is_remembered_is_not() {
        let mut calibration = Calibration::default();
        assert!(!calibration.is_due(Seconds::ZERO, calm(20), Seconds(1.0)));
        assert!(!calibration.is_due(Seconds::ZERO, calm(20), Seconds(15.0)));
        assert!(calibration.is_due(Seconds(15.5), calm(20), Seconds(15.5)));
        calibration.begin(Seconds(15.5));
        assert!(!calibration.is_due(Seconds(15.5), calm(20), Seconds(16.0)));
        assert!(calibration.is_due(Seconds(15.5), calm(20), Seconds(16.5)));
    }

    #[test]
    fn one_that_surprises_is_tested_soon_again_but_not_all_the_time() {
        let mut calibration = Calibration::default();
        let mut times = Vec::new();
        let (mut samples, mut surprises) = (20, 0);
        for beat in 0..200 * 5 {
            let now = Seconds(f64::from(beat) / 5.0);
            // From 100 s on, whatever it shows is a surprise.
            if beat == 100 * 5 {
                (samples, surprises) = (samples + 1, surprises + 1);
            }
            if calibration.is_due(Seconds::ZERO, Shown { samples, surprises }, now) {
                calibration.begin(now);
                (samples, surprises) = (samples + 1, surprises + u64::from(now.0 > 100.0));
                times.push(now.0);
            }
        }
        let within = |from: f64, to: f64| {
            let within = times.iter().filter(|at| (from..to).contains(*at));
            within.count()
        };
        assert_eq!(
            [
                within(50.0, 100.0),
                within(100.0, 110.0),
                within(110.0, 160.0)
            ],
            [3, 6, 3],
            "{times:?}"
        );
        assert!(within(160.0, 190.0) >= 6, "{times:?}");
    }

    #[test]
    fn models_take_turns_and_each_gets_both_sizes() {
        let mut calibration = Calibration::default();
        let turns = [(); 4].map(|()| {
            let turn = calibration.turn(2);
            calibration.begin(Seconds::ZERO);
            turn
        });
        assert_eq!(turns, [(0, false), (1, false), (0, true), (1, true)]);
    }

    #[test]
    fn a_refusal_holds_for_ten_minutes_and_for_that_model() {
        let mut calibration = Calibration::default();
        calibration.refused(3, Seconds(10.0));
        assert!(!calibration.allows(3, Seconds(609.0)));
        assert!(calibration.allows(3, Seconds(610.0)) && calibration.allows(2, Seconds(11.0)));
    }

    #[test]
    fn tests_are_like_what_clients_asked_for_within_five_minutes() {
        let asked = |work, path| Asked {
            model: ModelName::new("m"),
            at: Seconds(10.0),
            work,
            path,
        };
        let chat = asked(Work::Generate, Some("/v1/chat/completions"));
        let size = |trial: Option<Trial>| trial.map(|trial| (trial.size.work, trial.size.prompt));
        let now = Seconds(310.0);
        let like = |tests: Tests, asked: &Asked| size(tests.like(asked, false, now));
        assert_eq!(like(Tests::MadeUp, &chat), Some((Work::Generate, 256.0)));
        assert_eq!(like(Tests::Off, &chat), None);
        assert!(Tests::MadeUp.like(&chat, false, Seconds(310.5)).is_none());
        let embedding = asked(Work::Embed, Some(EMBEDDINGS_PATH));
        assert_eq!(like(Tests::MadeUp, &embedding), Some((Work::Embed, 32.0)));
        let rerank = asked(Work::Embed, Some("/v1/rerank"));
        assert_eq!(like(Tests::MadeUp, &rerank), None);
        let given = Tests::Given {
            work: Work::Embed,
            prompt: 64.0,
            streamed: false,
        };
        assert_eq!(like(given, &rerank), Some((Work::Embed, 64.0)));
        assert_eq!(like(given, &chat), None);
    }
}
