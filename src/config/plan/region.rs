//! Where machines and clients are: regions, the zones they lie in, and how a client's region is found out.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::decide::{RegionId, Zones};
use crate::units::Seconds;

/// One region. Its place in the list is its [`RegionId`].
#[derive(Clone, Debug, PartialEq)]
pub struct RegionPlan {
    /// Its name, unique among regions; `[A-Za-z0-9._-]+`.
    pub name: Arc<str>,
    /// The zone that it lies in.
    pub zone: Option<Zone>,
    /// Round trips to regions of this list, itself among them perhaps, as typed here; two regions say the same of each
    /// other.
    pub round_trips: Vec<(RegionId, Seconds)>,
    /// Clients with these addresses are in this region; a network is in one region only.
    pub networks: Vec<IpNet>,
    /// Clients in these countries are in this region; a country is in one region only.
    pub countries: Vec<Country>,
}

/// One zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its name; `[A-Za-z0-9._-]+`.
    pub name: Arc<str>,
    /// The set of this zone alone.
    pub alone: Zones,
}

/// Zones that requests may go to; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonesPlan {
    /// Their names, as typed.
    pub names: Vec<Arc<str>>,
    /// All of them.
    pub set: Zones,
}

/// A country by its two capital letters (ISO 3166).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Country([u8; 2]);

impl Country {
    /// The country that this code names, if it has the form of one.
    #[must_use]
    pub fn named(code: &str) -> Option<Self> {
        let letters: [u8; 2] = code.as_bytes().try_into().ok()?;
        let sound = letters.iter().all(u8::is_ascii_uppercase);
        sound.then_some(Country(letters))
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = self.0.map(char::from);
        write!(f, "{}{}", letters[0], letters[1])
    }
}

/// The round trip between two regions, as typed at either.
#[must_use]
pub fn round_trip(regions: &[RegionPlan], one: RegionId, other: RegionId) -> Option<Seconds> {
    let typed = |at: RegionId, to: RegionId| {
        let region = regions.get(usize::from(at.0))?;
        let found = region.round_trips.iter().find(|(id, _)| *id == to);
        found.map(|(_, span)| *span)
    };
    typed(one, other).or_else(|| typed(other, one))
}

/// The region whose network has this address; of several the narrowest.
#[must_use]
pub fn of_address(regions: &[RegionPlan], address: IpAddr) -> Option<RegionId> {
    let networks = (0..).zip(regions).flat_map(|(id, region)| {
        let networks = region.networks.iter();
        networks.map(move |network| (RegionId(id), network))
    });
    networks
        .filter(|(_, network)| network.contains(&address))
        .max_by_key(|(_, network)| network.prefix_len())
        .map(|(id, _)| id)
}

/// The region that has this country.
#[must_use]
pub fn of_country(regions: &[RegionPlan], country: Country) -> Option<RegionId> {
    let mut regions = (0..).zip(regions);
    let found = regions.find(|(_, region)| region.countries.contains(&country));
    found.map(|(id, _)| RegionId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(networks: &[&str], round_trips: &[(u16, f64)]) -> RegionPlan {
        let trip = |(to, seconds): &(u16, f64)| (RegionId(*to), Seconds(*seconds));
        RegionPlan {
            name: "r".into(),
            zone: None,
            round_trips: round_trips.iter().map(trip).collect(),
            networks: networks.iter().map(|text| text.parse().unwrap()).collect(),
            countries: Vec::new(),
        }
    }

    #[test]
    fn the_narrowest_network_decides() {
        let regions = [
            region(&["10.0.0.0/8"], &[]),
            region(&["10.1.0.0/16", "fd00::/8"], &[]),
        ];
        let found = ["10.2.0.1", "10.1.0.1", "fd00::1", "192.0.2.1"]
            .map(|text| of_address(&regions, text.parse().unwrap()));
        assert_eq!(
            found,
            [Some(0), Some(1), Some(1), None].map(|id| id.map(RegionId))
        );
    }

    #[test]
    fn a_round_trip_holds_both_ways() {
        let regions = [region(&[], &[(1, 0.11)]), region(&[], &[(1, 0.002)])];
        let told = [(0, 1), (1, 0), (1, 1), (0, 0), (0, 9)].map(|(one, other)| {
            round_trip(&regions, RegionId(one), RegionId(other)).map(|span| span.0)
        });
        assert_eq!(told, [Some(0.11), Some(0.11), Some(0.002), None, None]);
    }

    #[test]
    fn a_country_is_two_capital_letters() {
        assert_eq!(
            Country::named("DE").map(|it| it.to_string()),
            Some("DE".into())
        );
        assert!(
            ["de", "DEU", "", "Ü"]
                .iter()
                .all(|code| Country::named(code).is_none())
        );
    }
}
