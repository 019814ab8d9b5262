//! The only reader of time.
//!
//! Everything that is measured or timed out uses the monotonic clock, counted in [`Seconds`] since the process began,
//! so that a jump of the wall clock moves nothing (promise P10). Wall time is for people: log lines and
//! pages, and what people name by it: until when a key or a token holds, and the day or month of a budget.

use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::units::Seconds;

/// `9999-12-31T23:59:59.999Z`
const LAST_MILLI: u64 = 253_402_300_799_999;

const DAY: f64 = 86_400.0;

/// A time that no process lives: thirty years.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

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

    /// A point in time as timers want it; one that is too far to be told lies thirty years after the start.
    #[must_use]
    pub fn instant(&self, at: Seconds) -> Instant {
        let far = self.start + FAR;
        self.start.checked_add(at.to_duration()).unwrap_or(far)
    }
}

/// The monotonic clock as other processes of this machine read it (`CLOCK_MONOTONIC`): for what is told to them.
#[must_use]
pub fn since_boot() -> Duration {
    // This clock is always there, so it can be read.
    let read = clock_gettime(ClockId::CLOCK_MONOTONIC);
    read.map(Duration::from).unwrap_or_default()
}

/// Wall time as seconds since 1970 (UTC): see above for what it is for.
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
/// (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms"), digits by hand: every line of the access log has one.
/// What lies before 1970 or after the last year of four digits is moved to that edge.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and what it yields is moved into the range"
)]
pub fn rfc3339(wall: Seconds) -> String {
    let millis = ((wall.0 * 1e3) as u64).min(LAST_MILLI);
    let (days, in_day) = (millis / 86_400_000, millis % 86_400_000);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
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
    let year = year_of_era + era * 400 + u64::from(month <= 2);

    let mut text = *b"yyyy-mm-ddThh:mm:ss.mmmZ";
    write_digits(&mut text[0..4], year);
    write_digits(&mut text[5..7], month);
    write_digits(&mut text[8..10], day);
    write_digits(&mut text[11..13], in_day / 3_600_000);
    write_digits(&mut text[14..16], in_day / 60_000 % 60);
    write_digits(&mut text[17..19], in_day / 1_000 % 60);
    write_digits(&mut text[20..23], in_day % 1_000);
    String::from_utf8(text.to_vec()).unwrap_or_default()
}

/// Seconds since 1970 of a date, which means its first moment, or of a time, both in UTC and as [`rfc3339`] writes them:
/// `2027-01-01`, `2027-01-01T12:00:00Z`. What it would not write so is none: the 30th of February, a year before 1970.
#[must_use]
pub fn from_rfc3339(text: &str) -> Option<Seconds> {
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time.strip_suffix('Z')?, ':', [2, 2, 2])?;
    if month == 0 || day == 0 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (month_index, year) = if month > 2 {
        (month - 3, year)
    } else {
        (month + 9, year.checked_sub(1)?)
    };
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = (365 * year + leap_days + day_of_year).checked_sub(719_468)?;
    let wall = Seconds(f64::from(days) * 86_400.0);
    let same_day = rfc3339(wall).starts_with(date);
    same_day.then_some(wall + Seconds(f64::from(3_600 * hour + 60 * minute + second)))
}

/// The day in UTC that a moment of wall time lies in: when it begins, and when the next does.
#[must_use]
pub fn day_of(wall: Seconds) -> Range<Seconds> {
    let begins = Seconds((wall.0.max(0.0) / DAY).floor() * DAY);
    begins..begins + Seconds(DAY)
}

/// The calendar month in UTC that a moment of wall time lies in: when it begins, and when the next does.
#[must_use]
pub fn month_of(wall: Seconds) -> Range<Seconds> {
    let first_of = |wall| {
        let date = rfc3339(wall);
        from_rfc3339(&format!("{}-01", &date[..7])).unwrap_or(wall)
    };
    let begins = first_of(wall);
    // No month has 32 days, and no two together have as few.
    begins..first_of(begins + Seconds(32.0 * DAY))
}

/// Numbers of so many digits with a sign between them.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[u32; 3]> {
    let mut parts = text.split(between);
    let mut read = [0; 3];
    for (number, length) in read.iter_mut().zip(digits) {
        let part = parts.next()?;
        let plain = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| plain)?;
    }
    parts.next().is_none().then_some(read)
}

/// Fills a place with a number's last digits.
fn write_digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
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

    #[test]
    fn dates_and_times_come_back_as_they_were_written() {
        let read = |text| from_rfc3339(text).map(|wall| wall.0);
        assert_eq!(read("1970-01-01"), Some(0.0));
        assert_eq!(read("2000-02-29"), Some(951_782_400.0));
        assert_eq!(read("2026-11-30T02:43:19Z"), Some(1_796_006_599.0));
        assert_eq!(read("2100-02-28T23:59:59Z"), Some(4_107_542_399.0));
        for day in 0..60_000 {
            let wall = Seconds(f64::from(day) * 86_400.0);
            assert_eq!(from_rfc3339(&rfc3339(wall)[..10]), Some(wall));
        }
        for odd in [
            "",
            "2027",
            "2027-1-1",
            "2027-02-29",
            "2027-13-01",
            "2027-00-10",
            "2027-01-00",
            "1969-12-31",
            "0000-01-01",
            "+027-01-01",
            "2027-01-01T24:00:00Z",
            "2027-01-01T12:00Z",
            "2027-01-01T12:00:00",
            "2027-01-01T12:00:00+01:00",
            "2027-01-01 ",
            "2027-01-01-01",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }

    #[test]
    fn times_without_a_date_of_four_digits_are_moved_to_the_edge() {
        let at = |s: f64| rfc3339(Seconds(s));
        assert_eq!(at(-1.0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(f64::NAN), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(253_402_300_799.0), "9999-12-31T23:59:59.000Z");
        assert_eq!(at(f64::INFINITY), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn days_and_months_are_those_of_the_calendar() {
        let at = |text: &str| from_rfc3339(text).unwrap();
        let is = |span: Range<Seconds>, begins: &str, ends: &str| {
            assert_eq!(span, at(begins)..at(ends));
        };
        for time in ["2028-02-29", "2028-02-29T12:00:00Z", "2028-02-29T23:59:59Z"] {
            is(day_of(at(time)), "2028-02-29", "2028-03-01");
            is(month_of(at(time)), "2028-02-01", "2028-03-01");
        }
        is(
            month_of(at("2026-12-31T23:59:59Z")),
            "2026-12-01",
            "2027-01-01",
        );
        is(month_of(at("2027-01-01")), "2027-01-01", "2027-02-01");
        assert_eq!(day_of(Seconds(-1.0)).start, Seconds::ZERO);
    }
}
