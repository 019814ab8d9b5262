//! Answers made token by token: the same tokens in one piece or as server-sent events.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use forebay::decide::Work;
use serde_json::Value;

use super::Shared;
use super::pace::{Asked, Turn, tokens};

/// What is asked for.
pub struct Job {
    /// The text that is read.
    pub prompt: String,
    /// What is said, again and again: the words of the last user message, so that an answer tells whose it is.
    pub words: Vec<String>,
    /// How many tokens are said.
    pub limit: usize,
    /// How it is said.
    pub dialect: Box<dyn Dialect>,
}

/// Token counts of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Tokens read.
    pub prompt: usize,
    /// Those of them that were cached.
    pub cached: usize,
    /// Tokens said.
    pub output: usize,
}

/// One API's way of saying the same thing.
pub trait Dialect: Send {
    /// The answer in one piece.
    fn whole(&self, text: &str, usage: Usage) -> Value;
    /// Events before the first token.
    fn opening(&self, usage: Usage) -> Vec<String>;
    /// The event of one token.
    fn token(&self, text: &str) -> String;
    /// Events after the last token.
    fn closing(&self, usage: Usage) -> Vec<String>;
}

/// A running generation. Its slot is given back when it is dropped.
pub struct Generation {
    shared: Arc<Shared>,
    job: Job,
    turn: Option<Turn>,
    cached: usize,
    said: usize,
    pending: VecDeque<String>,
    closed: bool,
}

impl Generation {
    /// Starts nothing yet: the first piece waits for a slot and the prefill.
    pub fn new(shared: &Arc<Shared>, job: Job) -> Self {
        Generation {
            shared: Arc::clone(shared),
            job,
            turn: None,
            cached: 0,
            said: 0,
            pending: VecDeque::new(),
            closed: false,
        }
    }

    /// Waits for a slot and reads the prompt. The first token comes with it.
    pub async fn prefill(&mut self) {
        let asked = Asked {
            work: Work::Generate,
            prompt: &self.job.prompt,
            output: self.job.limit,
        };
        let turn = self.shared.pace.read(asked, &self.shared.knobs).await;
        self.cached = turn.cached();
        self.turn = Some(turn);
        self.pending.extend(self.job.dialect.opening(self.usage()));
        self.say(1);
    }

    /// The whole answer.
    pub async fn whole(mut self) -> Value {
        self.prefill().await;
        while self.said < self.job.limit {
            self.said += self.more().await;
        }
        let text: String = (0..self.said).map(|place| self.word(place)).collect();
        self.job.dialect.whole(&text, self.usage())
    }

    /// The next event.
    pub async fn next(&mut self) -> Option<Bytes> {
        if self.turn.is_none() && !self.closed {
            self.prefill().await;
        }
        if self.pending.is_empty() && self.said < self.job.limit {
            let more = self.more().await;
            self.say(more);
        }
        if self.pending.is_empty() && !self.closed {
            self.closed = true;
            self.turn = None;
            self.pending.extend(self.job.dialect.closing(self.usage()));
        }
        self.pending.pop_front().map(Bytes::from)
    }

    /// Waits for tokens; how many came.
    async fn more(&mut self) -> usize {
        match &mut self.turn {
            Some(turn) => turn.more(&self.shared.knobs).await,
            None => 0,
        }
    }

    /// So many more tokens, in one piece.
    fn say(&mut self, more: usize) {
        let until = self.job.limit.min(self.said + more);
        let token = |place| self.job.dialect.token(&self.word(place));
        let events: String = (self.said..until).map(token).collect();
        if !events.is_empty() {
            self.pending.push_back(events);
        }
        self.said = until;
    }

    fn word(&self, place: usize) -> String {
        let words = &self.job.words;
        let space = if place == 0 { "" } else { " " };
        match words.get(place % words.len().max(1)) {
            Some(word) => format!("{space}{word}"),
            None => format!("{space}token"),
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            prompt: tokens(&self.job.prompt),
            cached: self.cached,
            output: self.said,
        }
    }
}
