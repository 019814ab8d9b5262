//! What a request is believed to find in a worker's cache, and what becomes of that belief.
//!
//! The belief comes from what was sent where (`prefix_index`). Prices turn it into seconds on that worker (`cost.rs`),
//! so a session stays where its prompt is cached for as long as that is cheaper, and no longer. Two things correct it:
//!
//! - a request that never got to the worker, or failed before its first byte, leaves nothing there;
//! - an engine that reports fewer cached tokens than were believed has lost those blocks: they are forgotten, until a
//!   request is sent there again. One that reports none for several such requests in a row is taken not to cache at all,
//!   and nothing is believed of it until it reports some.
//!
//! An engine that reports nothing is believed to cache. If it does not, time to the first token does not depend on what
//! is believed to be new, its line (`speed.rs`) becomes flat, and a prefix there is worth nothing, which is the truth.
//!
//! Two weaknesses are known. Blocks are believed from when a request was sent, so of a burst that begins alike several
//! may report nothing reused, and the worker is taken not to cache until it reports a hit. And blocks that a report took
//! back are in the cache again by then, so the session's next turn there is priced too high once.
//!
//! A worker that goes down or is ejected starts with nothing.

use super::ask::Outcome;
use super::booking::Booking;
use super::prefix_index::{Matches, PrefixIndex};
use super::traffic::believable;
use crate::facts::Prefix;
use crate::units::{Length, WorkerId};

/// So many answers in a row with nothing reused, where something was believed, and the worker does not cache.
const DENIALS: u8 = 3;

/// What was believed of a request when it was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Belief {
    /// Its prompt's blocks.
    prefix: Prefix,
    /// How many of them, from the start, its worker had.
    depth: u32,
}

/// The belief about all workers.
#[derive(Debug)]
pub(super) struct Reuse {
    index: PrefixIndex,
    /// What the last look-up found …
    found: Matches,
    /// … and the tokens of one of its blocks.
    block_tokens: f64,
    /// By worker, the answers in a row that reused nothing of what was believed.
    denials: Vec<u8>,
}

impl Reuse {
    /// Nothing is believed of anybody.
    pub(super) fn new(workers: usize) -> Self {
        Reuse {
            index: PrefixIndex::new(workers),
            found: Matches::default(),
            block_tokens: 0.0,
            denials: vec![0; workers],
        }
    }

    /// There are so many workers from now on, no fewer than before; what is believed of each stays.
    pub(super) fn seat(&mut self, workers: usize) {
        if workers > self.denials.len() {
            self.index = self.index.widened(workers);
            self.denials.resize(workers, 0);
        }
    }

    /// Looks a prompt up, of which a block has so many tokens.
    pub(super) fn look(&mut self, prefix: &Prefix, block_tokens: f64) {
        self.index.look(&prefix.blocks, &mut self.found);
        self.block_tokens = block_tokens;
    }

    /// The tokens of that prompt which a worker is believed to have.
    pub(super) fn cached(&self, worker: WorkerId) -> f64 {
        f64::from(self.depth(worker)) * self.block_tokens
    }

    /// That prompt is sent to a worker, which keeps so many tokens of prompts if it says so. Returns what was believed.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    pub(super) fn sent(
        &mut self,
        worker: WorkerId,
        prefix: &Prefix,
        kept_tokens: Option<f64>,
    ) -> Belief {
        if prefix.blocks.is_empty() {
            return Belief::default();
        }
        let most = kept_tokens.map_or(usize::MAX, |tokens| (tokens / self.block_tokens) as usize);
        self.index.touch(worker, &prefix.blocks, most);
        Belief {
            prefix: prefix.clone(),
            depth: self.depth(worker),
        }
    }

    /// A request ended at the worker that it was sent to, which still lives the same life.
    pub(super) fn ended(&mut self, booking: &Booking, outcome: Outcome) {
        let worker = booking.worker();
        match outcome {
            Outcome::Answered {
                prompt_tokens,
                cached_tokens: Some(cached),
                ..
            } => self.reported(booking, prompt_tokens, believable(Some(cached))),
            Outcome::Answered { .. } | Outcome::Gone => {}
            _ if booking.first_byte.is_some() => {}
            _ => {
                let fresh = booking.belief.prefix.blocks.get(booking.belief.depth()..);
                self.index.forget(worker, fresh.unwrap_or_default());
            }
        }
    }

    /// A worker starts anew.
    pub(super) fn lost(&mut self, worker: WorkerId) {
        self.index.clear(worker);
        if let Some(denied) = self.denials.get_mut(worker.index()) {
            *denied = 0;
        }
    }

    /// Whether the index agrees with itself.
    pub(super) fn check(&self) -> Result<(), String> {
        self.index.check()
    }

    /// The blocks of the prompt looked up that a worker is believed to have.
    fn depth(&self, worker: WorkerId) -> u32 {
        let denied = self.denials.get(worker.index());
        if denied.is_some_and(|denied| *denied < DENIALS) {
            self.found.depth(worker)
        } else {
            0
        }
    }

    /// The worker says how much of the prompt it had.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    fn reported(&mut self, booking: &Booking, prompt: Option<f64>, cached: Option<f64>) {
        let (worker, believed) = (booking.worker(), booking.belief.depth());
        let (Some(cached), Some(denied)) = (cached, self.denials.get_mut(worker.index())) else {
            return;
        };
        if cached > 0.0 {
            *denied = 0;
        } else if believed > 0 {
            *denied = denied.saturating_add(1);
        }
        if !booking.belief.is_about_blocks() {
            return;
        }
        let prompt = believable(prompt).unwrap_or(booking.size.prompt);
        let had = (cached / (prompt * booking.belief.block_share(booking.size.seen))) as usize;
        // The engine's own blocks end elsewhere: one of ours may be there but for its end.
        if had.saturating_add(1) < believed || cached <= 0.0 {
            let gone = booking.belief.prefix.blocks.get(had..believed);
            self.index.forget(worker, gone.unwrap_or_default());
        }
    }
}

impl Belief {
    /// Whether the prompt is long enough to be known again.
    pub(super) fn is_about_blocks(&self) -> bool {
        !self.prefix.blocks.is_empty()
    }

    fn depth(&self) -> usize {
        self.depth as usize
    }

    /// The part of a prompt of this length that a block is.
    fn block_share(&self, prompt: Length) -> f64 {
        match (self.prefix.each, prompt) {
            (Length::Bytes(block), Length::Bytes(whole))
            | (Length::Tokens(block), Length::Tokens(whole)) => block / whole,
            _ => 1.0,
        }
    }
}
