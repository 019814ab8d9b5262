//! Durations and sizes as typed: a plain decimal number and its unit, nothing between.
//!
//! A bare number is refused. `timeout = 30` is seconds to one reader and milliseconds to the next.

use crate::units::{Bytes, Seconds};

/// Units of time with what one of them is in seconds, as a fraction so that `300ms` is 0.3 s to the last bit.
const TIME: [(&str, f64, f64); 5] = [
    ("ms", 1.0, 1000.0),
    ("s", 1.0, 1.0),
    ("m", 60.0, 1.0),
    ("h", 3_600.0, 1.0),
    ("d", 86_400.0, 1.0),
];

/// Units of size with their bytes.
const SIZE: [(&str, f64); 9] = [
    ("B", 1.0),
    ("KiB", 1_024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];

/// Up to here a double counts every byte.
const LARGEST_SIZE: f64 = 9_007_199_254_740_992.0;

/// Why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// There is a number and no unit.
    NoUnit,
    /// The unit is not known.
    Unit,
    /// The number is none: empty, signed, two points.
    Number,
    /// The size is no whole number of bytes, or more than can be counted.
    Bytes,
}

impl Flaw {
    /// The flaw in words.
    pub const fn words(self) -> &'static str {
        match self {
            Flaw::NoUnit => "the unit is missing",
            Flaw::Unit => "this unit is not known",
            Flaw::Number => "this is not a plain number followed by a unit",
            Flaw::Bytes => "this is not a whole number of bytes",
        }
    }
}

/// Reads `250ms`, `1.5s`, `5m`, `2h`, `1d`.
pub fn duration(text: &str) -> Result<Seconds, Flaw> {
    let (number, unit) = split(text)?;
    let row = TIME.iter().find(|(name, ..)| *name == unit);
    let (_, times, over) = row.ok_or(Flaw::Unit)?;
    Ok(Seconds(number * times / over))
}

/// Reads `512B`, `64KiB`, `1.5GiB`, `20MB`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and below 2^53; the number carries no sign"
)]
pub fn size(text: &str) -> Result<Bytes, Flaw> {
    let (number, unit) = split(text)?;
    let row = SIZE.iter().find(|(name, _)| *name == unit);
    let (_, bytes) = row.ok_or(Flaw::Unit)?;
    let total = number * bytes;
    if total.fract() != 0.0 || total > LARGEST_SIZE {
        return Err(Flaw::Bytes);
    }
    Ok(Bytes(total as u64))
}

/// Parts number and unit.
fn split(text: &str) -> Result<(f64, &str), Flaw> {
    let border = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(border);
    let well_formed = number.starts_with(|c: char| c.is_ascii_digit())
        && number.ends_with(|c: char| c.is_ascii_digit());
    let value = number.parse::<f64>().map_err(|_| Flaw::Number)?;
    match unit {
        _ if !well_formed => Err(Flaw::Number),
        "" => Err(Flaw::NoUnit),
        unit => Ok((value, unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_to_the_last_bit() {
        let read =
            ["250ms", "300ms", "1.5s", "5m", "2h", "1d", "0s"].map(|t| duration(t).unwrap().0);
        assert_eq!(read, [0.25, 0.3, 1.5, 300.0, 7_200.0, 86_400.0, 0.0]);
    }

    #[test]
    fn sizes_are_whole_bytes() {
        let read = ["512B", "64KiB", "1.5GiB", "2kB", "3MB"].map(|t| size(t).unwrap().0);
        assert_eq!(read, [512, 65_536, 1_610_612_736, 2_000, 3_000_000]);
        assert_eq!(size("0.5B"), Err(Flaw::Bytes));
        assert_eq!(size("99999999TiB"), Err(Flaw::Bytes));
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        assert_eq!(duration("60"), Err(Flaw::NoUnit));
        assert_eq!(duration("60sec"), Err(Flaw::Unit));
        assert_eq!(duration("1h30m"), Err(Flaw::Unit));
        assert_eq!(duration("5 s"), Err(Flaw::Unit));
        for text in ["", "s", "-1s", "+1s", ".5s", "5.s", "1.2.3s", "1e3s", "٣s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
