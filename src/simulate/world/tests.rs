//! Whole runs, with `decide`'s counters checked after every event.

use std::path::Path;

use super::super::load::{adapters, classifier, tools};
use super::super::rivals::Oracle;
use super::super::{RULES, Score, fleet_file, rule};
use super::*;
use crate::decide::Work;

const PAIR: &str = "
[[worker]]
name = \"fast\"
card = \"RTX4090\"
[[worker]]
name = \"slow\"
card = \"RTX2070S\"
";

fn fleet(text: &str) -> Fleet {
    fleet_file::parse(text, Path::new("fleet.toml")).unwrap()
}

/// A fault of a worker of the pair, as a table.
fn fault(worker: &str, kind: &str, from: u32, lasts: u32) -> String {
    format!(
        "[[fault]]\nworker = \"{worker}\"\nkind = \"{kind}\"\nfrom = \"{from}s\"\nlasts = \"{lasts}s\"\n"
    )
}

fn run(fleet: &Fleet, load: &[Request], rule: &str, seed: u64) -> Vec<End> {
    let chooser = rule::chooser(rule, fleet).unwrap();
    let ends = World::new(fleet, load, chooser, seed).run();
    let ends: Option<Vec<End>> = ends.into_iter().collect();
    ends.unwrap_or_else(|| panic!("{rule} with seed {seed}: a request never ends"))
}

fn mean(load: &[Request], ends: &[End]) -> f64 {
    Score::of("", load.iter().zip(ends)).e2e_mean_s
}

fn failed(ends: &[End]) -> usize {
    ends.iter().filter(|end| **end == End::Failed).count()
}

/// Which worker got each attempt of a client's, and when.
fn sent(fleet: &Fleet, load: &[Request], rule: &str) -> Vec<(u32, f64)> {
    let chooser = rule::chooser(rule, fleet).unwrap();
    let mut world = World::new(fleet, load, chooser, 1);
    world.play();
    let clients = world
        .attempts
        .iter()
        .filter(|attempt| attempt.request.is_some());
    clients
        .map(|attempt| (attempt.worker.0, attempt.sent.0))
        .collect()
}

#[test]
fn adapters_stay_together_while_that_is_cheaper() {
    let fleet = fleet(PAIR);
    let load = adapters(3.0, 600, 1);
    let mean = |rule| mean(&load, &run(&fleet, &load, rule, 1));
    let ours = mean("least_time");
    assert!(ours < mean("oracle") * 1.2, "{ours}");
    assert!(ours < mean("llm_d_like"), "{ours}");
    assert!(ours < mean("least_inflight") * 0.8, "{ours}");
    // Negative control: a card that holds one adapter at a time is worse off than one that holds all.
    let scarce = PAIR.replace("\nname", "\nlora_slots = 1\nname");
    let scarce = super::super::fleet_file::parse(&scarce, Path::new("fleet.toml")).unwrap();
    let ends = run(&scarce, &load, "least_time", 1);
    assert!(Score::of("", load.iter().zip(&ends)).e2e_mean_s > ours * 1.5);
}

/// When the last of forty requests at once for two models by turns has its answer, on a worker that holds one of them.
fn swapping(rule: &str) -> f64 {
    let fleet = fleet(
        "models = 2\n[[worker]]\nname = \"only\"\ncard = \"RTX4090\"\nresident = 1\nswap = \"5s\"\n",
    );
    let mut load = classifier(200.0, 40, 1);
    for request in &mut load {
        (request.at, request.prompt) = (Seconds(1.0), 90.0);
    }
    let ends = crate::simulate::simulate(&fleet, &load, rule, 1).unwrap();
    let took = |end: &End| match end {
        End::Answered { total, .. } => total.0,
        End::Failed => f64::INFINITY,
    };
    ends.iter().map(took).fold(0.0, f64::max)
}

#[test]
fn two_models_by_turns_cost_a_swap_each() {
    // Forty times 15 ms of work, and the first swap is onto an empty card.
    let ours = swapping("least_time");
    assert!((10.0..15.0).contains(&ours), "{ours}");
    // Negative control: who does not know of it swaps for each.
    let theirs = swapping("p2c");
    assert!(theirs > 150.0, "{theirs}");
}

#[test]
fn one_request_takes_the_way_its_prompt_and_its_answer() {
    let fleet = fleet("[[worker]]\nname = \"only\"\ncard = \"RTX4090\"\n");
    let mut load = tools(1.0, 1, 1);
    load[0] = Request {
        at: Seconds(3.0),
        work: Work::Generate,
        prompt: 9_000.0,
        output: 11.0,
        blocks: std::sync::Arc::default(),
        session: 0,
        adapter: None,
    };
    for rule in RULES {
        let End::Answered {
            first_token,
            total,
            cached,
        } = run(&fleet, &load, rule, 1)[0]
        else {
            panic!("{rule}");
        };
        // 2 ms there and back, 5 ms fixed, 1 s of reading in a context of 4,500; then ten tokens of 14.25 ms.
        assert!(
            (first_token.0 - (0.002 + 0.005 + 1.15)).abs() < 1e-9,
            "{rule}: {first_token:?}"
        );
        assert!(
            (total.0 - first_token.0 - 0.142_5).abs() < 1e-9,
            "{rule}: {total:?}"
        );
        assert_eq!(cached, 0.0);
    }
}

#[test]
fn a_worker_of_a_higher_tier_stands_by_and_a_dear_one_gets_less() {
    let load = tools(2.0, 200, 1);
    let share = |lines: &str| {
        let sent = sent(&fleet(&format!("{PAIR}{lines}")), &load, "least_time");
        sent.iter().filter(|(worker, _)| *worker == 1).count()
    };
    assert_eq!(share("tier = 1\n"), 0);
    let dead = fault("fast", "dead", 1, 30);
    assert!(share(&format!("tier = 1\n{dead}")) > 0, "the other is dead");
    assert!(share("price = 9.0\n") < share(""), "dear");
}

#[test]
fn a_prompt_that_was_read_before_is_not_read_again() {
    let fleet = fleet("[[worker]]\nname = \"only\"\ncard = \"T4\"\n");
    let mut load = tools(0.01, 1, 1);
    load[0].blocks = (1..=4).collect();
    load[0].prompt = 4.0 * 512.0 + 100.0;
    load.push(Request {
        at: load[0].at + Seconds(600.0),
        ..load[0].clone()
    });
    let ends = run(&fleet, &load, "least_time", 1);
    let cached = |end: &End| match end {
        End::Answered { cached, .. } => *cached,
        End::Failed => f64::NAN,
    };
    assert_eq!([cached(&ends[0]), cached(&ends[1])], [0.0, 2_048.0]);
}

/// Every rule meets every fault: their numbers have no divisor in common.
#[test]
fn every_request_ends_once_in_256_seeds_whatever_rule_and_fault() {
    let faults = [
        fault("fast", "slow", 5, 20) + "factor = 5\n",
        fault("fast", "dead", 5, 20),
        fault("slow", "hung", 5, 20),
        fault("fast", "flapping", 2, 40) + "down = \"3s\"\nevery = \"10s\"\n",
        fault("fast", "dead", 5, 10) + &fault("slow", "dead", 5, 10),
    ];
    let fleets = faults.map(|fault| fleet(&format!("first_byte = \"10s\"\n{PAIR}{fault}")));
    for seed in 0..256_u64 {
        let place = usize::try_from(seed).unwrap();
        let (fleet, rule) = (&fleets[place % fleets.len()], RULES[place % RULES.len()]);
        println!("seed {seed}: {rule}, {:?}", fleet.faults);
        let load = tools(1.0, 24, seed);
        assert_eq!(run(fleet, &load, rule, seed).len(), load.len());
    }
}

#[test]
fn the_same_seed_gives_the_same_ends() {
    let fleet = fleet(&format!("{PAIR}{}", fault("fast", "dead", 5, 5)));
    for rule in RULES {
        let load = tools(0.5, 40, 7);
        let ends = run(&fleet, &load, rule, 7);
        assert_eq!(ends, run(&fleet, &load, rule, 7), "{rule}");
    }
    let load = tools(0.5, 40, 7);
    assert_ne!(
        run(&fleet, &load, "random", 7),
        run(&fleet, &load, "random", 8)
    );
}

/// Knows everything and wants the worst.
struct Spoiled;

impl Rival for Spoiled {
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, rng: &mut Rng) -> WorkerId {
        let best = Oracle.pick(arrival, sight, rng);
        let others = arrival.candidates.iter().find(|worker| **worker != best);
        others.copied().unwrap_or(best)
    }
}

#[test]
fn the_oracle_is_never_slower_than_chance() {
    let fleet = fleet(PAIR);
    for seed in 0..32 {
        let load = tools(0.3, 60, seed);
        let ends = |chooser| {
            let ends = World::new(&fleet, &load, chooser, seed).run();
            ends.into_iter().flatten().collect::<Vec<End>>()
        };
        let random = mean(&load, &ends(Chooser::Policy(Policy::Random)));
        let oracle = mean(&load, &ends(Chooser::Rival(Box::new(Oracle))));
        assert!(oracle <= random, "seed {seed}: {oracle} {random}");
        // Negative control: who does the opposite is slower than chance.
        let spoiled = mean(&load, &ends(Chooser::Rival(Box::new(Spoiled))));
        assert!(spoiled > random, "seed {seed}: {spoiled} {random}");
    }
}

#[test]
fn what_is_learned_is_worth_more_than_taking_turns() {
    let text = PAIR.replace(
        "\"RTX4090\"",
        "\"RTX4090\"\nprefill = 400000\nfixed = \"0.5ms\"",
    );
    let text = text.replace(
        "\"RTX2070S\"",
        "\"RTX2070S\"\nprefill = 90000\nfixed = \"0.5ms\"",
    );
    let fleet = fleet(&text);
    let load = classifier(120.0, 1_500, 3);
    let of = |rule| mean(&load, &run(&fleet, &load, rule, 3));
    let (ours, turns, oracle) = (of("least_time"), of("round_robin"), of("oracle"));
    assert!(ours < turns / 4.0, "{ours} {turns}");
    assert!(ours < oracle * 1.5, "{ours} {oracle}");
}

#[test]
fn a_dead_worker_costs_only_what_had_begun() {
    let fleet = fleet(&format!("{PAIR}{}", fault("fast", "dead", 20, 30)));
    let load = tools(0.5, 60, 2);
    let chooser = rule::chooser("least_time", &fleet).unwrap();
    let mut world = World::new(&fleet, &load, chooser, 2);
    world.play();
    let failed = world
        .cases
        .iter()
        .filter(|case| case.end == Some(End::Failed));
    let (begun, others): (Vec<_>, Vec<_>) = failed.partition(|case| case.first_token.is_some());
    assert!(
        others.is_empty() && begun.len() < 5,
        "{} {}",
        begun.len(),
        others.len()
    );
    let during =
        |attempt: &&Attempt| (29.0..50.0).contains(&attempt.sent.0) && attempt.worker.0 == 0;
    assert_eq!(
        world.attempts.iter().filter(during).count(),
        0,
        "probes took it down"
    );
    let after = |attempt: &&Attempt| attempt.sent.0 > 60.0 && attempt.worker.0 == 0;
    assert!(
        world.attempts.iter().filter(after).count() > 5,
        "and brought it back"
    );
}

#[test]
fn a_hung_worker_is_given_up_at_the_deadline_and_another_answers() {
    let text = format!(
        "first_byte = \"10s\"\n{PAIR}{}",
        fault("fast", "hung", 20, 60)
    );
    let fleet = fleet(&text);
    let load = tools(0.2, 30, 4);
    let ends = run(&fleet, &load, "least_time", 4);
    assert!(
        failed(&ends) < 3,
        "only answers that had begun and were too slow to go on"
    );
    let longest = ends.iter().map(|end| match end {
        End::Answered { first_token, .. } => first_token.0,
        End::Failed => 0.0,
    });
    let longest = longest.fold(0.0, f64::max);
    assert!((10.0..30.0).contains(&longest), "{longest}");
}

#[test]
fn traffic_leaves_a_worker_that_becomes_slow() {
    let fault = fault("fast", "slow", 60, 120) + "factor = 20\n";
    let fleet = fleet(&format!("{PAIR}{fault}"));
    let load = tools(0.3, 80, 5);
    let share = |sent: &[(u32, f64)], from: f64, until: f64| {
        let within = || sent.iter().filter(|(_, at)| (from..until).contains(at));
        let fast = within().filter(|(worker, _)| *worker == 0).count();
        fast as f64 / within().count() as f64
    };
    let ours = sent(&fleet, &load, "least_time");
    assert!(share(&ours, 0.0, 60.0) > 0.6, "{ours:?}");
    assert!(share(&ours, 90.0, 180.0) < 0.4, "{ours:?}");
}

#[test]
fn who_dies_forgets_what_it_has_read() {
    let only = "[[worker]]\nname = \"only\"\ncard = \"T4\"\n";
    let dies = "[[fault]]\nworker = \"only\"\nkind = \"dead\"\nfrom = \"60s\"\nlasts = \"60s\"\n";
    let mut load = tools(1.0, 1, 1);
    (load[0].at, load[0].output, load[0].blocks) = (Seconds(1.0), 2.0, [1, 2].into());
    load[0].prompt = 1_100.0;
    load.push(Request {
        at: Seconds(300.0),
        ..load[0].clone()
    });
    let reused = |text: &str| match run(&fleet(text), &load, "least_time", 1)[1] {
        End::Answered { cached, .. } => cached,
        End::Failed => f64::NAN,
    };
    assert_eq!(
        [reused(only), reused(&format!("{only}{dies}"))],
        [1_024.0, 0.0]
    );
}
