//! `[[machine]]`: the boxes that workers run on.

use std::sync::Arc;

use super::{name, region};
use crate::config::plan::MachinePlan;
use crate::config::typed::{Section, Value};
use crate::units::{Currency, Money};

/// The machines in their order. One that no worker names does nothing, which is said.
pub fn machines(
    sections: &[Section<'_>],
    names: &[Option<Arc<str>>],
    regions: &[Option<Arc<str>>],
    workers: &[Section<'_>],
) -> Option<Vec<MachinePlan>> {
    let read: Vec<Option<MachinePlan>> = sections
        .iter()
        .zip(names)
        .map(|(section, name)| machine(section, name.clone(), regions, workers))
        .collect();
    read.into_iter().collect()
}

fn machine(
    section: &Section<'_>,
    name: Option<Arc<str>>,
    regions: &[Option<Arc<str>>],
    workers: &[Section<'_>],
) -> Option<MachinePlan> {
    let region = section.given("region");
    let region = region.and_then(|value| region::named(&value, regions));
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
    let price_per_hour = price.and_then(|value| money(&value));
    let name = name?;
    if !workers.iter().any(|worker| names(worker, &name)) {
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

/// An amount and its currency: `2.40 EUR`.
fn money(value: &Value<'_>) -> Option<Money> {
    let text = value.text()?;
    let read = text.split_once(' ').and_then(|(amount, code)| {
        Some(Money {
            nanos: nanos(amount)?,
            currency: Currency::named(code)?,
        })
    });
    if read.is_none() {
        value.refuse("this is not an amount with its currency");
    }
    read
}

/// A plain decimal number in billionths, exactly.
fn nanos(amount: &str) -> Option<u64> {
    const DECIMALS: usize = 9;
    const MOST_DIGITS: usize = 9;
    let (whole, decimals) = amount.split_once('.').unwrap_or((amount, "0"));
    let digits = |text: &str, most| {
        (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    if !digits(whole, MOST_DIGITS) || !digits(decimals, DECIMALS) {
        return None;
    }
    let billionths: u64 = format!("{decimals:0<DECIMALS$}").parse().ok()?;
    Some(whole.parse::<u64>().ok()? * Money::NANOS + billionths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        assert_eq!(nanos("2.40"), Some(2_400_000_000));
        assert_eq!(nanos("3"), Some(3_000_000_000));
        assert_eq!(nanos("0.000000001"), Some(1));
        for text in [
            "",
            ".5",
            "5.",
            "-1",
            "1e3",
            "1,5",
            "1.0000000001",
            "9999999999",
        ] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }
}
