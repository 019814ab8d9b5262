//! Which waiting requests run together next. Pure: items and `now` go in, batches come out.
//!
//! A request that finds the engine idle runs at once; nobody waits for company that may not come. (Triton's dynamic
//! batcher holds every request back for its queue delay, which at one request at a time is most of its latency.) While
//! the engine runs, others gather, and those of equal shape leave together, oldest first. A model that asks for a delay
//! or for preferred sizes gets what Triton gives: the largest preferred size that can be made leaves at once, anything
//! else waits for the delay.
//!
//! Bigger is not always better: on two cores MiniLM answers 110 to 130 rows/s in batches of 8 and of 32 alike, at a
//! quarter of the latency. So the batcher keeps the measured work rate of each power of two and stops at the smallest
//! size within 5 % of the best. Every 64th run may go one size up, so that one noisy moment does not stick. Preferred
//! sizes switch this off: whoever typed them has measured.
//!
//! Guarantees: each level has at most its `waiting` items; a level is empty before a lower one is looked at, save to
//! fill up a batch; no item overtakes an older one of its own shape and level, unless that one is late; a batch holds
//! one shape; an item bigger than the limit still runs, alone. Source of levels and deadlines: Triton's
//! `ModelDynamicBatching` and `ModelQueuePolicy`.

mod order;

use std::collections::VecDeque;

pub use order::Order;

use crate::units::Seconds;

const SIZES: usize = 6;
const TRUSTED: u32 = 3;
const NEAR_BEST: f64 = 0.95;
const EXPLORE: u64 = 64;

/// The bounds of a batcher.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The most rows in a batch; at most 32 are used unless sizes are preferred.
    pub rows: usize,
    /// Sizes to be made if possible. None unless a model asks for them.
    pub preferred: Vec<usize>,
    /// How long the oldest item may be held back in the hope of a fuller batch. Zero unless a model asks for it.
    pub delay: Seconds,
    /// What holds for each level of priority, the most urgent first.
    pub levels: Vec<Policy>,
    /// The level of an item that names none.
    pub default_level: usize,
    /// Whether answers leave in the order in which their batches were taken.
    pub ordered: bool,
}

/// How long and in what number items of one level wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The most items that may wait.
    pub waiting: usize,
    /// How long an item may wait; absent = for ever.
    pub timeout: Option<Seconds>,
    /// Whether an item may ask for a shorter timeout.
    pub may_shorten: bool,
    /// What becomes of an item whose time is over.
    pub overdue: Overdue,
}

impl Limits {
    /// The level of such an item.
    pub fn level(&self, urgency: Urgency) -> usize {
        let level = urgency.level.unwrap_or(self.default_level);
        level.min(self.levels.len().saturating_sub(1))
    }

    /// How long such an item may wait before it is refused; absent = for ever.
    pub fn patience(&self, urgency: Urgency) -> Option<Seconds> {
        let policy = self.levels.get(self.level(urgency))?;
        let refuses = policy.overdue == Overdue::Refuse;
        policy.timeout(urgency.timeout).filter(|_| refuses)
    }
}

/// What becomes of an item whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// It is given back unrun.
    Refuse,
    /// It runs when nothing else of its level waits.
    Postpone,
}

/// How soon an item wants to run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Urgency {
    /// Its level, 0 being the most urgent; absent = the default. Levels beyond the last are the last.
    pub level: Option<usize>,
    /// How long it would wait.
    pub timeout: Option<Seconds>,
}

/// Something to run: what may share a batch with it, and how much it is.
#[derive(Debug)]
pub struct Item<T> {
    /// Items of equal shape may run together.
    pub shape: Vec<usize>,
    /// Rows it adds to a batch.
    pub rows: usize,
    /// Elements it brings: the measure of work.
    pub work: usize,
    /// How soon it wants to run.
    pub urgency: Urgency,
    /// Whatever the caller needs back.
    pub load: T,
}

/// What to do next.
#[derive(Debug)]
pub enum Next<T> {
    /// Run these together.
    Run(Vec<Item<T>>),
    /// Nothing yet: ask again at this time, or when something new comes.
    WaitUntil(Seconds),
    /// Nothing waits.
    Idle,
}

/// The smoothed rate of one batch size.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    work_per_second: f64,
    samples: u32,
}

/// An item in line.
#[derive(Debug)]
struct Waiting<T> {
    since: Seconds,
    until: Option<Seconds>,
    late: bool,
    level: usize,
    item: Item<T>,
}

impl<T> Waiting<T> {
    /// Whose turn is first; equals leave in order of arrival.
    fn turn(&self) -> (usize, bool) {
        (self.level, self.late)
    }
}

/// The waiting items and what was learned of batch sizes.
#[derive(Debug)]
pub struct Batcher<T> {
    limits: Limits,
    waiting: VecDeque<Waiting<T>>,
    rates: [Rate; SIZES],
    runs: u64,
    seconds_per_item: f64,
}

impl<T> Batcher<T> {
    /// An empty batcher.
    pub fn new(limits: Limits) -> Self {
        Batcher {
            limits,
            waiting: VecDeque::new(),
            rates: [Rate::default(); SIZES],
            runs: 0,
            seconds_per_item: 0.0,
        }
    }

    /// Takes an item and says until when it may wait, or gives it back when as many of its level wait as may.
    pub fn offer(&mut self, item: Item<T>, now: Seconds) -> Result<Option<Seconds>, Item<T>> {
        let level = self.limits.level(item.urgency);
        let Some(policy) = self.limits.levels.get(level) else {
            return Err(item);
        };
        let alike = self.waiting.iter().filter(|other| other.level == level);
        if alike.count() >= policy.waiting {
            return Err(item);
        }
        let until = policy.timeout(item.urgency.timeout).map(|span| now + span);
        self.waiting.push_back(Waiting {
            since: now,
            until,
            late: false,
            level,
            item,
        });
        Ok(until)
    }

    /// Takes out whoever has waited for too long, and gives back those who are to be refused.
    pub fn expire(&mut self, now: Seconds) -> Vec<T> {
        let mut refused = Vec::new();
        let mut kept = VecDeque::with_capacity(self.waiting.len());
        for mut one in self.waiting.drain(..) {
            if one.late || one.until.is_none_or(|until| now < until) {
                kept.push_back(one);
            } else if self.limits.levels[one.level].overdue == Overdue::Refuse {
                refused.push(one.item.load);
            } else {
                one.late = true;
                kept.push_back(one);
            }
        }
        self.waiting = kept;
        refused
    }

    /// How many such items wait.
    pub fn count(&self, such: impl Fn(&T) -> bool) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|one| such(&one.item.load)).count()
    }

    /// Keeps only the items that somebody still wants.
    pub fn retain(&mut self, wanted: impl Fn(&T) -> bool) {
        self.waiting.retain(|one| wanted(&one.item.load));
    }

    /// What should run now, if anything.
    pub fn next(&mut self, now: Seconds) -> Next<T> {
        let Some(first) = self.waiting.iter().min_by_key(|one| one.turn()) else {
            return Next::Idle;
        };
        let alike = |one: &&Waiting<T>| one.item.shape == first.item.shape;
        let gathered: usize = self
            .waiting
            .iter()
            .filter(alike)
            .map(|one| one.item.rows)
            .sum();
        let since = self.waiting.iter().filter(alike).map(|one| one.since);
        let due = since.fold(first.since, |a, b| if b < a { b } else { a }) + self.limits.delay;
        let preferred = self.limits.preferred.iter().copied();
        let reached = preferred.filter(|&size| size <= gathered).max();
        let cap = reached.unwrap_or_else(|| self.cap());
        if reached.is_none() && gathered < cap && now < due {
            return Next::WaitUntil(due);
        }
        Next::Run(self.take(cap))
    }

    /// Takes note of how long a batch of so many rows and so much work took.
    pub fn ran(&mut self, rows: usize, work: usize, items: usize, took: Seconds) {
        self.runs += 1;
        if took.0 <= 0.0 || rows == 0 || work == 0 || items == 0 {
            return;
        }
        let rate = &mut self.rates[size_of(rows)];
        blend(
            &mut rate.work_per_second,
            work as f64 / took.0,
            rate.samples == 0,
        );
        rate.samples = rate.samples.saturating_add(1);
        let first = self.seconds_per_item == 0.0;
        blend(&mut self.seconds_per_item, took.0 / items as f64, first);
    }

    /// How long until those that wait now are likely done: what `Retry-After` says.
    pub fn backlog(&self) -> Seconds {
        Seconds(self.seconds_per_item * self.waiting.len() as f64)
    }

    /// Whoever is first and those of the same shape that still fit, in order of their turns.
    fn take(&mut self, cap: usize) -> Vec<Item<T>> {
        let mut line: Vec<(usize, Waiting<T>)> = self.waiting.drain(..).enumerate().collect();
        line.sort_by_key(|(_, one)| one.turn());
        let mut batch: Vec<Item<T>> = Vec::new();
        let mut rows = 0;
        let mut full = false;
        let mut left = Vec::with_capacity(line.len());
        for (place, one) in line {
            let alike = batch
                .first()
                .is_none_or(|first| first.shape == one.item.shape);
            let fits = batch.is_empty() || rows + one.item.rows <= cap;
            if alike && fits && !full {
                rows += one.item.rows;
                batch.push(one.item);
            } else {
                full |= alike;
                left.push((place, one));
            }
        }
        left.sort_by_key(|(place, _)| *place);
        self.waiting = left.into_iter().map(|(_, one)| one).collect();
        batch
    }

    /// The rows worth putting together at present: the smallest size near the best rate, once the size above it has
    /// been tried and was no better; until then as many as may.
    fn cap(&self) -> usize {
        if !self.limits.preferred.is_empty() {
            return self.limits.rows.max(1);
        }
        let most = self.limits.rows.clamp(1, 1 << (SIZES - 1));
        let rates = &self.rates[..=size_of(most)];
        let speeds = || rates.iter().map(|rate| rate.work_per_second);
        let best = speeds().fold(0.0, f64::max);
        let known = |size: usize| rates.get(size).is_none_or(|rate| rate.samples >= TRUSTED);
        match speeds().position(|speed| speed >= NEAR_BEST * best) {
            Some(size) if known(size) && known(size + 1) => {
                let explore = usize::from(self.runs.is_multiple_of(EXPLORE));
                most.min(1 << (size + explore))
            }
            _ => most,
        }
    }
}

impl Policy {
    /// How long an item may wait that asked for so long.
    fn timeout(&self, asked: Option<Seconds>) -> Option<Seconds> {
        match (self.timeout, asked.filter(|_| self.may_shorten)) {
            (Some(most), Some(asked)) if most < asked => Some(most),
            (most, None) => most,
            (_, asked) => asked,
        }
    }
}

/// The index of the power of two that holds so many rows.
fn size_of(rows: usize) -> usize {
    (rows.max(1).next_power_of_two().trailing_zeros() as usize).min(SIZES - 1)
}

fn blend(smoothed: &mut f64, sample: f64, first: bool) {
    *smoothed = if first {
        sample
    } else {
        0.8 * *smoothed + 0.2 * sample
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(waiting: usize) -> Policy {
        Policy {
            waiting,
            timeout: None,
            may_shorten: false,
            overdue: Overdue::Refuse,
        }
    }

    fn limits() -> Limits {
        Limits {
            rows: 32,
            preferred: vec![],
            delay: Seconds(0.0),
            levels: vec![policy(100)],
            default_level: 0,
            ordered: false,
        }
    }

    fn item(name: u32, shape: usize, rows: usize) -> Item<u32> {
        Item {
            shape: vec![shape],
            rows,
            work: rows * shape,
            urgency: Urgency::default(),
            load: name,
        }
    }

    fn run(batcher: &mut Batcher<u32>, now: f64) -> Vec<u32> {
        match batcher.next(Seconds(now)) {
            Next::Run(items) => items.into_iter().map(|item| item.load).collect(),
            _ => vec![],
        }
    }

    fn filled(limits: Limits, items: impl IntoIterator<Item = Item<u32>>) -> Batcher<u32> {
        let mut batcher = Batcher::new(limits);
        for item in items {
            assert!(batcher.offer(item, Seconds(0.0)).is_ok());
        }
        batcher
    }

    #[test]
    fn an_idle_engine_runs_a_single_request_at_once() {
        let mut batcher = filled(limits(), [item(1, 8, 1)]);
        assert_eq!(run(&mut batcher, 0.0), [1]);
        assert!(matches!(batcher.next(Seconds(0.0)), Next::Idle));
    }

    #[test]
    fn equal_shapes_leave_together_and_order_is_kept() {
        let mut batcher = filled(
            limits(),
            [item(1, 8, 1), item(2, 9, 1), item(3, 8, 2), item(4, 9, 1)],
        );
        assert_eq!(run(&mut batcher, 0.0), [1, 3]);
        assert_eq!(run(&mut batcher, 0.0), [2, 4]);
    }

    #[test]
    fn a_small_item_does_not_overtake_a_large_one_of_its_shape() {
        let mut batcher = filled(limits(), [item(1, 8, 20), item(2, 8, 20), item(3, 8, 1)]);
        assert_eq!(run(&mut batcher, 0.0), [1]);
        assert_eq!(run(&mut batcher, 0.0), [2, 3]);
    }

    #[test]
    fn with_32_waiting_the_batch_is_32_and_an_oversized_item_runs_alone() {
        let mut batcher = filled(limits(), (0..40).map(|name| item(name, 8, 1)));
        assert_eq!(run(&mut batcher, 0.0).len(), 32);
        assert_eq!(run(&mut batcher, 0.0).len(), 8);
        let mut batcher = filled(limits(), [item(1, 8, 50), item(2, 8, 1)]);
        assert_eq!(run(&mut batcher, 0.0), [1]);
    }

    #[test]
    fn who_would_only_be_postponed_has_patience_without_end() {
        let patience = |overdue| {
            let timeout = Some(Seconds(1.0));
            let levels = vec![Policy {
                timeout,
                overdue,
                ..policy(1)
            }];
            Limits { levels, ..limits() }.patience(Urgency::default())
        };
        assert_eq!(patience(Overdue::Refuse), Some(Seconds(1.0)));
        assert_eq!(patience(Overdue::Postpone), None);
    }

    #[test]
    fn the_queue_is_bounded() {
        let limits = Limits {
            levels: vec![policy(2)],
            ..limits()
        };
        let mut batcher = filled(limits, [item(1, 8, 1), item(2, 8, 1)]);
        let back = batcher.offer(item(3, 8, 1), Seconds(0.0)).unwrap_err();
        assert_eq!(back.load, 3);
        batcher.retain(|&name| name != 1);
        assert!(batcher.offer(back, Seconds(0.0)).is_ok());
        assert_eq!(run(&mut batcher, 0.0), [2, 3]);
    }

    #[test]
    fn a_model_that_asks_for_delay_waits_for_company_but_not_for_ever() {
        let limits = Limits {
            rows: 2,
            delay: Seconds(0.5),
            ..limits()
        };
        let mut batcher = filled(limits, [item(1, 8, 1)]);
        assert!(matches!(batcher.next(Seconds(0.1)), Next::WaitUntil(at) if at == Seconds(0.5)));
        assert!(batcher.offer(item(2, 8, 1), Seconds(0.2)).is_ok());
        assert_eq!(run(&mut batcher, 0.2), [1, 2]);
        assert!(batcher.offer(item(3, 8, 1), Seconds(1.0)).is_ok());
        assert_eq!(run(&mut batcher, 1.5), [3]);
    }

    /// Feeds the batcher runs of every size, at a rate that grows up to `best` rows and stays there.
    fn learn(batcher: &mut Batcher<u32>, best: usize) {
        for rows in [1, 2, 4, 8, 16, 32].repeat(5) {
            let rate = rows.min(best) as f64 * 100.0;
            batcher.ran(rows, rows * 8, rows, Seconds((rows * 8) as f64 / rate));
        }
    }

    #[test]
    fn batches_stop_growing_where_the_rate_does() {
        for best in [1, 8, 32] {
            let mut batcher = filled(limits(), (0..64).map(|name| item(name, 8, 1)));
            learn(&mut batcher, best);
            assert_eq!(run(&mut batcher, 0.0).len(), best);
        }
    }

    #[test]
    fn a_size_given_up_is_tried_again_later() {
        let mut batcher = filled(limits(), (0..64).map(|name| item(name, 8, 1)));
        learn(&mut batcher, 8);
        while !batcher.runs.is_multiple_of(EXPLORE) {
            batcher.ran(8, 64, 8, Seconds(64.0 / 800.0));
        }
        assert_eq!(run(&mut batcher, 0.0).len(), 16);
    }

    #[test]
    fn the_backlog_is_what_waits_times_what_one_takes() {
        let mut batcher = filled(limits(), [item(1, 8, 1), item(2, 8, 1)]);
        batcher.ran(4, 32, 4, Seconds(2.0));
        assert!((batcher.backlog().0 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_preferred_size_leaves_as_soon_as_it_can_be_made() {
        let limits = Limits {
            rows: 8,
            preferred: vec![2, 4],
            delay: Seconds(0.5),
            ..limits()
        };
        let mut batcher = filled(limits, [item(1, 8, 1)]);
        assert!(matches!(batcher.next(Seconds(0.1)), Next::WaitUntil(at) if at == Seconds(0.5)));
        for name in 2..=7 {
            assert!(batcher.offer(item(name, 8, 1), Seconds(0.2)).is_ok());
        }
        assert_eq!(run(&mut batcher, 0.2), [1, 2, 3, 4]);
        assert_eq!(run(&mut batcher, 0.2), [5, 6]);
        assert!(run(&mut batcher, 0.2).is_empty());
        assert_eq!(run(&mut batcher, 0.7), [7]);
    }

    fn levelled(levels: Vec<Policy>) -> Batcher<u32> {
        Batcher::new(Limits {
            levels,
            default_level: 1,
            rows: 2,
            ..limits()
        })
    }

    fn urgent(name: u32, level: usize) -> Item<u32> {
        let urgency = Urgency {
            level: Some(level),
            timeout: None,
        };
        Item {
            urgency,
            ..item(name, 8, 1)
        }
    }

    #[test]
    fn the_urgent_go_first_and_others_fill_the_batch() {
        let mut batcher = levelled(vec![policy(2), policy(2)]);
        for one in [urgent(1, 1), item(2, 8, 1), urgent(3, 0)] {
            assert!(batcher.offer(one, Seconds(0.0)).is_ok());
        }
        assert!(batcher.offer(urgent(4, 9), Seconds(0.0)).is_err(), "full");
        assert_eq!(run(&mut batcher, 0.0), [3, 1]);
        assert_eq!(run(&mut batcher, 0.0), [2]);
    }

    #[test]
    fn who_waited_too_long_is_refused_or_goes_last() {
        let timed = Policy {
            timeout: Some(Seconds(1.0)),
            ..policy(9)
        };
        let patient = Policy {
            overdue: Overdue::Postpone,
            ..timed
        };
        let mut batcher = levelled(vec![timed, patient]);
        let until = batcher.offer(urgent(1, 0), Seconds(0.0)).unwrap();
        assert_eq!(until, Some(Seconds(1.0)));
        assert!(batcher.offer(urgent(2, 1), Seconds(0.0)).is_ok());
        assert!(batcher.offer(urgent(3, 1), Seconds(0.5)).is_ok());
        assert!(batcher.expire(Seconds(0.9)).is_empty());
        assert_eq!(batcher.expire(Seconds(1.0)), [1]);
        assert_eq!(run(&mut batcher, 1.0), [3, 2]);
    }

    #[test]
    fn an_item_may_shorten_its_time_where_the_policy_lets_it() {
        let asked = |policy: Policy, span: f64| policy.timeout(Some(Seconds(span)));
        let (fixed, open) = (
            Policy {
                timeout: Some(Seconds(1.0)),
                ..policy(1)
            },
            Policy {
                may_shorten: true,
                ..policy(1)
            },
        );
        let bounded = Policy {
            may_shorten: true,
            ..fixed
        };
        assert_eq!(asked(fixed, 0.1), Some(Seconds(1.0)));
        assert_eq!(asked(open, 0.1), Some(Seconds(0.1)));
        assert_eq!(asked(bounded, 0.1), Some(Seconds(0.1)));
        assert_eq!(asked(bounded, 9.0), Some(Seconds(1.0)));
    }
}
