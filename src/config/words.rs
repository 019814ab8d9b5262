//! The words that stand for a choice, once for both directions: reading a file and showing a plan.

use super::plan::{Engine, LogLevel, Protocol, Repeat, RetryOn};
use crate::decide::{AllDown, Policy};

/// A choice among few, each with its word.
pub trait Choice: Copy + PartialEq + 'static {
    /// Every choice with the word that is typed for it.
    const WORDS: &'static [(&'static str, Self)];

    /// The choice that this word stands for.
    #[must_use]
    fn named(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, choice)| *choice)
    }

    /// The word for this choice.
    #[must_use]
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, choice)| *choice == self);
        found.map_or("", |(word, _)| word)
    }
}

/// The bare words of a choice, for the reference's table.
pub const fn words<const N: usize, T: Choice>() -> [&'static str; N] {
    let mut bare = [""; N];
    let mut at = 0;
    while at < N {
        bare[at] = T::WORDS[at].0;
        at += 1;
    }
    bare
}

impl Choice for Policy {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("least_time", Policy::LeastTime),
        ("weighted", Policy::Weighted),
        ("round_robin", Policy::RoundRobin),
        ("least_inflight", Policy::LeastInflight),
        ("random", Policy::Random),
    ];
}

impl Choice for AllDown {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("queue", AllDown::Queue),
        ("fail", AllDown::Fail),
        ("try_all", AllDown::TryAll),
    ];
}

impl Choice for RetryOn {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("refused", RetryOn::Refused),
        ("reset", RetryOn::Reset),
        ("5xx", RetryOn::ServerError),
        ("busy", RetryOn::Busy),
        ("timeout", RetryOn::Timeout),
    ];
}

impl Choice for Engine {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("forebay", Engine::Forebay),
        ("vllm", Engine::Vllm),
        ("sglang", Engine::Sglang),
        ("llamacpp", Engine::Llamacpp),
        ("ollama", Engine::Ollama),
        ("tgi", Engine::Tgi),
        ("tei", Engine::Tei),
        ("triton", Engine::Triton),
        ("openai", Engine::Openai),
        ("generic", Engine::Generic),
    ];
}

impl Choice for Protocol {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("http", Protocol::Http1),
        ("https", Protocol::Https),
        ("h2c", Protocol::H2c),
        // Behind the one that `https` reads as: it is never typed.
        ("https", Protocol::H2),
    ];
}

impl Choice for Repeat {
    const WORDS: &'static [(&'static str, Self)] =
        &[("unsafe", Repeat::Unsafe), ("safe", Repeat::Safe)];
}

impl Choice for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_back_as_itself() {
        for (word, engine) in Engine::WORDS {
            assert_eq!(engine.word(), *word);
            assert_eq!(Engine::named(word), Some(*engine));
        }
        assert_eq!(Engine::named("cobol"), None);
    }
}
