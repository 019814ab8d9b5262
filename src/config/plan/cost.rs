//! What money is worth in seconds, so that a price can stand beside times in one sum.

use std::fmt;

use crate::units::{Currency, Money, Seconds};

/// So many seconds for so much money.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostRate {
    /// The seconds, above zero.
    pub span: Seconds,
    /// The money.
    pub per: MoneyUnit,
}

/// What a rate is told for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoneyUnit {
    /// A hundredth of the currency that all machines are priced in.
    Cent,
    /// One of this currency, which all machines are priced in.
    One(Currency),
}

impl CostRate {
    /// What an amount is worth.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "fifteen digits of a price will do"
    )]
    pub fn seconds(&self, money: &Money) -> Seconds {
        let cents = match self.per {
            MoneyUnit::Cent => 100.0,
            MoneyUnit::One(_) => 1.0,
        };
        self.span * (money.nanos as f64 / Money::NANOS as f64 * cents)
    }
}

/// As an operator types it: `500ms per cent`, `50s per EUR`.
impl fmt::Display for CostRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.per {
            MoneyUnit::Cent => write!(f, "{} per cent", self.span),
            MoneyUnit::One(currency) => write!(f, "{} per {currency}", self.span),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cents_and_whole_units_come_to_the_same() {
        let currency = Currency::named("EUR").unwrap();
        let money = Money {
            nanos: 2_400_000_000,
            currency,
        };
        let rate = |span, per| CostRate {
            span: Seconds(span),
            per,
        };
        let (cent, one) = (
            rate(0.5, MoneyUnit::Cent),
            rate(50.0, MoneyUnit::One(currency)),
        );
        assert!((cent.seconds(&money).0 - 120.0).abs() < 1e-9);
        assert!((one.seconds(&money).0 - 120.0).abs() < 1e-9);
        let shown = [cent, one].map(|rate| rate.to_string());
        assert_eq!(shown, ["500ms per cent", "50s per EUR"]);
    }
}
