//! A worker as it is: its engine, what it remembers, what is on its way to it, and whether it lives.

use super::cache::Cache;
use super::card::BLOCK;
use super::engine::{Engine, Job};
use super::fleet::{Condition, Member};
use super::request::Request;
use crate::units::Seconds;

/// A worker.
#[derive(Debug)]
pub struct Station {
    /// Its engine.
    pub engine: Engine,
    /// The prompts that it remembers.
    pub cache: Cache,
    /// Requests that were sent and have not come yet.
    pub coming: Vec<Job>,
    /// What it can do.
    pub(super) condition: Condition,
    /// From the proxy to it and back.
    pub round_trip: Seconds,
    /// The models that it serves.
    models: u32,
    /// Tokens of its answers that were told to the proxy.
    pub(super) told: f64,
    /// The engine's next event; earlier ones are void.
    pub(super) version: u64,
}

impl Station {
    /// One that has nothing to do, with a cache of so many times its KV memory, which serves one model.
    #[must_use]
    pub fn idle(member: &Member, times: f64) -> Self {
        Station {
            engine: Engine::idle(member.card),
            cache: Cache::of(&member.card, times),
            coming: Vec::new(),
            condition: Condition::Runs(1.0),
            round_trip: member.round_trip,
            models: 1,
            told: 0.0,
            version: 0,
        }
    }

    /// The same with so many models.
    #[must_use]
    pub fn serving(self, models: u32) -> Self {
        Station { models, ..self }
    }

    /// Half of the way to it and back.
    #[must_use]
    pub fn one_way(&self) -> Seconds {
        self.round_trip / 2.0
    }

    /// Tokens of this request's prompt that it remembers.
    #[must_use]
    pub fn cached(&self, request: &Request) -> f64 {
        tokens(self.cache.matching(&request.blocks)).min(request.prompt)
    }

    /// The job that this request is here.
    #[must_use]
    pub fn job(&self, attempt: usize, request: &Request) -> Job {
        Job {
            attempt,
            work: request.work,
            prompt: request.prompt,
            cached: self.cached(request),
            output: request.output,
            blocks: request.memory(),
            adapter: request.adapter,
            model: request.model(self.models),
        }
    }

    /// Begins with the next request that may begin now, if there is one. What is remembered of its prompt, whose blocks are
    /// asked for by its attempt, is not read again, and all of the prompt is remembered from now on. A model that has to be
    /// loaded finds nothing remembered.
    pub fn begin_next<'p>(&mut self, prompt: impl FnOnce(usize) -> &'p [u64]) -> Option<Job> {
        let model = self.engine.next_to_begin()?.model;
        if self.engine.lacks(model) {
            self.cache.clear();
        }
        let next = self.engine.next_to_begin()?;
        let blocks = prompt(next.attempt);
        next.cached = tokens(self.cache.matching(blocks)).min(next.prompt);
        self.cache.keep(blocks);
        let begun = *next;
        self.engine.begin();
        Some(begun)
    }
}

/// Tokens of so many blocks.
#[expect(clippy::cast_precision_loss, reason = "some hundreds of blocks")]
fn tokens(blocks: usize) -> f64 {
    blocks as f64 * BLOCK
}
