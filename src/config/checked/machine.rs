//! `[[machine]]`: the boxes that workers run on.

use std::sync::Arc;

use super::money::OneCurrency;
use super::{name, region};
use crate::config::plan::MachinePlan;
use crate::config::typed::{Section, Value};

/// What machines refer to.
pub struct Known<'a> {
    /// The names of regions.
    pub regions: &'a [Option<Arc<str>>],
    /// The workers, one of which must run on each.
    pub workers: &'a [Section<'a>],
    /// What prices are in.
    pub currency: &'a OneCurrency,
}

/// The machines in their order. One that no worker names does nothing, which is said.
pub fn machines(
    sections: &[Section<'_>],
    names: &[Option<Arc<str>>],
    known: &Known<'_>,
) -> Option<Vec<MachinePlan>> {
    let read: Vec<Option<MachinePlan>> = sections
        .iter()
        .zip(names)
        .map(|(section, name)| machine(section, name.clone(), known))
        .collect();
    read.into_iter().collect()
}

fn machine(
    section: &Section<'_>,
    name: Option<Arc<str>>,
    known: &Known<'_>,
) -> Option<MachinePlan> {
    let region = section.given("region");
    let region = region.and_then(|value| region::named(&value, known.regions));
    let watts = section.given("watts").and_then(|value| value.number());
    let idle_watts = section.given("idle_watts").and_then(|value| value.number());
    if let (Some(watts), Some(idle)) = (watts, idle_watts)
        && idle > watts
    {
        let message = format!("this is more than the {watts} W of the machine at work");
        let typed = section.given("idle_watts")?;
        typed.refuse_for(message, format!("write: idle_watts = {watts}, or less"));
    }
    let price = section.given("price_per_hour");
    let price_per_hour = price.and_then(|value| known.currency.amount(&value, &value.text()?));
    let name = name?;
    if !known.workers.iter().any(|worker| names(worker, &name)) {
        let way_out = format!("write machine = \"{name}\" into a [[worker]], or leave this out");
        section
            .value("name")?
            .refuse_for("no worker runs on this machine", way_out);
    }
    Some(MachinePlan {
        name,
        region,
        watts,
        idle_watts,
        price_per_hour,
    })
}

/// Whether this worker says that it runs on the machine. What it says is judged elsewhere.
fn names(worker: &Section<'_>, machine: &str) -> bool {
    let said = worker.given("machine").and_then(|value| value.text());
    said.as_deref() == Some(machine)
}

/// The machine that a worker names.
pub fn of_worker(value: &Value<'_>, known: &[Option<Arc<str>>]) -> Option<Arc<str>> {
    let wanted = value.text()?;
    let found = name::position(value, &wanted, "machine", known)?;
    known.get(found).cloned().flatten()
}
