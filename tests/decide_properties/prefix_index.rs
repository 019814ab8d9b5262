//! The prefix index against a model that is plainly right: every worker's blocks in a list, the last used first.

use std::collections::BTreeMap;

use forebay::decide::{Matches, PrefixIndex};
use forebay::rng::Rng;
use forebay::units::WorkerId;

const WORKERS: usize = 70;
const STEPS: usize = 300;
/// Few prompts, so that they share beginnings; few blocks in each worker, so that they are dropped.
const BRANCHES: usize = 3;
const LONGEST: usize = 12;
const MEMORY: usize = 40;

/// The model.
#[derive(Default)]
struct Lists(BTreeMap<u32, Vec<u64>>);

impl Lists {
    fn depth(&self, worker: u32, prompt: &[u64]) -> u32 {
        let holds = |block: &&u64| self.0.get(&worker).is_some_and(|list| list.contains(block));
        u32::try_from(prompt.iter().take_while(holds).count()).unwrap()
    }

    fn touch(&mut self, worker: u32, prompt: &[u64], most: usize) {
        let list = self.0.entry(worker).or_default();
        let kept = &prompt[..prompt.len().min(most)];
        list.retain(|block| !kept.contains(block));
        list.splice(..0, kept.iter().copied());
        list.truncate(most);
    }

    fn forget(&mut self, worker: u32, blocks: &[u64]) {
        let list = self.0.entry(worker).or_default();
        list.retain(|block| !blocks.contains(block));
    }
}

/// A path of hashes: each stands for all that came before it.
fn prompt(rng: &mut Rng) -> Vec<u64> {
    let mut path = 7_u64;
    let length = rng.below(LONGEST);
    (0..length)
        .map(|_| {
            path = path * 10 + rng.below(BRANCHES) as u64;
            path
        })
        .collect()
}

/// Plays one history to both and compares what they believe. `spoil` is done to the index behind the model's back.
fn play(seed: u64, mut spoil: impl FnMut(&mut PrefixIndex, &mut Rng)) -> Result<(), String> {
    let mut rng = Rng::seeded(seed);
    let mut index = PrefixIndex::new(WORKERS);
    let mut lists = Lists::default();
    let mut matches = Matches::default();
    for step in 0..STEPS {
        // Some workers are busy and others are not, across the border between two words of a set.
        let worker = [0, 1, 63, 64, 69][rng.below(5)];
        let id = WorkerId(worker);
        let prompt = prompt(&mut rng);
        match rng.below(20) {
            0 => {
                index.clear(id);
                lists.0.remove(&worker);
            }
            1 | 2 => {
                let from = rng.below(prompt.len() + 1);
                index.forget(id, &prompt[from..]);
                lists.forget(worker, &prompt[from..]);
            }
            _ => {
                let most = [MEMORY, MEMORY, 5, 0][rng.below(4)];
                index.touch(id, &prompt, most);
                lists.touch(worker, &prompt, most);
            }
        }
        spoil(&mut index, &mut rng);
        let asked = self::prompt(&mut rng);
        index.look(&asked, &mut matches);
        for worker in 0..u32::try_from(WORKERS).unwrap() {
            let (found, right) = (matches.depth(WorkerId(worker)), lists.depth(worker, &asked));
            if found != right {
                return Err(format!(
                    "step {step}: worker {worker} has {right}, found {found}"
                ));
            }
        }
        index.check()?;
    }
    Ok(())
}

#[test]
fn the_longest_common_prefix_is_found_for_every_worker() {
    for seed in 0..256 {
        if let Err(difference) = play(seed, |_, _| ()) {
            panic!("seed {seed}: {difference}");
        }
    }
}

#[test]
fn more_workers_change_nothing_of_what_is_believed_of_the_others() {
    for seed in 0..8 {
        let mut step = 0;
        let widen = |index: &mut PrefixIndex, _: &mut Rng| {
            step += 1;
            if step % 50 == 0 {
                *index = index.widened(WORKERS + step);
            }
        };
        if let Err(difference) = play(seed, widen) {
            panic!("seed {seed}: {difference}");
        }
    }
}

#[test]
fn one_forgotten_block_is_noticed() {
    let noticed = (0..256).filter(|seed| {
        let forgetful = |index: &mut PrefixIndex, rng: &mut Rng| {
            index.forget(WorkerId(0), &[70 + rng.below(BRANCHES) as u64]);
        };
        play(*seed, forgetful).is_err()
    });
    assert_eq!(noticed.count(), 256);
}

#[test]
fn the_index_keeps_its_bound_whatever_it_is_told() {
    let workers = 300;
    let mut index = PrefixIndex::new(workers);
    let mut matches = Matches::default();
    let mut rng = Rng::seeded(1);
    let mut path = 0_u64;
    for prompt in 0..4_000_u32 {
        let blocks: Vec<u64> = (0..100)
            .map(|_| {
                path = path.wrapping_add(1);
                path
            })
            .collect();
        let worker = WorkerId(if prompt % 2 == 0 {
            0
        } else {
            u32::try_from(rng.below(workers)).unwrap()
        });
        index.touch(worker, &blocks, usize::MAX);
        index.look(&blocks, &mut matches);
        assert_eq!(matches.depth(worker), 100);
    }
    index.check().unwrap();
    assert!(index.bytes() <= PrefixIndex::MOST_BYTES);
    index.touch(WorkerId(300), &[1, 2], usize::MAX);
    index.clear(WorkerId(300));
    index.look(&[], &mut matches);
    assert_eq!(matches.depth(WorkerId(300)), 0);
}
