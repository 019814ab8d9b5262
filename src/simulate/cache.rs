//! What an engine remembers of prompts: blocks of their keys and values, least recently used out first.
//!
//! A block is named by a hash that covers everything before it, so that the same name means the same beginning. Only a
//! beginning can be used: matching stops at the first block that is missing. Within one prompt later blocks count as
//! used earlier, so that a prompt is forgotten from its end and what is left of it stays a beginning.

use std::collections::BTreeMap;

use super::card::Card;

/// Blocks of prompts, bounded.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    room: usize,
    clock: u64,
    used: BTreeMap<u64, u64>,
    oldest: BTreeMap<u64, u64>,
}

impl Cache {
    /// An empty one with room for so many blocks.
    fn holding(room: usize) -> Self {
        Cache {
            room,
            ..Cache::default()
        }
    }

    /// An empty one on a card, of so many times its KV memory.
    #[must_use]
    pub fn of(card: &Card, times: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of blocks, and casts saturate"
        )]
        Cache::holding((f64::from(card.blocks) * times) as usize)
    }

    /// Blocks that are here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// How many of a prompt's first blocks are here.
    #[must_use]
    pub fn matching(&self, prompt: &[u64]) -> usize {
        prompt
            .iter()
            .take_while(|block| self.used.contains_key(block))
            .count()
    }

    /// A prompt was read or used again.
    pub fn keep(&mut self, prompt: &[u64]) {
        for block in prompt.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used.insert(*block, self.clock) {
                self.oldest.remove(&before);
            }
            self.oldest.insert(self.clock, *block);
        }
        while self.used.len() > self.room {
            let Some((_, block)) = self.oldest.pop_first() else {
                return;
            };
            self.used.remove(&block);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.used.clear();
        self.oldest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_beginning_matches_and_ends_are_forgotten_first() {
        let mut cache = Cache::holding(4);
        cache.keep(&[1, 2, 3]);
        assert_eq!(cache.matching(&[1, 2, 9, 3]), 2);
        assert_eq!(
            cache.matching(&[2, 3]),
            2,
            "names cover what is before them"
        );
        cache.keep(&[7, 8]);
        assert_eq!(cache.matching(&[1, 2, 3]), 2);
        cache.keep(&[1]);
        cache.keep(&[9]);
        assert_eq!([cache.matching(&[1, 2]), cache.matching(&[7, 8])], [1, 2]);
        cache.clear();
        assert_eq!(cache.matching(&[1]), 0);
    }

    #[test]
    fn a_prompt_longer_than_the_room_keeps_its_beginning() {
        let mut cache = Cache::holding(2);
        cache.keep(&[1, 2, 3, 4]);
        assert_eq!(cache.matching(&[1, 2, 3, 4]), 2);
        assert_eq!(cache.used.len(), cache.oldest.len());
    }
}
