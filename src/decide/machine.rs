//! The box that one or more workers share: its risk, and how much they slow each other.
//!
//! A power cut, a driver or a full disk takes all workers of a box along, so outages and busy time are the machine's: an
//! outage of one worker makes its neighbours dearer too. A worker without a machine is one of its own.
//!
//! Two engines on one card take turns on it. What is believed of a worker is its speed *alone*; while m neighbours are
//! busy (hold at least one request), everything on it takes
//!
//! ```text
//! 1 + κ·m        times as long; κ ≥ 0 is the machine's coupling
//! ```
//!
//! A card that is shared fairly between n busy engines serves each 1/n as fast: κ = 1. Engines that live on different
//! parts of a box (one computes, one waits for memory) come out lower, and κ = 0 is a box whose cards are each one's own.
//! Counting busy neighbours rather than their requests keeps the form linear in the one case that is known exactly, and
//! makes it independent of batch sizes, which the lines already account for.
//!
//! Each sample of a worker that is known a little says e = took/expected − 1 at the mean m of its span. κ is the slope of
//! e against m through the origin, with forgetting, and a prior of no coupling worth a few samples. The worker's line
//! gets the sample with 1 + κ·m taken out. The two can't be told apart on a worker that is never alone; then the line
//! holds both, which is right as long as nothing changes. Any samples taken alone pull the line to the speed alone, and κ
//! follows: with line L and true speed alone T, both are at rest only where L = T and 1 + κ·m = the true slow-down.
//!
//! Known limit: a span in which neighbours come and go is counted at its mean, which is exact only if they did not.

use super::hazard::Hazard;
use crate::units::Seconds;

/// What the sums keep of their past at each sample.
const KEEP: f64 = 0.97;
/// The prior of no coupling, in samples with one busy neighbour.
const PRIOR: f64 = 2.0;
/// A sample that took longer than this many times the expected says no more than one that took this.
const LONGEST: f64 = 8.0;
/// A worker of which less is known can't say how much its neighbours slow it.
const KNOWN: u64 = 8;
/// Less of a neighbour than this is noise.
const LEAST_NEIGHBOURS: f64 = 0.05;

/// One machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    hazard: Hazard,
    /// Workers that hold a request.
    busy: u32,
    /// The integral of `busy` since the start.
    busy_seconds: f64,
    updated: Seconds,
    coupling: Coupling,
}

/// κ as a quotient of sums.
#[derive(Clone, Copy, Debug, Default)]
struct Coupling {
    /// Σ e·m
    excess: f64,
    /// Σ m²
    exposure: f64,
}

/// Something that a worker did, and what was expected of it alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// What it took.
    pub took: Seconds,
    /// What it would have taken alone.
    pub expected: Seconds,
    /// From how many samples that is known.
    pub samples: u64,
    /// The mean of busy neighbours meanwhile.
    pub neighbours: f64,
}

impl Machine {
    /// A worker of it gets its first request.
    pub(super) fn begin(&mut self, now: Seconds) {
        self.advance(now);
        self.busy += 1;
        self.hazard.begin(now);
    }

    /// A worker of it has no request any more.
    pub(super) fn end(&mut self, now: Seconds) {
        self.advance(now);
        self.busy = self.busy.saturating_sub(1);
        self.hazard.end(now);
    }

    /// An outage of a worker of it begins.
    pub(super) fn outage(&mut self, now: Seconds) {
        self.hazard.outage(now);
    }

    /// λ: expected outages per busy second.
    pub(super) fn hazard(&self, now: Seconds) -> f64 {
        self.hazard.rate(now)
    }

    /// Workers that hold a request.
    pub(super) fn busy(&self) -> u32 {
        self.busy
    }

    /// Busy-worker-seconds since the start.
    pub(super) fn busy_seconds(&mut self, now: Seconds) -> f64 {
        self.advance(now);
        self.busy_seconds
    }

    /// The mean of busy neighbours of a worker that was busy for this long until now; `before` is what
    /// [`busy_seconds`](Self::busy_seconds) was when that began. None when no time has passed.
    pub(super) fn neighbours(&mut self, before: f64, span: Seconds, now: Seconds) -> f64 {
        ((self.busy_seconds(now) - before) / span.0 - 1.0).max(0.0)
    }

    /// κ: how much longer everything takes per busy neighbour.
    pub(super) fn coupling(&self) -> f64 {
        let Coupling { excess, exposure } = self.coupling;
        (excess / (PRIOR + exposure)).max(0.0)
    }

    /// How many times as long everything takes beside so many busy neighbours.
    pub(super) fn slowdown(&self, neighbours: f64) -> f64 {
        1.0 + self.coupling() * neighbours
    }

    /// How many times as long everything takes on one of its workers now.
    pub(super) fn slowdown_beside(&self, is_busy: bool) -> f64 {
        self.slowdown(f64::from(self.busy.saturating_sub(u32::from(is_busy))))
    }

    /// Learns κ from something that a worker did, and returns what it would have taken alone.
    pub(super) fn alone(&mut self, span: Span) -> Seconds {
        let slowdown = self.slowdown(span.neighbours);
        let ratio = span.took.0 / span.expected.0;
        if span.samples >= KNOWN && span.neighbours > LEAST_NEIGHBOURS && ratio.is_finite() {
            let Coupling { excess, exposure } = &mut self.coupling;
            *excess = *excess * KEEP + (ratio.min(LONGEST) - 1.0) * span.neighbours;
            *exposure = *exposure * KEEP + span.neighbours * span.neighbours;
        }
        span.took / slowdown
    }

    fn advance(&mut self, now: Seconds) {
        let span = (now - self.updated).max(Seconds::ZERO).0;
        self.busy_seconds += span * f64::from(self.busy);
        self.updated = self.updated.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(took: f64, samples: u64, neighbours: f64) -> Span {
        Span {
            took: Seconds(took),
            expected: Seconds(0.1),
            samples,
            neighbours,
        }
    }

    #[test]
    fn coupling_is_learned_from_what_took_longer_beside_neighbours() {
        let mut machine = Machine::default();
        for _ in 0..100 {
            machine.alone(span(0.2, 50, 1.0));
            machine.alone(span(0.3, 50, 2.0));
        }
        assert!((machine.coupling() - 1.0).abs() < 0.05);
        let alone = machine.alone(span(0.3, 50, 2.0));
        assert!((alone.0 - 0.1).abs() < 0.005, "{alone}");
    }

    #[test]
    fn nothing_is_learned_alone_or_from_a_stranger_or_below_zero() {
        let mut machine = Machine::default();
        for _ in 0..100 {
            assert_eq!(machine.alone(span(0.9, 50, 0.0)), Seconds(0.9));
            machine.alone(span(0.9, 3, 1.0));
            machine.alone(span(f64::NAN, 50, 1.0));
        }
        assert_eq!(machine.coupling(), 0.0);
        for _ in 0..100 {
            machine.alone(span(0.05, 50, 1.0));
        }
        assert_eq!(machine.coupling(), 0.0);
    }

    #[test]
    fn busy_time_is_integrated_over_workers() {
        let mut machine = Machine::default();
        machine.begin(Seconds(1.0));
        machine.begin(Seconds(3.0));
        assert_eq!(machine.busy_seconds(Seconds(4.0)), 4.0);
        machine.end(Seconds(4.0));
        machine.end(Seconds(5.0));
        machine.end(Seconds(5.0));
        assert_eq!(
            (machine.busy(), machine.busy_seconds(Seconds(9.0))),
            (0, 5.0)
        );
    }

    #[test]
    fn the_worker_itself_is_not_its_neighbour() {
        let mut machine = Machine::default();
        for _ in 0..200 {
            machine.alone(span(0.2, 50, 1.0));
        }
        machine.begin(Seconds(1.0));
        assert_eq!(machine.slowdown_beside(true), 1.0);
        assert!(machine.slowdown_beside(false) > 1.9);
    }
}
