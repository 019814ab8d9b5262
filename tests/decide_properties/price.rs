//! Money as seconds: the cheaper machine wins as soon as the seconds lost there cost less than what it saves.

use forebay::decide::{Choice, Considered, FleetState, Policy, Terms, Work, WorkerSpec};
use forebay::rng::Rng;
use forebay::units::Seconds;

use crate::{ask, spec};

const NOW: Seconds = Seconds(1.0);

/// A fast machine at this price, and one of half its speed that costs nothing.
fn pair(price: f64) -> FleetState {
    let worker = |name: &str, speed, price| WorkerSpec {
        speed: Some(speed),
        price,
        machine: Some("box".into()).filter(|_| name == "fast"),
        ..spec(name, &["m"], 8)
    };
    let specs = vec![worker("fast", 2.0, price), worker("slow", 1.0, 0.0)];
    FleetState::new(specs, Policy::LeastTime)
}

fn choose(fleet: &mut FleetState) -> (Choice, [Terms; 2]) {
    let ask = ask("m", Work::Generate, 600.0);
    let choice = fleet.choose(&ask, &[], NOW, &mut Rng::seeded(1)).unwrap();
    let terms = fleet.considered().iter().map(|one: &Considered| one.terms);
    (choice, terms.collect::<Vec<_>>().try_into().unwrap())
}

#[test]
fn a_price_is_a_share_of_the_busy_time_among_those_who_share_the_machine() {
    let mut fleet = pair(0.25);
    let (_held, [fast, slow]) = choose(&mut fleet);
    assert_eq!(fast.price, (fast.own + fast.decode) * 0.25);
    assert_eq!(slow.price, Seconds::ZERO);
    assert_eq!(
        fast.total() - fast.price,
        fast.answer() + fast.external + fast.failure
    );
    let (_held, [fast, _]) = choose(&mut fleet);
    assert_eq!(fast.price, (fast.own + fast.decode) * 0.25 / 2.0);
    fleet.check_invariants().unwrap();
}

#[test]
fn the_cheaper_machine_wins_as_soon_as_its_lost_seconds_cost_less() {
    let (_, [fast, slow]) = choose(&mut pair(0.0));
    assert_eq!(fast.price, Seconds::ZERO);
    let lost = slow.total() - fast.total();
    assert!(lost > Seconds(0.5), "{lost}");
    let even = lost.0 / (fast.own + fast.decode).0;
    // Ties within 2 % are no difference.
    for (share, worker) in [(0.0, 0), (0.9, 0), (1.1, 1), (9.0, 1)] {
        let (choice, _) = choose(&mut pair(even * share));
        assert_eq!(choice.worker.0, worker, "{share} of {even}");
    }
}
