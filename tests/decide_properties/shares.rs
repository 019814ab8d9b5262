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
    outputs: [20, 79],
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
const WHOLE: Load = Load {
    streamed: false,
    ..CHAT
};
/// So few that the slow machine has nothing to do now and then: one wrong belief, and it is never asked again.
const FEW: Load = Load {
    clients: 8,
    prompts: [98.0, 102.0],
    outputs: [8, 8],
    ..WHOLE
};
/// 40 ms for their prompts and 4 ms for each token, on the slowest machine.
const PROMPT_BOUND: Make = Make {
    prefill: (0.0, 0.000_4),
    decode: (0.004, 0.0),
    beside: true,
    ..Make::PLAIN
};

/// Whether every worker's share of the tokens is within 15 % of its share of the speed.
fn follow(placed: &[Placed], speeds: &[f64]) -> Result<(), String> {
    (0..speeds.len()).try_for_each(|worker| follows(placed, speeds, worker))
}

/// Whether this worker's is.
fn follows(placed: &[Placed], speeds: &[f64], worker: usize) -> Result<(), String> {
    let tokens = |given: &mut dyn Iterator<Item = &Placed>| given.map(|p| p.prompt).sum::<f64>();
    let given = tokens(&mut placed.iter().filter(|placed| placed.worker == worker));
    let share = given / tokens(&mut placed.iter());
    let fair = speeds[worker] / speeds.iter().sum::<f64>();
    if (share / fair - 1.0).abs() > 0.15 {
        return Err(format!(
            "worker {worker} got {share:.3}, its speed is {fair:.3}"
        ));
    }
    Ok(())
}

/// Whether the fleet has learned that the first worker embeds this many times as fast as the second, to within 15 %.
fn learned(fleet: &FleetState, ratio: f64) -> Result<(), String> {
    let views = fleet.snapshot(Seconds::ZERO);
    let found = views[0].weight / views[1].weight;
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
            Work::Embed | Work::Infer => learned(&experiment.fleet, speeds[0] / speeds[1]),
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

/// Runs the few and checks the share of the first worker alone: a slow one that is idle at times can't have all of its.
fn run_few(speeds: &[f64], policy: Policy, seed: u64) -> Result<(), String> {
    let makes: Vec<Make> = speeds
        .iter()
        .map(|speed| PROMPT_BOUND.faster(*speed))
        .collect();
    let placed = ClosedLoop::new(&makes, policy, FEW, seed).run(LEARNING + COUNTED);
    follows(&placed[LEARNING..], speeds, 0)
        .map_err(|error| format!("seed {seed}, speeds {speeds:?}: {error}"))
}

#[test]
fn a_few_clients_do_not_give_up_a_slow_worker() {
    for speeds in [&[4.0, 1.0][..], &[2.0, 1.0], &[1.0, 1.0], &[4.0, 2.0, 1.0]] {
        for seed in 0..2 * SEEDS {
            run_few(speeds, Policy::LeastTime, seed).unwrap();
        }
    }
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

/// Negative control: a worker that gets everything must not pass.
#[test]
fn a_worker_given_up_is_caught() {
    let all = [Placed {
        worker: 0,
        prompt: 100.0,
    }; COUNTED];
    follows(&all, &[4.0, 1.0], 0).unwrap_err();
}

/// Negative control: a policy that is blind to speed must not pass.
#[test]
fn round_robin_is_caught() {
    run_few(&[4.0, 1.0], Policy::RoundRobin, 1).unwrap_err();
    for load in [EMBED, CHAT, WHOLE] {
        for speeds in [[4.0, 1.0], [1.0, 4.0]] {
            run(Make::PLAIN, &speeds, Policy::RoundRobin, load, 1).unwrap_err();
        }
    }
}
