//! Workers that come and go: nobody waits for one that is away, and while it is there it is like any other.

use forebay::decide::{Ask, FleetState, NoChoice, Outcome, Policy, State, Work, WorkerSpec};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::{ask, spec};

const NOW: Seconds = Seconds(1.0);

/// Two workers, of which these are optional; whoever is `away` refuses connections until it is ejected.
fn pair(optional: [bool; 2], away: [bool; 2]) -> FleetState {
    let specs = optional
        .iter()
        .enumerate()
        .map(|(id, optional)| WorkerSpec {
            optional: *optional,
            ..spec(&format!("worker-{id}"), &["m"], 1)
        });
    let mut fleet = FleetState::new(specs.collect(), Policy::LeastTime);
    for id in (0..2).filter(|id| away[*id as usize]) {
        for _ in 0..3 {
            let only = Ask {
                only: Some([WorkerId(id)].into()),
                ..chat()
            };
            let choice = fleet.choose(&only, &[], NOW, &mut Rng::seeded(1)).unwrap();
            let change = fleet.finish(choice.booking, Outcome::Refused, NOW);
            let news = change.map(|change| (change.to, change.optional));
            assert!(news.is_none_or(|news| news == (State::Ejected, optional[id as usize])));
        }
    }
    fleet
}

fn chat() -> Ask {
    ask("m", Work::Generate, 100.0)
}

fn pick(fleet: &mut FleetState) -> Result<u32, NoChoice> {
    let choice = fleet.choose(&chat(), &[], NOW, &mut Rng::seeded(1));
    choice.map(|choice| choice.worker.0)
}

#[test]
fn nobody_waits_for_an_optional_worker_to_come_back() {
    for (optional, expected) in [
        ([false, false], NoChoice::Away),
        ([true, false], NoChoice::Away),
        ([true, true], NoChoice::Down),
    ] {
        let mut fleet = pair(optional, [true, true]);
        assert_eq!(pick(&mut fleet).unwrap_err(), expected, "{optional:?}");
    }
}

#[test]
fn while_it_is_there_it_is_a_worker_like_any_other() {
    let mut fleet = pair([true, false], [false, true]);
    assert_eq!(pick(&mut fleet), Ok(0));
    assert_eq!(
        pick(&mut fleet),
        Err(NoChoice::Busy),
        "it is waited for when it is busy"
    );
}

#[test]
fn who_waits_for_one_that_goes_away_is_told_at_once() {
    let mut fleet = pair([true, true], [false, true]);
    assert_eq!(pick(&mut fleet), Ok(0));
    fleet.stand_in_line(chat(), &[], NOW).unwrap();
    for _ in 0..3 {
        fleet.probe(WorkerId(0), Err("gone".into()), NOW);
    }
    let grants = fleet.grants(NOW, &mut Rng::seeded(1));
    let told = grants.into_iter().map(|grant| grant.result.unwrap_err());
    assert_eq!(told.collect::<Vec<_>>(), [NoChoice::Down]);
}
