//! How long a worker takes: slots, then prefill one at a time, then decode steps that grow with the batch.
//!
//! This is the shape that vLLM's scheduler shows from outside, and the shape that the proxy's cost model assumes
//! (design.md §3). Places are tickets in order of arrival; all of them are given back on drop, so a request whose
//! client left stops costing at once. An engine-shaped worker takes the simulator's time instead (`shape.rs`).

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use forebay::clock::Clock;
use forebay::decide::Work;
use forebay::simulate::Member;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Knobs;
use super::shape::{self, Shape};

/// Bytes of a prompt that count as one token.
pub(super) const BYTES_PER_TOKEN: usize = 4;
/// Tokens in a block of the prefix cache, as in vLLM.
const BLOCK_TOKENS: usize = 16;

/// How many tokens a text is taken for.
pub fn tokens(text: &str) -> usize {
    text.len().div_ceil(BYTES_PER_TOKEN)
}

/// Who runs, who waits, and what is cached.
#[derive(Default)]
pub struct Pace {
    state: Mutex<State>,
    changed: Notify,
    prefill: tokio::sync::Mutex<()>,
    shape: Option<Arc<Shape>>,
}

#[derive(Default)]
struct State {
    next_ticket: u64,
    waiting: VecDeque<u64>,
    running: usize,
    decoding: usize,
    cached: HashSet<u64>,
}

impl Pace {
    /// That of a member of a fleet, whatever the knobs say.
    pub fn of(member: &Member, cache: f64, clock: Clock) -> Self {
        Pace {
            shape: Some(Arc::new(Shape::of(member, cache, clock))),
            ..Pace::default()
        }
    }

    /// Lets time pass, where somebody has to.
    pub async fn live(&self) {
        match &self.shape {
            Some(shape) => shape.live().await,
            None => std::future::pending().await,
        }
    }

    /// Waits for a slot and reads a prompt, of which so many tokens will be answered. Then the answer is decoded.
    pub async fn read(self: &Arc<Self>, asked: Asked<'_>, knobs: &Mutex<Knobs>) -> Turn {
        if let Some(shape) = &self.shape {
            return Turn::Shaped(shape.read(asked.work, asked.prompt, asked.output).await);
        }
        let slot = self.slot(knobs).await;
        let cached = self.prefill(&asked, knobs).await;
        Turn::Scripted {
            cached,
            decoding: (asked.work == Work::Generate).then(|| self.join_batch()),
            slot,
        }
    }

    /// Requests that hold a slot, and those that wait for one.
    pub fn load(&self) -> (usize, usize) {
        if let Some(shape) = &self.shape {
            return shape.load();
        }
        let state = self.state.lock();
        (state.running, state.waiting.len())
    }

    /// Lets waiters look again, after a knob was turned.
    pub fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Waits for a slot, in order of arrival.
    async fn slot(self: &Arc<Self>, knobs: &Mutex<Knobs>) -> Slot {
        let mut ticket = Ticket::draw(self);
        loop {
            let changed = self.changed.notified();
            if ticket.try_run(knobs.lock().slots) {
                return Slot(Arc::clone(self));
            }
            changed.await;
        }
    }

    /// Reads a prompt; returns how many of its tokens were cached.
    async fn prefill(&self, asked: &Asked<'_>, knobs: &Mutex<Knobs>) -> usize {
        let _turn = self.prefill.lock().await;
        let prompt = asked.prompt;
        let (seconds_per_token, caching) = {
            let knobs = knobs.lock();
            let tensors = knobs.tensors.filter(|_| asked.work == Work::Infer);
            (tensors.unwrap_or(knobs.prefill), knobs.prefix_cache)
        };
        let cached = if caching { self.remember(prompt) } else { 0 };
        pause(seconds_per_token * (tokens(prompt) - cached) as f64).await;
        cached
    }

    /// Notes the prompt's blocks; returns the tokens of the longest prefix that was known. The last token is always
    /// computed, as in vLLM.
    fn remember(&self, prompt: &str) -> usize {
        let mut state = self.state.lock();
        let mut chain = DefaultHasher::new();
        let mut known = 0;
        let mut unbroken = true;
        for block in prompt
            .as_bytes()
            .chunks_exact(BYTES_PER_TOKEN * BLOCK_TOKENS)
        {
            block.hash(&mut chain);
            unbroken &= !state.cached.insert(chain.finish());
            known += if unbroken { BLOCK_TOKENS } else { 0 };
        }
        known.min(tokens(prompt).saturating_sub(1))
    }

    /// Joins the decoding batch.
    fn join_batch(self: &Arc<Self>) -> Decoding {
        self.state.lock().decoding += 1;
        Decoding(Arc::clone(self))
    }

    /// One decode step of the batch as it is now.
    async fn step(&self, knobs: &Mutex<Knobs>) {
        let others = self.state.lock().decoding.saturating_sub(1);
        let seconds = {
            let knobs = knobs.lock();
            knobs.decode + knobs.decode_per_stream * others as f64
        };
        pause(seconds).await;
    }
}

/// Takes time, or none at all when there is none to take.
async fn pause(seconds: f64) {
    if seconds > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }
}

/// What a worker is to do.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// What kind of work it is.
    pub work: Work,
    /// The text that it reads.
    pub prompt: &'a str,
    /// Tokens that it says.
    pub output: usize,
}

/// A request whose prompt was read. Its place is given back when it is dropped.
pub enum Turn {
    /// At the pace that the knobs say.
    Scripted {
        /// Tokens of the prompt that were cached.
        cached: usize,
        /// Its part in the batch, if it generates.
        decoding: Option<Decoding>,
        /// Its place.
        slot: Slot,
    },
    /// At that of the simulator's engine.
    Shaped(shape::Turn),
}

impl Turn {
    /// Tokens of its prompt that were cached.
    pub fn cached(&self) -> usize {
        match self {
            Turn::Scripted { cached, .. } => *cached,
            Turn::Shaped(turn) => turn.cached(),
        }
    }

    /// Waits for tokens after the first; how many came.
    pub async fn more(&mut self, knobs: &Mutex<Knobs>) -> usize {
        match self {
            Turn::Scripted { slot, .. } => {
                slot.0.step(knobs).await;
                1
            }
            Turn::Shaped(turn) => turn.more().await,
        }
    }
}

/// A place in the line for a slot.
struct Ticket<'a> {
    pace: &'a Pace,
    number: u64,
}

impl<'a> Ticket<'a> {
    fn draw(pace: &'a Pace) -> Self {
        let mut state = pace.state.lock();
        let number = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(number);
        Ticket { pace, number }
    }

    fn try_run(&mut self, slots: usize) -> bool {
        let mut state = self.pace.state.lock();
        let first = state.waiting.front() == Some(&self.number);
        let runs = first && state.running < slots;
        if runs {
            state.running += 1;
        }
        runs
    }
}

/// Leaves the line, with or without a slot.
impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.state.lock();
        state.waiting.retain(|number| *number != self.number);
        drop(state);
        self.pace.changed.notify_waiters();
    }
}

/// A slot that is held.
pub struct Slot(Arc<Pace>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.changed.notify_waiters();
    }
}

/// A place in the decoding batch.
pub struct Decoding(Arc<Pace>);

impl Drop for Decoding {
    fn drop(&mut self) {
        self.0.state.lock().decoding -= 1;
    }
}
