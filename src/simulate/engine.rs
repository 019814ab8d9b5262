//! One engine on its card: who waits, whose prompt is read, whose answers are decoded, and when the next of them is done.
//!
//! Prompts are read one after the other, in the order they came. The next one begins when there is a slot and enough KV
//! memory for all it will have grown to; until then those behind it wait too, as in vLLM. An answer's first token comes
//! when its prompt was read. From then on it is one of the batch, in which every answer gets a token each step.
//!
//! A request for a LoRA adapter needs a slot for that on the card, too. While all of these are taken by answers in the
//! batch, requests for further adapters wait, and those behind them pass, as in vLLM. Reading begins with the load of an
//! adapter that is not on the card.
//!
//! Where not all models fit into memory, a model that is not there is loaded before its prompt is read, in place of the one
//! that was used longest ago and has no answer in the batch. While all have, whoever needs another waits, and everybody
//! behind it too, as in Ollama.
//!
//! Between two events all speeds are constant, so time jumps from one to the next and nothing is stepped. Every running
//! answer gains tokens at the same rate: one counter serves all of them, and an answer is done when the counter has grown
//! by its length. That is also what makes an engine cheap to copy: the oracle looks ahead by running a copy.
//!
//! Left out: chunked prefill, preemption, and what batching does to prompts. See `card.rs` for the speeds.

use std::collections::VecDeque;

use super::card::Card;
use super::slots::Slots;
use crate::decide::Work;
use crate::units::Seconds;

/// The share of its speed that reading keeps while answers are decoded,
const READING_BESIDE: f64 = 0.75;
/// and decoding while a prompt is read.
const DECODING_BESIDE: f64 = 0.5;

/// A request as an engine sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// The attempt that it belongs to.
    pub attempt: usize,
    /// What kind of work it is.
    pub work: Work,
    /// Tokens of its prompt.
    pub prompt: f64,
    /// Those of them that are in the cache.
    pub cached: f64,
    /// Tokens of its answer.
    pub output: f64,
    /// Blocks of KV memory until it is done.
    pub blocks: f64,
    /// The LoRA adapter that it needs.
    pub adapter: Option<u32>,
    /// The model that it needs.
    pub model: u32,
}

/// Something happened in an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A prompt was read, and its answer's first token is there.
    FirstToken(Job),
    /// An answer is complete.
    Done(Job),
}

/// An answer in the batch.
#[derive(Clone, Copy, Debug)]
struct Stream {
    job: Job,
    /// What the counter shows when it is done.
    until: f64,
}

/// An engine at a point in time.
#[derive(Clone, Debug)]
pub struct Engine {
    card: Card,
    now: Seconds,
    /// What is left of its speed: 1 when it is well, 0 when it hangs.
    health: f64,
    waiting: VecDeque<Job>,
    /// Whose prompt is read, and the seconds that takes yet if nothing else goes on.
    reading: Option<(Job, f64)>,
    /// Those who are done last come first.
    streams: Vec<Stream>,
    /// Tokens that each answer has gained since the start.
    gained: f64,
    /// Tokens that all of them have.
    emitted: f64,
    blocks: f64,
    adapters: Slots,
    models: Slots,
}

impl Engine {
    /// One that has nothing to do.
    #[must_use]
    pub fn idle(card: Card) -> Self {
        Engine {
            card,
            now: Seconds::ZERO,
            health: 1.0,
            waiting: VecDeque::new(),
            reading: None,
            streams: Vec::new(),
            gained: 0.0,
            emitted: 0.0,
            blocks: 0.0,
            adapters: Slots::default(),
            models: Slots::default(),
        }
    }

    /// Its card.
    #[must_use]
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Requests that wait for their prompt to be read.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether an adapter is on its card.
    #[must_use]
    pub fn has_adapter(&self, adapter: u32) -> bool {
        self.adapters.has(adapter)
    }

    /// Whether there is a slot for one more.
    #[must_use]
    pub fn has_free_slot(&self) -> bool {
        self.adapters.len() < self.card.lora_slots as usize
    }

    /// Whether a request for an adapter waits.
    #[must_use]
    pub fn waits_for(&self, adapter: u32) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|job| job.adapter == Some(adapter))
    }

    /// The share of its KV memory that is taken.
    #[must_use]
    pub fn memory_used(&self) -> f64 {
        (self.blocks / f64::from(self.card.blocks)).min(1.0)
    }

    /// Blocks of KV memory that are taken.
    #[must_use]
    pub fn blocks(&self) -> f64 {
        self.blocks
    }

    /// Tokens of all answers after their first, since the start, at this time.
    pub fn emitted(&mut self, now: Seconds) -> f64 {
        self.advance(now);
        self.emitted
    }

    /// Tokens that each answer in the batch has gained since the start, at this time.
    pub fn gained(&mut self, now: Seconds) -> f64 {
        self.advance(now);
        self.gained
    }

    /// From now on it runs at this share of its speed.
    pub fn set_health(&mut self, health: f64, now: Seconds) {
        self.advance(now);
        self.health = health;
    }

    /// A request came.
    pub fn push(&mut self, job: Job, now: Seconds) {
        self.advance(now);
        self.waiting.push_back(job);
    }

    /// The request whose prompt may be read next, if it may be now. What the cache holds of it can still be noted on it.
    pub fn next_to_begin(&mut self) -> Option<&mut Job> {
        if self.reading.is_some() || self.streams.len() >= self.card.slots as usize {
            return None;
        }
        let fits = |job: &Job| self.blocks + job.blocks <= f64::from(self.card.blocks);
        let alone = self.streams.is_empty();
        let place = self.next_place()?;
        let begins = self
            .waiting
            .get(place)
            .is_some_and(|job| self.has_memory_for(job.model) && (alone || fits(job)));
        self.waiting.get_mut(place).filter(|_| begins)
    }

    /// The place in line of the first whose adapter has a slot or can have one.
    fn next_place(&self) -> Option<usize> {
        self.waiting
            .iter()
            .position(|job| job.adapter.is_none_or(|adapter| self.has_slot_for(adapter)))
    }

    fn has_slot_for(&self, adapter: u32) -> bool {
        let mut used: Vec<u32> = self
            .streams
            .iter()
            .filter_map(|stream| stream.job.adapter)
            .collect();
        used.sort_unstable();
        used.dedup();
        used.contains(&adapter) || used.len() < self.card.lora_slots as usize
    }

    /// Whether a model is in memory or can be brought there.
    fn has_memory_for(&self, model: u32) -> bool {
        let Some(most) = self.card.resident else {
            return true;
        };
        let mut used: Vec<u32> = self.streams.iter().map(|one| one.job.model).collect();
        used.sort_unstable();
        used.dedup();
        used.contains(&model) || used.len() < most as usize
    }

    /// Whether a model has to be brought into memory.
    #[must_use]
    pub fn lacks(&self, model: u32) -> bool {
        self.card.resident.is_some() && !self.models.has(model)
    }

    /// Begins with it.
    pub fn begin(&mut self) {
        let next = self.next_place();
        if let Some(job) = next.and_then(|place| self.waiting.remove(place)) {
            let fresh = (job.prompt - job.cached).max(1.0);
            let mut seconds = self.card.reads(job.work, fresh, job.cached);
            if self.is_brought(&job) {
                seconds += self.card.lora_load;
            }
            if self.is_swapped(&job) {
                seconds += self.card.swap;
            }
            self.reading = Some((job, seconds.0));
            self.blocks += job.blocks;
        }
    }

    /// Whether this job's adapter has to be brought onto the card; it is there then.
    fn is_brought(&mut self, job: &Job) -> bool {
        let streams = &self.streams;
        let in_use = |other| {
            streams
                .iter()
                .any(|stream| stream.job.adapter == Some(other))
        };
        let most = self.card.lora_slots;
        job.adapter
            .is_some_and(|adapter| self.adapters.bring(adapter, most, in_use))
    }

    /// Whether this job's model has to be brought into memory; it is there then.
    fn is_swapped(&mut self, job: &Job) -> bool {
        let streams = &self.streams;
        let in_use = |other| streams.iter().any(|stream| stream.job.model == other);
        let most = self.card.resident;
        most.is_some_and(|most| self.models.bring(job.model, most, in_use))
    }

    /// When something happens next, if nothing comes before.
    #[must_use]
    pub fn next(&self) -> Option<Seconds> {
        let (read, done) = (self.read_in(), self.done_in());
        let soonest = read.min(done);
        soonest
            .is_finite()
            .then(|| self.now + Seconds(soonest.max(0.0)))
    }

    /// Goes to when something happens next, and does it.
    pub fn step(&mut self) -> Option<Step> {
        let (read, done) = (self.read_in(), self.done_in());
        self.advance(self.next()?);
        if done <= read {
            let Stream { job, until } = self.streams.pop()?;
            // What rounding has left over of the last token.
            self.gained = self.gained.max(until);
            self.release(job);
            return Some(Step::Done(job));
        }
        let (job, _) = self.reading.take()?;
        let until = self.gained + (job.output - 1.0).max(0.0);
        let place = self.streams.partition_point(|stream| stream.until > until);
        self.streams.insert(place, Stream { job, until });
        Some(Step::FirstToken(job))
    }

    /// Gives up on a request, wherever it is.
    pub fn cancel(&mut self, attempt: usize, now: Seconds) {
        self.advance(now);
        self.waiting.retain(|job| job.attempt != attempt);
        if let Some((job, _)) = self.reading.take_if(|(job, _)| job.attempt == attempt) {
            self.release(job);
        }
        let place = self
            .streams
            .iter()
            .position(|stream| stream.job.attempt == attempt);
        if let Some(place) = place {
            let stream = self.streams.remove(place);
            self.release(stream.job);
        }
    }

    /// Loses everything; says what that was.
    pub fn crash(&mut self, now: Seconds) -> Vec<Job> {
        self.advance(now);
        let reading = self.reading.take().map(|(job, _)| job);
        let streams = self.streams.drain(..).map(|stream| stream.job);
        let lost = self.waiting.drain(..).chain(reading).chain(streams);
        let lost = lost.collect();
        self.blocks = 0.0;
        self.adapters.clear();
        self.models.clear();
        lost
    }

    /// Seconds until the prompt was read.
    fn read_in(&self) -> f64 {
        let beside = if self.streams.is_empty() {
            1.0
        } else {
            READING_BESIDE
        };
        let reading = self.reading.as_ref();
        reading.map_or(f64::INFINITY, |(_, left)| left / (beside * self.health))
    }

    /// Seconds until the next answer is complete.
    fn done_in(&self) -> f64 {
        let next = self.streams.last();
        next.map_or(f64::INFINITY, |stream| {
            (stream.until - self.gained).max(0.0) / self.pace()
        })
    }

    /// Tokens a second of each answer.
    fn pace(&self) -> f64 {
        let beside = if self.reading.is_some() {
            DECODING_BESIDE
        } else {
            1.0
        };
        #[expect(clippy::cast_precision_loss, reason = "a batch of some dozens")]
        let batch = self.streams.len() as f64;
        beside * self.health / self.card.token(batch).0
    }

    fn advance(&mut self, now: Seconds) {
        let passed = (now - self.now).0;
        if passed <= 0.0 {
            return;
        }
        let beside = if self.streams.is_empty() {
            1.0
        } else {
            READING_BESIDE
        };
        let pace = self.pace();
        if let Some((_, left)) = &mut self.reading {
            *left -= passed * beside * self.health;
        }
        #[expect(clippy::cast_precision_loss, reason = "a batch of some dozens")]
        let batch = self.streams.len() as f64;
        self.gained += passed * pace * f64::from(u8::from(batch > 0.0));
        self.emitted += passed * pace * batch;
        self.now = now;
    }

    fn release(&mut self, job: Job) {
        self.blocks -= job.blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 tokens a second, 10 ms and 1 ms a token, two slots, ten blocks; nothing fixed.
    const CARD: Card = Card {
        prefill: 1_000.0,
        fixed: Seconds::ZERO,
        step: Seconds(0.01),
        step_per_stream: Seconds(0.001),
        slots: 2,
        blocks: 10,
        lora_slots: 1,
        lora_load: Seconds(0.5),
        resident: None,
        swap: Seconds(5.0),
    };

    fn job(attempt: usize, work: Work, prompt: f64, output: f64) -> Job {
        Job {
            attempt,
            work,
            prompt,
            cached: 0.0,
            output,
            blocks: 4.0,
            adapter: None,
            model: 0,
        }
    }

    /// Everything that happens until all is done: when in milliseconds, to whom, and whether it is the end.
    fn run(engine: &mut Engine) -> Vec<(f64, usize, bool)> {
        let mut seen = Vec::new();
        loop {
            while engine.next_to_begin().is_some() {
                engine.begin();
            }
            let Some(step) = engine.step() else {
                return seen;
            };
            let (job, done) = match step {
                Step::FirstToken(job) => (job, false),
                Step::Done(job) => (job, true),
            };
            seen.push(((engine.now.0 * 1e3).round(), job.attempt, done));
        }
    }

    fn running(engine: &Engine) -> usize {
        engine.streams.len() + usize::from(engine.reading.is_some())
    }

    #[test]
    fn prompts_are_read_in_turn_as_reckoned_by_hand() {
        let mut engine = Engine::idle(CARD);
        for (attempt, tokens) in [(0, 100.0), (1, 300.0), (2, 50.0)] {
            engine.push(job(attempt, Work::Embed, tokens, 0.0), Seconds::ZERO);
        }
        let ends: Vec<_> = run(&mut engine).into_iter().filter(|seen| seen.2).collect();
        assert_eq!(ends, [(100.0, 0, true), (400.0, 1, true), (450.0, 2, true)]);
        assert_eq!((running(&engine), engine.waiting()), (0, 0));
        assert_eq!(engine.memory_used(), 0.0);
    }

    #[test]
    fn an_answer_alone_takes_a_step_for_each_token_after_its_first() {
        let mut engine = Engine::idle(CARD);
        engine.push(job(0, Work::Generate, 100.0, 101.0), Seconds::ZERO);
        // Read in 100·(1 + 50/30,000) ms, then 100 tokens of 11 ms.
        assert_eq!(run(&mut engine), [(100.0, 0, false), (1_200.0, 0, true)]);
        assert!((engine.emitted(Seconds(9.0)) - 100.0).abs() < 1e-9);
        assert!((engine.gained(Seconds(9.0)) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn reading_and_decoding_slow_each_other() {
        let mut engine = Engine::idle(CARD);
        engine.push(job(0, Work::Generate, 100.0, 101.0), Seconds::ZERO);
        engine.push(job(1, Work::Embed, 300.0, 0.0), Seconds::ZERO);
        // From 100 ms on the second is read at 75 %: 400 ms, in which the first gains 400/22 tokens; the other 81.8
        // take 11 ms each.
        assert_eq!(
            run(&mut engine),
            [
                (100.0, 0, false),
                (500.0, 1, false),
                (500.0, 1, true),
                (1_400.0, 0, true)
            ]
        );
    }

    #[test]
    fn answers_share_the_batch_and_slots_and_memory_bound_it() {
        let reads_at_once = Card {
            prefill: 1e9,
            ..CARD
        };
        let mut engine = Engine::idle(reads_at_once);
        let short = |attempt| job(attempt, Work::Generate, 1.0, 11.0);
        (0..3).for_each(|attempt| engine.push(short(attempt), Seconds::ZERO));
        // Two at 12 ms a token; the third begins when they are done.
        let ends: Vec<_> = run(&mut engine).into_iter().filter(|seen| seen.2).collect();
        assert_eq!(
            ends.iter().map(|end| end.0).collect::<Vec<_>>(),
            [120.0, 120.0, 230.0]
        );
        let mut full = Engine::idle(reads_at_once);
        full.push(
            Job {
                blocks: 8.0,
                ..short(0)
            },
            Seconds::ZERO,
        );
        full.push(
            Job {
                blocks: 3.0,
                ..short(1)
            },
            Seconds::ZERO,
        );
        full.push(
            Job {
                blocks: 99.0,
                ..short(2)
            },
            Seconds::ZERO,
        );
        let ends: Vec<_> = run(&mut full).into_iter().filter(|seen| seen.2).collect();
        assert_eq!(
            ends.iter().map(|end| end.0).collect::<Vec<_>>(),
            [110.0, 220.0, 330.0]
        );
    }

    #[test]
    fn what_is_cached_is_not_read_again() {
        let mut engine = Engine::idle(CARD);
        let mut known = job(0, Work::Embed, 300.0, 0.0);
        known.cached = 200.0;
        engine.push(known, Seconds::ZERO);
        engine.push(
            Job {
                attempt: 1,
                cached: 300.0,
                ..known
            },
            Seconds::ZERO,
        );
        let ends: Vec<_> = run(&mut engine).into_iter().filter(|seen| seen.2).collect();
        assert_eq!(
            ends,
            [(100.0, 0, true), (101.0, 1, true)],
            "one token is always read"
        );
    }

    #[test]
    fn an_adapter_is_brought_once_and_others_wait_for_its_slot_or_pass() {
        let mut engine = Engine::idle(CARD);
        let with = |attempt, adapter, output| Job {
            adapter,
            blocks: 1.0,
            ..job(attempt, Work::Generate, 1.0, output)
        };
        engine.push(with(0, Some(7), 101.0), Seconds::ZERO);
        engine.push(with(1, Some(8), 1.0), Seconds::ZERO);
        engine.push(with(2, None, 1.0), Seconds::ZERO);
        engine.push(with(3, Some(7), 1.0), Seconds::ZERO);
        let begun: Vec<usize> = run(&mut engine)
            .into_iter()
            .filter(|seen| !seen.2)
            .map(|seen| seen.1)
            .collect();
        assert_eq!(begun, [0, 2, 3, 1]);
        assert!(engine.has_adapter(8) && !engine.has_adapter(7) && !engine.has_free_slot());
        let took = |engine: &mut Engine, adapter| {
            let before = engine.now;
            engine.push(with(4, Some(adapter), 1.0), before);
            run(engine);
            ((engine.now - before).0 * 1e3).round()
        };
        assert_eq!(
            [8, 9].map(|adapter| took(&mut engine, adapter)),
            [1.0, 501.0]
        );
        engine.crash(Seconds(99.0));
        assert!(engine.has_free_slot());
    }

    #[test]
    fn a_model_is_swapped_in_when_the_other_is_idle_and_who_is_behind_waits() {
        let mut engine = Engine::idle(Card {
            resident: Some(1),
            prefill: 1e9,
            ..CARD
        });
        let with = |attempt, model, output| Job {
            model,
            ..job(attempt, Work::Generate, 1.0, output)
        };
        for job in [with(0, 0, 101.0), with(1, 1, 1.0), with(2, 0, 1.0)] {
            engine.push(job, Seconds::ZERO);
        }
        let ends: Vec<_> = run(&mut engine).into_iter().filter(|seen| seen.2).collect();
        // Each waits for the one before it and then 5 s for its model.
        assert_eq!(
            ends,
            [(6_100.0, 0, true), (11_100.0, 1, true), (16_100.0, 2, true)]
        );
        assert!(engine.lacks(1) && !engine.lacks(0));
        engine.crash(Seconds(99.0));
        assert!(engine.lacks(0));
    }

    #[test]
    fn a_slow_engine_takes_longer_and_one_that_hangs_for_ever() {
        let mut engine = Engine::idle(CARD);
        engine.push(job(0, Work::Embed, 300.0, 0.0), Seconds::ZERO);
        engine.begin();
        engine.set_health(0.5, Seconds(0.1));
        assert_eq!(engine.next(), Some(Seconds(0.5)));
        engine.set_health(0.0, Seconds(0.3));
        assert_eq!(engine.next(), None);
        engine.set_health(1.0, Seconds(5.0));
        assert_eq!(run(&mut engine)[0], (5_100.0, 0, false));
    }

    #[test]
    fn what_is_cancelled_or_lost_is_gone_and_frees_its_memory() {
        let mut engine = Engine::idle(CARD);
        for attempt in 0..3 {
            engine.push(job(attempt, Work::Generate, 100.0, 11.0), Seconds::ZERO);
        }
        engine.begin();
        engine.step();
        engine.begin();
        (1..=2).for_each(|attempt| engine.cancel(attempt, Seconds(0.15)));
        assert_eq!((running(&engine), engine.waiting()), (1, 0));
        assert_eq!(engine.memory_used(), 0.4);
        engine.push(job(3, Work::Embed, 1.0, 0.0), Seconds(0.16));
        let lost: Vec<_> = engine
            .crash(Seconds(0.17))
            .iter()
            .map(|job| job.attempt)
            .collect();
        assert_eq!(
            (lost, engine.memory_used(), engine.next()),
            (vec![3, 0], 0.0, None)
        );
    }
}
