//! Taking a worker out for what its requests say: passive ejection.
//!
//! A probe asks whether a worker lives, a request whether it works. A worker that passes every probe and fails every
//! request is worse than a dead one: it fails fast, looks idle, and draws the next request. So `errors` errors in a row
//! within `window` eject it, whatever its probes say. Slowness never does: the price takes care of that.
//!
//! It is out for `first`·2^k up to `max`, where k grows with each ejection and falls by one per minute without an error.
//! Then it is back on *probation*: one error before its first success ejects it again, so that a worker that stays sick
//! costs one request per return and not `errors` of them.
//!
//! Whether an ejection is allowed is the roster's to say: at most half of those who fit may be out for errors (Envoy's
//! outlier detection allows 10 %, which is nobody in a fleet of eight). A worker that is not allowed out keeps its run of
//! errors, and asks again at the next one.
//!
//! A run of errors is as grave as its gravest ([`EjectCause`]), and `rise` passed probes in a row end early what they
//! disprove. Refused connections: nothing was lost but a connect, and nobody is served by keeping a worker that takes
//! none, but a probe that connects proves the contrary. Lost connections: that is what a process that dies leaves behind,
//! and what a sick one may do all day; if its probes failed too and pass now, it died and was started again. An error
//! that the worker itself answered, or that it let a timer run out for, waits out its time. What ends early counts for
//! nothing in k: a worker that is killed again and again is back as soon as it lives.

use std::collections::VecDeque;

use crate::units::Seconds;

/// The time without an error in which the next ejection becomes half as long.
const CLEAN: f64 = 60.0;

/// When a worker is ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EjectRule {
    /// So many errors in a row,
    pub errors: u32,
    /// within this time,
    pub window: Seconds,
    /// eject it for so long the first time,
    pub first: Seconds,
    /// and for twice as long each further time, up to this.
    pub max: Seconds,
}

impl Default for EjectRule {
    fn default() -> Self {
        EjectRule {
            errors: 3,
            window: Seconds(30.0),
            first: Seconds(5.0),
            max: Seconds(60.0),
        }
    }
}

/// What speaks against a worker, and what one is ejected for: the gravest of its latest errors, here in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EjectCause {
    /// It took no connection, and that is all that was wrong.
    Refused,
    /// Its connections ended before an answer was whole.
    Lost,
    /// It had requests and failed them.
    Errors,
}

impl EjectCause {
    /// As the metrics say it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            EjectCause::Refused => "refused",
            EjectCause::Lost => "lost",
            EjectCause::Errors => "errors",
        }
    }
}

/// How often a worker was ejected since the start, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ejections {
    /// For errors.
    pub errors: u64,
    /// For lost and refused connections alone.
    pub lost: u64,
    /// For refused connections alone.
    pub refused: u64,
}

impl Ejections {
    /// Each cause as the metrics say it, and its count.
    #[must_use]
    pub fn by_cause(&self) -> [(&'static str, u64); 3] {
        [
            (EjectCause::Errors.label(), self.errors),
            (EjectCause::Lost.label(), self.lost),
            (EjectCause::Refused.label(), self.refused),
        ]
    }
}

/// An error of a request.
#[derive(Clone, Copy, Debug)]
struct Error {
    at: Seconds,
    shows: EjectCause,
}

/// A worker's time out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ejection {
    /// For what.
    pub cause: EjectCause,
    /// Since when.
    pub since: Seconds,
    /// Until when.
    pub until: Seconds,
    /// The errors it took.
    errors: usize,
    /// k before it.
    level: u32,
    /// Whether a probe failed since, or the last one before.
    fell: bool,
    /// Probes that passed in a row since.
    passes: u32,
}

impl Ejection {
    /// Whether so many probes in a row have passed since.
    pub(super) fn vouched(&self, rise: u32) -> bool {
        self.passes >= rise
    }

    /// Whether these probes disprove what it is out for.
    pub(super) fn disproved(&self, rise: u32) -> bool {
        let disproves = match self.cause {
            EjectCause::Refused => true,
            EjectCause::Lost => self.fell,
            EjectCause::Errors => false,
        };
        disproves && self.vouched(rise)
    }

    /// In words.
    pub(super) fn reason(&self) -> String {
        let what = match self.cause {
            EjectCause::Errors => "error",
            EjectCause::Lost => "lost connection",
            EjectCause::Refused => "refused connection",
        };
        match self.errors {
            0 | 1 => format!("one more {what} before any success"),
            many => format!("{many} {what}s in a row"),
        }
    }
}

/// One worker's errors, and its time out.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    rule: EjectRule,
    /// The latest errors in a row, at most as many as eject it.
    run: VecDeque<Error>,
    ejection: Option<Ejection>,
    /// Back, and not a success since.
    probation: bool,
    /// Whether the last probe failed.
    fallen: bool,
    /// k as it was at `clean_since`.
    level: u32,
    clean_since: Seconds,
    ejections: Ejections,
}

impl Breaker {
    /// No error yet.
    pub(super) fn new(rule: EjectRule) -> Self {
        Breaker {
            rule,
            run: VecDeque::new(),
            ejection: None,
            probation: false,
            fallen: false,
            level: 0,
            clean_since: Seconds::ZERO,
            ejections: Ejections::default(),
        }
    }

    /// Another rule from here on; a time out that runs ends when it was to.
    pub(super) fn replan(&mut self, rule: EjectRule) {
        self.rule = rule;
    }

    /// Its time out, if it is out.
    pub(super) fn ejection(&self) -> Option<&Ejection> {
        self.ejection.as_ref()
    }

    /// The longest that it is ever taken out for.
    pub(super) fn longest(&self) -> Seconds {
        self.rule.max
    }

    /// How often it was out.
    pub(super) fn ejections(&self) -> Ejections {
        self.ejections
    }

    /// Whether the last thing heard of it is that it takes no connection.
    pub(super) fn refuses(&self) -> bool {
        let last = self.run.back();
        last.is_some_and(|error| error.shows == EjectCause::Refused)
    }

    /// A request failed, which shows this. Returns the cause when that is one too many; nothing while it is out.
    pub(super) fn error(&mut self, shows: EjectCause, now: Seconds) -> Option<EjectCause> {
        if self.ejection.is_some() {
            return None;
        }
        self.level = self.level(now);
        self.clean_since = now;
        self.run.push_back(Error { at: now, shows });
        let needed = if self.probation { 1 } else { self.needed() };
        while self.run.len() > self.needed() {
            self.run.pop_front();
        }
        let latest = self.run.range(self.run.len().checked_sub(needed)?..);
        let recent = |error: &Error| now - error.at <= self.rule.window;
        let all_are = latest.clone().all(recent);
        latest.map(|error| error.shows).max().filter(|_| all_are)
    }

    /// A request succeeded.
    pub(super) fn success(&mut self) {
        self.run.clear();
        self.probation = false;
    }

    /// Takes it out.
    pub(super) fn eject(&mut self, cause: EjectCause, now: Seconds) {
        let EjectRule { first, max, .. } = self.rule;
        let span = (first * f64::from(self.level).exp2()).min(max);
        let errors = if self.probation { 1 } else { self.run.len() };
        self.ejection = Some(Ejection {
            cause,
            since: now,
            until: now + span,
            errors,
            level: self.level,
            fell: self.fallen,
            passes: 0,
        });
        self.level += u32::from(span < max);
        self.clean_since = now + span;
        match cause {
            EjectCause::Errors => self.ejections.errors += 1,
            EjectCause::Lost => self.ejections.lost += 1,
            EjectCause::Refused => self.ejections.refused += 1,
        }
    }

    /// A probe passed or failed. Whether that ends its time out.
    pub(super) fn probed(&mut self, passed: bool, rise: u32, now: Seconds) -> bool {
        self.fallen = !passed;
        let Some(ejection) = &mut self.ejection else {
            return false;
        };
        ejection.fell |= !passed;
        ejection.passes = if passed { ejection.passes + 1 } else { 0 };
        let (level, disproved) = (ejection.level, ejection.disproved(rise));
        if disproved {
            (self.level, self.clean_since) = (level, now);
            self.end();
        }
        disproved
    }

    /// Ends its time out if it is over; whether it did.
    pub(super) fn tick(&mut self, now: Seconds) -> bool {
        let over = self.ejection.is_some_and(|ejection| now >= ejection.until);
        if over {
            self.end();
        }
        over
    }

    /// Its time out is over, or means nothing any more: it went down.
    pub(super) fn end(&mut self) {
        self.probation |= self.ejection.take().is_some();
    }

    fn needed(&self) -> usize {
        usize::try_from(self.rule.errors.max(1)).unwrap_or(usize::MAX)
    }

    /// k: the next ejection takes `first`·2^k.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole minutes; a cast saturates"
    )]
    fn level(&self, now: Seconds) -> u32 {
        let minutes = ((now - self.clean_since).0 / CLEAN).max(0.0) as u32;
        self.level.saturating_sub(minutes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(EjectRule::default())
    }

    /// Errors at these times; the cause that the last one gives.
    fn errors(breaker: &mut Breaker, shows: EjectCause, times: &[f64]) -> Option<EjectCause> {
        let error = |_, at: &f64| breaker.error(shows, Seconds(*at));
        times.iter().fold(None, error)
    }

    #[test]
    fn three_errors_in_a_row_within_the_window_are_one_too_many() {
        assert_eq!(
            errors(&mut breaker(), EjectCause::Errors, &[1.0, 2.0]),
            None
        );
        let three = errors(&mut breaker(), EjectCause::Errors, &[1.0, 2.0, 31.0]);
        assert_eq!(three, Some(EjectCause::Errors));
        assert_eq!(
            errors(&mut breaker(), EjectCause::Errors, &[1.0, 2.0, 31.5]),
            None
        );
        let late = errors(&mut breaker(), EjectCause::Errors, &[1.0, 20.0, 40.0, 41.0]);
        assert_eq!(late, Some(EjectCause::Errors));
        let mut broken = breaker();
        errors(&mut broken, EjectCause::Errors, &[1.0, 2.0]);
        broken.success();
        assert_eq!(errors(&mut broken, EjectCause::Errors, &[3.0, 4.0]), None);
    }

    #[test]
    fn the_gravest_of_the_latest_errors_is_the_cause() {
        let mut refusing = breaker();
        let cause = errors(&mut refusing, EjectCause::Refused, &[1.0, 2.0, 3.0]);
        assert_eq!(cause, Some(EjectCause::Refused));
        assert!(refusing.refuses());
        let mut dying = breaker();
        dying.error(EjectCause::Lost, Seconds(1.0));
        let cause = errors(&mut dying, EjectCause::Refused, &[2.0, 3.0]);
        assert_eq!(cause, Some(EjectCause::Lost));
        let mut mixed = breaker();
        mixed.error(EjectCause::Errors, Seconds(1.0));
        let cause = errors(&mut mixed, EjectCause::Refused, &[2.0, 3.0]);
        assert_eq!(cause, Some(EjectCause::Errors));
        let cause = errors(&mut mixed, EjectCause::Refused, &[4.0]);
        assert_eq!(cause, Some(EjectCause::Refused));
    }

    /// Whether probes that go like this, a second each, end an ejection for this at 10 s; `+` passes, `-` fails, `!` is
    /// the ejection. And whether it is out for twice as long the next time.
    fn probed(cause: EjectCause, probes: &str) -> (bool, bool) {
        let mut breaker = breaker();
        let mut ended = false;
        for (second, probe) in (0..).zip(probes.chars()) {
            let now = Seconds(10.0 + f64::from(second) / 10.0);
            match probe {
                '!' => breaker.eject(cause, now),
                probe => ended |= breaker.probed(probe == '+', 2, now),
            }
        }
        breaker.end();
        breaker.eject(cause, Seconds(12.0));
        let again = breaker.ejection().unwrap();
        (ended, again.until - again.since > Seconds(5.0))
    }

    #[test]
    fn probes_end_what_they_disprove_and_it_counts_for_nothing() {
        for (cause, probes, ends) in [
            (EjectCause::Refused, "!++", true),
            (EjectCause::Refused, "!+-+", false),
            (EjectCause::Lost, "!++++", false),
            (EjectCause::Lost, "!-++", true),
            (EjectCause::Lost, "-!++", true),
            (EjectCause::Lost, "-+!++", false),
            (EjectCause::Errors, "-!-++++", false),
        ] {
            assert_eq!(probed(cause, probes), (ends, !ends), "{cause:?} {probes}");
        }
    }

    /// How long it is out when ejected then.
    fn out(breaker: &mut Breaker, now: f64) -> f64 {
        errors(breaker, EjectCause::Errors, &[now]).unwrap();
        breaker.eject(EjectCause::Errors, Seconds(now));
        let until = breaker.ejection().unwrap().until;
        assert!(!breaker.tick(until - Seconds(0.1)));
        assert!(breaker.tick(until));
        (until - Seconds(now)).0
    }

    #[test]
    fn each_time_out_is_twice_as_long_and_a_clean_minute_forgives_one() {
        let mut sick = breaker();
        errors(&mut sick, EjectCause::Errors, &[0.0, 0.0]);
        let spans = [0.0, 10.0, 30.0, 60.0, 110.0, 180.0].map(|at| out(&mut sick, at));
        assert_eq!(spans, [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]);
        // Back at 240 s; two clean minutes later.
        assert_eq!(out(&mut sick, 361.0), 20.0);
        assert_eq!(sick.ejections().errors, 7);
    }

    #[test]
    fn on_probation_one_error_is_enough_and_a_success_ends_it() {
        let mut back = breaker();
        errors(&mut back, EjectCause::Errors, &[0.0, 0.0]);
        out(&mut back, 0.0);
        assert_eq!(
            errors(&mut back, EjectCause::Refused, &[6.0]),
            Some(EjectCause::Refused)
        );
        back.success();
        assert_eq!(errors(&mut back, EjectCause::Errors, &[7.0, 8.0]), None);
    }

    #[test]
    fn while_it_is_out_errors_change_nothing() {
        let mut out = breaker();
        errors(&mut out, EjectCause::Errors, &[0.0, 0.0, 0.0]);
        out.eject(EjectCause::Errors, Seconds(0.0));
        assert_eq!(errors(&mut out, EjectCause::Errors, &[1.0, 1.0, 1.0]), None);
        assert_eq!(out.ejection().unwrap().until, Seconds(5.0));
        assert_eq!(out.ejection().unwrap().reason(), "3 errors in a row");
    }
}
