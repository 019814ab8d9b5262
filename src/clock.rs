//! The only reader of time.
//!
//! Everything that is measured or timed out uses the monotonic clock, counted in [`Seconds`] since the process began,
//! so that a jump of the wall clock moves nothing (promise P10). Wall time is for people: log lines and pages.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::units::Seconds;

/// Reads the monotonic clock. Copies share one start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts counting now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the clock is where time is read")]
    pub fn start() -> Self {
        Clock {
            start: Instant::now(),
        }
    }

    /// Seconds since the start.
    #[must_use]
    pub fn now(&self) -> Seconds {
        Seconds::from(self.start.elapsed())
    }
}

/// Wall time as seconds since 1970 (UTC). For people only.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the clock is where time is read")]
pub fn wall() -> Seconds {
    Seconds::from(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

/// `2026-11-30T02:43:19.123Z` (RFC 3339) from seconds since 1970. Dates by the civil-from-days algorithm
/// (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "wall time in milliseconds fits i64 for 292 million years"
)]
pub fn rfc3339(wall: Seconds) -> String {
    let millis = (wall.0 * 1e3) as i64;
    let (days, in_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second, milli) = (
        in_day / 3_600_000,
        in_day / 60_000 % 60,
        in_day / 1_000 % 60,
        in_day % 1_000,
    );
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_at_the_awkward_days() {
        let at = |s: f64| rfc3339(Seconds(s));
        assert_eq!(at(0.0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400.0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_796_006_599.5), "2026-11-30T02:43:19.500Z");
        assert_eq!(at(4_107_542_399.0), "2100-02-28T23:59:59.000Z");
    }
}
