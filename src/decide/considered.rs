//! Whom a choice considered, and what became of each: what "why this worker" is answered from.
//!
//! Everybody who may serve the request stands in the list, priced, also those who were left out, so that a person sees
//! that the fast machine was full rather than wonders why it was not asked. It is written as the choice is made, by the
//! very code that makes it, into space that the next choice reuses: an explanation can't disagree with the choice, and
//! costs nothing when nobody asks.

use super::cost::Terms;
use crate::units::WorkerId;

/// One worker in a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Considered {
    /// Who.
    pub worker: WorkerId,
    /// What became of it.
    pub fate: Fate,
    /// The seconds expected there; all zero for one that was not sampled, since it was not priced.
    pub terms: Terms,
}

/// What became of a worker in a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was given the request.
    Picked,
    /// It could have been.
    Candidate,
    /// It could not.
    Excluded(Exclusion),
}

/// Why a worker was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// It was tried for this request already.
    Tried,
    /// Its probes say that it is down.
    Down,
    /// It is out for its errors.
    Ejected,
    /// It asked to be left alone, and somebody else is there.
    Held,
    /// It does not know the path, and somebody else does.
    Unsupported,
    /// A worker of its machine was tried for this request already, and there is another machine.
    SameMachine,
    /// It holds as many requests as it may.
    Full,
    /// The fleet is so large that only a few were drawn to be compared.
    NotSampled,
    /// It would answer too late for the client, and somebody else would not.
    Deadline,
}

impl Fate {
    /// One word, as the admin API says it; for an exclusion its reason.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Fate::Picked => "picked",
            Fate::Candidate => "candidate",
            Fate::Excluded(exclusion) => exclusion.label(),
        }
    }
}

impl Exclusion {
    /// One word, as the admin API says it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Exclusion::Tried => "tried",
            Exclusion::Down => "down",
            Exclusion::Ejected => "ejected",
            Exclusion::Held => "held",
            Exclusion::Unsupported => "unsupported",
            Exclusion::SameMachine => "same_machine",
            Exclusion::Full => "full",
            Exclusion::NotSampled => "not_sampled",
            Exclusion::Deadline => "deadline",
        }
    }
}
