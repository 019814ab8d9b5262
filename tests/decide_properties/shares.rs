//! Shares follow speed: from traffic alone, whatever the order of the workers, the kind of work or the way they batch.
//!
//! The clients keep both machines busy, so a machine's share of the work should be its share of the speed. Work is
//! counted in prompt tokens, which for prompts of nearly one length is as good as counting requests. The first 200
//! requests are for learning, the next 400 are counted.

use forebay::decide::{FleetState, Policy, Work};
use forebay::units::Seconds;

use crate::closed_loop::{ClosedLoop, Load, Placed};
use crate::machine::Make;

const LEARNING: usize = 200;
const COUNTED: usize = 400;
const SEEDS: u64 = 16;

const EMBED: Load = Load {
    work: Work::Embed,
    streamed: false,
    clients: 16,
    cap: 64,
    prompts: [180.0, 220.0],
};
/// A slow machine is rightly given the short ones, so requests of all sizes can't be counted, only their tokens.
const EMBED_ALL_SIZES: Load = Load {
    prompts: [20.0, 620.0],
    ..EMBED
};
const CHAT: Load = Load {
    work: Work::Generate,
    streamed: true,
    clients: 24,
    ..EMBED
};
/// Answers in one piece teach less: with 24 clients, some seeds leave a machine that was first seen under a burst
/// unused, for want of a request to learn better from. Calibration requests are what will end that.
const WHOLE: Load = Load {
    streamed: false,
    clients: 32,
    ..CHAT
};

/// Whether every worker's share of the tokens is within 15 % of its share of the speed.
fn follow(placed: &[Placed], speeds: &[f64]) -> Result<(), String> {
    let tokens = |given: &mut dyn Iterator<Item = &Placed>| given.map(|p| p.prompt).sum::<f64>();
    let all: f64 = speeds.iter().sum();
    for (worker, speed) in speeds.iter().enumerate() {
        let given = tokens(&mut placed.iter().filter(|placed| placed.worker == worker));
        let (share, fair) = (given / tokens(&mut placed.iter()), speed / all);
        if (share / fair - 1.0).abs() > 0.15 {
            return Err(format!(
                "worker {worker} got {share:.3}, its speed is {fair:.3}"
            ));
        }
    }
    Ok(())
}

/// Whether the fleet has learned that the first worker embeds this many times as fast as the second, to within 15 %.
fn learned(fleet: &FleetState, ratio: f64) -> Result<(), String> {
    let views = fleet.snapshot(Seconds::ZERO);
    let found = views[0].rate / views[1].rate;
    if (found / ratio - 1.0).abs() > 0.15 {
        return Err(format!("learned {found:.2}, it is {ratio}"));
    }
    Ok(())
}

/// Runs machines of these speeds and checks the shares, and for embeddings what was learned.
fn run(make: Make, speeds: &[f64], policy: Policy, load: Load, seed: u64) -> Result<(), String> {
    let makes: Vec<Make> = speeds.iter().map(|speed| make.faster(*speed)).collect();
    let mut experiment = ClosedLoop::new(&makes, policy, load, seed);
    let placed = experiment.run(LEARNING + COUNTED);
    follow(&placed[LEARNING..], speeds)
        .and_then(|()| match load.work {
            Work::Embed => learned(&experiment.fleet, speeds[0] / speeds[1]),
            Work::Generate => Ok(()),
        })
        .map_err(|error| format!("seed {seed}, speeds {speeds:?}, {load:?}, {make:?}: {error}"))
}

fn all_follow(make: Make, load: Load) {
    for speeds in [[4.0, 1.0], [1.0, 4.0], [1.0, 1.0]] {
        for seed in 0..SEEDS {
            run(make, &speeds, Policy::LeastTime, load, seed).unwrap();
        }
    }
}

#[test]
fn embeddings_follow_speed() {
    all_follow(Make::PLAIN, EMBED);
}

#[test]
fn embeddings_follow_speed_on_workers_that_batch() {
    let batching = Make {
        batch: 4,
        ..Make::PLAIN
    };
    all_follow(batching, EMBED);
}

#[test]
fn embeddings_follow_speed_on_workers_that_do_two_at_once() {
    let two_handed = Make {
        hands: 2,
        ..Make::PLAIN
    };
    all_follow(two_handed, EMBED);
}

#[test]
fn embeddings_follow_speed_after_a_cold_start() {
    let cold = Make {
        cold: 1.0,
        ..Make::PLAIN
    };
    all_follow(cold, EMBED);
}

#[test]
fn embeddings_of_all_sizes_follow_speed() {
    all_follow(Make::PLAIN, EMBED_ALL_SIZES);
}

#[test]
fn streams_follow_speed() {
    all_follow(Make::PLAIN, CHAT);
}

#[test]
fn whole_answers_follow_speed() {
    all_follow(Make::PLAIN, WHOLE);
}

#[test]
fn the_same_seed_gives_the_same_choices() {
    let placed = |seed| {
        ClosedLoop::new(
            &[Make::PLAIN.faster(4.0), Make::PLAIN],
            Policy::LeastTime,
            CHAT,
            seed,
        )
        .run(300)
    };
    assert_eq!(placed(5), placed(5));
    assert_ne!(placed(5), placed(6));
}

/// Negative control: a ratio that is not the machines' must not pass for learned.
#[test]
fn a_wrong_ratio_is_caught() {
    let makes = [Make::PLAIN.faster(4.0), Make::PLAIN];
    let mut experiment = ClosedLoop::new(&makes, Policy::LeastTime, EMBED, 1);
    experiment.run(LEARNING + COUNTED);
    learned(&experiment.fleet, 4.0).unwrap();
    learned(&experiment.fleet, 3.0).unwrap_err();
    learned(&experiment.fleet, 0.25).unwrap_err();
}

/// Negative control: a policy that is blind to speed must not pass.
#[test]
fn round_robin_is_caught() {
    for load in [EMBED, CHAT, WHOLE] {
        for speeds in [[4.0, 1.0], [1.0, 4.0]] {
            run(Make::PLAIN, &speeds, Policy::RoundRobin, load, 1).unwrap_err();
        }
    }
}
