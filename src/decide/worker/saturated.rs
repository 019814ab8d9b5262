//! How much a worker takes: what the operator or its engine states, else what it shows (`saturation.rs`).

use super::Worker;
use crate::decide::ask::Work;
use crate::decide::booking::Booking;
use crate::decide::cost::Size;
use crate::decide::memory;
use crate::decide::saturation::{Came, Held, MOST_INFLIGHT};
use crate::decide::view::Bound;
use crate::units::Seconds;

impl Worker {
    /// The most requests it is given at a time, whatever it shows.
    pub(in crate::decide) fn cap(&self) -> u32 {
        self.stated().unwrap_or(MOST_INFLIGHT)
    }

    /// Whether it may be given one more request.
    pub(in crate::decide) fn has_room(&self) -> bool {
        self.inflight < self.limit()
    }

    /// The most requests that it may be given now.
    pub(in crate::decide) fn limit(&self) -> u32 {
        self.condition.allowed().unwrap_or(u32::MAX).min(self.cap())
    }

    /// Whether more would only wait in it: never where somebody states how much it takes.
    pub(in crate::decide) fn is_saturated(&self) -> bool {
        self.stated().is_none() && self.saturation.is_reached(self.held())
    }

    /// The places that a share of is kept for higher classes.
    pub(in crate::decide) fn places(&self) -> u32 {
        self.limit().min(self.shown.unwrap_or(u32::MAX))
    }

    /// How much it takes, and who says so.
    pub(in crate::decide) fn bound(&self) -> Bound {
        match (self.told.slots, self.spec.cap, self.shown) {
            (Some(slots), _, _) => Bound::Engine(slots),
            (None, Some(cap), _) => Bound::Configuration(cap),
            (None, None, Some(shown)) => Bound::Learned(shown),
            (None, None, None) => Bound::Unknown,
        }
    }

    /// The most requests at a time, by the word of its engine or of the operator.
    pub(super) fn stated(&self) -> Option<u32> {
        self.told.slots.or(self.spec.cap)
    }

    /// The expected seconds of a prefill here, if nobody slows it.
    pub(super) fn own(&self, size: Size) -> Seconds {
        self.speeds.prefill(size.work).at(size.reading()) + size.toll.load
    }

    /// A first byte came; its request has left the backlog, and its worker has not learned from it yet.
    /// Neighbours on its machine make everything as much slower as `alone` says: that is not for want of places.
    pub(super) fn came(&mut self, booking: &Booking, alone: f64, now: Seconds) {
        if !booking.ends_its_prefill() {
            return;
        }
        let came = Came {
            took: now - booking.sent,
            own: Seconds(self.own(booking.size).0 / alone),
            ahead: Seconds(booking.wait.0 / alone),
            alone: booking.alone,
            gathers: booking.work() != Work::Generate,
        };
        self.saturation.came(came);
        self.saturation.served(booking.held);
    }

    /// Something began or ended: how much it takes is reckoned anew.
    pub(super) fn reckon(&mut self) {
        let (decode, samples) = (self.speeds.decode(), self.speeds.decode_samples());
        self.saturation.paced(decode, samples);
        let shown = self.saturation.places(self.held());
        self.shown = shown.filter(|_| self.stated().is_none());
    }

    fn held(&self) -> Held {
        let timed = self.backlog.timed();
        Held {
            requests: self.inflight,
            waiting: timed.count,
            ahead: Seconds(timed.seconds),
            generating: self.meter.sharing(),
            memory_full: memory::is_full(self),
        }
    }
}
