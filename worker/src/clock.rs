//! The only reader of time: a monotonic clock, counted from the start of the process. The calendar is read for one
//! thing only, to tell people when a model was last used; nothing is decided by it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::units::Seconds;

/// Reads the monotonic clock. Copies share one start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts counting now.
    #[expect(clippy::disallowed_methods, reason = "the clock is where time is read")]
    pub fn start() -> Self {
        Clock {
            start: Instant::now(),
        }
    }

    /// Seconds since the start.
    pub fn now(&self) -> Seconds {
        Seconds(self.start.elapsed().as_secs_f64())
    }

    /// Milliseconds since 1970, by the machine's calendar.
    #[expect(clippy::disallowed_methods, reason = "the clock is where time is read")]
    pub fn unix_millis(&self) -> u64 {
        let age = SystemTime::now().duration_since(UNIX_EPOCH);
        age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    }
}
