//! `cost`: how many seconds money is worth.

use super::money::OneCurrency;
use crate::config::plan::{CostRate, MachinePlan, MoneyUnit};
use crate::config::typed::{Value, quantity};
use crate::units::{Currency, Seconds};

/// The rate, which must mean something for the machines there are: one of them has a price.
pub fn cost(
    value: &Value<'_>,
    currency: &OneCurrency,
    machines: Option<&[MachinePlan]>,
) -> Option<CostRate> {
    let text = value.text()?;
    let Some(rate) = read(&text) else {
        value.refuse("this is not a duration for an amount of money");
        return None;
    };
    let has_price = |machine: &MachinePlan| machine.price_per_hour.is_some();
    if !machines?.iter().any(has_price) {
        let way_out = "give a [[machine]] a price_per_hour, or leave this out";
        value.refuse_for("no machine has a price", way_out);
        return None;
    }
    if let MoneyUnit::One(code) = rate.per {
        currency.agree(value, code);
    }
    Some(rate)
}

/// Reads `0.5s per cent`, `50s per EUR`.
fn read(text: &str) -> Option<CostRate> {
    let (span, per) = text.split_once(" per ")?;
    let span = quantity::duration(span).ok()?;
    let per = match per {
        "cent" => MoneyUnit::Cent,
        code => MoneyUnit::One(Currency::named(code)?),
    };
    let sound = span > Seconds::ZERO && span.0.is_finite();
    sound.then_some(CostRate { span, per })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        let shown = |text| read(text).map(|rate| rate.to_string());
        assert_eq!(shown("0.5s per cent").as_deref(), Some("500ms per cent"));
        assert_eq!(shown("1m per EUR").as_deref(), Some("1m per EUR"));
        for text in [
            "",
            "1s",
            "1 per cent",
            "0s per cent",
            "1s per euro",
            "1s a cent",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}
