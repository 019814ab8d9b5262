//! LoRA adapters in prices: requests of one adapter stay where it is loaded while that is cheaper, and no longer.

use forebay::decide::{
    AdapterName, Ask, Choice, Fate, FleetState, Heard, Load, LoraNews, NoChoice,
};
use forebay::decide::{Outcome, Policy, State, Work, WorkerSpec};
use forebay::rng::Rng;
use forebay::units::{ModelName, Seconds, WorkerId};

use crate::{ask, spec};

const ADAPTERS: [&str; 2] = ["sql", "legal"];
const SIDES: [WorkerId; 2] = [WorkerId(0), WorkerId(1)];
const ANSWERED: Outcome = Outcome::Answered {
    prompt_tokens: None,
    cached_tokens: None,
    output_tokens: Some(20.0),
};

/// Equal workers in virtual time, whose cards hold one adapter each.
struct Fleet {
    state: FleetState,
    rng: Rng,
    now: Seconds,
}

impl Fleet {
    fn new(seed: u64, workers: usize) -> Self {
        Fleet::of(seed, vec![worker(); workers])
    }

    fn of(seed: u64, workers: Vec<WorkerSpec>) -> Self {
        let adapter = |name: &str| AdapterName {
            client: ModelName::new(name),
            engine: ModelName::new(name),
        };
        let ids = (0..).map(WorkerId).take(workers.len());
        let mut fleet = Fleet::blind(seed, workers);
        for id in ids {
            fleet.state.adapts(id, &ADAPTERS.map(adapter));
        }
        fleet
    }

    /// To which adapters are models like any other.
    fn blind(seed: u64, workers: Vec<WorkerSpec>) -> Self {
        Fleet {
            state: FleetState::new(workers, Policy::LeastTime),
            rng: Rng::seeded(seed),
            now: Seconds(1.0),
        }
    }

    fn ask(model: &str) -> Ask {
        Ask {
            max_tokens: Some(20),
            ..ask(model, Work::Generate, 300.0)
        }
    }

    fn send(&mut self, model: &str) -> Choice {
        let ask = Fleet::ask(model);
        let choice = self.state.choose(&ask, &[], self.now, &mut self.rng);
        self.state.check_invariants().unwrap();
        choice.unwrap()
    }

    /// This adapter could not be loaded there.
    fn refuse(&mut self, id: WorkerId, adapter: &str) {
        let adapter = ModelName::new(adapter);
        self.state
            .lora_heard(id, &adapter, LoraNews::Refused, self.now);
    }

    /// Why nobody gets a request for this model.
    fn lack(&mut self, model: &str) -> NoChoice {
        let ask = Fleet::ask(model);
        let choice = self.state.choose(&ask, &[], self.now, &mut self.rng);
        choice.unwrap_err()
    }

    /// It is answered, after a load of so many seconds if it has to wait for one.
    fn end(&mut self, mut choice: Choice, load: f64) {
        let waits = choice.terms.lora > Seconds::ZERO;
        self.now += choice.terms.wait + choice.terms.own;
        self.now += Seconds(if waits { load } else { 0.0 });
        self.state.first_byte(&mut choice.booking, self.now);
        self.now += choice.terms.decode;
        self.state.finish(choice.booking, ANSWERED, self.now);
        self.state.check_invariants().unwrap();
    }

    /// Where requests go that are sent by turns, each when the one before it has ended.
    fn by_turns(&mut self, requests: usize) -> [Vec<WorkerId>; 2] {
        let mut went = [Vec::new(), Vec::new()];
        for turn in 0..requests {
            let choice = self.send(ADAPTERS[turn % 2]);
            went[turn % 2].push(choice.worker);
            self.end(choice, 0.5);
        }
        went
    }

    /// The lora term of each worker for a model.
    fn tolls(&mut self, model: &str) -> Vec<f64> {
        let refused = self
            .state
            .choose(&Fleet::ask(model), &SIDES, self.now, &mut self.rng);
        assert!(refused.is_err(), "both were tried");
        let considered = self.state.considered().iter();
        considered.map(|one| one.terms.lora.0).collect()
    }
}

/// One whose card holds one adapter.
fn worker() -> WorkerSpec {
    WorkerSpec {
        lora_slots: Some(1),
        ..spec("w", &["base", "sql", "legal"], 64)
    }
}

fn moves(went: &[WorkerId]) -> usize {
    went.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[test]
fn adapters_stay_where_they_are_while_nobody_waits() {
    for seed in 0..256 {
        let [sql, legal] = Fleet::new(seed, 2).by_turns(40);
        assert_eq!((moves(&sql), moves(&legal)), (0, 0), "seed {seed}");
        assert_ne!(sql[0], legal[0], "seed {seed}: a card each");
        // Negative control: without the term they go to and fro.
        let went = Fleet::blind(seed, vec![worker(); 2]).by_turns(40);
        assert!(
            went.iter().map(|went| moves(went)).sum::<usize>() > 5,
            "seed {seed}"
        );
    }
}

#[test]
fn under_a_long_queue_they_spread() {
    for seed in 0..64 {
        let mut fleet = Fleet::new(seed, 2);
        fleet.by_turns(8);
        let choices: Vec<_> = (0..40).map(|_| fleet.send("sql")).collect();
        let at = |id| choices.iter().filter(|choice| choice.worker == id).count();
        let (most, least) = (
            at(SIDES[0]).max(at(SIDES[1])),
            at(SIDES[0]).min(at(SIDES[1])),
        );
        assert!(least >= 8, "seed {seed}: {most} and {least}");
        let first = choices[0].worker;
        let together = choices.iter().take_while(|choice| choice.worker == first);
        assert!(
            together.count() >= 3,
            "seed {seed}: a load is worth a short wait"
        );
        for choice in choices {
            fleet.state.finish(choice.booking, Outcome::Gone, fleet.now);
        }
        fleet.state.check_invariants().unwrap();
    }
}

#[test]
fn a_request_waits_until_one_of_the_running_adapters_is_done() {
    let mut fleet = Fleet::new(1, 1);
    let mut first = fleet.send("sql");
    fleet
        .state
        .first_byte(&mut first.booking, fleet.now + Seconds(0.5));
    fleet.now += Seconds(0.6);
    let second = fleet.send("legal");
    let Choice { terms, .. } = &second;
    let expected = terms.decode * 0.5 + terms.own;
    assert!((terms.wait - expected).0.abs() < 1e-9, "{terms:?}");
    assert!(terms.lora > Seconds::ZERO);
    let base = fleet.send("base");
    assert_eq!(base.terms.lora, Seconds::ZERO);
    for choice in [first, second, base] {
        fleet.state.finish(choice.booking, Outcome::Gone, fleet.now);
    }
    fleet.state.check_invariants().unwrap();
}

#[test]
fn what_a_load_takes_is_learned_from_first_bytes_and_teaches_no_line() {
    for load in [0.1, 3.0] {
        let mut fleet = Fleet::new(1, 1);
        let plain = Fleet::new(1, 1);
        let before = plain.state.snapshot(fleet.now)[0].prefill[forebay::decide::Work::Generate];
        for turn in 0..60 {
            let choice = fleet.send(ADAPTERS[turn % 2]);
            fleet.end(choice, load);
        }
        let view = &fleet.state.snapshot(fleet.now)[0];
        assert_eq!(
            view.prefill[forebay::decide::Work::Generate],
            before,
            "the load is not the card's speed"
        );
        let lora = view.lora.as_ref().unwrap();
        assert!((lora.load.0 / load - 1.0).abs() < 0.1, "{load}: {lora:?}");
        assert_eq!(lora.loads, 60);
    }
}

#[test]
fn silence_while_an_adapter_is_loaded_makes_nobody_slow() {
    let mut fleet = Fleet::new(1, 1);
    let loading = fleet.send("sql");
    fleet.now += Seconds(0.4);
    let other = fleet.send("base");
    let alone = Fleet::new(1, 1).send("base");
    assert_eq!(other.terms.own, alone.terms.own);
    let left = loading.terms.lora + loading.terms.own - Seconds(0.4);
    assert!(
        (other.terms.wait - left).0.abs() < 1e-9,
        "{:?}",
        other.terms
    );
    for choice in [loading, other] {
        fleet.state.finish(choice.booking, Outcome::Gone, fleet.now);
    }
}

#[test]
fn one_that_can_t_be_loaded_goes_elsewhere_and_takes_nobody_along() {
    let mut fleet = Fleet::new(1, 2);
    fleet.refuse(SIDES[0], "sql");
    for _ in 0..8 {
        let choice = fleet.send("sql");
        assert_eq!(choice.worker, SIDES[1]);
        fleet.end(choice, 0.5);
    }
    let fates: Vec<_> = fleet
        .state
        .considered()
        .iter()
        .map(|one| one.fate.label())
        .collect();
    assert_eq!(fates, ["unloadable", Fate::Picked.label()]);
    assert_eq!(fleet.tolls("legal")[0], 0.5);
    let legal = fleet.send("legal");
    assert_eq!(legal.worker, SIDES[0], "another adapter is no worse for it");
    fleet.end(legal, 0.5);
    fleet.refuse(SIDES[1], "sql");
    assert_eq!(fleet.lack("sql"), NoChoice::Unloadable);
    fleet.now += Seconds(11.0);
    fleet.state.tick(fleet.now);
    fleet.send("sql");
}

#[test]
fn who_can_t_load_it_keeps_no_other_tier_from_being_asked() {
    let second = WorkerSpec {
        tier: 1,
        ..worker()
    };
    let mut fleet = Fleet::of(1, vec![worker(), second]);
    fleet.refuse(SIDES[0], "sql");
    assert_eq!(fleet.send("sql").worker, SIDES[1]);
    assert_eq!(fleet.send("legal").worker, SIDES[0]);
}

#[test]
fn nobody_waits_for_a_worker_that_is_out_and_can_t_load_it() {
    let mut fleet = Fleet::new(1, 2);
    let choices: Vec<_> = (0..12).map(|_| fleet.send("base")).collect();
    for choice in choices {
        let outcome = match choice.worker {
            WorkerId(0) => Outcome::Failed,
            _ => Outcome::Gone,
        };
        fleet.state.finish(choice.booking, outcome, fleet.now);
    }
    assert_eq!(fleet.state.state(SIDES[0]), Some(State::Ejected));
    fleet.refuse(SIDES[1], "sql");
    assert_eq!(fleet.lack("sql"), NoChoice::Away);
    fleet.refuse(SIDES[0], "sql");
    assert_eq!(fleet.lack("sql"), NoChoice::Unloadable);
}

#[test]
fn who_waits_for_a_place_is_told_when_the_adapter_can_t_be_loaded() {
    let narrow = WorkerSpec {
        cap: Some(1),
        ..worker()
    };
    let mut fleet = Fleet::of(1, vec![narrow]);
    let held = fleet.send("sql");
    assert_eq!(fleet.lack("sql"), NoChoice::Busy);
    let ask = Fleet::ask("sql");
    let ticket = fleet.state.stand_in_line(ask, &[], fleet.now).unwrap();
    fleet.refuse(held.worker, "sql");
    let grants = fleet.state.grants(fleet.now, &mut fleet.rng);
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0].ticket, ticket);
    assert_eq!(
        grants[0].result.as_ref().unwrap_err(),
        &NoChoice::Unloadable
    );
}

#[test]
fn prompts_of_others_ahead_are_no_part_of_a_load() {
    const LOAD: f64 = 2.0;
    let mut fleet = Fleet::new(1, 1);
    let others = Load {
        waiting: Some(3.0),
        ..Load::default()
    };
    for turn in 0..60 {
        let heard = Heard {
            load: others,
            asked: fleet.state.ours(SIDES[0]),
            lasts: Seconds(60.0),
        };
        fleet.state.hear_load(SIDES[0], &heard, fleet.now);
        let choice = fleet.send(ADAPTERS[turn % 2]);
        assert!(choice.terms.wait > Seconds::ZERO, "behind the others");
        fleet.end(choice, LOAD);
    }
    let view = &fleet.state.snapshot(fleet.now)[0];
    let lora = view.lora.as_ref().unwrap();
    assert!((lora.load.0 / LOAD - 1.0).abs() < 0.1, "{lora:?}");
}

#[test]
fn counts_agree_whatever_happens() {
    for seed in 0..128 {
        let mut fleet = Fleet::new(seed, 3);
        let mut held: Vec<Choice> = Vec::new();
        for _ in 0..300 {
            fleet.now += Seconds(0.05 * fleet.rng.unit());
            match fleet.rng.below(8) {
                0..4 => {
                    let model = ["base", "sql", "legal"][fleet.rng.below(3)];
                    held.push(fleet.send(model));
                }
                4 if !held.is_empty() => {
                    let at = fleet.rng.below(held.len());
                    fleet.state.first_byte(&mut held[at].booking, fleet.now);
                }
                5 | 6 if !held.is_empty() => {
                    let choice = held.swap_remove(fleet.rng.below(held.len()));
                    let outcome = [ANSWERED, Outcome::Gone, Outcome::Unsent][fleet.rng.below(3)];
                    fleet.state.finish(choice.booking, outcome, fleet.now);
                }
                7 => {
                    let id = WorkerId(0);
                    for verdict in [false, false, false, true, true] {
                        let verdict = if verdict { Ok(()) } else { Err(String::new()) };
                        fleet.state.probe(id, verdict, fleet.now);
                    }
                }
                _ => {}
            }
            assert_eq!(fleet.state.check_invariants(), Ok(()), "seed {seed}");
        }
    }
}
