//! Whether one worker may be given requests: what its probes and its requests say together.
//!
//! Two kinds of evidence, kept apart: probes take a worker down and bring it back (`health.rs`), errors of requests eject
//! it for a time (`eject.rs`). A dead worker is down, whether it is ejected or not. Going down ends an ejection early;
//! passed probes do so only where they disprove what it was for. Both kinds begin an outage (`outage.rs`), and after both
//! the worker comes back slowly (`slow_start.rs`).
//!
//! What an operator did by hand (`by_hand.rs`) goes before what requests say and after what probes do.
//!
//! What counts: a request that failed, was lost or was refused is an error. One that was answered, also with a 4xx, is a success: the
//! worker works. All else is neutral: the client left, the request was not sent, or the worker is busy. A busy one is put
//! on hold for as long as it asks; a second, shorter wish does not cut the first short.

use super::ask::{Outcome, WorkerSpec};
use super::by_hand::{ByHand, Why, Withheld};
use super::eject::{Breaker, EjectCause};
use super::health::{Health, State};
use super::outage::Outage;
use super::saturation::MOST_INFLIGHT;
use super::slow_start::SlowStart;
use super::standing::Standing;
use crate::units::Seconds;

/// How long a worker is left alone that is busy and does not say for how long,
const SHORT_HOLD: Seconds = Seconds(1.0);
/// and the longest for which one may ask.
const LONGEST_HOLD: Seconds = Seconds(300.0);

/// A worker's state and the evidence for it.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    /// What it may have at a time when all is well.
    cap: u32,
    rise: u32,
    health: Health,
    breaker: Breaker,
    outage: Outage,
    slow_start: SlowStart,
    /// Until when it asked to be left alone.
    held: Option<Seconds>,
    /// Whether its operator lets it have no requests.
    withheld: Option<Withheld>,
    /// When it was last let in again.
    returned: Seconds,
}

/// What the end of a request shows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weighed {
    /// Whether an outage begins with it.
    pub outage_begins: bool,
    /// What the worker should be ejected for, if it should.
    pub eject_for: Option<EjectCause>,
}

/// What a probe shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probed {
    /// Whether an outage begins with it.
    pub outage_begins: bool,
    /// Whether the worker is down from now on.
    pub goes_down: bool,
}

impl Condition {
    /// Nothing known yet.
    pub(super) fn new(spec: &WorkerSpec) -> Self {
        Condition {
            cap: spec.cap.unwrap_or(MOST_INFLIGHT),
            rise: spec.rise,
            health: Health::starting(spec.rise, spec.fall),
            breaker: Breaker::new(spec.eject),
            outage: Outage::default(),
            slow_start: SlowStart::default(),
            held: None,
            withheld: None,
            returned: Seconds::ZERO,
        }
    }

    /// One that joins others which serve already: it begins slowly.
    pub(super) fn joining(spec: &WorkerSpec, now: Seconds) -> Self {
        let mut condition = Condition::new(spec);
        condition.come_back(now);
        condition
    }

    /// Its plan says something else from here on.
    pub(super) fn replan(&mut self, spec: &WorkerSpec) {
        self.cap = spec.cap.unwrap_or(MOST_INFLIGHT);
        self.rise = spec.rise;
        self.health.replan(spec.rise, spec.fall);
        self.breaker.replan(spec.eject);
    }

    /// It is in the plan no more.
    pub(super) fn leave(&mut self, now: Seconds) {
        self.withhold(Why::Removed, None, now);
    }

    /// Whether it is in the plan no more.
    pub(super) fn has_left(&self) -> bool {
        self.withheld() == Some(Why::Removed)
    }

    pub(super) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// What probes and requests say together.
    pub(super) fn state(&self) -> State {
        match self.health.state() {
            gone @ (State::Down | State::Loading) => gone,
            _ if let Some(withheld) = self.withheld => withheld.why.state(),
            _ if self.breaker.ejection().is_some() => State::Ejected,
            probed => probed,
        }
    }

    /// Why it gets no requests.
    pub(super) fn reason(&self) -> Option<String> {
        match (self.in_force(), self.breaker.ejection()) {
            (Some(withheld), _) => Some(withheld.why.reason().to_owned()),
            (None, Some(ejection)) => Some(ejection.reason()),
            (None, None) => self.health.reason().map(str::to_owned),
        }
    }

    /// When the state began.
    pub(super) fn since(&self) -> Seconds {
        if let Some(withheld) = self.in_force() {
            return withheld.since.max(self.health.since());
        }
        let ejected = self.breaker.ejection().map(|ejection| ejection.since);
        ejected.unwrap_or(self.health.since().max(self.returned))
    }

    /// When the state ends by itself or, of one that is drained, should have done its work.
    pub(super) fn until(&self) -> Option<Seconds> {
        match self.in_force() {
            Some(withheld) => withheld.until,
            None => self.breaker.ejection().map(|ejection| ejection.until),
        }
    }

    /// Why its operator lets it have no requests, also while it is down.
    pub(super) fn withheld(&self) -> Option<Why> {
        self.withheld.map(|withheld| withheld.why)
    }

    /// What its operator did, as long as its probes don't say worse.
    fn in_force(&self) -> Option<Withheld> {
        let lives = !matches!(self.health.state(), State::Down | State::Loading);
        self.withheld.filter(|_| lives)
    }

    /// Until when it asked to be left alone.
    pub(super) fn held(&self) -> Option<Seconds> {
        self.held
    }

    /// What may be expected of it.
    pub(super) fn standing(&self) -> Standing {
        match self.state() {
            State::Down | State::Loading => Standing::Down,
            State::Draining => Standing::Draining,
            State::Ejected if self.is_vouched() => Standing::Vouched,
            State::Ejected => Standing::Ejected,
            State::Starting | State::Up if self.held.is_some() => Standing::Held,
            State::Starting | State::Up => Standing::Free,
        }
    }

    /// What it may have at a time while it proves itself after a recovery.
    pub(super) fn allowed(&self) -> Option<u32> {
        self.slow_start.allowed()
    }

    /// A good answer begins.
    pub(super) fn begun(&mut self) {
        self.slow_start.grow(self.cap);
    }

    /// A request that was sent then ended.
    pub(super) fn weigh(&mut self, sent: Seconds, outcome: Outcome, now: Seconds) -> Weighed {
        match outcome {
            Outcome::Failed => return self.blame(EjectCause::Errors, now),
            Outcome::Lost => return self.blame(EjectCause::Lost, now),
            Outcome::Refused => return self.blame(EjectCause::Refused, now),
            Outcome::Answered { .. } => self.succeed(sent),
            Outcome::Rejected => {
                self.succeed(sent);
                self.begun();
            }
            Outcome::Busy { retry_after } => self.hold(retry_after, now),
            Outcome::Unsent | Outcome::Gone | Outcome::Doubted => {}
        }
        Weighed::default()
    }

    /// Takes it out.
    pub(super) fn eject(&mut self, cause: EjectCause, now: Seconds) {
        self.breaker.eject(cause, now);
    }

    /// Its operator changes whether it gets requests.
    pub(super) fn by_hand(&mut self, change: ByHand, now: Seconds) {
        match change {
            ByHand::Drain { within } => self.withhold(Why::Drained, within, now),
            // An ejection ends by itself, and would let in again whom somebody wants to stop.
            ByHand::Eject { .. } if self.withheld() == Some(Why::Drained) => {}
            ByHand::Eject { within } => {
                let span = within.unwrap_or(self.breaker.longest());
                self.withhold(Why::Ejected, Some(span), now);
            }
            ByHand::Resume => self.resume(now),
            ByHand::Speed(_) => {}
        }
    }

    fn withhold(&mut self, why: Why, span: Option<Seconds>, now: Seconds) {
        let already = self.withheld.filter(|withheld| withheld.why == why);
        self.withheld = Some(Withheld {
            why,
            since: already.map_or(now, |withheld| withheld.since),
            until: span.map(|span| now + span),
        });
    }

    /// A worker that was only drained comes back as it was; one that was ejected, slowly.
    fn resume(&mut self, now: Seconds) {
        let was_ejected =
            self.withheld() == Some(Why::Ejected) || self.breaker.ejection().is_some();
        if self.withheld.take().is_some() {
            self.returned = now;
        }
        self.held = None;
        self.breaker.end();
        if was_ejected {
            self.come_back(now);
        }
    }

    /// Ends what is over: its time out, and the time for which it asked to be left alone.
    pub(super) fn tick(&mut self, now: Seconds) {
        self.held = self.held.filter(|until| now < *until);
        let withheld = self.withheld.take();
        self.withheld = withheld.and_then(|withheld| withheld.at(now));
        let is_back = self.breaker.tick(now) || withheld.is_some() != self.withheld.is_some();
        if is_back {
            self.come_back(now);
        }
    }

    /// A probe passed or failed.
    pub(super) fn probe(&mut self, verdict: Result<(), String>, now: Seconds) -> Probed {
        let disproved = self.breaker.probed(verdict.is_ok(), self.rise, now);
        let outage_begins = self.outage.probe(verdict.is_ok(), self.rise, now);
        let left = self.health.probe(verdict, now);
        let goes_down = self.goes_down(left);
        if !goes_down && matches!(left, Some(State::Down | State::Loading)) {
            self.slow_start.begin();
        } else if !goes_down && disproved {
            self.come_back(now);
        }
        Probed {
            outage_begins,
            goes_down,
        }
    }

    /// A probe found it loading its model: no outage, whatever it was before.
    pub(super) fn load(&mut self, reason: String, now: Seconds) -> Probed {
        self.breaker.probed(false, self.rise, now);
        let left = self.health.load(reason, now);
        Probed {
            outage_begins: false,
            goes_down: self.goes_down(left),
        }
    }

    /// Whether it has just left this state to get no requests any more, which ends what was held against it.
    fn goes_down(&mut self, left: Option<State>) -> bool {
        let goes_down = left.is_some() && self.standing() == Standing::Down;
        if goes_down {
            self.breaker.end();
            self.held = None;
        }
        goes_down
    }

    /// Whether its probes have passed since it was ejected.
    fn is_vouched(&self) -> bool {
        let ejection = self.breaker.ejection();
        ejection.is_some_and(|ejection| ejection.vouched(self.rise))
    }

    /// A request's error shows this.
    fn blame(&mut self, shows: EjectCause, now: Seconds) -> Weighed {
        let is_dead = self.standing() == Standing::Down;
        let cause = self.breaker.error(shows, now);
        Weighed {
            outage_begins: self.outage.error(now),
            eject_for: cause.filter(|_| !is_dead),
        }
    }

    fn come_back(&mut self, now: Seconds) {
        self.returned = now;
        self.slow_start.begin();
    }

    fn succeed(&mut self, sent: Seconds) {
        self.outage.success(sent);
        self.breaker.success();
    }

    fn hold(&mut self, retry_after: Option<Seconds>, now: Seconds) {
        let span = retry_after.unwrap_or(SHORT_HOLD).min(LONGEST_HOLD);
        let until = now + span.max(Seconds::ZERO);
        self.held = Some(self.held.map_or(until, |earlier| earlier.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition() -> Condition {
        Condition::new(&WorkerSpec {
            fall: 2,
            ..WorkerSpec::new("w", 4)
        })
    }

    fn busy(seconds: f64) -> Outcome {
        Outcome::Busy {
            retry_after: Some(Seconds(seconds)),
        }
    }

    /// Ejected at 1 s for three errors.
    fn ejected() -> Condition {
        let mut condition = condition();
        for _ in 0..2 {
            let error = condition.weigh(Seconds(1.0), Outcome::Failed, Seconds(1.0));
            assert_eq!(error.eject_for, None);
        }
        let third = condition.weigh(Seconds(1.0), Outcome::Failed, Seconds(1.0));
        condition.eject(third.eject_for.unwrap(), Seconds(1.0));
        condition
    }

    #[test]
    fn an_ejected_worker_comes_back_slowly_whatever_its_probes_say() {
        let mut condition = ejected();
        condition.probe(Ok(()), Seconds(2.0));
        assert_eq!(condition.state(), State::Ejected);
        assert_eq!(condition.reason().as_deref(), Some("3 errors in a row"));
        assert_eq!(
            (condition.since().0, condition.until()),
            (1.0, Some(Seconds(6.0)))
        );
        condition.tick(Seconds(5.9));
        assert_eq!(condition.state(), State::Ejected);
        condition.tick(Seconds(6.0));
        assert_eq!((condition.state(), condition.since().0), (State::Up, 6.0));
        assert_eq!(condition.allowed(), Some(1));
        condition.begun();
        assert_eq!(condition.allowed(), Some(2));
        condition.weigh(Seconds(6.5), Outcome::Rejected, Seconds(7.0));
        assert_eq!(condition.allowed(), None);
    }

    #[test]
    fn probes_end_an_ejection_for_refusals_and_vouch_for_one_that_is_out_for_errors() {
        let mut errors = ejected();
        errors.probe(Ok(()), Seconds(2.0));
        assert_eq!(errors.standing(), Standing::Vouched);
        errors.probe(Err("no".into()), Seconds(3.0));
        assert_eq!(errors.standing(), Standing::Ejected);
        let mut refused = condition();
        refused.eject(EjectCause::Refused, Seconds(1.0));
        assert_eq!(refused.state(), State::Ejected);
        refused.probe(Ok(()), Seconds(2.0));
        assert_eq!((refused.state(), refused.allowed()), (State::Up, Some(1)));
    }

    #[test]
    fn a_dead_worker_is_down_and_not_ejected() {
        let mut condition = ejected();
        let refused = || Err("refused".to_owned());
        assert!(condition.probe(refused(), Seconds(2.0)).goes_down);
        assert_eq!((condition.state(), condition.until()), (State::Down, None));
        let error = condition.weigh(Seconds(2.0), Outcome::Failed, Seconds(2.5));
        assert_eq!(error.eject_for, None);
        condition.probe(Ok(()), Seconds(3.0));
        assert_eq!(
            (condition.state(), condition.allowed()),
            (State::Up, Some(1))
        );
    }

    #[test]
    fn one_that_loads_has_no_outage_and_comes_back_slowly() {
        let mut condition = condition();
        condition.probe(Ok(()), Seconds(1.0));
        for second in 2..9 {
            let now = Seconds(f64::from(second));
            let probed = condition.load("loading".into(), now);
            assert_eq!(
                (probed.outage_begins, probed.goes_down),
                (false, second == 3)
            );
        }
        let standing = (condition.state(), condition.standing());
        assert_eq!(standing, (State::Loading, Standing::Down));
        condition.probe(Ok(()), Seconds(9.0));
        let back = (condition.state(), condition.allowed());
        assert_eq!(back, (State::Up, Some(1)));
    }

    #[test]
    fn loading_ends_an_ejection() {
        let mut condition = ejected();
        for second in [2.0, 3.0] {
            condition.load("loading".into(), Seconds(second));
        }
        assert_eq!(
            (condition.state(), condition.until()),
            (State::Loading, None)
        );
    }

    #[test]
    fn a_hold_lasts_as_long_as_the_longest_wish_and_no_longer_than_five_minutes() {
        let mut condition = condition();
        let held = |condition: &mut Condition, outcome| {
            condition.weigh(Seconds(0.0), outcome, Seconds(1.0));
            condition.held().unwrap().0
        };
        let silent = Outcome::Busy { retry_after: None };
        assert_eq!(held(&mut condition, silent), 2.0);
        assert_eq!(held(&mut condition, busy(5.0)), 6.0);
        assert_eq!(held(&mut condition, busy(1.0)), 6.0);
        assert_eq!(condition.standing(), Standing::Held);
        assert_eq!(held(&mut condition, busy(1e9)), 301.0);
        condition.tick(Seconds(301.0));
        assert_eq!(condition.standing(), Standing::Free);
    }

    #[test]
    fn what_says_nothing_of_the_worker_changes_nothing() {
        let mut condition = ejected();
        condition.tick(Seconds(6.0));
        for outcome in [Outcome::Gone, Outcome::Unsent, Outcome::Doubted, busy(0.0)] {
            let weighed = condition.weigh(Seconds(6.0), outcome, Seconds(7.0));
            assert!(!weighed.outage_begins && weighed.eject_for.is_none());
        }
        assert_eq!(condition.allowed(), Some(1));
        let error = condition.weigh(Seconds(6.0), Outcome::Failed, Seconds(8.0));
        assert_eq!(
            error.eject_for,
            Some(EjectCause::Errors),
            "still on probation"
        );
    }

    fn drain(seconds: f64) -> ByHand {
        ByHand::Drain {
            within: Some(Seconds(seconds)),
        }
    }

    #[test]
    fn a_drained_worker_stays_so_until_it_is_resumed_and_is_then_as_it_was() {
        let mut condition = condition();
        condition.probe(Ok(()), Seconds(1.0));
        condition.by_hand(drain(5.0), Seconds(2.0));
        let told = (condition.state(), condition.since().0, condition.until());
        assert_eq!(told, (State::Draining, 2.0, Some(Seconds(7.0))));
        condition.tick(Seconds(7.0));
        assert_eq!(
            (condition.standing(), condition.until()),
            (Standing::Draining, None)
        );
        condition.by_hand(ByHand::Resume, Seconds(8.0));
        let told = (condition.state(), condition.since().0, condition.allowed());
        assert_eq!(told, (State::Up, 8.0, None));
    }

    #[test]
    fn one_that_goes_down_is_drained_again_when_it_is_back() {
        let mut condition = condition();
        condition.probe(Ok(()), Seconds(1.0));
        condition.by_hand(drain(5.0), Seconds(2.0));
        for second in [3.0, 4.0] {
            condition.probe(Err("stopped".into()), Seconds(second));
        }
        assert_eq!(
            (condition.standing(), condition.reason()),
            (Standing::Down, Some("stopped".into()))
        );
        assert_eq!(condition.withheld(), Some(Why::Drained));
        condition.probe(Ok(()), Seconds(9.0));
        let told = (condition.state(), condition.since().0);
        assert_eq!(told, (State::Draining, 9.0));
    }

    #[test]
    fn an_ejection_by_hand_ends_by_itself_and_not_by_passed_probes() {
        let mut condition = condition();
        condition.by_hand(ByHand::Eject { within: None }, Seconds(1.0));
        for second in 2..9 {
            condition.probe(Ok(()), Seconds(f64::from(second)));
        }
        let told = (condition.standing(), condition.until());
        assert_eq!(told, (Standing::Ejected, Some(Seconds(61.0))));
        condition.tick(Seconds(61.0));
        let told = (condition.state(), condition.since().0, condition.allowed());
        assert_eq!(told, (State::Up, 61.0, Some(1)));
    }

    #[test]
    fn one_that_is_drained_stays_so_when_it_is_ejected() {
        let mut condition = condition();
        condition.probe(Ok(()), Seconds(1.0));
        condition.by_hand(drain(50.0), Seconds(2.0));
        let within = Some(Seconds(1.0));
        condition.by_hand(ByHand::Eject { within }, Seconds(3.0));
        condition.tick(Seconds(9.0));
        let told = (condition.state(), condition.until());
        assert_eq!(told, (State::Draining, Some(Seconds(52.0))));
        let mut other = ejected();
        other.by_hand(ByHand::Eject { within }, Seconds(1.5));
        other.by_hand(drain(50.0), Seconds(1.6));
        other.tick(Seconds(9.0));
        assert_eq!(
            other.state(),
            State::Draining,
            "a drain goes before an ejection"
        );
    }

    #[test]
    fn resuming_ends_what_its_errors_brought_too() {
        let mut condition = ejected();
        condition.weigh(Seconds(1.0), busy(60.0), Seconds(1.0));
        condition.by_hand(ByHand::Resume, Seconds(2.0));
        let told = (condition.standing(), condition.held(), condition.allowed());
        assert_eq!(told, (Standing::Free, None, Some(1)));
    }
}
