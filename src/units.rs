//! The quantities Forebay reckons with, each a type of its own so that a token count can't be taken for a byte count.
//!
//! Arithmetic is kept to what makes sense: seconds add and scale, tokens times seconds-per-token gives seconds by way
//! of plain `f64` inside one formula. Time points are [`Seconds`] too, counted from the start of the process by
//! [`crate::clock::Clock`]; nothing below the clock knows of wall time.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::sync::Arc;
use std::time::Duration;

/// A span of time, or a point in time counted from the start of the process, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

impl Seconds {
    /// No time at all; as a point in time, the start of the process.
    pub const ZERO: Seconds = Seconds(0.0);

    /// The larger of two spans.
    #[must_use]
    pub fn max(self, other: Seconds) -> Seconds {
        Seconds(self.0.max(other.0))
    }

    /// The smaller of two spans.
    #[must_use]
    pub fn min(self, other: Seconds) -> Seconds {
        Seconds(self.0.min(other.0))
    }

    /// This span as the standard library's type; negative and unrepresentable spans become zero.
    #[must_use]
    pub fn to_duration(self) -> Duration {
        Duration::try_from_secs_f64(self.0).unwrap_or(Duration::ZERO)
    }
}

impl From<Duration> for Seconds {
    fn from(duration: Duration) -> Self {
        Seconds(duration.as_secs_f64())
    }
}

impl Add for Seconds {
    type Output = Seconds;
    fn add(self, other: Seconds) -> Seconds {
        Seconds(self.0 + other.0)
    }
}

impl AddAssign for Seconds {
    fn add_assign(&mut self, other: Seconds) {
        self.0 += other.0;
    }
}

impl Sub for Seconds {
    type Output = Seconds;
    fn sub(self, other: Seconds) -> Seconds {
        Seconds(self.0 - other.0)
    }
}

impl Mul<f64> for Seconds {
    type Output = Seconds;
    fn mul(self, factor: f64) -> Seconds {
        Seconds(self.0 * factor)
    }
}

impl Div<f64> for Seconds {
    type Output = Seconds;
    fn div(self, divisor: f64) -> Seconds {
        Seconds(self.0 / divisor)
    }
}

/// Prints as an operator would type it: `250ms`, `3s`, `30m`, `1h`.
impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0;
        let whole = |unit: f64| seconds >= unit && (seconds / unit).fract() == 0.0;
        match seconds {
            s if s != 0.0 && s.abs() < 1.0 => write!(f, "{}ms", (s * 1e6).round() / 1e3),
            s if whole(3600.0) => write!(f, "{}h", s / 3600.0),
            s if whole(60.0) => write!(f, "{}m", s / 60.0),
            s => write!(f, "{}s", (s * 1e3).round() / 1e3),
        }
    }
}

/// A count of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As an index into memory; saturates on machines narrower than 64 bits.
    #[must_use]
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Prints as an operator would type it: `64KiB`, `32MiB`, `1GiB`, `17B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// How long a prompt is, as it was seen. How many tokens a text makes is the model's affair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Bytes of text.
    Bytes(f64),
    /// What needs no vocabulary to be counted: token ids, elements of a tensor.
    Tokens(f64),
}

/// Which worker, by its place in the plan. Stays the same for a worker that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerId(pub u32);

impl WorkerId {
    /// As an index into a table with one row per worker.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The name of a model, as clients say it or as a worker does. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName(Arc<str>);

impl ModelName {
    /// The longest name that a configuration or a worker may bring, in characters.
    const LONGEST: usize = 256;

    /// A name that a configuration or a worker brings: not empty, not too long, without control characters, and not
    /// `*`, which stands for a model and is none.
    #[must_use]
    pub fn sound(name: &str) -> Option<Self> {
        let length = name.chars().take(Self::LONGEST + 1).count();
        let sound = name != "*"
            && (1..=Self::LONGEST).contains(&length)
            && !name.chars().any(char::is_control);
        sound.then(|| ModelName::new(name))
    }

    /// A name that a worker or client uses.
    #[must_use]
    pub fn new(name: &str) -> Self {
        ModelName(Arc::from(name))
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Lets a table keyed by model be asked with a borrowed `&str`.
impl std::borrow::Borrow<str> for ModelName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// An amount of money, in whole billionths so that sums are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    /// Billionths of the currency's unit.
    pub nanos: u64,
    /// Its currency.
    pub currency: Currency,
}

/// A currency by its three capital letters (ISO 4217).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Currency([u8; 3]);

impl Money {
    /// Billionths in one.
    pub const NANOS: u64 = 1_000_000_000;
}

impl Currency {
    /// The currency that this code names, if it has the form of one.
    #[must_use]
    pub fn named(code: &str) -> Option<Self> {
        let letters: [u8; 3] = code.as_bytes().try_into().ok()?;
        let sound = letters.iter().all(u8::is_ascii_uppercase);
        sound.then_some(Currency(letters))
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

/// As an operator types it: `2.40 EUR`, with as many decimals as it needs and at least two.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.nanos / Money::NANOS, self.nanos % Money::NANOS);
        let decimals = format!("{rest:09}");
        let needed = decimals.trim_end_matches('0').len().max(2);
        write!(f, "{whole}.{} {}", &decimals[..needed], self.currency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_print_as_an_operator_types_them() {
        let printed = [0.25, 3.0, 1800.0, 3600.0, 90.0, 1.5, 0.0].map(|s| Seconds(s).to_string());
        assert_eq!(printed, ["250ms", "3s", "30m", "1h", "90s", "1.5s", "0s"]);
    }

    #[test]
    fn bytes_print_as_an_operator_types_them() {
        let printed = [0, 17, 1024, 64 << 10, 32 << 20, 1 << 30].map(|b| Bytes(b).to_string());
        assert_eq!(printed, ["0B", "17B", "1KiB", "64KiB", "32MiB", "1GiB"]);
    }

    #[test]
    fn negative_spans_become_zero_durations() {
        assert_eq!(Seconds(-1.0).to_duration(), Duration::ZERO);
    }
}
