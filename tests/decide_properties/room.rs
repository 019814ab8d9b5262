//! Prompts that are too long for some of the workers: those who can take one are what the rules are about.

use forebay::decide::{
    Ask, Booking, FleetState, NoChoice, Outcome, Policy, State, Tests, Told, Work, WorkerSpec,
};
use forebay::rng::Rng;
use forebay::units::{Length, Seconds, WorkerId};

use crate::{ask, spec};

const SMALL: WorkerId = WorkerId(0);
const LARGE: WorkerId = WorkerId(1);

/// A worker of 1,000 tokens and one of 4,000, both up.
fn pair(tests: Tests) -> FleetState {
    let worker = |name| WorkerSpec {
        tests,
        ..spec(name, &["m"], 2)
    };
    let mut fleet = FleetState::new(vec![worker("small"), worker("large")], Policy::LeastTime);
    for (id, context) in [(SMALL, 1_000.0), (LARGE, 4_000.0)] {
        (0..2).for_each(|_| drop(fleet.probe(id, Ok(()), Seconds::ZERO)));
        let told = Told {
            context: Some(context),
            ..Told::default()
        };
        fleet.told(id, told);
    }
    fleet
}

fn prompt(tokens: f64) -> Ask {
    Ask {
        fills: Some(Length::Tokens(tokens)),
        ..ask("m", Work::Generate, tokens)
    }
}

fn choose(fleet: &mut FleetState, tokens: f64) -> Result<(WorkerId, Booking), NoChoice> {
    let choice = fleet.choose(&prompt(tokens), &[], Seconds(1.0), &mut Rng::seeded(1));
    choice.map(|choice| (choice.worker, choice.booking))
}

/// One more request for a worker, which ends so.
fn end(fleet: &mut FleetState, worker: WorkerId, outcome: Outcome) {
    let only = Ask {
        only: Some([worker].into()),
        ..prompt(10.0)
    };
    let choice = fleet.choose(&only, &[], Seconds(1.0), &mut Rng::seeded(1));
    fleet.finish(choice.unwrap().booking, outcome, Seconds(1.0));
}

#[test]
fn a_hold_yields_when_only_the_held_can_take_it() {
    let mut fleet = pair(Tests::Off);
    let busy = Outcome::Busy {
        retry_after: Some(Seconds(60.0)),
    };
    end(&mut fleet, LARGE, busy);
    assert_eq!(choose(&mut fleet, 100.0).unwrap().0, SMALL);
    assert_eq!(choose(&mut fleet, 2_000.0).unwrap().0, LARGE);
}

#[test]
fn nobody_waits_for_one_that_comes_back_and_is_too_small() {
    let mut fleet = pair(Tests::Off);
    for _ in 0..3 {
        end(&mut fleet, SMALL, Outcome::Refused);
    }
    assert_eq!(fleet.state(SMALL), Some(State::Ejected));
    (0..3).for_each(|_| drop(fleet.probe(LARGE, Err("dead".into()), Seconds(1.0))));
    assert_eq!(choose(&mut fleet, 100.0).unwrap_err(), NoChoice::Away);
    assert_eq!(choose(&mut fleet, 2_000.0).unwrap_err(), NoChoice::Down);
    let none = choose(&mut fleet, 4_001.0).unwrap_err();
    assert_eq!(none, NoChoice::TooLong { most: 4_000 });
}

#[test]
fn a_long_prompt_that_waits_holds_no_short_one_up() {
    let mut fleet = pair(Tests::Off);
    let lengths = [2_000.0, 2_000.0, 10.0, 10.0];
    let mut held = lengths.map(|tokens| Some(choose(&mut fleet, tokens).unwrap()));
    let [long, short] = [2_000.0, 10.0].map(|tokens| {
        assert_eq!(choose(&mut fleet, tokens).unwrap_err(), NoChoice::Busy);
        fleet
            .stand_in_line(prompt(tokens), &[], Seconds(1.0))
            .unwrap()
    });
    for (place, ticket) in [(3, short), (0, long)] {
        let (_, booking) = held[place].take().unwrap();
        fleet.finish(booking, Outcome::Gone, Seconds(2.0));
        let grants = fleet.grants(Seconds(2.0), &mut Rng::seeded(1));
        let served: Vec<_> = grants.iter().map(|grant| grant.ticket).collect();
        assert_eq!(served, [ticket]);
        fleet.check_invariants().unwrap();
    }
}

#[test]
fn who_waits_is_refused_when_the_worker_that_fits_shrinks() {
    let mut fleet = pair(Tests::Off);
    let held = [(); 2].map(|()| choose(&mut fleet, 2_000.0).unwrap());
    let refusal = choose(&mut fleet, 2_000.0).unwrap_err();
    assert_eq!(refusal, NoChoice::Busy);
    fleet
        .stand_in_line(prompt(2_000.0), &[], Seconds(1.0))
        .unwrap();
    let told = Told {
        context: Some(1_500.0),
        ..Told::default()
    };
    fleet.told(LARGE, told);
    let grants = fleet.grants(Seconds(2.0), &mut Rng::seeded(1));
    let refused = grants.into_iter().map(|grant| grant.result.unwrap_err());
    let expected = NoChoice::TooLong { most: 1_500 };
    assert_eq!(refused.collect::<Vec<_>>(), [expected]);
    assert_eq!((fleet.waiting(), held.len()), (0, 2));
}

#[test]
fn tests_are_no_longer_than_a_worker_takes() {
    let mut fleet = pair(Tests::MadeUp);
    let (_, booking) = choose(&mut fleet, 100.0).unwrap();
    fleet.finish(booking, Outcome::Gone, Seconds(1.0));
    let mut longest = [0.0_f64; 2];
    for second in 2..200 {
        let now = Seconds(f64::from(second));
        let _ =
            choose(&mut fleet, 100.0).map(|(_, booking)| fleet.finish(booking, Outcome::Gone, now));
        for test in fleet.begin_tests(now) {
            let seen = &mut longest[test.choice.worker.index()];
            *seen = seen.max(test.prompt);
            fleet.finish(test.choice.booking, Outcome::Gone, now);
        }
    }
    assert_eq!(longest, [256.0, 2_048.0]);
}
