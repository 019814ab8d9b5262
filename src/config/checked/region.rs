//! `[[region]]`: where machines and clients are, and how far from each other.

use std::sync::Arc;

use super::{name, network};
use crate::config::plan::{Country, RegionPlan, Zone, ZonesPlan};
use crate::config::typed::{Section, Value};
use crate::decide::{RegionId, Zones};
use crate::units::Seconds;

/// A longer way is a slip: there is none on Earth.
const FARTHEST: Seconds = Seconds(60.0);

/// The regions in their order. Countries say nothing unless there is a database that tells a client's.
pub fn regions(
    sections: &[Section<'_>],
    names: &[Option<Arc<str>>],
    zones: &[Zone],
    has_database: bool,
) -> Option<Vec<RegionPlan>> {
    let mut read: Vec<Option<RegionPlan>> = Vec::new();
    for (section, name) in sections.iter().zip(names) {
        let earlier: Vec<&RegionPlan> = read.iter().flatten().collect();
        let region = region(section, names, zones, &earlier);
        if let Some(typed) = section.given("countries")
            && !region.countries.is_empty()
            && !has_database
        {
            let way_out = "write geoip = \"country.mmdb\" under [listen], or leave this out";
            typed.refuse_for("nothing tells in which country a client is", way_out);
        }
        read.push(name.clone().map(|name| RegionPlan { name, ..region }));
    }
    let read: Option<Vec<RegionPlan>> = read.into_iter().collect();
    let read = read?;
    agree(sections, &read);
    Some(read)
}

/// All zones that regions lie in, in the order in which they first appear.
pub fn zones(sections: &[Section<'_>]) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for section in sections {
        let Some(typed) = section.given("zone") else {
            continue;
        };
        let Some(name) = name::name(&typed, "zone") else {
            continue;
        };
        if zones.iter().any(|zone| zone.name == name) {
            continue;
        }
        if zones.len() == Zones::MOST {
            let message = format!("there are {} zones before this one", Zones::MOST);
            typed.refuse_for(message, "use one zone for several regions");
        }
        let alone = Zones::one(zones.len());
        zones.push(Zone { name, alone });
    }
    zones
}

/// The zones that a list names, at least one.
pub fn of_list(list: &Value<'_>, known: &[Zone]) -> Option<ZonesPlan> {
    if list.is_empty() {
        let way_out = "name a zone, or leave the key out for all";
        list.refuse_for("nobody could answer in no zone", way_out);
    }
    let (mut names, mut set) = (Vec::new(), Zones::NONE);
    for item in list.items()? {
        let wanted = item.text()?;
        let Some(zone) = known.iter().find(|zone| *zone.name == *wanted) else {
            let known: Vec<&str> = known.iter().map(|zone| &*zone.name).collect();
            let none = || format!("write zone = \"{wanted}\" into a [[region]]");
            let way_out = name::instead(&wanted, &known, none);
            item.refuse_for("no [[region]] lies in a zone of this name", way_out);
            continue;
        };
        if names.contains(&zone.name) {
            item.refuse_for("this zone is listed twice", "write it once");
        }
        names.push(zone.name.clone());
        set = set.and(zone.alone);
    }
    Some(ZonesPlan { names, set })
}

/// The region that a value names.
pub fn named(value: &Value<'_>, names: &[Option<Arc<str>>]) -> Option<RegionId> {
    let wanted = value.text()?;
    id(name::position(value, &wanted, "region", names)?)
}

/// A region without its name yet.
fn region(
    section: &Section<'_>,
    names: &[Option<Arc<str>>],
    zones: &[Zone],
    earlier: &[&RegionPlan],
) -> RegionPlan {
    let zone = section.given("zone").and_then(|value| value.text());
    let zone = zone.and_then(|name| zones.iter().find(|zone| *zone.name == *name));
    let round_trips = section.given("rtt");
    let round_trips = round_trips.and_then(|value| self::round_trips(&value, names));
    let networks = section.given("networks");
    let countries = section.given("countries");
    RegionPlan {
        name: Arc::from(""),
        zone: zone.cloned(),
        round_trips: round_trips.unwrap_or_default(),
        networks: networks.map_or_else(Vec::new, |value| {
            let read = network::networks(&value);
            let taken = |region: &RegionPlan| read.iter().any(|it| region.networks.contains(it));
            once(&value, "a network", earlier, taken);
            read
        }),
        countries: countries.map_or_else(Vec::new, |value| {
            let read = self::countries(&value);
            let taken = |region: &RegionPlan| read.iter().any(|it| region.countries.contains(it));
            once(&value, "a country", earlier, taken);
            read
        }),
    }
}

/// Notes that an earlier region has some of what a list has.
fn once(
    list: &Value<'_>,
    what: &str,
    earlier: &[&RegionPlan],
    taken: impl Fn(&RegionPlan) -> bool,
) {
    if let Some(other) = earlier.iter().find(|region| taken(region)) {
        let message = format!("region {} has {what} of this list", other.name);
        list.refuse_for(message, "leave it to one of the two");
    }
}

fn round_trips(table: &Value<'_>, names: &[Option<Arc<str>>]) -> Option<Vec<(RegionId, Seconds)>> {
    let mut read = Vec::new();
    for (to, value) in table.entries()? {
        let there = name::position(&value, &to, "region", names).and_then(id);
        let span = value.duration();
        if span.is_some_and(|span| span > FARTHEST) {
            value.refuse("this duration is out of range");
        }
        read.extend(there.zip(span));
    }
    Some(read)
}

fn countries(list: &Value<'_>) -> Vec<Country> {
    let mut known = Vec::new();
    for item in list.items().unwrap_or_default() {
        let Some(text) = item.text() else { continue };
        let Some(country) = Country::named(&text) else {
            item.refuse("this is not a country's code of two capital letters");
            continue;
        };
        if known.contains(&country) {
            item.refuse_for("this country is listed twice", "write it once");
        }
        known.push(country);
    }
    known
}

/// Two regions that both tell how far they are from each other tell the same.
fn agree(sections: &[Section<'_>], regions: &[RegionPlan]) {
    for ((here, region), section) in regions.iter().enumerate().zip(sections) {
        for (to, span) in &region.round_trips {
            let there = usize::from(to.0);
            let Some(other) = regions.get(there).filter(|_| there < here) else {
                continue;
            };
            let back = other
                .round_trips
                .iter()
                .find(|(to, _)| id(here) == Some(*to));
            if let (Some((_, back)), Some(typed)) = (back, section.given("rtt"))
                && back != span
            {
                let message = format!("region {} says {back} for this way", other.name);
                typed.refuse_for(message, "write each way once");
            }
        }
    }
}

fn id(position: usize) -> Option<RegionId> {
    u16::try_from(position).ok().map(RegionId)
}
