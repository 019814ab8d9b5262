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
//! Neighbours come and go within a sample. With somebody there for a share p of its span, and k busy neighbours then,
//!
//! ```text
//! alone = took·((1 − p) + p/(1 + κ·k))
//! ```
//!
//! which is exact if k does not change, and so for any two engines. Each sample of a worker that is known a little gives
//! the time lost, took − expected, and the work done in company, expected − (1 − p)·took. κ is the sum of the one over the
//! sum of the other times k, with forgetting, also of the prior: no coupling, worth two samples. The line gets `alone`. Line
//! and κ can't be told apart on a worker that is never alone; then the line holds both, which is right as long as nothing
//! changes. Any samples taken alone pull the line to the speed alone, and κ follows.
//!
//! A machine's busy time is also what is paid for. While n requests are on it, an n-th of each second falls to each of them,
//! whichever of its workers they are on. So the shares of all add up to the time in which the machine was busy, no more and
//! no less, and who is there alone pays for all of it. Shares by tokens would be fairer to short requests, but nobody can
//! know them before the end, and an engine that batches is held by its requests, not by their tokens. A request costs what
//! fell to it between two readings of one sum, ∫ dt/n.
//!
//! 2026-11-30: believed that 1 + κ·m at the mean m of a sample's span would do. Seen that a card which halves was taken for
//! κ = 0.6: a sample that is slowed for half of its *work* is slowed for two thirds of its *time*.

use super::hazard::Hazard;
use crate::units::Seconds;

/// What the sums keep of their past at each sample.
const KEEP: f64 = 0.97;
/// The prior of no coupling, in samples with one busy neighbour all along.
const PRIOR: f64 = 2.0;
/// A sample that took longer than this many times the expected says no more than one that took this.
const LONGEST: f64 = 8.0;
/// The most that one neighbour slows another: one that takes four fifths of the card.
const MOST: f64 = 4.0;
/// A worker of which less is known can't say how much its neighbours slow it.
const KNOWN: u64 = 8;
/// Less company than this is noise.
const LEAST_SHARE: f64 = 0.05;

/// One machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    hazard: Hazard,
    /// Workers that hold a request.
    busy: u32,
    /// Requests that they hold.
    held: u32,
    /// Until now.
    company: Mark,
    coupling: Coupling,
}

/// A moment, and what there was of company on the machine until then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mark {
    /// On which machine.
    on: u32,
    at: Seconds,
    /// Time with at least two busy workers: each has company.
    shared: f64,
    /// The integral of the neighbours that a busy worker has.
    neighbours: f64,
    /// The busy time that fell to a request which was there all along.
    each: f64,
}

/// What company a busy worker had over a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Company {
    /// The share of the span in which there was some.
    pub share: f64,
    /// How many neighbours were busy then.
    pub neighbours: f64,
}

/// κ as a quotient of sums.
#[derive(Clone, Copy, Debug)]
struct Coupling {
    /// Time lost to company, in samples.
    lost: f64,
    /// Work done in company, in samples, times the neighbours.
    exposed: f64,
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
    /// Beside whom.
    pub company: Company,
}

impl Default for Coupling {
    fn default() -> Self {
        Coupling {
            lost: 0.0,
            exposed: PRIOR,
        }
    }
}

impl Machine {
    /// The machine of this number, on which nothing has happened yet.
    pub(super) fn numbered(number: usize) -> Self {
        let company = Mark {
            on: u32::try_from(number).unwrap_or(u32::MAX),
            ..Mark::default()
        };
        Machine {
            company,
            ..Machine::default()
        }
    }

    /// A worker moves in with so many requests.
    pub(super) fn move_in(&mut self, held: u32, now: Seconds) {
        self.advance(now);
        self.held += held;
        if held > 0 {
            self.begin(now);
        }
    }

    /// A worker of it that holds so many requests gets one more.
    pub(super) fn take(&mut self, held: u32, now: Seconds) {
        self.advance(now);
        if held == 0 {
            self.begin(now);
        }
        self.held += 1;
    }

    /// A request has ended on a worker of it that still holds so many.
    pub(super) fn give_back(&mut self, left: u32, now: Seconds) {
        self.advance(now);
        self.held = self.held.saturating_sub(1);
        if left == 0 {
            self.end(now);
        }
    }

    /// A worker of it loses all requests that it holds.
    pub(super) fn lose(&mut self, held: u32, now: Seconds) {
        self.advance(now);
        self.held = self.held.saturating_sub(held);
        if held > 0 {
            self.end(now);
        }
    }

    fn begin(&mut self, now: Seconds) {
        self.advance(now);
        self.busy += 1;
        self.hazard.begin(now);
    }

    fn end(&mut self, now: Seconds) {
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

    /// Requests that they hold.
    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// Now, to ask for the company since.
    pub(super) fn mark(&mut self, now: Seconds) -> Mark {
        self.advance(now);
        self.company
    }

    /// The company of a worker that was busy since then; none when no time has passed, or it was on another machine then.
    pub(super) fn company(&mut self, since: Mark, now: Seconds) -> Company {
        let until = self.mark(now);
        let span = (until.at - since.at).0;
        let shared = until.shared - since.shared;
        if span <= 0.0 || shared <= 0.0 || until.on != since.on {
            return Company::default();
        }
        Company {
            share: (shared / span).min(1.0),
            neighbours: (until.neighbours - since.neighbours) / shared,
        }
    }

    /// The busy time that has fallen to a request which came then and is still there; none if it came to another machine.
    pub(super) fn share_since(&mut self, came: Mark, now: Seconds) -> Seconds {
        let until = self.mark(now);
        if until.on == came.on {
            Seconds(until.each - came.each)
        } else {
            Seconds::ZERO
        }
    }

    /// κ: how much longer everything takes per busy neighbour.
    pub(super) fn coupling(&self) -> f64 {
        let Coupling { lost, exposed } = self.coupling;
        (lost / exposed).clamp(0.0, MOST)
    }

    /// How many times as long everything takes beside so many busy neighbours.
    fn slowdown(&self, neighbours: f64) -> f64 {
        1.0 + self.coupling() * neighbours
    }

    /// How much of what something took in this company it would have taken alone.
    pub(super) fn alone_share(&self, company: Company) -> f64 {
        let Company { share, neighbours } = company;
        1.0 - share + share / self.slowdown(neighbours)
    }

    /// How many times as long everything takes on one of its workers now.
    pub(super) fn slowdown_beside(&self, is_busy: bool) -> f64 {
        self.slowdown(f64::from(self.busy.saturating_sub(u32::from(is_busy))))
    }

    /// Learns κ from something that a worker did, and returns what it would have taken alone.
    pub(super) fn alone(&mut self, span: Span) -> Seconds {
        let alone = span.took * self.alone_share(span.company);
        let Company { share, neighbours } = span.company;
        let ratio = span.took.0 / span.expected.0;
        if span.samples >= KNOWN && share > LEAST_SHARE && ratio.is_finite() {
            let Coupling { lost, exposed } = &mut self.coupling;
            let ratio = ratio.min(LONGEST);
            let shared_work = (1.0 - (1.0 - share) * ratio).max(0.0);
            // No more was lost to company than the time it lasted.
            *lost = *lost * KEEP + (ratio - 1.0).min(share * ratio);
            *exposed = *exposed * KEEP + shared_work * neighbours;
        }
        alone
    }

    fn advance(&mut self, now: Seconds) {
        let Mark {
            on: _,
            at,
            shared,
            neighbours,
            each,
        } = &mut self.company;
        let span = (now - *at).max(Seconds::ZERO).0;
        if self.busy > 1 {
            *shared += span;
            *neighbours += span * f64::from(self.busy - 1);
        }
        if self.held > 0 {
            *each += span / f64::from(self.held);
        }
        *at = at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(took: f64, samples: u64, neighbours: f64) -> Span {
        let company = Company {
            share: neighbours.min(1.0),
            neighbours,
        };
        Span {
            took: Seconds(took),
            expected: Seconds(0.1),
            samples,
            company,
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
        let mut wrong = Machine::default();
        for _ in 0..100 {
            wrong.alone(span(9.9, 50, 0.1));
        }
        assert_eq!(wrong.coupling(), MOST);
        for _ in 0..100 {
            machine.alone(span(0.05, 50, 1.0));
        }
        assert_eq!(machine.coupling(), 0.0);
    }

    #[test]
    fn company_is_who_was_busy_beside_one() {
        let mut machine = Machine::default();
        machine.begin(Seconds(1.0));
        let since = machine.mark(Seconds(1.0));
        machine.begin(Seconds(3.0));
        machine.begin(Seconds(4.0));
        let company = machine.company(since, Seconds(5.0));
        assert_eq!((company.share, company.neighbours), (0.5, 1.5));
        (0..4).for_each(|_| machine.end(Seconds(5.0)));
        assert_eq!(machine.busy(), 0);
        let since = machine.mark(Seconds(6.0));
        assert_eq!(machine.company(since, Seconds(6.0)), Company::default());
        assert_eq!(machine.company(since, Seconds(9.0)), Company::default());
    }

    #[test]
    fn a_busy_second_falls_in_equal_parts_to_all_who_are_there() {
        let mut machine = Machine::default();
        let came = |machine: &mut Machine, held, now| {
            machine.take(held, Seconds(now));
            machine.mark(Seconds(now))
        };
        let first = came(&mut machine, 0, 1.0);
        let neighbour = came(&mut machine, 0, 3.0);
        let third = came(&mut machine, 1, 4.0);
        let share = |machine: &mut Machine, since| machine.share_since(since, Seconds(7.0)).0;
        let shares = [first, neighbour, third].map(|since| share(&mut machine, since));
        assert_eq!(shares, [3.5, 1.5, 1.0]);
        assert_eq!(shares.iter().sum::<f64>(), 6.0, "busy from 1 to 7");
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
