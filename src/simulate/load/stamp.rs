//! Points in time as traces write them: `2023-11-16 18:15:46.6805900` and `2026-11-30T02:43:19.500Z`.

use crate::units::Seconds;

const DAY: i64 = 86_400;

/// Seconds since 1970, fractions included; a zone is not looked at, since all lines of a trace have the same.
pub(super) fn seconds(text: &str) -> Result<Seconds, String> {
    read(text).ok_or_else(|| format!("{text} is no time"))
}

fn read(text: &str) -> Option<Seconds> {
    let (date, time) = text.trim().split_once(['T', ' '])?;
    let time = time.trim_end_matches('Z').trim_end_matches("+00:00");
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let day = days(parts.next()??, parts.next()??, parts.next()??)?;
    let mut parts = time.splitn(3, ':');
    let mut part = |most: f64| {
        let number = parts.next()?.parse::<f64>().ok()?;
        (0.0..=most).contains(&number).then_some(number)
    };
    let (hours, minutes, seconds) = (part(23.0)?, part(59.0)?, part(60.0)?);
    #[expect(clippy::cast_precision_loss, reason = "days since 1970")]
    let midnight = (day * DAY) as f64;
    Some(Seconds(
        midnight + hours * 3_600.0 + minutes * 60.0 + seconds,
    ))
}

/// Days since 1970 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let sound = (1..=9_999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    sound.then_some(era * 146_097 + days - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_others_are_not() {
        assert_eq!(seconds("1970-01-02T00:00:01.5Z"), Ok(Seconds(86_401.5)));
        assert_eq!(seconds("1970-01-02T00:00:01+00:00"), Ok(Seconds(86_401.0)));
        assert_eq!(seconds("2000-03-01 00:00:00"), Ok(Seconds(951_868_800.0)));
        assert_eq!(
            seconds("2026-11-30T02:43:19.500Z"),
            Ok(Seconds(1_796_006_599.5))
        );
        for text in [
            "",
            "now",
            "2026-13-01 00:00:00",
            "2026-11-30 25:00:00",
            "2026-11-30",
        ] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
