//! Tiers: who stands by is asked when nobody of a lower tier is up for the request, and not before.

use forebay::decide::{
    AllDown, Ask, Choice, FleetState, NoChoice, Outcome, Policy, Rules, Told, Work, WorkerSpec,
};
use forebay::rng::Rng;
use forebay::units::{Length, Seconds, WorkerId};

use crate::{ask, spec};
use Trouble::{Down, Ejected, Fine, Full, Held, Small, Strange, Tried};

const NOW: Seconds = Seconds(1.0);

/// What befell a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    Fine,
    /// It holds as many requests as it may.
    Full,
    Down,
    Ejected,
    /// It asked to be left alone.
    Held,
    Tried,
    /// The prompt is too long for it.
    Small,
    /// It does not know the path.
    Strange,
}

/// Workers of these tiers, one request at a time each.
struct Trial {
    fleet: FleetState,
    rng: Rng,
    tried: Vec<WorkerId>,
}

impl Trial {
    fn of(workers: &[(u8, Trouble)], policy: Policy) -> Self {
        let specs = workers
            .iter()
            .enumerate()
            .map(|(id, (tier, _))| WorkerSpec {
                tier: *tier,
                ..spec(&format!("worker-{id}"), &["m"], 1)
            });
        let rules = Rules {
            all_down: AllDown::Fail,
            ..policy.into()
        };
        let mut trial = Trial {
            fleet: FleetState::new(specs.collect(), rules),
            rng: Rng::seeded(7),
            tried: Vec::new(),
        };
        for (id, (_, trouble)) in (0..).zip(workers) {
            trial.befalls(WorkerId(id), *trouble);
        }
        trial
    }

    fn befalls(&mut self, worker: WorkerId, trouble: Trouble) {
        match trouble {
            Fine => {}
            Full => drop(self.on(worker)),
            Down => {
                let dead = || Err("dead".to_owned());
                (0..3).for_each(|_| drop(self.fleet.probe(worker, dead(), NOW)));
            }
            Ejected => (0..3).for_each(|_| self.end(worker, Outcome::Refused)),
            Held => self.end(
                worker,
                Outcome::Busy {
                    retry_after: Some(Seconds(9.0)),
                },
            ),
            Tried => self.tried.push(worker),
            Small => {
                let told = Told {
                    context: Some(10.0),
                    ..Told::default()
                };
                self.fleet.told(worker, told);
            }
            Strange => self.fleet.unsupported(worker, &chat(), NOW),
        }
    }

    /// A request on this worker.
    fn on(&mut self, worker: WorkerId) -> Choice {
        let only = Ask {
            only: Some([worker].into()),
            fills: None,
            ..chat()
        };
        self.fleet.choose(&only, &[], NOW, &mut self.rng).unwrap()
    }

    fn end(&mut self, worker: WorkerId, outcome: Outcome) {
        let choice = self.on(worker);
        self.fleet.finish(choice.booking, outcome, NOW);
    }

    fn pick(&mut self) -> Result<u32, NoChoice> {
        let choice = self.fleet.choose(&chat(), &self.tried, NOW, &mut self.rng);
        choice.map(|choice| choice.worker.0)
    }
}

fn chat() -> Ask {
    Ask {
        path: Some("/v1/chat/completions"),
        fills: Some(Length::Tokens(100.0)),
        ..ask("m", Work::Generate, 100.0)
    }
}

#[test]
fn the_lowest_tier_that_somebody_is_up_in_is_asked() {
    let out = [Down, Ejected, Held, Tried, Small, Strange];
    for policy in [Policy::LeastTime, Policy::RoundRobin, Policy::Weighted] {
        let check = |workers: &[(u8, Trouble)], expected: Result<u32, NoChoice>| {
            let picked = Trial::of(workers, policy).pick();
            assert_eq!(picked, expected, "{policy:?} {workers:?}");
        };
        check(&[(5, Fine)], Ok(0));
        check(&[(5, Full)], Err(NoChoice::Busy));
        check(&[(0, Fine), (1, Fine)], Ok(0));
        check(&[(1, Fine), (0, Fine)], Ok(1));
        check(&[(0, Full), (1, Fine)], Err(NoChoice::Busy));
        check(&[(0, Down), (1, Down)], Err(NoChoice::Down));
        check(&[(0, Full), (0, Fine), (1, Fine)], Ok(1));
        check(&[(1, Fine), (2, Fine), (9, Fine)], Ok(0));
        for trouble in out {
            check(&[(0, trouble), (1, Fine)], Ok(1));
            check(&[(0, trouble), (1, Full)], Err(NoChoice::Busy));
            check(&[(0, trouble), (0, Fine), (1, Fine)], Ok(1));
            check(&[(0, trouble), (2, Fine), (1, Fine)], Ok(2));
            check(&[(0, trouble), (0, Down), (1, Fine)], Ok(2));
        }
    }
}

#[test]
fn among_those_on_hold_the_lower_tier_goes_first() {
    let mut trial = Trial::of(&[(1, Fine), (0, Fine)], Policy::LeastTime);
    for (worker, seconds) in [(0, 1.0), (1, 9.0)] {
        let busy = Outcome::Busy {
            retry_after: Some(Seconds(seconds)),
        };
        trial.end(WorkerId(worker), busy);
    }
    assert_eq!(trial.pick(), Ok(1));
}

#[test]
fn who_waits_goes_to_the_next_tier_when_the_lower_one_is_gone() {
    let mut trial = Trial::of(&[(0, Full), (1, Fine)], Policy::LeastTime);
    assert_eq!(trial.pick(), Err(NoChoice::Busy));
    let ticket = trial.fleet.stand_in_line(chat(), &[], NOW).unwrap();
    assert!(trial.fleet.grants(NOW, &mut trial.rng).is_empty());
    trial.fleet.check_invariants().unwrap();
    trial.befalls(WorkerId(0), Down);
    let grants = trial.fleet.grants(NOW, &mut trial.rng);
    let granted: Vec<_> = grants
        .into_iter()
        .map(|grant| (grant.ticket, grant.result.unwrap().worker))
        .collect();
    assert_eq!(granted, [(ticket, WorkerId(1))]);
}
