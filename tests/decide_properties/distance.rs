//! Distance is seconds: a request stays near until the queue there costs more than the way.

use forebay::decide::{
    Ask, Choice, Considered, FleetState, Place, Policy, RegionId, Work, WorkerSpec,
};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::{ask, spec};

const HOME: RegionId = RegionId(0);
const OHIO: RegionId = RegionId(1);
const NOW: Seconds = Seconds(1.0);

/// Two equal workers, one in each region, 2 ms within a region and this far from each other.
fn regions(apart: f64) -> FleetState {
    let at = |name: &str, trips: [f64; 2]| WorkerSpec {
        place: Place {
            round_trips: trips.map(|trip| Some(Seconds(trip))).into(),
            ..Place::default()
        },
        ..spec(name, &["m"], 64)
    };
    let specs = vec![at("home", [0.002, apart]), at("ohio", [apart, 0.002])];
    FleetState::new(specs, Policy::LeastTime)
}

fn choose(fleet: &mut FleetState, from: Option<RegionId>) -> Choice {
    let ask = Ask {
        from,
        ..ask("m", Work::Generate, 600.0)
    };
    fleet.choose(&ask, &[], NOW, &mut Rng::seeded(1)).unwrap()
}

#[test]
fn a_request_goes_to_the_worker_of_its_clients_region() {
    for (from, worker) in [(HOME, 0), (OHIO, 1)] {
        let choice = choose(&mut regions(0.11), Some(from));
        assert_eq!(
            (choice.worker, choice.terms.net),
            (WorkerId(worker), Seconds(0.002))
        );
    }
}

#[test]
fn what_the_operator_wrote_goes_before_what_was_measured() {
    let mut fleet = regions(0.11);
    fleet.connected(WorkerId(0), Seconds(0.5));
    fleet.connected(WorkerId(1), Seconds(0.03));
    assert_eq!(choose(&mut fleet, Some(HOME)).terms.net, Seconds(0.002));
    for from in [None, Some(RegionId(7))] {
        let choice = choose(&mut fleet, from);
        assert_eq!(
            (choice.worker, choice.terms.net),
            (WorkerId(1), Seconds(0.03))
        );
    }
}

/// What was priced besides the way, and the way.
fn price(one: &Considered) -> (Seconds, Seconds) {
    (one.terms.total() - one.terms.net, one.terms.net)
}

#[test]
fn a_queue_that_costs_more_than_the_way_sends_the_next_one_far() {
    let spills_after = |apart: f64| {
        let mut fleet = regions(apart);
        for sent in 0.. {
            let choice = choose(&mut fleet, Some(HOME));
            let [home, ohio] = fleet.considered() else {
                panic!("two workers");
            };
            let [(queue, near), (idle, far)] = [home, ohio].map(price);
            // What differs less than 2 % is drawn.
            let tie = (home.terms.total() - ohio.terms.total()).0.abs() < 0.03 * queue.0;
            let dearer = queue - idle > far - near;
            let spilt = choice.worker == WorkerId(1);
            assert!(tie || spilt == dearer, "after {sent}, {apart} apart");
            if spilt {
                return sent;
            }
        }
        unreachable!()
    };
    let sent = [0.11, 0.5, 2.0].map(spills_after);
    assert!(
        sent[0] > 0 && sent.is_sorted() && sent[0] < sent[2],
        "{sent:?}"
    );
}
