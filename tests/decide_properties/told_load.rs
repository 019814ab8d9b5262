//! Others on a worker, past the proxy: seen as soon as the engine tells, never taken for what they are not.
//!
//! Two equal machines and clients that keep both busy. After a while of learning, streams that are not ours come to the
//! first machine and slow ours. Without a word of it the fleet learns that as its requests get slower, and does not learn
//! that they have gone.

use forebay::decide::{Load as Told, Policy, Work};

use crate::closed_loop::{ClosedLoop, Load, Placed, Tells};
use crate::machine::Make;

const SEEDS: u64 = 16;
const LEARNING: usize = 300;
const COUNTED: usize = 60;
const OTHERS: usize = 24;

const CHAT: Load = Load {
    work: Work::Generate,
    streamed: true,
    clients: 12,
    cap: 64,
    prompts: [180.0, 220.0],
    outputs: [20, 79],
};
/// Prompts take no time to speak of; tokens do.
const TOKENS: Make = Make {
    prefill: (0.001, 0.000_01),
    decode: (0.004, 0.002),
    beside: true,
    ..Make::PLAIN
};

const TRUTH: Tells = |_, truth| truth;

fn pair(seed: u64, tells: Option<Tells>) -> ClosedLoop {
    let mut pair = ClosedLoop::new(&[TOKENS; 2], Policy::LeastTime, CHAT, seed);
    pair.tell(tells);
    pair
}

/// The first worker's share of these.
fn share(placed: &[Placed]) -> f64 {
    let first = placed.iter().filter(|placed| placed.worker == 0);
    first.count() as f64 / placed.len() as f64
}

/// The first worker's share of what is placed in the first seconds after others have come to it, and then of what is
/// placed after they have gone, over all seeds.
fn shares(tells: Option<Tells>) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for seed in 0..SEEDS {
        let mut pair = pair(seed, tells);
        pair.run(LEARNING);
        pair.share(0, OTHERS);
        let beside = pair.run(LEARNING + COUNTED);
        pair.share(0, 0);
        // What was there together with the others has to end.
        pair.run(LEARNING + 3 * COUNTED);
        let after = pair.run(LEARNING + 6 * COUNTED);
        sums[0] += share(&beside[LEARNING..]);
        sums[1] += share(&after[LEARNING + 3 * COUNTED..]);
    }
    sums.map(|sum| sum / SEEDS as f64)
}

#[test]
fn traffic_leaves_a_worker_that_others_use_and_comes_back() {
    let [beside, after] = shares(Some(TRUTH));
    assert!(beside < 0.1, "it still got {beside:.3}");
    assert!((after - 0.5).abs() < 0.1, "it got {after:.3} back");
    // What is only felt is learned as its speed, and stays when the others have gone.
    let [beside, after] = shares(None);
    assert!(
        beside < 0.1 && after < 0.3,
        "the control got {beside:.3} and {after:.3}"
    );
}

#[test]
fn what_is_learned_beside_others_is_the_machines_own_speed() {
    // A token beside three others takes 12 ms on a machine that is ours alone.
    let token = |tells| {
        let mut pair = pair(1, tells);
        pair.share(0, 8);
        pair.run(2 * LEARNING);
        let line = pair.fleet.snapshot(pair.now())[0].decode.line;
        line.at(4.0).0 * 1e3
    };
    let (told, untold) = (token(Some(TRUTH)), token(None));
    assert!((told / 12.0 - 1.0).abs() < 0.2, "{told:.1} ms");
    assert!(
        untold > 12.0 * 1.6,
        "the control learned the same: {untold:.1} ms"
    );
}

/// Whether a fleet whose workers tell this does what it does when they tell nothing.
fn changes_nothing(tells: Tells) -> Result<(), String> {
    (0..SEEDS).try_for_each(|seed| {
        let [with, without] = [Some(tells), None].map(|tells| pair(seed, tells).run(LEARNING));
        let parted = with.iter().zip(&without).position(|(a, b)| a != b);
        parted.map_or(Ok(()), |at| {
            Err(format!("seed {seed}: another choice at {at}"))
        })
    })
}

#[test]
fn requests_of_ours_are_never_taken_for_those_of_others() {
    assert_eq!(changes_nothing(TRUTH), Ok(()));
    let one_more: Tells = |_, truth| Told {
        running: truth.running.map(|count| count + 9.0),
        ..truth
    };
    changes_nothing(one_more).unwrap_err();
}

#[test]
fn numbers_that_cannot_be_change_nothing() {
    const LIES: [Tells; 4] = [
        |worker, truth| lie(worker, truth, f64::NAN),
        |worker, truth| lie(worker, truth, f64::INFINITY),
        |worker, truth| lie(worker, truth, -7.0),
        |worker, truth| lie(worker, truth, 1e12),
    ];
    fn lie(worker: usize, truth: Told, number: f64) -> Told {
        let number = (worker == 0).then_some(number);
        Told {
            running: number.or(truth.running),
            waiting: number.or(truth.waiting),
            kv_use: number,
            by_text: false,
        }
    }
    for lie in LIES {
        assert_eq!(changes_nothing(lie), Ok(()));
    }
}

/// The first worker's share of what is placed once so many more seconds have passed.
fn share_later(pair: &mut ClosedLoop, placed: usize, seconds: f64) -> f64 {
    let until = pair.now().0 + seconds;
    let mut count = placed;
    while pair.now().0 < until {
        count += 1;
        pair.run(count);
    }
    share(&pair.run(count + 4 * COUNTED)[count..])
}

#[test]
fn what_was_told_last_means_nothing_a_while_later() {
    for seed in 0..SEEDS {
        let mut pair = pair(seed, Some(TRUTH));
        pair.run(LEARNING);
        pair.share(0, OTHERS);
        pair.run(LEARNING + COUNTED);
        // The others go, and nobody tells it.
        pair.tell(None);
        pair.share(0, 0);
        let got = share_later(&mut pair, LEARNING + COUNTED, 4.0);
        assert!((got - 0.5).abs() < 0.15, "seed {seed}: it got {got:.3}");
    }
}

#[test]
fn a_lie_that_may_be_true_wears_off() {
    let full: Tells = |worker, truth| Told {
        running: if worker == 0 {
            Some(900.0)
        } else {
            truth.running
        },
        ..truth
    };
    for seed in 0..SEEDS {
        let mut pair = pair(seed, Some(full));
        // Answers come as fast as ever, so nine hundred streams must cost next to nothing there.
        let during = share(&pair.run(LEARNING)[LEARNING / 2..]);
        pair.tell(None);
        let after = share_later(&mut pair, LEARNING, 4.0);
        for got in [during, after] {
            assert!(
                (got - 0.5).abs() < 0.15,
                "seed {seed}: {during:.3} {after:.3}"
            );
        }
    }
    let mut alone = ClosedLoop::new(&[TOKENS], Policy::LeastTime, CHAT, 1);
    alone.tell(Some(full));
    assert_eq!(alone.run(LEARNING).len(), LEARNING);
}
