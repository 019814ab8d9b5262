//! What a graphics card does, as an engine on it shows it.
//!
//! The figures are guesses of the right order, made to compare rules with each other and never to be quoted. A card
//! reads prompts one after the other and decodes all running answers together:
//!
//! ```text
//! read   = fixed + u·(1 + (h + u/2)/30,000)/prefill     u tokens that are new to it, h that are in its cache
//! token  = step + step_per_stream·batch                 for each of the answers in the batch
//! ```
//!
//! A LoRA adapter that is not in one of the card's slots takes the time of a load, as if it were part of the prompt. So does
//! a model that is not in memory, where not all of them fit.
//!
//! A prompt costs more the longer its context, because attention looks back at all of it; a classifier's prompts are too
//! short for that to matter. While both go on, reading runs at 75 % and decoding at 50 % of its speed.

use crate::decide::Work;
use crate::units::Seconds;

/// Tokens in one block of KV memory.
pub const BLOCK: f64 = 512.0;
/// The context at which a prompt token costs twice as much.
const CONTEXT: f64 = 30_000.0;

/// A card with the engine on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Prompt tokens a second, when it does nothing else.
    pub prefill: f64,
    /// What every request costs before its first token is read.
    pub fixed: Seconds,
    /// Seconds per output token of a single answer …
    pub step: Seconds,
    /// … and what each answer beside it adds.
    pub step_per_stream: Seconds,
    /// The most answers that run at once.
    pub slots: u32,
    /// Blocks of KV memory.
    pub blocks: u32,
    /// The most LoRA adapters that it holds.
    pub lora_slots: u32,
    /// What bringing another one takes.
    pub lora_load: Seconds,
    /// The most models that its memory holds; all of them when absent.
    pub resident: Option<u32>,
    /// What bringing another one takes.
    pub swap: Seconds,
}

/// Every card that a fleet file may name.
pub const CARDS: [(&str, Card); 7] = [
    (
        "H100",
        card(30_000.0, (0.008, 0.000_10), (128, 940), (16, 0.3)),
    ),
    (
        "A100",
        card(15_000.0, (0.012, 0.000_15), (128, 940), (16, 0.4)),
    ),
    (
        "RTX4090",
        card(9_000.0, (0.014, 0.000_25), (48, 220), (8, 0.4)),
    ),
    (
        "RTX3090",
        card(5_000.0, (0.016, 0.000_35), (48, 220), (8, 0.6)),
    ),
    ("L4", card(3_000.0, (0.035, 0.000_60), (32, 220), (8, 0.6))),
    ("T4", card(1_500.0, (0.045, 0.001_00), (24, 160), (4, 1.0))),
    (
        "RTX2070S",
        card(2_000.0, (0.024, 0.001_00), (16, 64), (4, 1.0)),
    ),
];

const fn card(prefill: f64, step: (f64, f64), room: (u32, u32), lora: (u32, f64)) -> Card {
    Card {
        prefill,
        fixed: Seconds(0.005),
        step: Seconds(step.0),
        step_per_stream: Seconds(step.1),
        slots: room.0,
        blocks: room.1,
        lora_slots: lora.0,
        lora_load: Seconds(lora.1),
        resident: None,
        swap: Seconds(10.0),
    }
}

impl Card {
    /// The card of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Card> {
        let found = CARDS.iter().find(|(known, _)| *known == name);
        found.map(|(_, card)| *card)
    }

    /// How long it reads a prompt if nothing else goes on, of which so many tokens are new and so many cached.
    #[must_use]
    pub fn reads(&self, work: Work, fresh: f64, cached: f64) -> Seconds {
        let context = match work {
            Work::Generate => 1.0 + (cached + fresh / 2.0) / CONTEXT,
            Work::Embed | Work::Infer => 1.0,
        };
        self.fixed + Seconds(fresh * context / self.prefill)
    }

    /// Seconds per output token in a batch of so many answers, if nothing else goes on.
    #[must_use]
    pub fn token(&self, batch: f64) -> Seconds {
        self.step + self.step_per_stream * batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_costs_tokens_context_and_a_fixed_part() {
        let card = Card::named("RTX4090").unwrap();
        let near = |found: Seconds, wanted: f64| assert!((found.0 - wanted).abs() < 1e-12);
        near(card.reads(Work::Generate, 9_000.0, 0.0), 0.005 + 1.15);
        near(
            card.reads(Work::Generate, 4_500.0, 4_500.0),
            0.005 + 0.5 * (1.0 + 6_750.0 / 30_000.0),
        );
        near(card.reads(Work::Embed, 9_000.0, 0.0), 1.005);
        near(card.token(8.0), 0.016);
        assert_eq!(Card::named("RTX5090"), None);
    }
}
