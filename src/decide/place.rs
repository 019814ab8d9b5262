//! Where workers are: which of them a request may go to at all, and how far each is from whoever asks.
//!
//! A *zone* is a promise to the people whose words travel: a request that names zones never leaves them, whoever fails. So it
//! is a filter and no price, and it stands where the list of those who serve a request is made (`roster/eligible.rs`),
//! the one door that choosing, waiting in line and trying again go through. A worker whose zone nobody told is in none.
//!
//! A *region* is a distance. The round trip that the operator wrote for two regions goes before the measured one:
//! connections show how far a worker is from the proxy, and can't show how far it is from a client elsewhere. Distance is
//! a price like any other, so a request stays near until the queue there costs more seconds than the way does.

use std::sync::Arc;

use crate::units::Seconds;

/// A region, by its place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionId(pub u16);

/// A set of zones, one bit for each: comparing two costs no more than comparing numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Zones(u64);

impl Zones {
    /// The most zones that can be told apart.
    pub const MOST: usize = 64;
    /// No zone.
    pub const NONE: Zones = Zones(0);

    /// The set of the one zone that has this place among all of them; of none beyond the most.
    #[must_use]
    pub const fn one(place: usize) -> Self {
        if place < Self::MOST {
            Zones(1 << place)
        } else {
            Zones::NONE
        }
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, others: Zones) -> Self {
        Zones(self.0 | others.0)
    }

    /// Those that are in both.
    #[must_use]
    pub const fn common(self, others: Zones) -> Self {
        Zones(self.0 & others.0)
    }

    /// Whether a zone is in both.
    #[must_use]
    pub const fn meets(self, others: Zones) -> bool {
        self.0 & others.0 != 0
    }
}

/// Where a worker is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// Its zone; none when nobody told.
    pub zone: Zones,
    /// The round trip to it from each region, by the region's place in the plan, where the operator wrote one down.
    pub round_trips: Arc<[Option<Seconds>]>,
}

impl Place {
    /// Whether a request that may go to these zones may come here.
    pub(super) fn is_within(&self, zones: Option<Zones>) -> bool {
        zones.is_none_or(|zones| zones.meets(self.zone))
    }

    /// The round trip from a region, where the operator wrote it down.
    pub(super) fn round_trip(&self, from: Option<RegionId>) -> Option<Seconds> {
        let row = self.round_trips.get(usize::from(from?.0))?;
        *row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_within_the_zones_that_name_its_own() {
        let zones = Zones::one(0).and(Zones::one(63));
        let within = |zone| {
            let place = Place {
                zone,
                ..Place::default()
            };
            [None, Some(zones), Some(Zones::NONE)].map(|zones| place.is_within(zones))
        };
        assert_eq!(within(Zones::one(63)), [true, true, false]);
        assert_eq!(within(Zones::one(1)), [true, false, false]);
        assert_eq!(within(Zones::NONE), [true, false, false]);
        assert_eq!(Zones::one(Zones::MOST), Zones::NONE);
    }

    #[test]
    fn a_round_trip_is_told_for_the_regions_that_have_one() {
        let place = Place {
            round_trips: [None, Some(Seconds(0.11))].into(),
            ..Place::default()
        };
        let told =
            [None, Some(0), Some(1), Some(2)].map(|from| place.round_trip(from.map(RegionId)));
        assert_eq!(told, [None, None, Some(Seconds(0.11)), None]);
    }
}
