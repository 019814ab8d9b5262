//! When more would only wait inside a worker, so that it waits in line instead, where classes and deadlines still count.
//!
//! An engine serves first come, first served, or by rules of its own: what waits in it can't be overtaken by a paid
//! request, can't be sent to another worker that becomes free, and is lost when it dies. Ours is the only line in which
//! order means something. But an engine that is given too little stands idle between two requests, or batches less than
//! it could; and how much is too little, nobody can guess: one card reads prompts in turn, another embeds sixty texts
//! in one pass, a hosted service takes whatever comes. So nothing holds a worker back until it has *shown* that it makes
//! requests wait:
//!
//! ```text
//! usual  = max(lone, own)           lone: mean time to a first byte of those that found nobody before them, the way
//!                                   included; own: what the prefill line says of this prompt
//! queued     took > 1.5·usual, and it had found work ahead       depth   = 1.25·usual of late
//! overlapped took ≤ 1.2·usual, behind work of a usual or more    depth   ≥ 2·(that work + own)
//! refused    429 or 503                                          ceiling = what it holds without this one
//! served     sent at the ceiling, and not refused                ceiling + 1 for each round of them
//! ```
//!
//! *Depth* is the prefill time that may be ahead in the worker: one usual request and a quarter, never fewer than two
//! requests, so that one is there when the one before it ends, and never less than a tenth of a second, or a quarter for
//! what is no answer of tokens: that is what engines make batches of. In seconds and not in requests, because prompts differ
//! a thousandfold; and by the line and not by a clock's hand, so that it changes only when something happens. A worker on
//! which requests overlap (it batches, or has several instances) gets twice as much each time that shows, as in TCP's
//! slow start, until they queue again; meanwhile its line learns how little each of them adds.
//!
//! The *ceiling* is there once an engine has refused a request. Asking for more costs somebody an answer, so it rises by one
//! for each round of requests that were sent at the ceiling and taken: additive increase after a sharp decrease, the rule by
//! which TCP (V. Jacobson, "Congestion Avoidance and Control", 1988) and Netflix's concurrency-limits share what nobody
//! tells them. Estimating the queue by the time of a lone request is that of TCP Vegas (L. Brakmo, L. Peterson, 1995); its
//! smallest time ever seen would be wrong here, where sizes differ, and one that follows the queue would chase itself.
//! Only a request that found nobody ahead moves ours upward.
//!
//! Besides, streams count beyond the point where one more adds hardly any tokens a second: by the line c + d·n, n of
//! them make n/(c + d·n), which is 95 hundredths of what any number can at n = 19·c/d. And memory counts that those who are
//! there fill for sure, with no word of theirs shared: where the engine tells how much it has.
//!
//! All this is a *soft* limit, for workers of which neither the operator nor the engine says a number: while somebody
//! who fits has not reached it, everybody with a free place is priced as ever, and a fast worker with a short queue may
//! still be cheaper than a slow idle one. Only when all are saturated do requests wait in line (`roster/eligible.rs`).
//! Everything here changes only at a first byte and at the end of a request, after which the line is looked at, and when
//! one is booked, which makes nobody less full: who waits has been refused by the state that still is.
//!
//! Tried in simulation, and left out: pricing the wait for a place at the ceiling, and 10 % on a worker that is
//! saturated beside one that is not. Either made the mean of synthetic sessions about 2 % worse. In six loads of one class,
//! three seeds each, the mean is what it was without any of this.
//!
//! What it does not do: the ceiling is in no price, so of two workers the cheaper by a little may be at its ceiling while
//! the other has a slot free. On workers that serve several embeddings beside each other, the prefill line shows less
//! time for each the more there are, so among equal ones the busier looks no dearer than the idler. And how many slots an
//! engine has is not learned from how long a request was kept: that was tried, and an engine whose first crowd came at once
//! was held at a third less than it could do for as long as it was watched. So who has paid classes states `max_inflight`:
//! beside a flood of ten times as much of a low class, the 99th percentile of a high one with a quarter reserved is then 1.0
//! to 1.13 times that of an idle fleet (promise P16); where nothing is stated a test holds it below 3.5 times, and one that
//! is given all there is takes more than 5.
//!
//! 2026-11-30: believed that a worker takes 64 requests when nobody says how many. An engine that runs sixteen then keeps
//! 48 of a flood before every paid request, which takes four times as long as alone.

use super::line_fit::Line;
use crate::units::Seconds;

/// The most requests at a time whatever is learned: more than any engine runs at once, it bounds what a mistake costs.
pub(super) const MOST_INFLIGHT: u32 = 4_096;

/// Requests that found work ahead and took this many times as long as usual have queued,
const QUEUED: f64 = 1.5;
/// and so few times as long, that they were served beside that work.
const OVERLAPPED: f64 = 1.2;
/// The prefill time that may be ahead of a worker, in usual requests,
const DEPTH: f64 = 1.25;
/// and the fewest requests that may: one at work, one behind it.
const LEAST_WAITING: u32 = 2;
/// It is this at least for what is no answer of tokens, so that the engine can make batches of it,
const GATHER: Seconds = Seconds(0.25);
/// and this for prompts.
const LEAST_DEPTH: Seconds = Seconds(0.1);
/// Streams make 95 hundredths of what they could at so many times c/d.
const KNEE: f64 = 19.0;
/// A knee below this many streams is taken for a line that is not known well,
const LEAST_KNEE: f64 = 32.0;
/// and so is one from fewer samples.
const KNOWN: u64 = 50;
/// So many who found nobody ahead show how long that takes. The first of a process alone does not: it is slow for reasons
/// of its own, and before a flood it would be the only one for long.
const LEAST_LONE: u32 = 2;
/// The share of a new time in a mean.
const GAIN: f64 = 1.0 / 8.0;

/// What one worker has shown of how much it takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Saturation {
    /// The time to a first byte when nobody is ahead.
    lone: Mean,
    /// What prompts of late should take.
    own: Mean,
    /// The prefill time that may be ahead in it, once requests have queued.
    depth: Option<Seconds>,
    /// The most that it held when it refused one, and what it has taken since.
    ceiling: Option<f64>,
    /// Streams beyond which more make hardly more tokens.
    knee: Option<f64>,
}

/// A mean of times, in which those of late count most.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    value: Seconds,
    samples: u32,
}

/// A first byte, as the worker saw it come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    /// From its sending.
    pub took: Seconds,
    /// What the prefill line said of its prompt.
    pub own: Seconds,
    /// The work expected to be ahead of it.
    pub ahead: Seconds,
    /// Whether nobody was.
    pub alone: bool,
    /// Whether it is no answer of tokens: such requests run as they wait, in one batch with others.
    pub gathers: bool,
}

/// What a worker holds now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Requests.
    pub requests: u32,
    /// Those of them whose first byte ends their prefill, and has not come,
    pub waiting: u32,
    /// and the seconds that these should take.
    pub ahead: Seconds,
    /// Those that generate.
    pub generating: u32,
    /// Whether they fill its memory.
    pub memory_full: bool,
}

impl Saturation {
    /// A first byte came that ended a prefill.
    pub(super) fn came(&mut self, seen: Came) {
        let Came {
            took, own, ahead, ..
        } = seen;
        if seen.alone {
            self.lone.add(took);
        }
        self.own.add(own);
        let lone = self.lone.known().unwrap_or_default();
        let usual = lone.max(own);
        if ahead > Seconds::ZERO && took > usual * QUEUED {
            let least = if seen.gathers { GATHER } else { LEAST_DEPTH };
            self.depth = Some((lone.max(self.own.value) * DEPTH).max(least));
        } else if ahead >= usual && took <= usual * OVERLAPPED {
            let twice = (ahead + own) * 2.0;
            self.depth = self.depth.map(|depth| depth.max(twice));
        }
    }

    /// It took and answered a request that was sent when it held so many.
    pub(super) fn served(&mut self, held: u32) {
        if let Some(most) = &mut self.ceiling
            && f64::from(held) >= most.floor()
        {
            *most = (*most + 1.0 / *most).min(f64::from(MOST_INFLIGHT));
        }
    }

    /// It refused a request, beside so many that it holds.
    pub(super) fn refused(&mut self, held: u32) {
        self.ceiling = Some(f64::from(held.max(1)));
    }

    /// Its streams take so long.
    pub(super) fn paced(&mut self, decode: Line, samples: u64) {
        let knee = (KNEE * decode.base / decode.slope).max(LEAST_KNEE);
        self.knee = Some(knee).filter(|_| samples >= KNOWN && decode.slope > 0.0);
    }

    /// Whether more would only wait in it.
    pub(super) fn is_reached(&self, held: Held) -> bool {
        let is_deep = |depth| held.waiting >= LEAST_WAITING && held.ahead >= depth;
        let is_over = |count: u32, most: f64| f64::from(count) >= most;
        self.depth.is_some_and(is_deep)
            || (self.ceiling).is_some_and(|most| is_over(held.requests, most))
            || self.knee.is_some_and(|knee| is_over(held.generating, knee))
            || held.memory_full
    }

    /// The most requests like those of late that it is given while it holds these, as far as that is known.
    pub(super) fn places(&self, held: Held) -> Option<u32> {
        let begun = f64::from(held.requests.saturating_sub(held.waiting));
        let deep = self.depth.map(|depth| {
            begun
                + (depth.0 / self.own.value.0)
                    .ceil()
                    .max(f64::from(LEAST_WAITING))
        });
        let bounds = [deep, self.ceiling, self.knee].into_iter().flatten();
        bounds.reduce(f64::min).map(whole)
    }
}

impl Mean {
    fn add(&mut self, sample: Seconds) {
        self.samples += 1;
        let gain = (1.0 / f64::from(self.samples)).max(GAIN);
        self.value = self.value + (sample - self.value) * gain;
    }

    /// It, once it is from more than chance.
    fn known(self) -> Option<Seconds> {
        (self.samples >= LEAST_LONE).then_some(self.value)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of places; one beyond all numbers saturates"
)]
fn whole(places: f64) -> u32 {
    (places as u32).clamp(1, MOST_INFLIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Seconds = Seconds(0.1);

    fn came(took: f64, ahead: f64) -> Came {
        Came {
            took: Seconds(took),
            own: OWN,
            ahead: Seconds(ahead),
            alone: ahead <= 0.0,
            gathers: false,
        }
    }

    fn held(requests: u32, waiting: u32, ahead: f64) -> Held {
        Held {
            requests,
            waiting,
            ahead: Seconds(ahead),
            generating: 0,
            memory_full: false,
        }
    }

    /// After a request alone and these.
    fn after(all: &[Came]) -> Saturation {
        let mut saturation = Saturation::default();
        saturation.came(came(0.1, 0.0));
        all.iter().for_each(|one| saturation.came(*one));
        saturation
    }

    #[test]
    fn nothing_holds_back_who_has_kept_nobody_waiting() {
        for shown in [after(&[]), after(&[came(0.1, 0.9), came(0.14, 0.1)])] {
            assert!(!shown.is_reached(held(4_000, 4_000, 400.0)));
            assert_eq!(shown.places(held(4, 2, 0.2)), None);
        }
    }

    #[test]
    fn who_queued_shows_how_much_may_be_ahead() {
        let shown = after(&[came(0.3, 0.2)]);
        let reached = |waiting, ahead| shown.is_reached(held(30, waiting, ahead));
        assert!(reached(2, 0.2) && !reached(1, 9.0) && !reached(9, 0.12));
        assert_eq!(shown.places(held(30, 3, 0.3)), Some(27 + 2));
    }

    #[test]
    fn who_overlaps_gets_twice_as_much_until_it_queues_again() {
        let depth = |all: &[Came]| after(all).depth.unwrap().0;
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}");
        near(depth(&[came(0.3, 0.2)]), 0.125);
        near(depth(&[came(0.3, 0.2), came(0.1, 0.1)]), 0.4);
        near(
            depth(&[came(0.3, 0.2), came(0.1, 0.1), came(0.1, 0.3)]),
            0.8,
        );
        near(
            depth(&[came(0.3, 0.2), came(0.1, 0.1), came(0.3, 0.2)]),
            0.125,
        );
    }

    #[test]
    fn who_makes_batches_has_a_quarter_of_a_second_to_make_them_of() {
        let quick = |took, ahead, gathers| Came {
            own: Seconds(0.004),
            gathers,
            ..came(took, ahead)
        };
        for (gathers, least) in [(true, GATHER), (false, LEAST_DEPTH)] {
            let shown = after(&[quick(0.2, 0.1, gathers), quick(2.0, 0.1, gathers)]);
            assert_eq!(shown.depth, Some(least));
        }
    }

    #[test]
    fn who_refuses_is_asked_for_more_once_a_round() {
        let mut shown = Saturation::default();
        shown.refused(8);
        assert!(shown.is_reached(held(8, 0, 0.0)));
        (0..8).for_each(|_| shown.served(9));
        shown.served(3);
        let most = shown.ceiling.unwrap();
        assert!((8.9..9.01).contains(&most), "{most}");
        shown.refused(0);
        assert_eq!(shown.ceiling, Some(1.0), "never nobody");
    }

    #[test]
    fn streams_that_add_no_tokens_are_too_many() {
        let mut shown = Saturation::default();
        let line = Line {
            base: 0.02,
            slope: 0.01,
        };
        let generating = |generating| Held {
            generating,
            ..held(18, 0, 0.0)
        };
        shown.paced(line, KNOWN - 1);
        assert!(!shown.is_reached(generating(38)));
        shown.paced(line, KNOWN);
        assert!(shown.is_reached(generating(38)) && !shown.is_reached(generating(37)));
        shown.paced(Line::default(), KNOWN);
        assert!(!shown.is_reached(generating(999)));
    }

    #[test]
    fn memory_that_is_full_for_sure_is_enough() {
        let full = Held {
            memory_full: true,
            ..held(1, 0, 0.0)
        };
        assert!(Saturation::default().is_reached(full));
    }
}
