//! The numbers of zones, over all plans of a process: a request under way is bound to numbers, and may be sent again
//! long after the plan that it came under.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Plan;
use crate::decide::Zones;

/// Each zone that a plan had, and its number.
pub(super) struct KnownZones(BTreeMap<Arc<str>, Zones>);

impl KnownZones {
    /// Those of the first plan.
    pub(super) fn of(plan: &Plan) -> Self {
        KnownZones(zones(plan).collect())
    }

    /// Those of a further plan too.
    pub(super) fn add(&mut self, plan: &Plan) {
        self.0.extend(zones(plan));
    }

    /// A zone of the next plan whose number was another's, or that had another number, in words.
    pub(super) fn clash(&self, next: &Plan) -> Option<String> {
        zones(next).find_map(|(name, number)| {
            let mut known = self.0.iter();
            let differs = |(other, theirs): &(&Arc<str>, &Zones)| {
                (**other == name) != (**theirs == number)
            };
            let (other, _) = known.find(differs)?;
            Some(format!(
                "the zones {name} and {other} would change places, to which requests under way may be bound"
            ))
        })
    }
}

fn zones(plan: &Plan) -> impl Iterator<Item = (Arc<str>, Zones)> {
    let zones = plan
        .regions
        .iter()
        .filter_map(|region| region.zone.as_ref());
    zones.map(|zone| (zone.name.clone(), zone.alone))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    fn plan(zones: &[&str]) -> Plan {
        let region = |zone: &&str| format!("[[region]]\nname = \"{zone}\"\nzone = \"{zone}\"\n");
        let regions: String = zones.iter().map(region).collect();
        let text = format!(
            "state = \"unused\"\n{regions}[[worker]]\nname = \"w\"\nurl = \"http://127.0.0.1:1\"\n"
        );
        config::parse(&text, Path::new("test.toml"), &|_| None).unwrap()
    }

    #[test]
    fn zones_that_would_change_places_are_told() {
        let known = KnownZones::of(&plan(&["eu", "us"]));
        let clash = |after: &[&str]| known.clash(&plan(after)).is_some();
        assert!(clash(&["us", "eu"]) && clash(&["us"]) && clash(&["eu", "asia"]));
        assert!(!clash(&["eu", "us", "asia"]) && !clash(&["eu"]) && !clash(&[]));
    }

    #[test]
    fn the_number_of_a_zone_that_is_gone_is_given_to_nobody() {
        let mut known = KnownZones::of(&plan(&["eu", "us"]));
        let fewer = plan(&["eu"]);
        assert_eq!(known.clash(&fewer), None);
        known.add(&fewer);
        assert_eq!(known.clash(&plan(&["eu", "us", "asia"])), None);
        let clash = known.clash(&plan(&["eu", "asia"])).unwrap();
        assert!(clash.contains("asia and us"), "{clash}");
    }
}
