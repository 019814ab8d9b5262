//! `budget`: what a tenant may spend, and in which time.

use super::money::{self, OneCurrency};
use crate::config::plan::MachinePlan;
use crate::config::typed::{Value, quantity};
use crate::decide::{Amount, BudgetRule, Every};
use crate::units::Seconds;

/// One budget or a list of them, no two of which count the same in the same time. One of money must mean something: a
/// machine has a price.
pub fn budgets(
    value: &Value<'_>,
    currency: &OneCurrency,
    machines: Option<&[MachinePlan]>,
) -> Option<Vec<BudgetRule>> {
    if value.is_empty() {
        value.refuse_for("there is no budget here", "leave it out for no limit");
    }
    let listed = if value.is_text() {
        None
    } else {
        Some(value.items()?)
    };
    let mut budgets: Vec<BudgetRule> = Vec::new();
    for item in listed.as_deref().unwrap_or(std::slice::from_ref(value)) {
        let Some(rule) = budget(item, currency) else {
            continue;
        };
        let is_twin = |other: &BudgetRule| {
            other.every == rule.every && other.most.currency() == rule.most.currency()
        };
        if budgets.iter().any(is_twin) {
            let every = rule.every.word();
            let message = format!("another budget counts the same for each {every}");
            item.refuse_for(message, "keep the smaller one");
        }
        let has_price = |machine: &MachinePlan| machine.price_per_hour.is_some();
        if rule.most.currency().is_some() && machines.is_some_and(|all| !all.iter().any(has_price))
        {
            let way_out = "give a [[machine]] a price_per_hour, or count time: budget = \"2h/day\"";
            item.refuse_for("no machine has a price, so nothing would be spent", way_out);
        }
        budgets.push(rule);
    }
    Some(budgets)
}

fn budget(value: &Value<'_>, currency: &OneCurrency) -> Option<BudgetRule> {
    let text = value.text()?;
    let Some(rule) = read(&text) else {
        value.refuse("this is not an amount of money or time for a day or a month");
        return None;
    };
    if let Some(code) = rule.most.currency() {
        currency.agree(value, code);
    }
    Some(rule)
}

/// Reads `3 EUR/day`, `50 EUR/month`, `2h/day`; nothing is no budget.
fn read(text: &str) -> Option<BudgetRule> {
    let (most, every) = text.split_once('/')?;
    let every = [Every::Day, Every::Month]
        .into_iter()
        .find(|known| known.word() == every)?;
    let most = match money::read(most) {
        Some(money) => Some(Amount::Money(money)).filter(|_| money.nanos > 0),
        None => {
            let time = quantity::duration(most).ok();
            let sound = time.filter(|time| *time > Seconds::ZERO && time.0.is_finite());
            sound.map(Amount::Busy)
        }
    };
    Some(BudgetRule { most: most?, every })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_as_people_write_them() {
        let shown = |text| read(text).map(|rule| rule.to_string());
        assert_eq!(shown("3 EUR/day").as_deref(), Some("3.00 EUR/day"));
        assert_eq!(shown("0.5 USD/month").as_deref(), Some("0.50 USD/month"));
        assert_eq!(shown("90m/day").as_deref(), Some("90m/day"));
        for text in [
            "",
            "3 EUR",
            "3/day",
            "3 EUR/week",
            "3 EUR / day",
            "0 EUR/day",
            "0s/day",
            "-1h/day",
            "1 euro/day",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}
