//! What an engine tells of its load, and what of that is not ours.
//!
//! Others may use a worker past this proxy: a colleague at the laptop, a second proxy. Nothing that is sent shows them
//! before it is slow. An engine that says how many requests it runs and how many wait in it shows them at once:
//!
//! ```text
//! foreign = max(0, running + waiting − ours)
//! ```
//!
//! *Ours* is the most of ours that the engine can have counted: what it held when it was asked, and all that it was given
//! until its answer was here. To look before and after would miss what came and went in between, and then be taken in by
//! it; to count too many only hides some of the others. Of the foreign ones, those wait by which its queue is longer than
//! ours without a first byte. The memory that it has in use is foreign beyond what ours will have grown to (`memory.rs`).
//!
//! Most engines count texts and not requests, and one request for embeddings may bring hundreds. While a worker holds such
//! a request of ours, what it says can't be told apart, and what it said last fades. A chat with several answers counts as
//! so many, too; that is rare, and wrong for as long as it runs.
//!
//! What the price does with it: foreign streams share the card like ours, so that a token costs more and a prefill holds up
//! more of them; foreign prompts, of the mean size that the fleet sees, are ahead of ours; where the engine tells its slots
//! and all are taken, the request waits for one. What is learned meanwhile is learned beside as many streams as there were,
//! and of a first byte only the part that was not spent behind foreign prompts: otherwise the same slowness would be
//! counted twice, once in the line and once beside it. What was learned in the moment when others came or went, before
//! the engine told it, is forgotten again (`worker/foreign.rs`).
//!
//! An engine may count wrong, lie, or fall silent. A number that can't be one is not heard. One that can holds until the
//! next is due, then fades, and is nothing after three times that time: so what is told makes a worker dearer while it
//! keeps saying so, and never takes it out. And since what a worker shows is learned beside what it tells, one that tells
//! of streams that slow nothing is soon known as one on which streams cost nothing.
//!
//! Prompts that are said to wait are disproved at once by a first byte that came no later than if nobody were ahead: that
//! number counts for nothing until the engine tells another. 2026-11-30: believed that a number which is wrong does no
//! harm for long. Seen that a gauge which is stuck at "40 waiting" keeps every client away as long as it is told, while
//! the worker is idle and test requests show that it is well.

use super::ask::{ByWork, Work};
use crate::units::Seconds;

/// The most requests that an engine is believed to run, or to keep waiting …
const MOST_BELIEVED: f64 = 100_000.0;
/// … and the most of them that count: more make no difference to where a request goes.
const MOST: f64 = 1_000.0;
/// What was told is nothing after so many times the time that it lasts.
pub(super) const FADED: f64 = 3.0;

/// What an engine says of its load; what is `None` it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests that run, whoever sent them.
    pub running: Option<f64>,
    /// Requests that wait in it.
    pub waiting: Option<f64>,
    /// The share of its KV memory in use, 0 to 1.
    pub kv_use: Option<f64>,
    /// Whether it counts the texts of a request and not requests.
    pub by_text: bool,
}

/// What an engine said to a question, or with an answer.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// What it said.
    pub load: Load,
    /// What it had of ours when it was asked.
    pub asked: Ours,
    /// The time until it is asked again.
    pub lasts: Seconds,
}

/// What a worker has of ours at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ours {
    /// The life that it is in.
    pub(super) generation: u32,
    /// Requests that it holds.
    pub(super) inflight: u32,
    /// Those of them without a first byte.
    pub(super) queued: u32,
    /// Those of them that may be many texts each.
    pub(super) embedding: u32,
    /// All that it was ever given.
    pub(super) given: u64,
    /// Tokens that those it holds will have in its memory.
    pub(super) tokens: f64,
}

/// What people see of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Said {
    /// What the engine said last.
    pub load: Load,
    /// How long ago.
    pub age: Seconds,
    /// Whether it still counts.
    pub holds: bool,
    /// Requests that are believed not to be ours.
    pub foreign: f64,
}

/// What is not ours on a worker now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Foreign {
    /// Requests that run.
    pub running: f64,
    /// Requests that wait.
    pub waiting: f64,
    /// Tokens in its memory.
    pub tokens: f64,
}

/// What one engine has told.
#[derive(Clone, Debug, Default)]
pub(super) struct ToldLoad {
    said: Load,
    heard: Option<Seconds>,
    running: Reading,
    waiting: Reading,
    tokens: Reading,
    /// The mean sizes of the prompts that the fleet sees, in tokens.
    prompts: ByWork<f64>,
    /// The number of those who wait that a first byte disproved, until another is told.
    doubted: Option<f64>,
}

/// A quantity as it was told, zero to begin with.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    value: f64,
    at: Seconds,
    lasts: Seconds,
}

impl Load {
    /// Whether it says anything.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.running.is_some() || self.waiting.is_some() || self.kv_use.is_some()
    }

    /// Without what can't be.
    fn believable(self) -> Self {
        let count = |told: Option<f64>| told.filter(|count| (0.0..=MOST_BELIEVED).contains(count));
        Load {
            running: count(self.running),
            waiting: count(self.waiting),
            kv_use: self.kv_use.filter(|share| (0.0..=1.0).contains(share)),
            by_text: self.by_text,
        }
    }

    /// This, and what was said before where it is silent.
    fn over(self, before: Load) -> Self {
        Load {
            running: self.running.or(before.running),
            waiting: self.waiting.or(before.waiting),
            kv_use: self.kv_use.or(before.kv_use),
            by_text: self.by_text,
        }
    }
}

impl Ours {
    /// Whether it holds any.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.inflight > 0
    }

    /// How many it was ever given.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// The most that an engine can have had of ours between then and `now`; `None` when that can't be told.
    fn most(self, now: Ours, by_text: bool) -> Option<Ours> {
        let is_blurred = by_text && self.embedding + now.embedding > 0;
        if self.generation != now.generation || is_blurred {
            return None;
        }
        let given = u32::try_from(now.given.saturating_sub(self.given)).unwrap_or(u32::MAX);
        let most = |then: u32, now: u32| then.saturating_add(given).max(now);
        Some(Ours {
            inflight: most(self.inflight, now.inflight),
            queued: most(self.queued, now.queued),
            tokens: self.tokens.max(now.tokens),
            ..now
        })
    }
}

impl ToldLoad {
    /// Whether what it says now was said before that moment.
    pub(super) fn was_heard_before(&self, moment: Seconds) -> bool {
        self.heard.is_some_and(|heard| heard <= moment)
    }

    /// The engine says so, now that it has so much of ours and holds so many tokens at the most.
    pub(super) fn hear(
        &mut self,
        heard: &Heard,
        now_ours: Ours,
        (kv_tokens, prompts): (Option<f64>, ByWork<f64>),
        now: Seconds,
    ) {
        let mut load = heard.load.believable();
        if !load.is_told() {
            return;
        }
        self.said = load.over(self.said);
        self.heard = Some(now);
        self.doubted = self.doubted.filter(|_| self.said.waiting == self.doubted);
        load.waiting = load.waiting.filter(|_| self.doubted.is_none());
        self.prompts = prompts;
        let Some(ours) = heard.asked.most(now_ours, load.by_text) else {
            return;
        };
        let read = |value: f64| Reading {
            value: value.max(0.0),
            at: now,
            lasts: heard.lasts,
        };
        let count = |foreign: f64| read(foreign.min(MOST));
        let (held, queued) = (f64::from(ours.inflight), f64::from(ours.queued));
        match (load.running, load.waiting) {
            (Some(running), Some(waiting)) => {
                let foreign = (running + waiting - held).max(0.0);
                let waits = (waiting - queued).clamp(0.0, foreign);
                self.waiting = count(waits);
                self.running = count(foreign - waits);
            }
            (Some(running), None) => self.running = count(running - held),
            (None, Some(waiting)) => self.waiting = count(waiting - queued),
            (None, None) => {}
        }
        if let (Some(share), Some(kv_tokens)) = (load.kv_use, kv_tokens)
            && kv_tokens.is_finite()
        {
            self.tokens = read(share * kv_tokens - ours.tokens);
        }
    }

    /// A first byte came as soon as if nobody were ahead.
    pub(super) fn nobody_waits(&mut self) {
        self.doubted = self.said.waiting;
        self.waiting = Reading::default();
    }

    /// What is not ours, as far as that is known now.
    pub(super) fn foreign(&self, now: Seconds) -> Foreign {
        Foreign {
            running: self.running.at(now),
            waiting: self.waiting.at(now),
            tokens: self.tokens.at(now),
        }
    }

    /// The size of a prompt that waits there and is not ours.
    pub(super) fn mean_prompt(&self, work: Work) -> f64 {
        self.prompts[work]
    }

    /// What people see of it, once it has said anything.
    pub(super) fn said(&self, now: Seconds) -> Option<Said> {
        let age = now - self.heard?;
        let Foreign {
            running, waiting, ..
        } = self.foreign(now);
        let lasts = [self.running, self.waiting, self.tokens].map(|reading| reading.lasts.0);
        Some(Said {
            load: self.said,
            age,
            holds: age.0 <= FADED * lasts.into_iter().fold(0.0, f64::max),
            foreign: running + waiting,
        })
    }
}

impl Reading {
    /// What is left of it.
    fn at(self, now: Seconds) -> f64 {
        let (age, lasts) = ((now - self.at).0, self.lasts.0);
        if self.value <= 0.0 || lasts <= 0.0 {
            return 0.0;
        }
        let left = (FADED - age / lasts) / (FADED - 1.0);
        self.value * left.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Ours = Ours {
        generation: 1,
        inflight: 0,
        queued: 0,
        embedding: 0,
        given: 7,
        tokens: 0.0,
    };

    fn load(running: f64, waiting: f64) -> Load {
        Load {
            running: Some(running),
            waiting: Some(waiting),
            ..Load::default()
        }
    }

    /// What is foreign at once when an engine says so to a question, with so much of ours before and after.
    fn foreign(load: Load, asked: Ours, ours: Ours) -> (f64, f64, f64) {
        let mut told = ToldLoad::default();
        let heard = Heard {
            load,
            asked,
            lasts: Seconds(1.0),
        };
        let context = (Some(1_000.0), ByWork::default());
        told.hear(&heard, ours, context, Seconds(5.0));
        let Foreign {
            running,
            waiting,
            tokens,
        } = told.foreign(Seconds(5.0));
        (running, waiting, tokens)
    }

    #[test]
    fn what_is_beyond_ours_is_foreign() {
        let ours = |inflight, queued| Ours {
            inflight,
            queued,
            ..NOTHING
        };
        let found = |load, inflight, queued| {
            let (running, waiting, _) =
                foreign(load, ours(inflight, queued), ours(inflight, queued));
            (running, waiting)
        };
        assert_eq!(found(load(3.0, 0.0), 0, 0), (3.0, 0.0));
        assert_eq!(found(load(8.0, 5.0), 0, 0), (8.0, 5.0));
        assert_eq!(found(load(8.0, 5.0), 8, 0), (0.0, 5.0));
        assert_eq!(found(load(8.0, 5.0), 9, 3), (2.0, 2.0));
        assert_eq!(found(load(2.0, 0.0), 9, 3), (0.0, 0.0));
        assert_eq!(found(load(1_024.0, 7_000.0), 24, 0), (1_000.0, 1_000.0));
        let only = |running, waiting| Load {
            running,
            waiting,
            ..Load::default()
        };
        assert_eq!(found(only(Some(4.0), None), 1, 1), (3.0, 0.0));
        assert_eq!(found(only(None, Some(4.0)), 3, 1), (0.0, 3.0));
    }

    #[test]
    fn what_came_meanwhile_is_ours_whether_it_is_still_there_or_not() {
        let sent = Ours {
            inflight: 2,
            queued: 2,
            given: 9,
            ..NOTHING
        };
        let gone = Ours {
            given: 9,
            ..NOTHING
        };
        for (asked, ours) in [(NOTHING, sent), (NOTHING, gone), (sent, gone)] {
            assert_eq!(foreign(load(2.0, 0.0), asked, ours), (0.0, 0.0, 0.0));
            assert_eq!(foreign(load(1.0, 2.0), asked, ours).0, 1.0);
        }
    }

    #[test]
    fn a_former_life_and_blurred_counts_say_nothing() {
        let later = Ours {
            generation: 2,
            ..NOTHING
        };
        assert_eq!(foreign(load(9.0, 9.0), NOTHING, later), (0.0, 0.0, 0.0));
        let embedding = Ours {
            inflight: 1,
            embedding: 1,
            ..NOTHING
        };
        let texts = Load {
            by_text: true,
            ..load(30.0, 0.0)
        };
        assert_eq!(foreign(texts, embedding, NOTHING).0, 0.0);
        assert_eq!(foreign(texts, NOTHING, embedding).0, 0.0);
        assert_eq!(foreign(texts, NOTHING, NOTHING).0, 30.0);
        assert_eq!(foreign(load(30.0, 0.0), embedding, embedding).0, 29.0);
    }

    #[test]
    fn memory_is_foreign_beyond_what_ours_will_need() {
        let kv = |kv_use| Load {
            kv_use: Some(kv_use),
            ..Load::default()
        };
        let ours = Ours {
            tokens: 300.0,
            ..NOTHING
        };
        assert_eq!(foreign(kv(0.5), ours, NOTHING).2, 200.0);
        assert_eq!(foreign(kv(0.25), ours, ours).2, 0.0);
    }

    #[test]
    fn numbers_that_cannot_be_are_not_heard() {
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e9] {
            let lie = Load {
                kv_use: Some(odd),
                ..load(odd, odd)
            };
            assert_eq!(foreign(lie, NOTHING, NOTHING), (0.0, 0.0, 0.0), "{odd}");
            let mut told = ToldLoad::default();
            let heard = Heard {
                load: lie,
                asked: NOTHING,
                lasts: Seconds(1.0),
            };
            let context = (Some(odd), ByWork::default());
            told.hear(&heard, NOTHING, context, Seconds(1.0));
            assert_eq!(told.said(Seconds(1.0)), None);
        }
    }

    #[test]
    fn what_was_told_fades_and_is_nothing_after_three_times_its_time() {
        let mut told = ToldLoad::default();
        let heard = Heard {
            load: load(4.0, 0.0),
            asked: NOTHING,
            lasts: Seconds(2.0),
        };
        let context = (None, ByWork::default());
        told.hear(&heard, NOTHING, context, Seconds(10.0));
        let left = [10.0, 12.0, 14.0, 16.0, 99.0].map(|at| told.foreign(Seconds(at)).running);
        assert_eq!(left, [4.0, 4.0, 2.0, 0.0, 0.0]);
        let said = |at| told.said(Seconds(at)).unwrap();
        assert_eq!((said(13.0).age, said(13.0).foreign), (Seconds(3.0), 3.0));
        assert_eq!((said(16.0).holds, said(16.1).holds), (true, false));
    }
}
