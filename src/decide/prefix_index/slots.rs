//! A hash table of numbers: which entry, of those kept elsewhere, belongs to a key.
//!
//! The standard library's tables are no choice here: they grow when they like, and `decide` has no unordered ones. This
//! one has a fixed size, a third of it always free, and is only ever asked for one key. Linear probing; an entry that
//! leaves closes its gap, so that no mark of the dead is left and the table does not age (D. Knuth, "The Art of Computer
//! Programming", volume 3, section 6.4, algorithm R).
//!
//! A place has half of its key's bits beside the number of its entry: an entry that is somebody else's is hardly ever
//! looked at, which in a large table costs a trip to memory.

/// A place where nothing is.
pub(super) const VACANT: Place = Place {
    tag: 0,
    entry: u32::MAX,
};
/// 2⁶⁴ divided by the golden ratio: spreads keys that are small numbers as well as those that are hashes.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers by key.
#[derive(Debug, Default)]
pub(super) struct Slots {
    places: Vec<Place>,
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The lower half of its spread key; the upper half says where it stands.
    tag: u32,
    entry: u32,
}

impl Place {
    fn is_vacant(self) -> bool {
        self.entry == VACANT.entry
    }
}

impl Slots {
    /// The bytes that an entry takes, with its part of the free space.
    pub(super) const BYTES_EACH: usize = size_of::<Place>() * 3 / 2;

    /// An empty table for at most so many entries.
    pub(super) fn with_room(entries: usize) -> Self {
        Slots {
            places: vec![VACANT; entries + entries / 2],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
    }

    /// The entry of this key, of which `is` says whether it is the one.
    pub(super) fn find(&self, key: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.find_from(key, self.first(key), is)
    }

    /// Where the search for a key begins. Reading this for many keys before any is searched for lets the trips to memory
    /// overlap: no branch depends on what they bring.
    pub(super) fn first(&self, key: u64) -> Place {
        let first = self.places.get(self.home(spread(key)));
        first.copied().unwrap_or(VACANT)
    }

    /// Like [`Slots::find`], when the first place was read.
    pub(super) fn find_from(
        &self,
        key: u64,
        first: Place,
        is: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let spread = spread(key);
        let tag = tag(spread);
        if first.is_vacant() {
            return None;
        }
        if first.tag == tag && is(first.entry) {
            return Some(first.entry);
        }
        let (before, after) = self.places.split_at(self.home(spread));
        for place in after[1..].iter().chain(before) {
            if place.is_vacant() {
                return None;
            }
            if place.tag == tag && is(place.entry) {
                return Some(place.entry);
            }
        }
        None
    }

    /// Adds an entry under a key that has none. There must be room.
    pub(super) fn insert(&mut self, key: u64, entry: u32) {
        let spread = spread(key);
        let mut places = self.places_from(self.home(spread));
        if let Some(at) = places.find(|at| self.places[*at].is_vacant()) {
            let tag = tag(spread);
            self.places[at] = Place { tag, entry };
        }
    }

    /// Removes the entry of a key; `key_of` says those of others.
    pub(super) fn remove(&mut self, key: u64, entry: u32, key_of: impl Fn(u32) -> u64) {
        let mut places = self.places_from(self.home(spread(key)));
        let Some(mut gap) = places.find(|at| self.places[*at].entry == entry) else {
            return;
        };
        for at in self.places_from(gap).skip(1) {
            let next = self.places[at];
            if next.is_vacant() {
                break;
            }
            // It may move into the gap unless it would then stand before its home.
            let home = self.home(spread(key_of(next.entry)));
            if self.distance(home, at) >= self.distance(gap, at) {
                self.places[gap] = next;
                gap = at;
            }
        }
        self.places[gap] = VACANT;
    }

    /// Where the search for a spread key begins.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the number of places"
    )]
    fn home(&self, spread: u64) -> usize {
        ((u128::from(spread) * self.places.len() as u128) >> 64) as usize
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

fn spread(key: u64) -> u64 {
    key.wrapping_mul(SPREAD)
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn tag(spread: u64) -> u32 {
    spread as u32
}
