//! Classes and tenants in a line that never empties: who is served, and how long the others wait.

use std::collections::BTreeMap;

use forebay::decide::{
    Ask, Booking, Claim, FleetState, LineRules, Outcome, Policy, Rules, Ticket, Work, WorkerSpec,
};
use forebay::rng::Rng;
use forebay::units::{ModelName, Seconds, WorkerId};

use crate::ask;

const SEEDS: u64 = 256;
/// Places in the fleet, each of which is free again after a second.
const PLACES: u32 = 2;
const TENANTS: u32 = 3;

/// A line in front of one worker, seen second by second.
pub struct Line {
    pub fleet: FleetState,
    pub rng: Rng,
    pub now: Seconds,
    pub waiting: BTreeMap<Ticket, (Claim, Seconds)>,
    held: Vec<Booking>,
    /// Who got a place, and how long it had waited.
    pub served: Vec<(Claim, Seconds)>,
}

impl Line {
    fn new(seed: u64, age_up: Seconds) -> Self {
        let line = LineRules {
            age_up,
            ..LineRules::default()
        };
        let rules = Rules {
            line,
            ..Policy::LeastTime.into()
        };
        Self::with(seed, rules, PLACES)
    }

    pub fn with(seed: u64, rules: Rules, places: u32) -> Self {
        let mut fleet = FleetState::new(vec![WorkerSpec::new("w", places)], rules);
        fleet.serves(WorkerId(0), &[ModelName::new("m")]);
        fleet.probe(WorkerId(0), Ok(()), Seconds::ZERO);
        Line {
            fleet,
            rng: Rng::seeded(seed),
            now: Seconds(1.0),
            waiting: BTreeMap::new(),
            held: Vec::new(),
            served: Vec::new(),
        }
    }

    pub fn arrive(&mut self, class: u8, tenant: u32) {
        let claim = Claim {
            class,
            tenant,
            bytes: 100,
        };
        let ask = Ask {
            claim,
            ..ask("m", Work::Embed, 500.0)
        };
        match self.fleet.choose(&ask, &[], self.now, &mut self.rng) {
            Ok(choice) => {
                self.held.push(choice.booking);
                self.served.push((claim, Seconds::ZERO));
            }
            Err(_) => {
                let ticket = self.fleet.stand_in_line(ask, &[], self.now).unwrap();
                self.waiting.insert(ticket, (claim, self.now));
            }
        }
    }

    /// All places are free again, a second later.
    pub fn second(&mut self) {
        self.now += Seconds(1.0);
        for booking in std::mem::take(&mut self.held) {
            self.fleet.finish(booking, Outcome::Gone, self.now);
        }
        for grant in self.fleet.grants(self.now, &mut self.rng) {
            self.held.push(grant.result.unwrap().booking);
            let (claim, since) = self.waiting.remove(&grant.ticket).unwrap();
            self.served.push((claim, self.now - since));
        }
    }

    /// The longest that anybody of a class waited, or waits.
    fn longest(&self, class: u8) -> f64 {
        let waits = self.waiting.values();
        let waits = waits.map(|(claim, since)| (*claim, self.now - *since));
        let waits = waits.chain(self.served.iter().copied());
        let of_class = waits.filter(|(claim, _)| claim.class == class);
        of_class.map(|(_, wait)| wait.0).fold(0.0, f64::max)
    }

    /// How many of a tenant were served.
    pub fn turns(&self, tenant: u32) -> usize {
        let own = self
            .served
            .iter()
            .filter(|(claim, _)| claim.tenant == tenant);
        own.count()
    }
}

/// The higher class alone asks for more than there is; one of the lower comes every four seconds.
fn crowded(seed: u64, age_up: Seconds) -> f64 {
    let mut line = Line::new(seed, age_up);
    for second in 0..200 {
        for _ in 0..=PLACES {
            let tenant = u32::try_from(line.rng.below(3)).unwrap();
            line.arrive(0, tenant);
        }
        if second % 4 == 0 {
            line.arrive(2, 0);
        }
        line.second();
    }
    line.fleet.check_invariants().unwrap();
    line.longest(2)
}

#[test]
fn a_lower_class_is_served_once_it_has_waited_long() {
    // One place in four is theirs then, and the elders of the higher class, ever more of them, have their share of those.
    for seed in 0..SEEDS {
        let longest = crowded(seed, Seconds(20.0));
        assert!(longest <= 110.0, "seed {seed}: {longest}");
    }
}

/// Negative control: without ageing the lower class waits from the beginning to the end.
#[test]
fn without_age_a_lower_class_starves() {
    for seed in 0..SEEDS {
        let longest = crowded(seed, Seconds(1e9));
        assert!(longest > 190.0, "seed {seed}: {longest}");
    }
}

/// One tenant sends ten times as much as the others; all that is asked for is more than there is.
fn flooded(seed: u64, told_apart: bool) -> [usize; TENANTS as usize] {
    let mut line = Line::new(seed, Seconds(1e9));
    for _ in 0..40 {
        for tenant in [0; 10].into_iter().chain([1, 2]) {
            line.arrive(0, if told_apart { tenant } else { 0 });
        }
        line.second();
    }
    line.fleet.check_invariants().unwrap();
    [0, 1, 2].map(|tenant| line.turns(tenant))
}

#[test]
fn a_tenant_that_sends_more_gets_no_more_than_others_want() {
    for seed in 0..SEEDS {
        let turns = flooded(seed, true);
        let [most, least] = [turns.iter().max(), turns.iter().min()].map(Option::unwrap);
        assert!(most - least <= 4, "seed {seed}: {turns:?}");
    }
}

/// Negative control: of one tenant all, first come is first served.
#[test]
fn without_tenants_who_sends_more_gets_more() {
    for seed in 0..SEEDS {
        let turns = flooded(seed, false);
        assert_eq!(turns[1..], [0, 0], "seed {seed}");
    }
}

/// Requests of the lower class come at random, and more than there are places; one of the higher each second. The most
/// places that the lower class held, and how many of the higher had to wait.
fn reserved(seed: u64, share: f64) -> (usize, usize) {
    let mut rules: Rules = Policy::LeastTime.into();
    rules.reserved[1] = share;
    let mut line = Line::with(seed, rules, 10);
    let (mut most, mut waited) = (0, 0);
    for _ in 0..40 {
        for _ in 0..=line.rng.below(20) {
            line.arrive(1, 0);
        }
        most = most.max(line.held.len());
        let before = line.served.len();
        line.arrive(0, 0);
        waited += usize::from(line.served.len() == before);
        line.fleet.check_invariants().unwrap();
        line.second();
    }
    (most, waited)
}

#[test]
fn what_is_reserved_stays_free_for_the_higher_class() {
    for seed in 0..SEEDS {
        assert_eq!(reserved(seed, 0.15), (8, 0), "seed {seed}");
    }
}

/// Negative control: without a reserve the higher class finds no place.
#[test]
fn without_a_reserve_nothing_stays_free() {
    for seed in 0..SEEDS {
        let (most, waited) = reserved(seed, 0.0);
        assert!(most == 10 && waited > 0, "seed {seed}: {most}, {waited}");
    }
}
