//! However requests come and go, what falls to all of them is the time in which their machines were busy; and whatever
//! they come to, a budget lets no more than one of them pass beyond what it has.

use forebay::decide::{
    Amount, BudgetRule, Choice, Every, Expense, FleetState, Outcome, Policy, Purse, Work,
};
use forebay::rng::Rng;
use forebay::units::Seconds;

use super::{ask, spec};

const STEPS: usize = 300;

/// Requests come and end on two machines, one of them with two workers. Returns what fell to all, and how long machines
/// were busy.
fn play(seed: u64, loses_some: bool) -> (f64, f64) {
    let mut rng = Rng::seeded(seed);
    let on = |name: &str, machine: &str| {
        let mut spec = spec(name, &["m"], 4);
        spec.machine = Some(machine.into());
        spec
    };
    let specs = vec![on("a", "one"), on("b", "one"), on("c", "two")];
    let homes = [0, 0, 1];
    let mut fleet = FleetState::new(specs, Policy::Random);
    let mut now = Seconds(1.0);
    let mut open: Vec<Choice> = Vec::new();
    let (mut shares, mut busy) = (0.0, 0.0);
    for _ in 0..STEPS {
        let passed = rng.unit();
        now += Seconds(passed);
        let works = |machine| {
            open.iter()
                .any(|c: &Choice| homes[c.worker.index()] == machine)
        };
        busy += passed * [0, 1].into_iter().filter(|machine| works(*machine)).count() as f64;
        if rng.below(2) == 0 {
            let asked = ask("m", Work::Generate, 10.0);
            open.extend(fleet.choose(&asked, &[], now, &mut rng).ok());
        } else if !open.is_empty() {
            let ended = open.swap_remove(rng.below(open.len()));
            let share = fleet.share_of(&ended.booking, now).0;
            shares += if loses_some && rng.below(50) == 0 {
                0.0
            } else {
                share
            };
            fleet.finish(ended.booking, Outcome::Gone, now);
        }
    }
    for left in open {
        shares += fleet.share_of(&left.booking, now).0;
        fleet.finish(left.booking, Outcome::Gone, now);
    }
    (shares, busy)
}

fn is_exact((shares, busy): (f64, f64)) -> bool {
    (shares - busy).abs() < 1e-6
}

#[test]
fn what_falls_to_requests_is_the_busy_time_of_machines() {
    for seed in 0..256 {
        let (shares, busy) = play(seed, false);
        assert!(
            busy > 10.0 && is_exact((shares, busy)),
            "seed {seed}: {shares} of {busy}"
        );
    }
}

#[test]
fn a_share_that_is_lost_is_noticed() {
    assert!((0..256).any(|seed| !is_exact(play(seed, true))));
}

/// Requests that come to what was forecast pass and end at random; returns the most that was ever spent beyond the
/// budget, in requests. Who barges in passes even when refused.
fn beyond(seed: u64, barges_in: bool) -> f64 {
    let mut rng = Rng::seeded(seed);
    let each = 0.1 + rng.unit();
    let most = each * (1.0 + 20.0 * rng.unit());
    let rule = BudgetRule {
        most: Amount::Busy(Seconds(most)),
        every: Every::Day,
    };
    let mut purse = Purse::full(&[rule]);
    let wall = Seconds(1e9);
    let expense = Expense::of(Seconds(each), None);
    let (mut open, mut spent) = (0, 0.0);
    for _ in 0..STEPS {
        if rng.below(2) == 0 {
            if purse.reserve(expense, wall).is_ok() || barges_in {
                open += 1;
            }
        } else if open > 0 {
            open -= 1;
            purse.settle(expense, expense, wall);
            spent += each;
        }
    }
    (spent + f64::from(open) * each - most) / each
}

#[test]
fn no_more_than_one_request_passes_beyond_a_budget() {
    for seed in 0..256 {
        let beyond = beyond(seed, false);
        assert!(beyond < 1.0, "seed {seed}: {beyond}");
    }
    assert!((0..256).any(|seed| beyond(seed, true) >= 1.0));
}
