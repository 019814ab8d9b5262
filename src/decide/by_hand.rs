//! What an operator changes of a running fleet by hand, and what of it holds.
//!
//! A *drained* worker gets no new request, whatever else is up and whatever `all_down` says: its operator wants to stop it.
//! Those that it holds go on to their end; nothing cuts them, not even the time within which the operator hopes to be
//! done, which is there for people to see. One that is *ejected* by hand is away as after errors, for a time and not for
//! good, and comes back slowly; one that is drained stays drained when it is ejected, since the end of the ejection would
//! let it in again. Its probes go on in both cases, and what they say goes first: a worker that was drained
//! and then stopped is down, and drained again when it is back, until somebody resumes it.
//!
//! A *speed* set by hand is what a typed one is: the belief that learning starts from. What was learned is forgotten,
//! since whoever sets it knows what the traffic does not show yet: another card, another power limit. It ends with the
//! process: the next one is left only what samples have shown since, once they have outweighed it.

use super::health::State;
use crate::units::Seconds;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ByHand {
    /// No new requests; those it holds should end within this time.
    Drain {
        /// Just for show; nothing is cut.
        within: Option<Seconds>,
    },
    /// Away for so long; for the longest of its own times out, if nobody says.
    Eject {
        /// The time.
        within: Option<Seconds>,
    },
    /// Whatever kept requests from it, other than its probes, is over.
    Resume,
    /// So many times as fast as others, above zero.
    Speed(f64),
}

/// Why an operator lets a worker have no requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// To stop it.
    Drained,
    /// To do without it for a while.
    Ejected,
    /// It is in the configuration no more.
    Removed,
}

/// A worker that an operator lets have no requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Withheld {
    pub why: Why,
    pub since: Seconds,
    pub until: Option<Seconds>,
}

/// What an operator changed of a worker and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Override {
    /// Whether it may have no requests.
    pub withheld: Option<Why>,
    /// How many times as fast as others it was said to be.
    pub speed: Option<f64>,
}

impl Why {
    /// The state of a worker that lives.
    #[must_use]
    pub const fn state(self) -> State {
        match self {
            Why::Drained | Why::Removed => State::Draining,
            Why::Ejected => State::Ejected,
        }
    }

    /// In words.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Why::Drained => "drained by hand",
            Why::Ejected => "ejected by hand",
            Why::Removed => "removed from the configuration",
        }
    }
}

impl Withheld {
    /// What is left of it.
    pub(super) fn at(mut self, now: Seconds) -> Option<Withheld> {
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
            return Some(self).filter(|kept| kept.why != Why::Ejected);
        }
        Some(self)
    }
}
