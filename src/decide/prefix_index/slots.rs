//! A hash table of numbers: which entry, of those kept elsewhere, belongs to a key.
//!
//! The standard library's tables are no choice here: they grow when they like, and `decide` has no unordered ones. This
//! one has a fixed size, a third of it always free, and is only ever asked for one key. Linear probing; an entry that
//! leaves closes its gap, so that no mark of the dead is left and the table does not age (D. Knuth, "The Art of Computer
//! Programming", volume 3, section 6.4, algorithm R).

/// A place where nothing is.
const VACANT: u32 = u32::MAX;
/// 2⁶⁴ divided by the golden ratio: spreads keys that are small numbers as well as those that are hashes.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers by key.
#[derive(Debug, Default)]
pub(super) struct Slots {
    places: Vec<u32>,
}

impl Slots {
    /// The bytes that an entry takes, with its part of the free space.
    pub(super) const BYTES_EACH: usize = 6;

    /// An empty table for at most so many entries.
    pub(super) fn with_room(entries: usize) -> Self {
        Slots {
            places: vec![VACANT; entries + entries / 2],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }

    /// The entry of this key, of which `is` says whether it is the one.
    pub(super) fn find(&self, key: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.places_from(self.home(key))
            .map(|place| self.places[place])
            .take_while(|entry| *entry != VACANT)
            .find(|entry| is(*entry))
    }

    /// Adds an entry under a key that has none. There must be room.
    pub(super) fn insert(&mut self, key: u64, entry: u32) {
        let mut places = self.places_from(self.home(key));
        if let Some(place) = places.find(|place| self.places[*place] == VACANT) {
            self.places[place] = entry;
        }
    }

    /// Removes the entry of a key; `key_of` says those of others.
    pub(super) fn remove(&mut self, key: u64, entry: u32, key_of: impl Fn(u32) -> u64) {
        let mut places = self.places_from(self.home(key));
        let Some(mut gap) = places.find(|place| self.places[*place] == entry) else {
            return;
        };
        for place in self.places_from(gap).skip(1) {
            let next = self.places[place];
            if next == VACANT {
                break;
            }
            // It may move into the gap unless it would then stand before its home.
            if self.distance(self.home(key_of(next)), place) >= self.distance(gap, place) {
                self.places[gap] = next;
                gap = place;
            }
        }
        self.places[gap] = VACANT;
    }

    /// Where the search for a key begins.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the number of places"
    )]
    fn home(&self, key: u64) -> usize {
        let spread = u128::from(key.wrapping_mul(SPREAD));
        ((spread * self.places.len() as u128) >> 64) as usize
    }

    /// All places, from this one on and round.
    fn places_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        (first..self.places.len()).chain(0..first)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.places.len() - from
        }
    }
}
