//! A worker that comes back begins with one request at a time, twice as many after each that it answers.
//!
//! Its queue is empty and its price is that of better days, so without this everybody who waits would be sent to it at
//! once, while it still loads its model or is about to fail again. Workers that are healthy when the process starts are
//! not slowed: that would punish every restart of the proxy.

/// The most requests at a time while a worker proves itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowStart {
    allowed: Option<u32>,
}

impl SlowStart {
    /// It is back.
    pub(super) fn begin(&mut self) {
        self.allowed = Some(1);
    }

    /// It answered one, or begins to; `full` is what it may have when all is well.
    pub(super) fn grow(&mut self, full: u32) {
        let doubled = self.allowed.map(|allowed| allowed.saturating_mul(2));
        self.allowed = doubled.filter(|allowed| *allowed < full);
    }

    /// What it may have now, while that is less than all.
    pub(super) fn allowed(self) -> Option<u32> {
        self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_until_it_makes_no_difference() {
        let mut start = SlowStart::default();
        start.grow(8);
        assert_eq!(start.allowed(), None);
        start.begin();
        let caps = [(); 4].map(|()| {
            let now = start.allowed();
            start.grow(8);
            now
        });
        assert_eq!(caps, [Some(1), Some(2), Some(4), None]);
    }
}
