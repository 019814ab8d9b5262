//! Amounts of money, all in one currency: rates between currencies change, and a proxy that guessed them would be wrong.

use std::cell::Cell;

use crate::config::typed::{Section, Value};
use crate::units::{Currency, Money};

/// The currency of a file: the one typed at its top, else that of the first amount that is read.
pub struct OneCurrency(Cell<Option<Currency>>);

impl OneCurrency {
    /// As typed at the top, if it is.
    pub fn of(root: &Section<'_>) -> Self {
        let typed = root.given("currency").and_then(|value| {
            let code = Currency::named(&value.text()?);
            if code.is_none() {
                value.refuse("this is not a currency's code");
            }
            code
        });
        OneCurrency(Cell::new(typed))
    }

    /// Which it is, as far as is known yet.
    pub fn get(&self) -> Option<Currency> {
        self.0.get()
    }

    /// An amount and its currency: `2.40 EUR`.
    pub fn amount(&self, value: &Value<'_>, text: &str) -> Option<Money> {
        let money = read(text);
        match money {
            Some(money) => self.agree(value, money.currency),
            None => value.refuse("this is not an amount with its currency"),
        }
        money
    }

    /// Notes it when this currency is another.
    pub fn agree(&self, value: &Value<'_>, currency: Currency) {
        match self.0.get() {
            None => self.0.set(Some(currency)),
            Some(known) if known == currency => {}
            Some(known) => {
                let message = format!("other amounts of this file are in {known}");
                value.refuse_for(message, "write all amounts in one currency");
            }
        }
    }
}

/// Reads an amount with its currency.
pub fn read(text: &str) -> Option<Money> {
    let (amount, code) = text.split_once(' ')?;
    Some(Money {
        nanos: nanos(amount)?,
        currency: Currency::named(code)?,
    })
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
