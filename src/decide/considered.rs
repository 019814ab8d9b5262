//! Whom a choice considered, and what became of each: what "why this worker" is answered from.
//!
//! Everybody who serves the model on the request's route stands in the list, priced, also those who were left out, so that a person sees
//! that the fast machine was full rather than wonders why it was not asked. It is written as the choice is made, by the
//! very code that makes it, into space that the next choice reuses: an explanation can't disagree with the choice, and
//! costs nothing when nobody asks. What is to outlast the next choice is copied into a [`Shortlist`].

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
    /// The tokens of the prompt that it is believed to have in its cache.
    pub cached: f64,
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
    /// It is outside of the zones that the request may go to.
    Zone,
    /// The prompt is too long for it.
    TooLong,
    /// Its probes say that it is down.
    Down,
    /// It is out for its errors.
    Ejected,
    /// Its operator drains it.
    Draining,
    /// It asked to be left alone, and somebody else is there.
    Held,
    /// It could not load the adapter, a short while ago.
    Unloadable,
    /// It does not know the path, and somebody else does.
    Unsupported,
    /// Somebody of a lower tier is up.
    Tier,
    /// A worker of its machine was tried for this request already, and there is another machine.
    SameMachine,
    /// Its memory is full of other models, which are in use or waited for.
    Occupied,
    /// The model has to leave its memory, for another that was waited for too long.
    Leaving,
    /// It holds as many requests as it may.
    Full,
    /// More would only wait inside it, and so it would with everybody else.
    Saturated,
    /// Its free places are kept for higher classes.
    Reserved,
    /// The fleet is so large that only a few were drawn to be compared.
    NotSampled,
    /// It would answer too late for the client, and somebody else would not, or nobody can be in time.
    Deadline,
}

/// What is kept of a choice: at most [`Shortlist::MOST`] workers, the one that was picked first, then those who could
/// have been, then the others; each of these from the cheapest to the dearest, and at the end those without a price.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shortlist {
    /// The workers.
    pub entries: Box<[Entry]>,
    /// How many more were considered.
    pub left_out: usize,
    /// Tokens of the prompt; zero when it could not be looked up, because it is short or nothing is generated from it.
    pub prompt: f32,
    /// The most of them that somebody who could have had it is believed to have in its cache.
    pub best: f32,
}

/// One worker in what is kept of a choice. 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Who.
    pub worker: WorkerId,
    /// What became of it.
    pub fate: Fate,
    /// Its [terms](Terms::parts) in seconds; exact to seven digits, which is more than anybody knows about them.
    pub seconds: [f32; Terms::PARTS],
    /// The tokens of the prompt that it is believed to have in its cache.
    pub cached: f32,
}

impl Shortlist {
    /// The most workers that are kept of one choice.
    pub const MOST: usize = 32;

    /// Keeps these, of a request whose prompt has so many tokens. Takes one allocation, and one pass in which nearly
    /// all of a large fleet are only looked at.
    #[must_use]
    pub fn of(considered: &[Considered], prompt: f64) -> Self {
        let most = considered.len().min(Self::MOST);
        let mut kept: Vec<Entry> = Vec::with_capacity(most);
        for entry in considered.iter().map(Entry::of) {
            let place = kept.partition_point(|other| !entry.goes_before(other));
            if place < most {
                kept.truncate(most - 1);
                kept.insert(place, entry);
            }
        }
        Shortlist {
            entries: kept.into_boxed_slice(),
            left_out: considered.len() - most,
            prompt: short(prompt),
            best: short(most_cached(considered)),
        }
    }

    /// The tokens of the prompt that the one who was picked is believed to have in its cache.
    #[must_use]
    pub fn matched(&self) -> f32 {
        let first = self.entries.first();
        first
            .filter(|entry| entry.fate == Fate::Picked)
            .map_or(0.0, |entry| entry.cached)
    }
}

impl Entry {
    fn of(considered: &Considered) -> Self {
        Entry {
            worker: considered.worker,
            fate: considered.fate,
            seconds: considered.terms.parts().map(|(_, part)| short(part.0)),
            cached: short(considered.cached),
        }
    }

    /// Whether it was priced.
    #[must_use]
    pub fn is_priced(&self) -> bool {
        self.fate != Fate::Excluded(Exclusion::NotSampled)
    }

    /// All terms together.
    #[must_use]
    pub fn total(&self) -> f32 {
        self.seconds.iter().sum()
    }

    fn goes_before(&self, other: &Entry) -> bool {
        let ranks = (self.rank(), other.rank());
        ranks.0 < ranks.1 || (ranks.0 == ranks.1 && self.total() < other.total())
    }

    fn rank(&self) -> u8 {
        match self.fate {
            Fate::Picked => 0,
            Fate::Candidate => 1,
            Fate::Excluded(_) if self.is_priced() => 2,
            Fate::Excluded(_) => 3,
        }
    }
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
    /// Whether it is a matter of requests that end by themselves, so that waiting helps.
    pub(super) const fn passes(self) -> bool {
        matches!(
            self,
            Exclusion::Occupied
                | Exclusion::Leaving
                | Exclusion::Full
                | Exclusion::Saturated
                | Exclusion::Reserved
        )
    }

    /// One word, as the admin API says it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Exclusion::Tried => "tried",
            Exclusion::Zone => "zone",
            Exclusion::TooLong => "too_long",
            Exclusion::Down => "down",
            Exclusion::Ejected => "ejected",
            Exclusion::Draining => "draining",
            Exclusion::Held => "held",
            Exclusion::Unloadable => "unloadable",
            Exclusion::Unsupported => "unsupported",
            Exclusion::Tier => "tier",
            Exclusion::SameMachine => "same_machine",
            Exclusion::Occupied => "occupied",
            Exclusion::Leaving => "leaving",
            Exclusion::Full => "full",
            Exclusion::Saturated => "saturated",
            Exclusion::Reserved => "reserved",
            Exclusion::NotSampled => "not_sampled",
            Exclusion::Deadline => "deadline",
        }
    }
}

/// The most tokens that somebody has who could have been given the request.
fn most_cached(considered: &[Considered]) -> f64 {
    let able = considered
        .iter()
        .filter(|one| matches!(one.fate, Fate::Picked | Fate::Candidate));
    able.map(|one| one.cached).fold(0.0, f64::max)
}

#[expect(clippy::cast_possible_truncation, reason = "seven digits will do")]
fn short(number: f64) -> f32 {
    number as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;

    fn considered(worker: u32, fate: Fate, own: f64) -> Considered {
        let terms = Terms {
            own: Seconds(own),
            ..Terms::default()
        };
        Considered {
            worker: WorkerId(worker),
            fate,
            terms,
            cached: f64::from(worker),
        }
    }

    fn order(shortlist: &Shortlist) -> Vec<u32> {
        let workers = shortlist.entries.iter().map(|entry| entry.worker.0);
        workers.collect()
    }

    #[test]
    fn the_picked_comes_first_then_the_cheapest() {
        let all = [
            considered(0, Fate::Excluded(Exclusion::NotSampled), 0.0),
            considered(1, Fate::Excluded(Exclusion::Full), 0.1),
            considered(2, Fate::Candidate, 3.0),
            considered(3, Fate::Candidate, 2.0),
            considered(4, Fate::Picked, 2.5),
        ];
        let kept = Shortlist::of(&all, 500.0);
        assert_eq!((order(&kept), kept.left_out), (vec![4, 3, 2, 1, 0], 0));
        assert_eq!(kept.entries[0].total(), 2.5);
        assert_eq!(Shortlist::of(&[], 0.0), Shortlist::default());
    }

    #[test]
    fn a_large_fleet_is_cut_to_the_cheapest_and_keeps_the_picked() {
        let price = |id: u32| f64::from((id * 37) % 101);
        let mut all: Vec<_> = (0..101)
            .map(|id| considered(id, Fate::Candidate, price(id)))
            .collect();
        all[100].fate = Fate::Picked;
        let kept = Shortlist::of(&all, 500.0);
        let mut cheapest: Vec<u32> = (0..100).collect();
        cheapest.sort_by(|one, other| price(*one).total_cmp(&price(*other)));
        cheapest.insert(0, 100);
        cheapest.truncate(Shortlist::MOST);
        assert_eq!((order(&kept), kept.left_out), (cheapest, 69));
    }

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<Entry>(), 48);
    }
}
