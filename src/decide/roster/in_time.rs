//! Whether a request can still be answered in time.
//!
//! Work that nobody can finish before its client leaves is refused before it is begun: it would only delay the others.
//! But a price is an expectation, and half of all answers are quicker than expected. So a request is refused by what
//! even a lucky one would need: its way, its wait and its prompt, and of its answer the length that nearly all answers
//! like it have at least; and by four fifths of that, for the error of the price itself. Nothing counts that too little
//! is known of:
//!
//! - a worker with fewer than [`KNOWN`] samples, or of which nothing was seen for [`STALE`], may be in time whatever is
//!   believed of it. Otherwise one that was slow once would be slow for ever: nobody would be sent there to find out;
//! - an answer whose length, or a token of which, has been seen less often than that may be one token long;
//! - what an adapter takes to load does not count, since it may be loaded meanwhile.
//!
//! For a place that is not free a request waits in line as well; how long is the line's affair (`queue/drain.rs`).

use super::super::ask::{Ask, NoChoice, Work};
use super::super::considered::{Considered, Exclusion, Fate};
use super::super::cost::{Size, Terms};
use super::Roster;
use crate::units::{Seconds, WorkerId};

/// From so many samples on something is known: the prior is worth two.
const KNOWN: u64 = 3;
/// The part of a price that is sure: a learned line is off by a tenth or two where it has seen few requests of that size.
const SURE: f64 = 0.8;
/// For so long what a worker has shown is held against it while it is idle: as long as until it is tested.
const STALE: Seconds = Seconds(15.0);

/// When an answer could be complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// The time that it is expected to take, where it is quickest,
    pub takes: Seconds,
    /// and what it takes at the very least.
    pub least: Seconds,
}

impl Outlook {
    /// The same after a wait.
    pub(in crate::decide) fn after(self, wait: Outlook) -> Self {
        Outlook {
            takes: self.takes + wait.takes,
            least: self.least + wait.least,
        }
    }
}

/// A request, as far as its time is concerned.
#[derive(Clone, Copy)]
struct Span {
    size: Size,
    /// The tokens that its answer has at least.
    least: f64,
    now: Seconds,
}

impl Roster {
    /// Leaves out those who would be too late for the client, if somebody would not.
    ///
    /// # Errors
    /// When nobody can be in time, not even after a wait.
    pub(super) fn heed(
        &mut self,
        ask: &Ask,
        row: usize,
        size: Size,
        now: Seconds,
    ) -> Result<(), NoChoice> {
        let Some(left) = ask.deadline.map(|moment| moment - now) else {
            return Ok(());
        };
        let outlook = self.best_outlook(self.span(ask, row, size, now));
        let hopeless = outlook.filter(|outlook| outlook.least > left);
        let late = |one: &Considered| one.terms.answer() > left;
        let is_candidate = |one: &&Considered| one.fate == Fate::Candidate;
        let all_late = self.considered.iter().filter(is_candidate).all(late);
        if hopeless.is_some() || !all_late {
            for one in &mut self.considered {
                if one.fate == Fate::Candidate && late(one) {
                    one.fate = Fate::Excluded(Exclusion::Deadline);
                }
            }
        }
        match hopeless {
            Some(Outlook { takes, .. }) => Err(NoChoice::Late { takes }),
            None => Ok(()),
        }
    }

    /// When this request could be answered, once it has a place. `None` when nothing is certain.
    pub(in crate::decide) fn outlook(
        &mut self,
        ask: &Ask,
        tried: &[WorkerId],
        now: Seconds,
    ) -> Option<Outlook> {
        let row = self.row(ask)?;
        let size = self.size(ask, row);
        self.considered.clear();
        self.filter(ask, row, tried);
        self.look_up(ask, row, size);
        self.price(row, size, now);
        self.best_outlook(self.span(ask, row, size, now))
    }

    fn span(&self, ask: &Ask, row: usize, size: Size, now: Seconds) -> Span {
        let least = self.models[row].outputs.least(ask.max_tokens, KNOWN);
        Span { size, least, now }
    }

    /// The best outlook among those considered who may have it. `None` when nothing is certain of one of them.
    fn best_outlook(&self, span: Span) -> Option<Outlook> {
        let mut best: Option<Outlook> = None;
        for one in &self.considered {
            let outlook = match one.fate {
                Fate::Candidate => self.outlook_at(one.worker, one.terms, span)?,
                Fate::Excluded(exclusion) if exclusion.passes() => {
                    // Those before it there may be done when it gets its place.
                    let wait = Seconds::ZERO;
                    self.outlook_at(one.worker, Terms { wait, ..one.terms }, span)?
                }
                // Who is left out for another reason than that it can't may be asked a moment later.
                Fate::Excluded(
                    Exclusion::NotSampled
                    | Exclusion::Held
                    | Exclusion::Ejected
                    | Exclusion::Tier
                    | Exclusion::SameMachine,
                ) => return None,
                Fate::Picked | Fate::Excluded(_) => continue,
            };
            best = Some(best.map_or(outlook, |best| Outlook {
                takes: best.takes.min(outlook.takes),
                least: best.least.min(outlook.least),
            }));
        }
        best
    }

    /// What one of them takes, if something is certain.
    fn outlook_at(&self, worker: WorkerId, terms: Terms, span: Span) -> Option<Outlook> {
        let worker = self.workers.get(worker.index())?;
        let (speeds, work) = (worker.speeds(), span.size.work);
        let is_fresh = worker.inflight() > 0 || span.now - worker.used() < STALE;
        if !is_fresh || speeds.prefill_samples(work) < KNOWN {
            return None;
        }
        let knows_pace = work == Work::Generate && speeds.decode_samples() >= KNOWN;
        let tokens = if knows_pace { span.least } else { 1.0 };
        // The decode term is the pace times all tokens but the first.
        let share = ((tokens - 1.0) / (span.size.output - 1.0).max(1.0)).clamp(0.0, 1.0);
        Some(Outlook {
            takes: terms.answer(),
            least: (terms.net + terms.wait + terms.own + terms.decode * share) * SURE,
        })
    }
}
