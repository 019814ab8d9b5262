//! More failures never raise a weight, and a weighted policy serves by what was learned.

use forebay::decide::{FleetState, Policy, Work};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::closed_loop::{ClosedLoop, Load};
use crate::machine::Make;
use crate::{ask, spec};

const SEEDS: u64 = 256;

/// A worker after a random history of requests and outages, and one that had the same and one outage more.
fn pair(seed: u64) -> [FleetState; 2] {
    let [mut calm, mut flaky] =
        [(); 2].map(|()| FleetState::new(vec![spec("w", &["m"], 8)], Policy::Weighted));
    let mut rng = Rng::seeded(seed);
    let mut now = 0.0;
    let steps = 1 + rng.below(20);
    let worse = rng.below(steps);
    for step in 0..steps {
        now += rng.unit() * 300.0;
        let fails = rng.below(4) == 0 && step != worse;
        for (fleet, fails) in [(&mut calm, fails), (&mut flaky, fails || step == worse)] {
            outage_if(fails, fleet, now);
        }
    }
    [calm, flaky]
}

/// Serves a request for two seconds, then goes down and comes back if it fails.
fn outage_if(fails: bool, fleet: &mut FleetState, now: f64) {
    let request = ask("m", Work::Embed, 100.0);
    let choice = fleet
        .choose(&request, &[], Seconds(now), &mut Rng::seeded(1))
        .unwrap();
    fleet.finish(
        choice.booking,
        forebay::decide::Outcome::Gone,
        Seconds(now + 2.0),
    );
    let mut probe = |verdict: Result<(), String>| {
        fleet.probe(WorkerId(0), verdict, Seconds(now + 2.0));
    };
    if fails {
        (0..3).for_each(|_| probe(Err("no answer".into())));
    }
    (0..2).for_each(|_| probe(Ok(())));
}

/// Whether the second weighs no more than the first, some time later.
fn no_heavier(fleets: &[FleetState; 2], later: f64) -> Result<(), String> {
    let [calm, flaky] = fleets
        .each_ref()
        .map(|fleet| fleet.snapshot(Seconds(later))[0].weight);
    if flaky > calm * (1.0 + 1e-12) {
        return Err(format!("{flaky} after more failures, {calm} after fewer"));
    }
    Ok(())
}

#[test]
fn more_failures_never_raise_a_weight() {
    for seed in 0..SEEDS {
        let fleets = pair(seed);
        for later in [0.0, 6_000.0, 1e6] {
            no_heavier(&fleets, later).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

/// Negative control: with the two exchanged, the checker must notice, and not only now and then.
#[test]
fn a_weight_raised_by_failures_is_caught() {
    for seed in 0..SEEDS {
        let [calm, flaky] = pair(seed);
        no_heavier(&[flaky, calm], 6_000.0).unwrap_err();
    }
}

#[test]
fn a_weighted_fleet_serves_by_what_it_has_learned() {
    let load = Load {
        work: Work::Embed,
        streamed: false,
        clients: 16,
        cap: 64,
        prompts: [180.0, 220.0],
        outputs: [0, 0],
    };
    for seed in 0..16 {
        let makes = [Make::PLAIN.faster(4.0), Make::PLAIN];
        let mut experiment = ClosedLoop::new(&makes, Policy::Weighted, load, seed);
        let placed = experiment.run(600);
        let views = experiment.fleet.snapshot(Seconds::ZERO);
        let ratio = views[0].weight / views[1].weight;
        assert!((ratio / 4.0 - 1.0).abs() < 0.15, "seed {seed}: {ratio}");
        let first = placed[200..].iter().filter(|placed| placed.worker == 0);
        let slow = 400 - first.count();
        assert!((68..=92).contains(&slow), "seed {seed}: {slow} of 400");
    }
}
