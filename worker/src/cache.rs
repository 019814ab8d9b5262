//! Answers that are kept, for models that ask for it (`response_cache`), and those that are just being computed.
//!
//! An answer is found by everything that it depends on, byte for byte: the load of the model, the inputs and the
//! outputs that are wanted. (Triton finds it by a hash of 64 bits, so that two requests can, however rarely, share an
//! answer that is one's only.) All models share one bound in bytes, keys included; what was not asked for longest goes
//! first. A reload begins with nothing, and what was kept of the model before it goes as room is needed.
//!
//! A request that is being computed is known as well, so that others like it wait for its answer instead of computing
//! it again. If it comes to nothing, because it failed or its client left, those who waited look anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::tensor::Tensor;

/// Outputs, in the order that was asked for.
pub type Outputs = Arc<Vec<Tensor>>;

/// What an answer depends on.
pub type Key = Arc<[u8]>;

/// What is told of an answer that is being computed: nothing, then the answer.
type News = Option<Outputs>;

/// Where it is told.
pub type Coming = watch::Receiver<News>;

/// The answers of all models.
pub struct Cache {
    inner: Mutex<Inner>,
    loads: AtomicU64,
}

struct Inner {
    kept: Kept,
    flights: HashMap<Key, Coming>,
}

/// What there is of an answer.
pub enum Look<'a> {
    /// It was kept.
    Kept(Outputs),
    /// Somebody is computing it.
    Coming(Coming),
    /// Nobody is: whoever asked should, and say so when it is done.
    Mine(Flight<'a>),
}

/// An answer that is being computed. Dropped without one, it came to nothing.
pub struct Flight<'a> {
    cache: &'a Cache,
    key: Key,
    news: watch::Sender<News>,
}

impl Cache {
    /// An empty cache of at most so many bytes.
    pub fn new(most: usize) -> Cache {
        Cache {
            inner: Mutex::new(Inner {
                kept: Kept::new(most),
                flights: HashMap::new(),
            }),
            loads: AtomicU64::new(0),
        }
    }

    /// A number of its own for each load of a model.
    pub fn load(&self) -> u64 {
        self.loads.fetch_add(1, Ordering::Relaxed)
    }

    /// Looks for an answer.
    pub fn look(&self, key: &Key) -> Look<'_> {
        let mut inner = self.inner.lock();
        if let Some(outputs) = inner.kept.get(key) {
            return Look::Kept(outputs);
        }
        if let Some(coming) = inner.flights.get(key) {
            return Look::Coming(coming.clone());
        }
        let (news, coming) = watch::channel(None);
        inner.flights.insert(Arc::clone(key), coming);
        Look::Mine(Flight {
            cache: self,
            key: Arc::clone(key),
            news,
        })
    }
}

impl Flight<'_> {
    /// Keeps the answer and gives it to those who wait for it.
    pub fn land(self, outputs: Outputs) {
        let mut inner = self.cache.inner.lock();
        inner.kept.put(Arc::clone(&self.key), Arc::clone(&outputs));
        drop(inner);
        self.news.send_replace(Some(outputs));
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.cache.inner.lock().flights.remove(&self.key);
    }
}

/// Everything that an answer depends on. Lengths stand before what they count, so that no two requests write the same.
pub fn key(load: u64, inputs: &[Tensor], wanted: &[usize]) -> Key {
    let mut bytes = Vec::new();
    let number = |bytes: &mut Vec<u8>, number: usize| {
        bytes.extend_from_slice(&(number as u64).to_le_bytes());
    };
    bytes.extend_from_slice(&load.to_le_bytes());
    number(&mut bytes, wanted.len());
    for &output in wanted {
        number(&mut bytes, output);
    }
    for input in inputs {
        let elements = input.elements();
        bytes.push(elements.datatype() as u8);
        number(&mut bytes, input.shape().len());
        for &size in input.shape() {
            number(&mut bytes, size);
        }
        elements.push_raw(&mut bytes);
    }
    bytes.into()
}

/// Kept answers, the least recently used of which go first.
struct Kept {
    most: usize,
    used: usize,
    uses: u64,
    entries: HashMap<Key, Entry>,
    by_use: BTreeMap<u64, Key>,
}

struct Entry {
    outputs: Outputs,
    bytes: usize,
    last: u64,
}

/// What an entry takes beside its key and its elements, about.
const OVERHEAD: usize = 256;

impl Kept {
    fn new(most: usize) -> Kept {
        Kept {
            most,
            used: 0,
            uses: 0,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    fn get(&mut self, key: &Key) -> Option<Outputs> {
        let entry = self.entries.get_mut(key)?;
        self.by_use.remove(&entry.last);
        self.uses += 1;
        entry.last = self.uses;
        self.by_use.insert(self.uses, Arc::clone(key));
        Some(Arc::clone(&entry.outputs))
    }

    /// Keeps an answer unless it alone is more than may be kept.
    fn put(&mut self, key: Key, outputs: Outputs) {
        let elements: usize = outputs.iter().map(|one| one.elements().bytes()).sum();
        let bytes = key.len() + elements + OVERHEAD;
        if bytes > self.most || self.entries.contains_key(&key) {
            return;
        }
        while self.used + bytes > self.most {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            self.used -= self.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
        }
        self.used += bytes;
        self.uses += 1;
        self.by_use.insert(self.uses, Arc::clone(&key));
        let last = self.uses;
        let entry = Entry {
            outputs,
            bytes,
            last,
        };
        self.entries.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Elements;

    fn row(values: &[f32]) -> Tensor {
        Tensor::new(vec![1, values.len()], Elements::Fp32(values.to_vec())).unwrap()
    }

    fn outputs(value: f32) -> Outputs {
        Arc::new(vec![row(&[value])])
    }

    fn named(name: u8) -> Key {
        vec![name].into()
    }

    /// What an entry of one float under a one-letter key takes.
    const ONE: usize = 1 + 4 + OVERHEAD;

    #[test]
    fn what_was_used_last_stays_within_the_bound() {
        let mut kept = Kept::new(2 * ONE);
        kept.put(named(1), outputs(1.0));
        kept.put(named(2), outputs(2.0));
        assert!(kept.get(&named(1)).is_some());
        kept.put(named(3), outputs(3.0));
        assert!(kept.get(&named(2)).is_none(), "the least recently used");
        assert_eq!(kept.get(&named(1)), Some(outputs(1.0)));
        assert_eq!(
            (kept.used, kept.entries.len(), kept.by_use.len()),
            (2 * ONE, 2, 2)
        );
    }

    #[test]
    fn what_is_too_large_is_not_kept_and_drives_nothing_out() {
        let mut kept = Kept::new(ONE);
        kept.put(named(1), outputs(1.0));
        kept.put(named(2), Arc::new(vec![row(&[0.0; 9])]));
        assert!(kept.get(&named(2)).is_none() && kept.get(&named(1)).is_some());
    }

    #[test]
    fn a_key_is_all_that_an_answer_depends_on() {
        let zero = key(0, &[row(&[0.0])], &[0]);
        assert_eq!(key(0, &[row(&[0.0])], &[0]), zero);
        let column = row(&[0.0, 1.0]).with_shape(vec![2, 1]).unwrap();
        let whole = Tensor::new(vec![1, 1], Elements::Int32(vec![0])).unwrap();
        let others = [
            key(1, &[row(&[0.0])], &[0]),
            key(0, &[row(&[-0.0])], &[0]),
            key(0, &[row(&[0.0])], &[1]),
            key(0, &[row(&[0.0])], &[0, 1]),
            key(0, &[row(&[0.0]), row(&[0.0])], &[0]),
            key(0, &[row(&[0.0, 1.0])], &[0]),
            key(0, &[column], &[0]),
            key(0, &[whole], &[0]),
        ];
        for (place, other) in others.iter().enumerate() {
            assert_ne!(*other, zero, "{place}");
            assert!(
                others[..place].iter().all(|before| before != other),
                "{place}"
            );
        }
    }

    #[test]
    fn who_asks_for_what_is_being_computed_is_told() {
        let cache = Cache::new(0);
        let Look::Mine(flight) = cache.look(&named(1)) else {
            panic!("nobody computes it")
        };
        let Look::Coming(coming) = cache.look(&named(1)) else {
            panic!("it is being computed")
        };
        flight.land(outputs(1.0));
        assert_eq!(*coming.borrow(), Some(outputs(1.0)));
        // Nothing is kept by a cache of no bytes.
        assert!(matches!(cache.look(&named(1)), Look::Mine(_)));
    }

    #[test]
    fn what_comes_to_nothing_is_somebody_elses_to_compute() {
        let cache = Cache::new(ONE);
        let Look::Mine(flight) = cache.look(&named(1)) else {
            panic!("nobody computes it")
        };
        let Look::Coming(coming) = cache.look(&named(1)) else {
            panic!("it is being computed")
        };
        drop(flight);
        assert!(coming.has_changed().is_err());
        assert!(matches!(cache.look(&named(1)), Look::Mine(_)));
    }
}
