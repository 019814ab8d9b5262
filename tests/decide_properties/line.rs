//! The waiting line: first come, first served among those who could use the same slot, and nobody waits for ever.

use std::collections::BTreeMap;

use forebay::decide::{
    Booking, FleetState, Grant, LineFull, LineRules, NoChoice, Outcome, Policy, Ticket, Work,
};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::{ask, spec};

const NOW: Seconds = Seconds(1.0);

/// Who waits, and for which model.
type Waiting = BTreeMap<Ticket, &'static str>;

/// Worker 0 serves `m`, worker 1 serves `m` and `n`; one request at a time each.
fn pair() -> FleetState {
    let specs = vec![spec("a", &["m"], 1), spec("b", &["m", "n"], 1)];
    FleetState::new(specs, Policy::LeastTime)
}

fn serves(worker: WorkerId, model: &str) -> bool {
    model == "m" || worker == WorkerId(1)
}

/// Whether each grant went to the first in line who could use that slot.
fn in_order(grants: &[(Ticket, WorkerId)], mut waiting: Waiting) -> Result<(), String> {
    for (ticket, worker) in grants {
        let first = waiting
            .iter()
            .find(|(_, model)| serves(*worker, model))
            .map(|(first, _)| *first);
        if first != Some(*ticket) {
            return Err(format!("{worker:?} went to {ticket:?} before {first:?}"));
        }
        waiting.remove(ticket);
    }
    Ok(())
}

/// Fills the pair and lets this many wait.
fn crowd(fleet: &mut FleetState, waiters: usize, rng: &mut Rng) -> (Vec<Booking>, Waiting) {
    let fill = |model| fleet.choose(&ask(model, Work::Embed, 50.0), &[], NOW, rng);
    let held = ["n", "m"].map(fill).map(|choice| choice.unwrap().booking);
    let mut waiting = Waiting::new();
    for _ in 0..waiters {
        let model = ["m", "n"][rng.below(2)];
        let ask = ask(model, Work::Embed, 50.0);
        assert!(matches!(
            fleet.choose(&ask, &[], NOW, rng),
            Err(NoChoice::Busy)
        ));
        waiting.insert(fleet.stand_in_line(ask, &[], NOW).unwrap(), model);
    }
    (held.into(), waiting)
}

fn booked(grants: Vec<Grant>) -> Vec<(Ticket, Booking)> {
    let booking = |grant: Grant| (grant.ticket, grant.result.unwrap().booking);
    grants.into_iter().map(booking).collect()
}

#[test]
fn slots_go_to_whoever_came_first_and_everybody_is_served() {
    for seed in 0..16 {
        let mut rng = Rng::seeded(seed);
        let mut fleet = pair();
        let (mut held, mut waiting) = crowd(&mut fleet, 200, &mut rng);
        while !held.is_empty() {
            let booking = held.swap_remove(rng.below(held.len()));
            fleet.finish(booking, Outcome::Gone, NOW);
            let granted = booked(fleet.grants(NOW, &mut rng));
            let order: Vec<_> = granted.iter().map(|(t, b)| (*t, b.worker())).collect();
            in_order(&order, waiting.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            fleet.check_invariants().unwrap();
            for (ticket, booking) in granted {
                waiting.remove(&ticket);
                held.push(booking);
            }
        }
        assert!(waiting.is_empty(), "seed {seed}: {waiting:?} starved");
    }
}

/// Negative control: the checker must notice somebody who is served before his turn.
#[test]
fn overtaking_is_caught() {
    let mut rng = Rng::seeded(1);
    let (_held, waiting) = crowd(&mut pair(), 20, &mut rng);
    let order: Vec<_> = waiting
        .keys()
        .map(|ticket| (*ticket, WorkerId(1)))
        .collect();
    in_order(&order, waiting.clone()).unwrap();
    let mut swapped = order.clone();
    swapped.swap(3, 4);
    in_order(&swapped, waiting).unwrap_err();
}

/// Negative control: a slot that is freed without asking who waits must be noticed.
#[test]
fn a_forgotten_grant_is_caught() {
    let mut rng = Rng::seeded(1);
    let mut fleet = pair();
    let (mut held, _waiting) = crowd(&mut fleet, 20, &mut rng);
    fleet.check_invariants().unwrap();
    fleet.finish(held.swap_remove(0), Outcome::Gone, NOW);
    fleet.check_invariants().unwrap_err();
}

#[test]
fn whoever_waits_for_the_dead_is_told_at_once() {
    let mut rng = Rng::seeded(1);
    let mut fleet = pair();
    let (_held, waiting) = crowd(&mut fleet, 50, &mut rng);
    fleet.probe(WorkerId(1), Err("no answer".into()), NOW);
    let grants = fleet.grants(NOW, &mut rng);
    let told: Vec<_> = grants.iter().map(|grant| grant.ticket).collect();
    let hopeless: Vec<_> = waiting
        .iter()
        .filter(|(_, model)| **model == "n")
        .map(|(ticket, _)| *ticket)
        .collect();
    assert_eq!(told, hopeless);
    assert!(
        grants
            .iter()
            .all(|grant| matches!(grant.result, Err(NoChoice::Down)))
    );
    fleet.check_invariants().unwrap();
}

#[test]
fn a_worker_that_was_tried_is_not_waited_for() {
    let mut rng = Rng::seeded(1);
    let mut fleet = pair();
    let (held, _) = crowd(&mut fleet, 0, &mut rng);
    let tried = [WorkerId(0)];
    let ticket = fleet
        .stand_in_line(ask("m", Work::Embed, 50.0), &tried, NOW)
        .unwrap();
    let (first, second): (Vec<Booking>, Vec<Booking>) = held
        .into_iter()
        .partition(|booking| booking.worker() == WorkerId(0));
    for booking in first {
        fleet.finish(booking, Outcome::Gone, NOW);
    }
    assert!(fleet.grants(NOW, &mut rng).is_empty());
    for booking in second {
        fleet.finish(booking, Outcome::Gone, NOW);
    }
    let granted = booked(fleet.grants(NOW, &mut rng));
    assert_eq!(granted[0].0, ticket);
    assert_eq!(granted[0].1.worker(), WorkerId(1));
}

#[test]
fn the_line_is_bounded_and_leaving_makes_room() {
    let mut fleet = pair();
    let most = LineRules::default().entries;
    let join = |fleet: &mut FleetState| fleet.stand_in_line(ask("m", Work::Embed, 9.0), &[], NOW);
    let first = join(&mut fleet).unwrap();
    for _ in 1..most {
        join(&mut fleet).unwrap();
    }
    assert_eq!(join(&mut fleet), Err(LineFull));
    fleet.leave_line(first, NOW);
    fleet.leave_line(first, NOW);
    assert_eq!(fleet.waiting(), most - 1);
    join(&mut fleet).unwrap();
}
