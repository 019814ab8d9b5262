//! Looking ahead in the line: a place goes to the request that it suits best, and nobody is passed for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay::decide::{
    Ask, Choice, FleetState, LineRules, NoChoice, Outcome, Policy, Rules, Ticket, Told, Work,
};
use forebay::facts::Prefix;
use forebay::rng::Rng;
use forebay::units::{Length, Seconds, WorkerId};

use crate::{ask, spec};

const SESSIONS: usize = 12;
/// Blocks of a prompt, and their tokens.
const BLOCKS: u64 = 8;
const EACH: f64 = 256.0;

/// A line in front of one worker with two places, whose cache holds the prompts of three sessions.
struct Line {
    state: FleetState,
    rng: Rng,
    now: Seconds,
    held: Vec<(Seconds, Choice)>,
    /// Who waits, since when, and how many who came later were served first.
    waiting: BTreeMap<Ticket, (Seconds, u32)>,
    /// Tokens found in the cache.
    found: f64,
    times: Vec<f64>,
    most_passed: u32,
}

impl Line {
    fn new(seed: u64, rules: LineRules) -> Self {
        let rules = Rules {
            line: rules,
            ..Policy::LeastTime.into()
        };
        let mut state = FleetState::new(vec![spec("w", &["m", "n"], 2)], rules);
        let told = Told {
            kept_tokens: Some(3.0 * 8.0 * EACH),
            ..Told::default()
        };
        state.told(WorkerId(0), told);
        Line {
            state,
            rng: Rng::seeded(seed),
            now: Seconds(1.0),
            held: Vec::new(),
            waiting: BTreeMap::new(),
            found: 0.0,
            times: Vec::new(),
            most_passed: 0,
        }
    }

    fn ask(session: usize) -> Ask {
        let blocks: Arc<[u64]> = (0..BLOCKS).map(|at| session as u64 * 100 + at).collect();
        Ask {
            max_tokens: Some(10),
            prefix: Prefix {
                blocks,
                each: Length::Tokens(EACH),
            },
            ..ask("m", Work::Generate, 8.0 * EACH + 100.0)
        }
    }

    fn send(&mut self, ask: Ask) -> Option<Ticket> {
        match self.state.choose(&ask, &[], self.now, &mut self.rng) {
            Ok(choice) => {
                let found = f64::from(self.state.shortlist().matched());
                self.hold(choice, found, self.now);
                None
            }
            Err(NoChoice::Busy) => {
                let ticket = self.state.stand_in_line(ask, &[], self.now).unwrap();
                self.waiting.insert(ticket, (self.now, 0));
                Some(ticket)
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    /// It takes what is left of its prompt, and a tenth of a second.
    fn hold(&mut self, choice: Choice, found: f64, since: Seconds) {
        self.found += found;
        let takes = Seconds(0.1 + (9.0 * EACH - found) / 2_000.0);
        let end = self.now + takes;
        self.times.push((end - since).0);
        self.held.push((end, choice));
    }

    /// The next answer is complete. Who got the place.
    fn step(&mut self) -> Vec<Ticket> {
        self.held
            .sort_by(|(one, _), (other, _)| one.0.total_cmp(&other.0));
        let (end, done) = self.held.remove(0);
        self.now = self.now.max(end);
        let answered = Outcome::Answered {
            prompt_tokens: None,
            cached_tokens: None,
            output_tokens: Some(10.0),
        };
        self.state.finish(done.booking, answered, self.now);
        let mut served = Vec::new();
        for grant in self.state.grants(self.now, &mut self.rng) {
            let (since, passed) = self.waiting.remove(&grant.ticket).unwrap();
            self.most_passed = self.most_passed.max(passed);
            for (_, (_, passed)) in self.waiting.range_mut(..grant.ticket) {
                *passed += 1;
            }
            let found = f64::from(grant.considered.matched());
            self.hold(grant.result.unwrap(), found, since);
            served.push(grant.ticket);
        }
        self.state.check_invariants().unwrap();
        served
    }

    fn mean(&self) -> f64 {
        self.times.iter().sum::<f64>() / self.times.len() as f64
    }
}

fn rules(ahead: usize, passes: u32) -> LineRules {
    LineRules {
        ahead,
        passes,
        age_up: Seconds(1e6),
        ..LineRules::default()
    }
}

/// Two hundred requests of a dozen sessions at once.
fn crowd(seed: u64, rules: LineRules) -> Line {
    let mut line = Line::new(seed, rules);
    for _ in 0..200 {
        let session = line.rng.below(SESSIONS);
        line.send(Line::ask(session));
    }
    while !line.held.is_empty() {
        line.step();
    }
    assert!(line.waiting.is_empty());
    line
}

#[test]
fn it_finds_more_in_the_cache_answers_sooner_and_passes_nobody_too_often() {
    for seed in 0..16 {
        let (with, without) = (crowd(seed, rules(16, 8)), crowd(seed, rules(0, 8)));
        assert!(with.found > 1.5 * without.found, "seed {seed}");
        assert!(with.mean() < 0.9 * without.mean(), "seed {seed}");
        assert!(with.most_passed > 0 && with.most_passed <= 8, "seed {seed}");
        assert_eq!(without.most_passed, 0, "seed {seed}");
    }
}

/// How many are served before one whose prompt nobody knows, while the same other session keeps coming.
fn served_before(passes: u32) -> usize {
    let mut line = Line::new(1, rules(16, passes));
    line.send(Line::ask(1));
    line.send(Line::ask(1));
    let cold = line.send(Line::ask(2)).unwrap();
    for before in 0..100 {
        line.send(Line::ask(1));
        line.send(Line::ask(1));
        if line.step().contains(&cold) {
            return before;
        }
    }
    100
}

#[test]
fn a_stream_that_suits_better_starves_nobody() {
    assert_eq!(served_before(8), 8);
    assert_eq!(served_before(0), 0);
    // Negative control: without a bound it is never served.
    assert_eq!(served_before(u32::MAX), 100);
}

#[test]
fn who_says_when_it_leaves_or_has_waited_long_is_not_passed() {
    let before = |change: fn(&mut Ask), age_up: f64| {
        let rules = LineRules {
            age_up: Seconds(age_up),
            ..LineRules::default()
        };
        let mut line = Line::new(1, rules);
        line.send(Line::ask(1));
        line.send(Line::ask(1));
        let mut cold = Line::ask(2);
        change(&mut cold);
        let cold = line.send(cold).unwrap();
        let hot = line.send(Line::ask(1)).unwrap();
        let served = line.step();
        assert!(served == [cold] || served == [hot]);
        served == [hot]
    };
    assert!(before(|_| {}, 60.0));
    assert!(!before(|ask| ask.deadline = Some(Seconds(500.0)), 60.0));
    assert!(!before(|_| {}, 0.1));
}

#[test]
fn classes_and_tenants_keep_their_turns() {
    let first = |change: fn(&mut Ask)| {
        let mut line = Line::new(1, LineRules::default());
        for _ in 0..2 {
            let mut hot = Line::ask(1);
            hot.claim.tenant = 7;
            line.send(hot);
        }
        let cold = line.send(Line::ask(2)).unwrap();
        let mut hot = Line::ask(1);
        change(&mut hot);
        line.send(hot).unwrap();
        line.step() == [cold]
    };
    assert!(!first(|_| {}));
    assert!(first(|hot| hot.claim.class = 1), "a lower class");
    assert!(
        first(|hot| hot.claim.tenant = 7),
        "a tenant that has had more"
    );
}
