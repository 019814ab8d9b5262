//! Q of one worker: the requests it was sent and has not answered with a first byte yet.
//!
//! Kept in the order they were sent, with running sums, so that the price of waiting costs nothing to know. Requests
//! leave in any order: engines batch, clients give up, a worker serves several at a time. Leaving is a binary search.
//!
//! The work ahead shrinks as the head is worked on. When the head began is not seen but bounded: not before it was
//! sent, and not before the last time that the worker turned to the next request, which is a first byte, the head's
//! departure, or, when an answer came in one piece, the time that its tokens must have begun. What a request's adapter
//! takes to be loaded (`lora.rs`) is work like its prefill: an engine does nothing else meanwhile.
//!
//! Silence is evidence, too. A head that has been in work for more than [`PATIENCE`] times what was expected of it, its
//! whole prompt uncached, shows that its worker is at least so much slower than that: the price takes it as slowed until
//! the first byte comes and teaches. 2026-11-30: believed, after research, that this earns nothing. Seen that a slow
//! machine of which nothing is known yet was sent over a hundred requests before its first answer, because it looked idle
//! and a head that is overdue made the work ahead of the others vanish. What ends with its answer is not judged so:
//! nobody knows how long it decodes.
//!
//! 2026-11-30: believed that an answer in one piece tells nothing of when the worker turned to the next. Seen that the
//! head was then taken to have been in work since it was sent, which made most of the wait disappear, and that the time
//! spent waiting was learned as time at work: a worker that needs 34 ms for an answer was believed to need 85.

use std::collections::VecDeque;

use super::ask::{ByWork, Work};
use super::line_fit::Line;
use super::speed::Speeds;
use crate::units::Seconds;

/// A silence this many times as long as was expected is a surprise.
const PATIENCE: f64 = 3.0;

/// One request that waits for its first byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Its number; later requests have greater ones.
    pub number: u64,
    /// What kind of work it is.
    pub work: Work,
    /// The work of reading its prompt: see `cost.rs`.
    pub reading: f64,
    /// The same if nothing of it is cached, where its first byte ends its prefill.
    pub timed: Option<f64>,
    /// Until its adapter is on the card.
    pub load: Seconds,
    /// What it should take, where its first byte ends that.
    pub own: Option<Seconds>,
    /// When it was sent.
    pub sent: Seconds,
}

/// The requests of one worker that wait for their first byte.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    pending: VecDeque<Pending>,
    sums: ByWork<Sum>,
    timed: Timed,
    turned: Seconds,
}

/// Requests of one kind: how many, the work of reading their prompts, and the loads that they bring about.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u32,
    reading: f64,
    load: f64,
}

/// Requests whose first byte ends their prefill: how many, and what they should take, as it was believed when they were
/// sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timed {
    pub count: u32,
    pub seconds: f64,
}

impl Backlog {
    /// A request was sent.
    pub(super) fn push(&mut self, request: Pending) {
        self.sums[request.work].add(&request);
        self.timed.add(&request);
        self.pending.push_back(request);
    }

    /// The request leaves; `None` when it is not here.
    pub(super) fn remove(&mut self, number: u64) -> Option<Pending> {
        let place = self.place(number)?;
        let request = self.pending.remove(place)?;
        self.sums[request.work].subtract(&request);
        self.timed.subtract(&request);
        Some(request)
    }

    /// Whether this request is the one that has waited longest.
    pub(super) fn is_head(&self, number: u64) -> bool {
        self.pending
            .front()
            .is_some_and(|head| head.number == number)
    }

    /// The worker turned to its next request.
    pub(super) fn turn(&mut self, now: Seconds) {
        self.turned = self.turned.max(now);
    }

    /// When the worker last turned to its next request.
    pub(super) fn turned(&self) -> Seconds {
        self.turned
    }

    /// Everybody is gone: the worker went down.
    pub(super) fn clear(&mut self) {
        *self = Backlog::default();
    }

    /// How many wait.
    pub(super) fn len(&self) -> u32 {
        Work::ALL.map(|work| self.sums[work].count).iter().sum()
    }

    /// How many wait that will stream or generate tokens.
    pub(super) fn generating(&self) -> u32 {
        self.sums[Work::Generate].count
    }

    /// Those whose first byte ends their prefill.
    pub(super) fn timed(&self) -> Timed {
        self.timed
    }

    /// The work ahead of a request that is sent now, while everything takes so many times as long.
    pub(super) fn ahead(&self, speeds: &Speeds, slowdown: f64, now: Seconds) -> Seconds {
        let Some(head) = self.pending.front() else {
            return Seconds::ZERO;
        };
        let of_kind = |work: Work| self.sums[work].work(speeds.prefill(work));
        let work = Work::ALL
            .into_iter()
            .fold(Seconds::ZERO, |all, work| all + of_kind(work));
        let age = now - head.sent.max(self.turned);
        (work * slowdown - age.max(Seconds::ZERO)).max(Seconds::ZERO)
    }

    /// How many times as long as everything was expected to take it takes at least, by the silence of the head: 1 while
    /// that is no surprise.
    pub(super) fn overdue(&self, speeds: &Speeds, slowdown: f64, now: Seconds) -> f64 {
        let Some((head, reading)) = self
            .pending
            .front()
            .and_then(|head| Some((head, head.timed?)))
        else {
            return 1.0;
        };
        let expected = speeds.prefill(head.work).at(reading) * slowdown + head.load;
        let age = now - head.sent.max(self.turned);
        (age.0 / (PATIENCE * expected.0)).max(1.0)
    }

    /// Whether the sums are those of the requests.
    pub(super) fn check(&self) -> Result<(), String> {
        let ordered = self
            .pending
            .iter()
            .zip(self.pending.iter().skip(1))
            .all(|(earlier, later)| earlier.number < later.number);
        if !ordered {
            return Err("backlog out of order".into());
        }
        for work in Work::ALL {
            let kept = self.sums[work];
            let mut counted = Sum::default();
            for request in self.pending.iter().filter(|request| request.work == work) {
                counted.add(request);
            }
            let drifts = |counted: f64, kept: f64| (counted - kept).abs() > 1e-6 * counted.max(1.0);
            if counted.count != kept.count
                || drifts(counted.reading, kept.reading)
                || drifts(counted.load, kept.load)
            {
                return Err(format!(
                    "{work:?} backlog: counted {counted:?}, kept {kept:?}"
                ));
            }
        }
        let own = |request: &Pending| request.own.map(|own| own.0);
        let counted: Vec<f64> = self.pending.iter().filter_map(own).collect();
        let off = (counted.iter().sum::<f64>() - self.timed.seconds).abs();
        if counted.len() != self.timed.count as usize || off > 1e-6 * self.timed.seconds.max(1.0) {
            return Err(format!("timed backlog: {counted:?}, kept {:?}", self.timed));
        }
        Ok(())
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.pending
            .binary_search_by_key(&number, |request| request.number)
            .ok()
    }
}

impl Sum {
    fn add(&mut self, request: &Pending) {
        self.count += 1;
        self.reading += request.reading;
        self.load += request.load.0;
    }

    /// The last one out takes the rounding errors along.
    fn subtract(&mut self, request: &Pending) {
        self.count -= 1;
        if self.count == 0 {
            *self = Sum::default();
        } else {
            self.reading -= request.reading;
            self.load -= request.load.0;
        }
    }

    fn work(self, line: Line) -> Seconds {
        Seconds(line.base * f64::from(self.count) + line.slope * self.reading + self.load)
    }
}

impl Timed {
    fn add(&mut self, request: &Pending) {
        if let Some(own) = request.own {
            self.count += 1;
            self.seconds += own.0;
        }
    }

    /// As with the other sums, the last one out takes the rounding errors along.
    fn subtract(&mut self, request: &Pending) {
        if let Some(own) = request.own {
            self.count -= 1;
            self.seconds = if self.count == 0 {
                0.0
            } else {
                self.seconds - own.0
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(number: u64, sent: f64) -> Pending {
        Pending {
            number,
            work: Work::Embed,
            reading: 2_000.0,
            timed: Some(2_000.0),
            load: Seconds::ZERO,
            own: Some(Seconds(0.010_5)),
            sent: Seconds(sent),
        }
    }

    /// Three requests of 10.5 ms each by the prior line.
    fn three() -> Backlog {
        let mut backlog = Backlog::default();
        for number in 0..3 {
            backlog.push(pending(number, 1.0));
        }
        backlog
    }

    fn ahead(backlog: &Backlog, now: f64) -> f64 {
        (backlog.ahead(&Speeds::believing(1.0), 1.0, Seconds(now)).0 * 1e7).round() / 1e4
    }

    #[test]
    fn the_work_ahead_is_the_sum_less_the_heads_age() {
        let backlog = three();
        assert_eq!(ahead(&backlog, 1.0), 31.5);
        assert_eq!(ahead(&backlog, 1.004), 27.5);
        assert_eq!(ahead(&backlog, 2.0), 0.0);
    }

    #[test]
    fn the_next_head_begins_when_the_worker_turns_to_it() {
        let mut backlog = three();
        backlog.remove(0);
        backlog.turn(Seconds(1.008));
        assert_eq!(ahead(&backlog, 1.008), 21.0);
        assert_eq!(ahead(&backlog, 1.010), 19.0);
    }

    #[test]
    fn a_silent_head_makes_its_worker_slower_until_it_speaks() {
        let mut backlog = three();
        let overdue = |backlog: &Backlog, now| {
            let times = backlog.overdue(&Speeds::believing(1.0), 1.0, Seconds(now));
            (times * 1e6).round() / 1e6
        };
        assert_eq!(overdue(&backlog, 1.0), 1.0);
        assert_eq!(overdue(&backlog, 1.0315), 1.0);
        assert_eq!(overdue(&backlog, 1.315), 10.0);
        backlog.remove(0);
        backlog.turn(Seconds(1.315));
        assert_eq!(overdue(&backlog, 1.315), 1.0);
        backlog.clear();
        backlog.push(Pending {
            timed: None,
            ..pending(4, 1.0)
        });
        assert_eq!(overdue(&backlog, 9.0), 1.0);
        assert_eq!(overdue(&Backlog::default(), 9.0), 1.0);
    }

    #[test]
    fn requests_leave_from_the_middle_once() {
        let mut backlog = three();
        assert!(backlog.remove(1).is_some());
        assert!(backlog.remove(1).is_none());
        assert!(backlog.is_head(0) && !backlog.is_head(2));
        assert_eq!(backlog.len(), 2);
        assert_eq!(backlog.check(), Ok(()));
    }

    #[test]
    fn rounding_errors_do_not_outlive_the_requests() {
        let mut backlog = Backlog::default();
        for (number, reading) in (0..).zip([0.1, 0.2, 0.3]) {
            backlog.push(Pending {
                reading,
                ..pending(number, 1.0)
            });
        }
        for number in 0..3 {
            backlog.remove(number);
        }
        assert_eq!(backlog.sums[Work::Embed].reading, 0.0);
    }

    #[test]
    fn a_wrong_sum_is_noticed() {
        let mut backlog = three();
        backlog.sums[Work::Embed].reading += 1.0;
        assert!(backlog.check().is_err());
        let mut backlog = three();
        backlog.timed.seconds += 1.0;
        assert!(backlog.check().is_err());
    }
}
