//! What a request carries from attempt to attempt: whom it tried, what it has used up, and the answer that it falls
//! back on, and who is to blame where that may be the request itself.
//!
//! An answer that may yet be replaced by a better one is set aside: its place on the worker is given back and the
//! worker judged at once, while its head and the beginning of its body are kept, and the rest stays unread. If nobody
//! has a better answer the client gets it as it came. If somebody does it is dropped: a body that was there to its end
//! has given its connection back, any other closes its own.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Begun;
use crate::decide::{Ending, Outcome, RetryBudget, Tally, Verdict};
use crate::fault::Fault;
use crate::fleet::Fleet;
use crate::observe::Exchange;
use crate::units::{Seconds, WorkerId};

/// More often than the rule of ejection needs to see that nobody takes connections.
const MOST_RETURNS: u32 = 16;

/// The repeats under way, shared by all requests.
pub(super) type Repeats = Arc<Mutex<RetryBudget>>;

/// A request's place in the budget of repeats, given back when the request ends.
pub(super) struct Repeating(Repeats);

impl Drop for Repeating {
    fn drop(&mut self) {
        self.0.lock().end();
    }
}

/// The attempts of one request.
pub(super) struct Tries {
    pub tally: Tally,
    /// Who was asked.
    pub tried: Vec<WorkerId>,
    /// Whether no worker has had the request yet: all that were asked took no connection, or not all of it.
    pub unread: bool,
    /// How often it went back into line because nobody was left.
    returns: u32,
    /// The last answer that was not good enough while somebody else could be asked.
    spare: Option<Box<Begun>>,
    /// Who answered an error that may be the request's own fault.
    doubted: Vec<WorkerId>,
    fleet: Arc<Fleet>,
    repeats: Repeats,
    repeating: Option<Repeating>,
}

impl Tries {
    pub(super) fn new(tally: Tally, repeats: &Repeats, fleet: &Arc<Fleet>) -> Self {
        Tries {
            tally,
            tried: Vec::new(),
            unread: true,
            returns: 0,
            spare: None,
            doubted: Vec::new(),
            fleet: Arc::clone(fleet),
            repeats: Arc::clone(repeats),
            repeating: None,
        }
    }

    /// What becomes of the request after an attempt that ended so.
    pub(super) fn verdict(&mut self, ending: Ending, exchange: &Exchange) -> Verdict {
        if ending == Ending::Answer {
            return Verdict::Deliver;
        }
        self.unread &= ending == Ending::Refused;
        let live = exchange.live_requests();
        let verdict = self.tally.verdict(ending, live, &mut self.repeats.lock());
        if self.tally.is_budgeted() && self.repeating.is_none() {
            self.repeating = Some(Repeating(Arc::clone(&self.repeats)));
        }
        verdict
    }

    /// Keeps an answer while another worker is asked. One that says that its path is not known there replaces none that
    /// says more.
    pub(super) fn set_aside(
        &mut self,
        mut begun: Box<Begun>,
        exchange: &mut Exchange,
        now: Seconds,
    ) {
        begun.settle(exchange, now);
        if begun.is_doubted() {
            self.doubted.push(begun.worker);
        }
        if begun.ending() != Ending::Unsupported || self.spare.is_none() {
            self.spare = Some(begun);
        }
    }

    /// Forgets whom it tried, if it may go back into line as if it had just come: nobody has read it, so nothing is
    /// done twice. Workers that take no connections are ejected after a few, so that this ends.
    pub(super) fn starts_over(&mut self) -> bool {
        let again = self.unread && self.returns < MOST_RETURNS;
        if again {
            self.returns += 1;
            self.tried.clear();
        }
        again
    }

    /// The end, with an answer.
    pub(super) fn deliver(self, mut begun: Box<Begun>) -> Box<Begun> {
        match begun.begin.judged.outcome {
            Outcome::Doubted => match self.doubted[..] {
                [] => begun.begin.judged.outcome = Outcome::Failed,
                [only] if begun.worker == only => self.fleet.blame(only),
                // Two say the same of it.
                _ => {}
            },
            // It can be done, so those who could not are to blame.
            Outcome::Answered { .. } => self.doubted.iter().for_each(|one| self.fleet.blame(*one)),
            // Who is busy, or refuses it, says nothing about the others.
            _ => {}
        }
        begun.repeating = self.repeating;
        begun
    }

    /// The end, without one: the client gets what was set aside, else learns of the fault.
    pub(super) fn give_up(mut self, fault: Fault) -> Result<Box<Begun>, Fault> {
        match self.spare.take() {
            Some(spare) => Ok(self.deliver(spare)),
            None => Err(fault),
        }
    }
}
