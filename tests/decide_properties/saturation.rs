//! Workers of which nobody says how much they take, under more than that: who waits, where, and for how long.

use std::collections::{BTreeMap, VecDeque};

use forebay::decide::{
    Ask, Booking, Bound, Choice, Claim, FleetState, LineRules, Outcome, Policy, Rules, Ticket,
    Work, WorkerSpec,
};
use forebay::rng::Rng;
use forebay::units::{ModelName, Seconds, WorkerId};

use crate::ask;

const SEEDS: u64 = 256;
/// Until then workers may be learned.
const WARM: f64 = 5.0;
const END: f64 = 20.0;
/// Counters are checked at every so many-th event: with many in line that takes longer than all else.
const CHECKED: usize = 32;

/// An engine that takes whatever it is sent, and serves some of that at a time, first come, first served.
#[derive(Clone, Copy)]
struct Make {
    /// How many it serves at a time,
    slots: usize,
    /// how long each takes, whatever is beside it,
    takes: f64,
    /// and how long until the first byte of a streamed answer.
    begins: f64,
}

#[derive(Clone)]
struct Engine {
    make: Make,
    waiting: VecDeque<usize>,
    /// Who is served: when its first byte is due unless it came, and when its last.
    served: Vec<(usize, Option<f64>, f64)>,
}

impl Engine {
    fn next(&self) -> f64 {
        let due = self
            .served
            .iter()
            .map(|(_, first, last)| first.unwrap_or(*last));
        due.fold(f64::INFINITY, f64::min)
    }

    fn begin(&mut self, now: f64) {
        while self.served.len() < self.make.slots
            && let Some(next) = self.waiting.pop_front()
        {
            let (first, last) = (now + self.make.begins, now + self.make.takes);
            self.served
                .push((next, Some(first).filter(|first| *first < last), last));
        }
    }

    /// What is due: who, and whether that is the end.
    fn step(&mut self, now: f64) -> (usize, bool) {
        let is_due = |(_, first, last): &(usize, Option<f64>, f64)| first.unwrap_or(*last) <= now;
        let place = self.served.iter().position(is_due).unwrap();
        let (request, first, _) = &mut self.served[place];
        let ends = first.take().is_none();
        let request = *request;
        if ends {
            self.served.remove(place);
        }
        (request, ends)
    }
}

/// A request and what became of it.
struct Request {
    claim: Claim,
    came: f64,
    worker: Option<usize>,
    booking: Option<Booking>,
    took: Option<f64>,
}

struct World {
    fleet: FleetState,
    engines: Vec<Engine>,
    rng: Rng,
    now: f64,
    work: Work,
    requests: Vec<Request>,
    line: BTreeMap<Ticket, usize>,
    events: usize,
    /// The most that an engine kept waiting after the warm-up.
    kept: usize,
}

impl World {
    fn new(seed: u64, makes: &[Make], cap: Option<u32>, rules: Rules) -> Self {
        let spec = |id| WorkerSpec {
            cap,
            models: vec![ModelName::new("m")],
            ..WorkerSpec::new(&format!("w{id}"), 1)
        };
        let engine = |make: &Make| Engine {
            make: *make,
            waiting: VecDeque::new(),
            served: Vec::new(),
        };
        World {
            fleet: FleetState::new((0..makes.len()).map(spec).collect(), rules),
            engines: makes.iter().map(engine).collect(),
            rng: Rng::seeded(seed),
            now: 0.0,
            work: Work::Generate,
            requests: Vec::new(),
            line: BTreeMap::new(),
            events: 0,
            kept: 0,
        }
    }

    fn arrive(&mut self, class: u8, tenant: u32) {
        let claim = Claim {
            class,
            tenant,
            bytes: 100,
        };
        let ask = Ask {
            claim,
            ..ask("m", self.work, 500.0)
        };
        let request = self.requests.len();
        self.requests.push(Request {
            claim,
            came: self.now,
            worker: None,
            booking: None,
            took: None,
        });
        let now = Seconds(self.now);
        match self.fleet.choose(&ask, &[], now, &mut self.rng) {
            Ok(choice) => self.send(request, choice),
            Err(_) => {
                let ticket = self.fleet.stand_in_line(ask, &[], now).unwrap();
                self.line.insert(ticket, request);
            }
        }
        self.check();
    }

    fn check(&mut self) {
        self.events += 1;
        if self.events.is_multiple_of(CHECKED) {
            self.fleet.check_invariants().unwrap();
        }
    }

    fn send(&mut self, request: usize, choice: Choice) {
        let worker = choice.worker.index();
        self.requests[request].worker = Some(worker);
        self.requests[request].booking = Some(choice.booking);
        let engine = &mut self.engines[worker];
        engine.waiting.push_back(request);
        engine.begin(self.now);
        if self.now > WARM {
            self.kept = self.kept.max(engine.waiting.len());
        }
    }

    /// When something happens next.
    fn next(&self) -> f64 {
        let next = self.engines.iter().map(Engine::next);
        next.fold(f64::INFINITY, f64::min)
    }

    /// Lets everything happen until then.
    fn run(&mut self, until: f64) {
        while self.next() <= until {
            self.now = self.next();
            self.step();
            self.check();
        }
        self.now = until;
    }

    fn step(&mut self) {
        let now = Seconds(self.now);
        let engines = self.engines.iter_mut();
        let due = engines.min_by(|one, other| one.next().total_cmp(&other.next()));
        let engine = due.unwrap();
        let (request, ends) = engine.step(self.now);
        engine.begin(self.now);
        let request = &mut self.requests[request];
        if ends {
            request.took = Some(self.now - request.came);
            let answered = Outcome::Answered {
                prompt_tokens: None,
                cached_tokens: None,
                output_tokens: None,
            };
            self.fleet
                .finish(request.booking.take().unwrap(), answered, now);
        } else {
            self.fleet
                .first_byte(request.booking.as_mut().unwrap(), now);
        }
        for grant in self.fleet.grants(now, &mut self.rng) {
            let request = self.line.remove(&grant.ticket).unwrap();
            self.send(request, grant.result.unwrap());
        }
    }

    /// Lets requests of these classes come at these rates, at random, until the end.
    fn flood(&mut self, rates: &[(u8, f64)]) {
        let mut next: Vec<f64> = rates.iter().map(|(_, rate)| self.gap(*rate)).collect();
        loop {
            let soonest = (0..next.len()).min_by(|one, other| next[*one].total_cmp(&next[*other]));
            let soonest = soonest.unwrap();
            if next[soonest] > END {
                return self.run(END);
            }
            self.run(next[soonest]);
            let (class, rate) = rates[soonest];
            self.arrive(class, u32::from(class));
            next[soonest] = self.now + self.gap(rate);
        }
    }

    fn gap(&mut self, rate: f64) -> f64 {
        -(1.0 - self.rng.unit()).ln() / rate
    }

    /// How long those of a class took who came after the warm-up; who is not done has taken until now.
    fn took(&self, class: u8) -> Vec<f64> {
        let counted = self.requests.iter();
        let counted = counted.filter(|one| one.claim.class == class && one.came > WARM);
        let took = counted.map(|one| one.took.unwrap_or(self.now - one.came));
        took.collect()
    }

    /// How many each worker got.
    fn shares(&self) -> Vec<usize> {
        let got = |worker| {
            let requests = self.requests.iter();
            requests.filter(|one| one.worker == Some(worker)).count()
        };
        (0..self.engines.len()).map(got).collect()
    }
}

/// Sixteen at a time, half a second each: 32 a second.
const CHAT: Make = Make {
    slots: 16,
    takes: 0.5,
    begins: 0.01,
};

/// A quarter of all places is kept for the first class.
fn reserving() -> Rules {
    let mut rules: Rules = Policy::LeastTime.into();
    rules.reserved[1] = 0.25;
    rules
}

/// A tenth of what each worker can of the first class, ten times as many of the second or none: the 99th percentile of
/// what the first takes, over all seeds and in service times, and the most that an engine kept waiting.
fn paid(workers: usize, work: Work, cap: Option<u32>, flooded: bool) -> (f64, usize) {
    let rate = 3.2 * workers as f64;
    let both = [(0, rate), (1, 10.0 * rate)];
    let (mut took, mut kept) = (Vec::new(), 0);
    for seed in 0..SEEDS / 8 {
        let mut world = World::new(seed, &vec![CHAT; workers], cap, reserving());
        world.work = work;
        world.flood(if flooded { &both } else { &both[..1] });
        took.extend(world.took(0));
        kept = kept.max(world.kept);
    }
    took.sort_by(f64::total_cmp);
    (took[took.len() * 99 / 100] / CHAT.takes, kept)
}

/// Promise P16, where somebody says how much an engine takes.
#[test]
fn p16_a_flood_of_a_low_class_leaves_the_high_one_s_time_as_it_was() {
    for (workers, work) in [(1, Work::Generate), (1, Work::Embed), (3, Work::Generate)] {
        let (alone, _) = paid(workers, work, Some(16), false);
        let (beside, kept) = paid(workers, work, Some(16), true);
        let told = format!("{workers} x {work:?}: {beside} {alone}, {kept}");
        assert!(beside <= 1.2 * alone && kept == 0, "{told}");
    }
}

/// Where nobody does, most of it is learned: see the header of `decide/saturation.rs` for what is not.
#[test]
fn what_an_engine_takes_is_learned_well_enough_for_classes_to_matter() {
    for (workers, work) in [(1, Work::Generate), (1, Work::Embed), (2, Work::Generate)] {
        let (alone, _) = paid(workers, work, None, false);
        let (beside, kept) = paid(workers, work, None, true);
        let told = format!("{workers} x {work:?}: {beside} {alone}, {kept}");
        assert!(beside <= 3.5 * alone, "{told}");
        assert!(kept < 3 * CHAT.slots, "{told}");
    }
}

/// Negative control: an engine that is given all there is keeps the high class waiting, reserve or not.
#[test]
fn where_all_waits_in_the_engine_a_class_means_nothing() {
    for work in [Work::Generate, Work::Embed] {
        let (beside, kept) = paid(1, work, Some(1_000), true);
        assert!(beside > 5.0 && kept > 100, "{work:?}: {beside}, {kept}");
    }
}

/// How much of what the engines could do they did, with more to do than that.
fn use_of(seed: u64, makes: &[Make], work: Work) -> f64 {
    let mut world = World::new(seed, makes, None, Policy::LeastTime.into());
    world.work = work;
    let able: f64 = makes
        .iter()
        .map(|make| make.slots as f64 / make.takes)
        .sum();
    world.flood(&[(0, 1.5 * able)]);
    let done = world.requests.iter().filter(|one| one.took.is_some());
    let done = done.filter(|one| one.came + one.took.unwrap() > WARM);
    done.count() as f64 / (able * (END - WARM))
}

#[test]
fn engines_are_kept_busy_however_many_they_serve_at_a_time() {
    let make = |slots, takes| Make {
        slots,
        takes,
        begins: 0.01,
    };
    let fleets: [&[Make]; 4] = [
        &[make(1, 0.05)],
        &[make(4, 0.5)],
        &[make(64, 0.5)],
        &[make(16, 0.2), make(2, 0.4), make(1, 0.1)],
    ];
    for seed in 0..SEEDS / 64 {
        for (number, makes) in fleets.iter().enumerate() {
            for work in [Work::Generate, Work::Embed] {
                let used = use_of(seed, makes, work);
                assert!(used > 0.98, "seed {seed}, fleet {number}, {work:?}: {used}");
            }
        }
    }
}

/// Sixty-four at once to four idle equal workers, of which nothing is known or which had more to do than they can; who
/// gets how many in the end.
fn burst(seed: u64, make: Make, policy: Policy, is_known: bool) -> Vec<usize> {
    let mut world = World::new(seed, &[make; 4], None, policy.into());
    if is_known {
        world.flood(&[(0, 5.0 * make.slots as f64 / make.takes)]);
        world.run(1e9);
        world.requests.clear();
    }
    (0..64).for_each(|_| world.arrive(0, 0));
    world.run(2e9);
    world.shares()
}

fn is_even(shares: &[usize]) -> bool {
    shares.iter().all(|share| (15..=17).contains(share))
}

#[test]
fn a_burst_is_shared_evenly_by_equal_workers() {
    // One after the other.
    let single = Make {
        slots: 1,
        takes: 0.05,
        begins: 0.01,
    };
    let fresh = (0..SEEDS).map(|seed| (seed, CHAT, false));
    let known = (0..SEEDS / 8).map(|seed| (seed, single, true));
    for (seed, make, is_known) in fresh.chain(known) {
        let shares = burst(seed, make, Policy::LeastTime, is_known);
        assert!(is_even(&shares), "seed {seed}, {is_known}: {shares:?}");
    }
}

/// Negative control: drawn by lot, shares are uneven.
#[test]
fn uneven_shares_are_noticed() {
    let even = (0..SEEDS).filter(|seed| is_even(&burst(*seed, CHAT, Policy::Random, false)));
    assert!(even.count() < 26);
}

/// The high class alone asks for more than there is, one of a low class comes now and then, and two tenants of it want
/// unequal amounts: the longest that one of the low class took, and what the two tenants got of what they asked for.
fn crowded(seed: u64, age_up: f64) -> (f64, [f64; 2]) {
    let line = LineRules {
        age_up: Seconds(age_up),
        ..LineRules::default()
    };
    let rules = Rules {
        line,
        ..reserving()
    };
    let mut world = World::new(seed, &[CHAT], None, rules);
    for tick in 0..800_u32 {
        world.run(f64::from(tick) * 0.025);
        let tenant = u32::from(world.rng.below(10) == 0);
        world.arrive(0, tenant);
        if tick % 40 == 0 {
            world.arrive(2, 2);
        }
    }
    let now = world.now;
    let low = world.requests.iter().filter(|one| one.claim.class == 2);
    let longest = low
        .map(|one| one.took.unwrap_or(now - one.came))
        .fold(0.0, f64::max);
    let served = |tenant| {
        let own = world.requests.iter();
        let own = own.filter(|one| one.claim.class == 0 && one.claim.tenant == tenant);
        let took: Vec<_> = own.map(|one| one.took).collect();
        took.iter().flatten().count() as f64 / took.len() as f64
    };
    (longest, [served(0), served(1)])
}

#[test]
fn nobody_starves_before_a_saturated_worker() {
    for seed in 0..SEEDS / 4 {
        let (longest, [many, few]) = crowded(seed, 6.0);
        assert!(longest < 8.0, "seed {seed}: {longest}");
        assert!(few > many - 0.1, "seed {seed}: {many} {few}");
    }
}

/// Negative control: without age the low class waits to the end.
#[test]
fn without_age_the_low_class_starves_before_a_saturated_worker() {
    let (longest, _) = crowded(1, 1e9);
    assert!(longest > 15.0, "{longest}");
}

#[test]
fn what_is_learned_is_shown_and_what_is_stated_is_not_learned() {
    let mut world = World::new(1, &[CHAT], None, Policy::LeastTime.into());
    let bound = |world: &World| world.fleet.snapshot(Seconds(world.now))[0].cap;
    assert_eq!(bound(&world), Bound::Unknown);
    world.flood(&[(0, 50.0)]);
    let learned = bound(&world);
    assert!(matches!(learned, Bound::Learned(16..=20)), "{learned:?}");
    world
        .fleet
        .probe(WorkerId(0), Err("gone".into()), Seconds(END));
    assert_eq!(bound(&world), Bound::Unknown, "a new life");
    let mut stated = World::new(1, &[CHAT], Some(24), Policy::LeastTime.into());
    stated.flood(&[(0, 50.0)]);
    assert_eq!(bound(&stated), Bound::Configuration(24));
    assert_eq!(stated.kept, 8, "as many as the operator says");
}
