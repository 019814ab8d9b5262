//! Why requests went where they went: what was decided for the last of them, kept in memory and forgotten in order.
//!
//! A request is kept when it has ended, also one that never came to a choice; one that nobody was picked for keeps who
//! was considered, so that one can ask why nobody was. What a client said is not in it, except for the request's id and
//! the model's name: no prompt, no path, no query, no header, no name longer than the access log would repeat.
//!
//! The ring is bounded by [`MOST_KEPT`] requests, each by [`MOST_CHOICES`] choices and each choice by
//! [`Shortlist::MOST`] workers of 40 bytes. With two workers and one attempt a request takes about 0.5 KiB, 5 MiB in
//! all; if every request were sent to eight workers out of more than thirty-two it would be 10 KiB, 100 MiB in all.
//!
//! A look-up compares every id in the ring while no request can end, a search counts a reference to each. Either is some tenths of a millisecond, and only who
//! has the admin token can ask.

use std::collections::VecDeque;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;

use super::names::RouteName;
use crate::decide::Shortlist;
use crate::units::{ModelName, Seconds, WorkerId};

/// How many requests are remembered.
pub const MOST_KEPT: usize = 10_000;
/// How many choices are remembered of one request: the first ones, and the last.
pub const MOST_CHOICES: usize = 8;

/// The ring.
#[derive(Debug, Default)]
pub struct Decisions {
    kept: Mutex<VecDeque<Arc<Decision>>>,
}

/// What was decided for one request, and how that went. Spans are counted from when its head had been read.
#[derive(Debug)]
pub struct Decision {
    /// Its id.
    pub id: Box<str>,
    /// When it came, as wall time.
    pub arrived: Seconds,
    /// What it was matched to.
    pub route: Option<RouteName>,
    /// Whose request it was.
    pub tenant: Arc<str>,
    /// The model, as the client said it.
    pub model: Option<ModelName>,
    /// Whose answer it got, or who was asked last.
    pub worker: Option<WorkerId>,
    /// The answer's status.
    pub status: StatusCode,
    /// Why it ended so.
    pub reason: &'static str,
    /// How often it was sent.
    pub attempts: u32,
    /// How long it stood in line before its first attempt.
    pub queue: Option<Seconds>,
    /// How long choosing for that took.
    pub choosing: Option<Seconds>,
    /// How long its client took to send the body.
    pub body: Seconds,
    /// When the first byte of an answer came from a worker.
    pub first_byte: Option<Seconds>,
    /// When it ended.
    pub total: Seconds,
    /// Every choice that was made for it.
    pub choices: Vec<ChoiceMade>,
}

/// One choice, and the attempt that it led to.
#[derive(Debug)]
pub struct ChoiceMade {
    /// When it was made.
    pub at: Seconds,
    /// Who was considered.
    pub considered: Shortlist,
    /// Who was then asked.
    pub worker: Option<WorkerId>,
    /// When the request was sent there.
    pub sent: Option<Seconds>,
    /// How the attempt ended, and when.
    pub ended: Option<(&'static str, Seconds)>,
}

/// The choices made so far for a request that is under way.
#[derive(Debug, Default)]
pub(super) struct Made(Vec<ChoiceMade>);

impl Decisions {
    /// Remembers a request, and forgets the oldest if that makes too many.
    pub(super) fn keep(&self, decision: Decision) {
        let decision = Arc::new(decision);
        let mut kept = self.kept.lock();
        let oldest = if kept.len() < MOST_KEPT {
            None
        } else {
            kept.pop_front()
        };
        kept.push_back(decision);
        // What is forgotten is taken apart when others can go on.
        drop(kept);
        drop(oldest);
    }

    /// The last that ended, as many as that; the newest first.
    #[must_use]
    pub fn latest(&self, most: usize) -> Vec<Arc<Decision>> {
        self.kept.lock().iter().rev().take(most).cloned().collect()
    }

    /// All that are remembered; those that ended last come first.
    #[must_use]
    pub fn newest_first(&self) -> Vec<Arc<Decision>> {
        self.kept.lock().iter().rev().cloned().collect()
    }

    /// The newest request of this id that has ended, if it is remembered.
    #[must_use]
    pub fn find(&self, id: &[u8]) -> Option<Arc<Decision>> {
        let kept = self.kept.lock();
        let found = kept
            .iter()
            .rev()
            .find(|decision| decision.id.as_bytes() == id);
        found.cloned()
    }
}

impl Made {
    /// Somebody was chosen, or nobody.
    pub(super) fn choice(&mut self, considered: Shortlist, at: Seconds) {
        self.0.truncate(MOST_CHOICES - 1);
        if self.0.is_empty() {
            // Most requests need one.
            self.0.reserve_exact(1);
        }
        self.0.push(ChoiceMade {
            at,
            considered,
            worker: None,
            sent: None,
            ended: None,
        });
    }

    /// The choice that was made last leads to an attempt.
    pub(super) fn attempt(&mut self, worker: WorkerId) {
        if let Some(choice) = self.0.last_mut() {
            choice.worker = Some(worker);
        }
    }

    /// The request was sent to the worker chosen last.
    pub(super) fn sent(&mut self, at: Seconds) {
        if let Some(choice) = self.0.last_mut() {
            choice.sent = Some(at);
        }
    }

    /// The attempt at this worker ended.
    pub(super) fn ended(&mut self, worker: WorkerId, outcome: &'static str, at: Seconds) {
        let mut attempts = self.0.iter_mut().rev();
        if let Some(choice) = attempts.find(|choice| choice.worker == Some(worker)) {
            choice.ended = Some((outcome, at));
        }
    }

    /// Attempts whose end nobody saw, because the client left, end now; at whom they were.
    pub(super) fn cut_short(
        &mut self,
        outcome: &'static str,
        at: Seconds,
    ) -> impl Iterator<Item = WorkerId> {
        let open = self.0.iter_mut().filter(|choice| choice.ended.is_none());
        open.filter_map(move |choice| {
            let worker = choice.worker?;
            choice.ended = Some((outcome, at));
            Some(worker)
        })
    }

    /// The last choice that led to an attempt.
    pub(super) fn last_sent(&self) -> Option<&Shortlist> {
        let choice = self.0.iter().rev().find(|choice| choice.worker.is_some())?;
        Some(&choice.considered)
    }

    pub(super) fn into_choices(self) -> Vec<ChoiceMade> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(id: &str, total: f64) -> Decision {
        Decision {
            id: id.into(),
            arrived: Seconds::ZERO,
            route: None,
            tenant: Arc::from("-"),
            model: None,
            worker: None,
            status: StatusCode::OK,
            reason: "ok",
            attempts: 0,
            queue: None,
            choosing: None,
            body: Seconds::ZERO,
            first_byte: None,
            total: Seconds(total),
            choices: Vec::new(),
        }
    }

    #[test]
    fn the_ring_forgets_the_oldest_and_nobody_else() {
        let ring = Decisions::default();
        for number in 0..=MOST_KEPT {
            ring.keep(decision(&number.to_string(), 0.0));
        }
        assert!(ring.find(b"0").is_none());
        assert!(ring.find(b"1").is_some());
        assert!(ring.find(MOST_KEPT.to_string().as_bytes()).is_some());
        assert_eq!(ring.kept.lock().len(), MOST_KEPT);
    }

    #[test]
    fn of_two_with_one_id_the_newest_is_found() {
        let ring = Decisions::default();
        ring.keep(decision("same", 1.0));
        ring.keep(decision("same", 2.0));
        ring.keep(decision("other", 3.0));
        let found = ring.find(b"same").map(|found| found.total);
        assert_eq!(found, Some(Seconds(2.0)));
        assert!(ring.find(b"sam").is_none());
        let latest: Vec<_> = ring.latest(2).iter().map(|it| it.total.0).collect();
        assert_eq!(latest, [3.0, 2.0]);
    }

    #[test]
    fn many_choices_keep_the_first_and_the_last() {
        let mut made = Made::default();
        for number in 0..20 {
            made.choice(Shortlist::default(), Seconds(f64::from(number)));
            made.attempt(WorkerId(number));
            made.ended(WorkerId(number), "reset", Seconds(f64::from(number)));
        }
        let at: Vec<f64> = made.into_choices().iter().map(|it| it.at.0).collect();
        assert_eq!(at, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 19.0]);
    }

    #[test]
    fn an_attempt_ends_at_its_own_choice_also_after_a_later_one() {
        let mut made = Made::default();
        made.choice(Shortlist::default(), Seconds(0.0));
        made.attempt(WorkerId(0));
        made.sent(Seconds(0.1));
        made.choice(Shortlist::default(), Seconds(0.2));
        made.attempt(WorkerId(1));
        made.ended(WorkerId(0), "busy", Seconds(0.3));
        let [first, second] = &made.into_choices()[..] else {
            panic!("two choices");
        };
        assert_eq!(first.sent, Some(Seconds(0.1)));
        assert_eq!(first.ended, Some(("busy", Seconds(0.3))));
        assert_eq!((second.sent, second.ended), (None, None));
    }
}
