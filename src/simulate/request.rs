//! What clients send, and what becomes of it.

use std::sync::Arc;

use super::card::BLOCK;
use crate::decide::Work;
use crate::units::Seconds;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// When it comes.
    pub at: Seconds,
    /// What kind of work it is.
    pub work: Work,
    /// Tokens of its prompt.
    pub prompt: f64,
    /// Tokens of its answer; none for embeddings and classifiers.
    pub output: f64,
    /// Its prompt in blocks of 512 tokens, each named by a hash of all up to its end; none when nothing is known of it.
    pub blocks: Arc<[u64]>,
    /// Requests of one session begin alike; a share of a load is taken by sessions.
    pub session: u64,
    /// The LoRA adapter that it asks for, by its number; none asks for the model that all workers serve.
    pub adapter: Option<u32>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// It was answered.
    Answered {
        /// From its arrival to its answer's first token.
        first_token: Seconds,
        /// From its arrival to its answer's last token.
        total: Seconds,
        /// Tokens of its prompt that its worker had in its cache.
        cached: f64,
    },
    /// It was not.
    Failed,
}

impl Request {
    /// The model that it asks for, of so many: all of a session ask for the same, and sessions take turns. Adapters are of
    /// the first.
    #[must_use]
    pub fn model(&self, models: u32) -> u32 {
        let turn = self.session % u64::from(models.max(1));
        u32::try_from(turn)
            .ok()
            .filter(|_| self.adapter.is_none())
            .unwrap_or_default()
    }

    /// Blocks of KV memory that it takes when its answer is complete.
    #[must_use]
    pub fn memory(&self) -> f64 {
        ((self.prompt + self.output) / BLOCK).ceil()
    }
}
