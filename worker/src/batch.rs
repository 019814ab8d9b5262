//! Which waiting requests run together next. Pure: items and `now` go in, batches come out.
//!
//! A request that finds the engine idle runs at once; nobody waits for company that may not come. (Triton's dynamic
//! batcher holds every request back for its queue delay, which at one request at a time is most of its latency.) While
//! the engine runs, others gather, and those of equal shape leave together, oldest first.
//!
//! Bigger is not always better: on two cores MiniLM answers 110 to 130 rows/s in batches of 8 and of 32 alike, at a
//! quarter of the latency. So the batcher keeps the measured work rate of each power of two and stops at the smallest
//! size within 5 % of the best. Every 64th run may go one size up, so that one noisy moment does not stick.
//!
//! Guarantees: at most `waiting` items wait; no item overtakes an older one of its own shape; a batch holds one shape;
//! an item bigger than the limit still runs, alone.

use std::collections::VecDeque;

use crate::units::Seconds;

const SIZES: usize = 6;
const TRUSTED: u32 = 3;
const NEAR_BEST: f64 = 0.95;
const EXPLORE: u64 = 64;

/// The bounds of a batcher.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most items that may wait.
    pub waiting: usize,
    /// The most rows in a batch; at most 32 are used.
    pub rows: usize,
    /// How long the oldest item may be held back in the hope of a fuller batch. Zero unless a model asks for it.
    pub delay: Seconds,
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

/// The waiting items and what was learned of batch sizes.
#[derive(Debug)]
pub struct Batcher<T> {
    limits: Limits,
    waiting: VecDeque<(Seconds, Item<T>)>,
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

    /// Takes an item, or gives it back when as many wait as may.
    pub fn offer(&mut self, item: Item<T>, now: Seconds) -> Result<(), Item<T>> {
        if self.waiting.len() >= self.limits.waiting {
            return Err(item);
        }
        self.waiting.push_back((now, item));
        Ok(())
    }

    /// Keeps only the items that somebody still wants.
    pub fn retain(&mut self, wanted: impl Fn(&T) -> bool) {
        self.waiting.retain(|(_, item)| wanted(&item.load));
    }

    /// What should run now, if anything.
    pub fn next(&mut self, now: Seconds) -> Next<T> {
        let Some((since, oldest)) = self.waiting.front() else {
            return Next::Idle;
        };
        let due = *since + self.limits.delay;
        let cap = self.cap();
        let alike = |item: &Item<T>| item.shape == oldest.shape;
        let gathered: usize = self
            .waiting
            .iter()
            .filter(|(_, item)| alike(item))
            .map(|(_, item)| item.rows)
            .sum();
        if gathered < cap && now < due {
            return Next::WaitUntil(due);
        }
        Next::Run(self.take(cap))
    }

    /// Takes note of how long a batch of so many rows and so much work took.
    pub fn ran(&mut self, rows: usize, work: usize, items: usize, took: Seconds) {
        self.runs += 1;
        if took.0 <= 0.0 || rows == 0 || items == 0 {
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

    /// The oldest item and those of its shape that still fit, in order of arrival.
    fn take(&mut self, cap: usize) -> Vec<Item<T>> {
        let mut batch: Vec<Item<T>> = Vec::new();
        let mut rows = 0;
        let mut full = false;
        let mut left = VecDeque::with_capacity(self.waiting.len());
        for (since, item) in self.waiting.drain(..) {
            let alike = batch.first().is_none_or(|first| first.shape == item.shape);
            let fits = batch.is_empty() || rows + item.rows <= cap;
            if alike && fits && !full {
                rows += item.rows;
                batch.push(item);
            } else {
                full |= alike;
                left.push_back((since, item));
            }
        }
        self.waiting = left;
        batch
    }

    /// The rows worth putting together at present: the smallest size near the best rate, once the size above it has
    /// been tried and was no better; until then as many as may.
    fn cap(&self) -> usize {
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

    const LIMITS: Limits = Limits {
        waiting: 100,
        rows: 32,
        delay: Seconds::ZERO,
    };

    fn item(name: u32, shape: usize, rows: usize) -> Item<u32> {
        Item {
            shape: vec![shape],
            rows,
            work: rows * shape,
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
            assert!(batcher.offer(item, Seconds::ZERO).is_ok());
        }
        batcher
    }

    #[test]
    fn an_idle_engine_runs_a_single_request_at_once() {
        let mut batcher = filled(LIMITS, [item(1, 8, 1)]);
        assert_eq!(run(&mut batcher, 0.0), [1]);
        assert!(matches!(batcher.next(Seconds::ZERO), Next::Idle));
    }

    #[test]
    fn equal_shapes_leave_together_and_order_is_kept() {
        let mut batcher = filled(
            LIMITS,
            [item(1, 8, 1), item(2, 9, 1), item(3, 8, 2), item(4, 9, 1)],
        );
        assert_eq!(run(&mut batcher, 0.0), [1, 3]);
        assert_eq!(run(&mut batcher, 0.0), [2, 4]);
    }

    #[test]
    fn a_small_item_does_not_overtake_a_large_one_of_its_shape() {
        let mut batcher = filled(LIMITS, [item(1, 8, 20), item(2, 8, 20), item(3, 8, 1)]);
        assert_eq!(run(&mut batcher, 0.0), [1]);
        assert_eq!(run(&mut batcher, 0.0), [2, 3]);
    }

    #[test]
    fn with_32_waiting_the_batch_is_32_and_an_oversized_item_runs_alone() {
        let mut batcher = filled(LIMITS, (0..40).map(|name| item(name, 8, 1)));
        assert_eq!(run(&mut batcher, 0.0).len(), 32);
        assert_eq!(run(&mut batcher, 0.0).len(), 8);
        let mut batcher = filled(LIMITS, [item(1, 8, 50), item(2, 8, 1)]);
        assert_eq!(run(&mut batcher, 0.0), [1]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let limits = Limits {
            waiting: 2,
            ..LIMITS
        };
        let mut batcher = filled(limits, [item(1, 8, 1), item(2, 8, 1)]);
        let back = batcher.offer(item(3, 8, 1), Seconds::ZERO).unwrap_err();
        assert_eq!(back.load, 3);
        batcher.retain(|&name| name != 1);
        assert!(batcher.offer(back, Seconds::ZERO).is_ok());
        assert_eq!(run(&mut batcher, 0.0), [2, 3]);
    }

    #[test]
    fn a_model_that_asks_for_delay_waits_for_company_but_not_for_ever() {
        let limits = Limits {
            rows: 2,
            delay: Seconds(0.5),
            ..LIMITS
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
            let mut batcher = filled(LIMITS, (0..64).map(|name| item(name, 8, 1)));
            learn(&mut batcher, best);
            assert_eq!(run(&mut batcher, 0.0).len(), best);
        }
    }

    #[test]
    fn a_size_given_up_is_tried_again_later() {
        let mut batcher = filled(LIMITS, (0..64).map(|name| item(name, 8, 1)));
        learn(&mut batcher, 8);
        while !batcher.runs.is_multiple_of(EXPLORE) {
            batcher.ran(8, 64, 8, Seconds(64.0 / 800.0));
        }
        assert_eq!(run(&mut batcher, 0.0).len(), 16);
    }

    #[test]
    fn the_backlog_is_what_waits_times_what_one_takes() {
        let mut batcher = filled(LIMITS, [item(1, 8, 1), item(2, 8, 1)]);
        batcher.ran(4, 32, 4, Seconds(2.0));
        assert!((batcher.backlog().0 - 1.0).abs() < 1e-9);
    }
}
