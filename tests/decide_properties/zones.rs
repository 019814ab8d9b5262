//! No request ever goes to a worker outside of its zones, whatever fails.
//!
//! Random fleets live through random histories: workers die and come back, refuse, stall and get full, requests are sent
//! again and wait in line. Every place that is handed out is checked, by whichever of the three ways it came.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay::decide::{
    AllDown, Ask, Booking, Choice, Exclusion, Fate, FleetState, NoChoice, Outcome, Place, Policy,
    Rules, Ticket, Work, WorkerSpec, Zones,
};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::{ask, spec};

const SEEDS: u64 = 256;
const STEPS: usize = 400;
const POLICIES: [Policy; 5] = [
    Policy::LeastTime,
    Policy::Weighted,
    Policy::RoundRobin,
    Policy::LeastInflight,
    Policy::Random,
];
const ALL_DOWN: [AllDown; 3] = [AllDown::Queue, AllDown::Fail, AllDown::TryAll];
const OUTCOMES: [Outcome; 6] = [
    Outcome::Failed,
    Outcome::Lost,
    Outcome::Refused,
    Outcome::Gone,
    Outcome::Busy {
        retry_after: Some(Seconds(3.0)),
    },
    Outcome::Answered {
        prompt_tokens: None,
        cached_tokens: None,
        output_tokens: Some(20.0),
    },
];

/// A request: where it may go, and where it has been.
#[derive(Clone)]
struct Request {
    zones: Option<Zones>,
    only: Option<Arc<[WorkerId]>>,
    tried: Vec<WorkerId>,
}

/// A fleet in three zones and nowhere.
struct World {
    zones: Vec<Zones>,
    fleet: FleetState,
    rng: Rng,
    now: Seconds,
    held: Vec<(Request, Booking)>,
    waiting: BTreeMap<Ticket, Request>,
    /// Forgets to say where requests may go.
    leaky: bool,
}

impl World {
    fn new(seed: u64, leaky: bool) -> Self {
        let mut rng = Rng::seeded(seed);
        let workers = 1 + rng.below(6);
        let zones: Vec<Zones> = (0..workers).map(|_| zone(rng.below(4))).collect();
        let specs = zones.iter().enumerate().map(|(id, zone)| WorkerSpec {
            machine: Some(["desk", "rack", "attic"][rng.below(3)].into()),
            tier: [0, 0, 1, 2][rng.below(4)],
            place: Place {
                zone: *zone,
                ..Place::default()
            },
            ..spec(&format!("worker-{id}"), &["m"], 2)
        });
        let specs: Vec<WorkerSpec> = specs.collect();
        let rules = Rules {
            all_down: ALL_DOWN[rng.below(3)],
            sample_above: 3,
            ..POLICIES[rng.below(5)].into()
        };
        World {
            zones,
            fleet: FleetState::new(specs, rules),
            rng,
            now: Seconds(1.0),
            held: Vec::new(),
            waiting: BTreeMap::new(),
            leaky,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += Seconds(self.rng.unit());
        let worker = WorkerId(u32::try_from(self.rng.below(self.zones.len())).unwrap());
        match self.rng.below(8) {
            0..4 => {
                let request = self.request();
                self.place(request)?;
            }
            4 | 5 if !self.held.is_empty() => self.end()?,
            6 => {
                let dead = self.rng.below(2) == 0;
                let verdict = || if dead { Err("dead".into()) } else { Ok(()) };
                (0..3).for_each(|_| drop(self.fleet.probe(worker, verdict(), self.now)));
            }
            _ => drop(self.fleet.tick(self.now)),
        }
        for grant in self.fleet.grants(self.now, &mut self.rng) {
            let request = self.waiting.remove(&grant.ticket).unwrap();
            if let Ok(choice) = grant.result {
                self.hold(request, choice)?;
            }
        }
        self.fleet.check_invariants()
    }

    /// A request that may go to none, one or two zones, or anywhere.
    fn request(&mut self) -> Request {
        let rng = &mut self.rng;
        let only = (rng.below(4) == 0).then(|| [WorkerId(0), WorkerId(2)].into());
        let zones = zone(rng.below(4)).and(zone(rng.below(4)));
        Request {
            zones: (rng.below(4) > 0).then_some(zones),
            only,
            tried: Vec::new(),
        }
    }

    fn place(&mut self, request: Request) -> Result<(), String> {
        let ask = self.ask(&request);
        let chosen = self
            .fleet
            .choose(&ask, &request.tried, self.now, &mut self.rng);
        self.shown(&request)?;
        match chosen {
            Ok(choice) => self.hold(request, choice),
            Err(NoChoice::Busy | NoChoice::Away) => {
                let ticket = self
                    .fleet
                    .stand_in_line(ask, &request.tried, self.now)
                    .unwrap();
                self.waiting.insert(ticket, request);
                Ok(())
            }
            Err(NoChoice::Residency) => match self.allowed(&request).next() {
                Some(worker) => Err(format!("{worker:?} is within the zones")),
                None => Ok(()),
            },
            Err(NoChoice::Down) if self.allowed(&request).next().is_some() => Ok(()),
            Err(other) => Err(format!("{other:?}")),
        }
    }

    /// Ends a request that was placed; one that failed is sent again.
    fn end(&mut self) -> Result<(), String> {
        let place = self.rng.below(self.held.len());
        let (mut request, booking) = self.held.swap_remove(place);
        let outcome = OUTCOMES[self.rng.below(OUTCOMES.len())];
        request.tried.push(booking.worker());
        if self.rng.below(8) == 0 {
            let ask = self.ask(&request);
            self.fleet.unsupported(booking.worker(), &ask, self.now);
        }
        self.fleet.finish(booking, outcome, self.now);
        match outcome {
            Outcome::Answered { .. } | Outcome::Gone => Ok(()),
            _ => self.place(request),
        }
    }

    fn ask(&self, request: &Request) -> Ask {
        Ask {
            only: request.only.clone(),
            zones: request.zones.filter(|_| !self.leaky),
            path: Some("/v1/chat/completions"),
            ..ask("m", Work::Generate, 100.0)
        }
    }

    fn hold(&mut self, request: Request, choice: Choice) -> Result<(), String> {
        let worker = choice.worker;
        self.held.push((request.clone(), choice.booking));
        if self.allowed(&request).any(|allowed| allowed == worker) {
            Ok(())
        } else {
            Err(format!("{worker:?} is outside of {:?}", request.zones))
        }
    }

    /// Whoever is outside is shown, and why it was left out.
    fn shown(&self, request: &Request) -> Result<(), String> {
        let outside = |worker: WorkerId| {
            let zone = self.zones[worker.index()];
            request.zones.is_some_and(|zones| !zones.meets(zone))
        };
        let mut considered = self.fleet.considered().iter();
        let wrong = considered
            .find(|one| outside(one.worker) != (one.fate == Fate::Excluded(Exclusion::Zone)));
        wrong.map_or(Ok(()), |one| {
            Err(format!("{:?} of {:?}", one.fate, one.worker))
        })
    }

    /// The workers that a request may have, if the world's rules are kept.
    fn allowed(&self, request: &Request) -> impl Iterator<Item = WorkerId> {
        let ids = (0..).zip(&self.zones);
        ids.filter(|(id, zone)| {
            let only = request.only.as_ref();
            only.is_none_or(|only| only.contains(&WorkerId(*id)))
                && request.zones.is_none_or(|zones| zones.meets(**zone))
        })
        .map(|(id, _)| WorkerId(id))
    }
}

/// One of three zones, or none.
fn zone(place: usize) -> Zones {
    match place {
        3 => Zones::NONE,
        place => Zones::one(place),
    }
}

fn play(seed: u64, leaky: bool) -> Result<(), String> {
    let mut world = World::new(seed, leaky);
    (0..STEPS).try_for_each(|step| world.step().map_err(|why| format!("step {step}: {why}")))
}

#[test]
fn no_request_leaves_its_zones_over_256_seeds() {
    for seed in 0..SEEDS {
        play(seed, false).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// Negative control: a proxy that forgets the zones must be noticed.
#[test]
fn control_a_request_that_leaves_its_zones_is_noticed() {
    let noticed = (0..SEEDS).filter(|seed| play(*seed, true).is_err());
    assert!(noticed.count() > 250);
}

#[test]
fn who_waits_for_one_zone_holds_nobody_of_another_up() {
    let at = |place, name: &str| WorkerSpec {
        place: Place {
            zone: Zones::one(place),
            ..Place::default()
        },
        ..spec(name, &["m"], 1)
    };
    let mut fleet = FleetState::new(vec![at(0, "eu"), at(1, "us")], Policy::LeastTime);
    let mut rng = Rng::seeded(1);
    let to = |place| Ask {
        zones: Some(Zones::one(place)),
        ..ask("m", Work::Generate, 100.0)
    };
    let now = Seconds(1.0);
    let mut held = [0, 1].map(|place| Some(fleet.choose(&to(place), &[], now, &mut rng).unwrap()));
    let tickets = [0, 1].map(|place| {
        let refused = fleet.choose(&to(place), &[], now, &mut rng).unwrap_err();
        assert_eq!(refused, NoChoice::Busy);
        fleet.stand_in_line(to(place), &[], now).unwrap()
    });
    let us = held[1].take().unwrap();
    fleet.finish(us.booking, Outcome::Gone, now);
    let grants = fleet.grants(now, &mut rng);
    let granted: Vec<_> = grants.iter().map(|grant| grant.ticket).collect();
    assert_eq!(granted, tickets[1..]);
    fleet.check_invariants().unwrap();
}
