//! The LoRA adapters on a card, or the models in its memory: so many, and the one that was used longest ago goes first.

/// Adapters by their numbers, the latest used last.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    held: Vec<u32>,
}

impl Slots {
    /// Whether an adapter is there.
    pub(super) fn has(&self, adapter: u32) -> bool {
        self.held.contains(&adapter)
    }

    /// How many are there.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// An adapter is used; whether it had to be brought. Those in use stay, and of the others the latest used, as many
    /// as there is room for.
    pub(super) fn bring(&mut self, adapter: u32, most: u32, in_use: impl Fn(u32) -> bool) -> bool {
        let was_there = self.has(adapter);
        self.held.retain(|held| *held != adapter);
        self.held.push(adapter);
        if self.held.len() > most as usize {
            let idle = self
                .held
                .iter()
                .position(|held| *held != adapter && !in_use(*held));
            self.held.remove(idle.unwrap_or(0));
        }
        !was_there
    }

    /// All are gone.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_used_longest_ago_goes_unless_it_is_in_use() {
        let mut slots = Slots::default();
        let brought = [1, 2, 1, 3].map(|adapter| slots.bring(adapter, 2, |_| false));
        assert_eq!(brought, [true, true, false, true]);
        assert_eq!(
            [1, 2, 3].map(|adapter| slots.has(adapter)),
            [true, false, true]
        );
        slots.bring(2, 2, |adapter| adapter == 1);
        assert_eq!(
            [1, 2, 3].map(|adapter| slots.has(adapter)),
            [true, true, false]
        );
        slots.clear();
        assert_eq!(slots.len(), 0);
    }
}
