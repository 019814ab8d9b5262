//! The only reader of time: a monotonic clock, counted from the start of the process.

use std::time::Instant;

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
}
