//! Prefixes in prices: sessions stay where their prompt is cached while that is cheaper, and beliefs follow the evidence.

use forebay::decide::{Ask, Choice, FleetState, Outcome, Policy, Told, Work};
use forebay::facts::Prefix;
use forebay::rng::Rng;
use forebay::units::{Length, Seconds, WorkerId};

use crate::{ask, spec};

const BLOCK: f64 = 256.0;
const SIDES: [WorkerId; 2] = [WorkerId(0), WorkerId(1)];
const NO_REPORT: Outcome = answered(None);

/// A whole answer that reports so many cached tokens.
const fn answered(cached_tokens: Option<f64>) -> Outcome {
    Outcome::Answered {
        prompt_tokens: None,
        cached_tokens,
        output_tokens: None,
    }
}

/// A turn of a session: a prompt of so many blocks and a bit.
fn turn(session: u64, blocks: u32) -> Ask {
    let mut ask = ask("m", Work::Generate, f64::from(blocks) * BLOCK + 100.0);
    ask.prefix = Prefix {
        blocks: (0..u64::from(blocks))
            .map(|block| session * 1_000 + block)
            .collect(),
        each: Length::Tokens(BLOCK),
    };
    ask
}

/// Two equal workers in virtual time.
struct Pair {
    fleet: FleetState,
    rng: Rng,
    now: Seconds,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let specs = ["a", "b"].map(|name| spec(name, &["m"], 64));
        Pair {
            fleet: FleetState::new(specs.into(), Policy::LeastTime),
            rng: Rng::seeded(seed),
            now: Seconds(1.0),
        }
    }

    fn send(&mut self, ask: &Ask) -> Choice {
        let choice = self.fleet.choose(ask, &[], self.now, &mut self.rng);
        self.fleet.check_invariants().unwrap();
        choice.unwrap()
    }

    fn send_to(&mut self, worker: WorkerId, mut ask: Ask) -> Choice {
        ask.only = Some([worker].into());
        self.send(&ask)
    }

    /// It takes as long as was expected, and ends so.
    fn end(&mut self, mut choice: Choice, outcome: Outcome) {
        if let Outcome::Answered { .. } = outcome {
            self.now += choice.terms.wait + choice.terms.own;
            self.fleet.first_byte(&mut choice.booking, self.now);
        }
        self.now += choice.terms.decode;
        self.fleet.finish(choice.booking, outcome, self.now);
        self.fleet.check_invariants().unwrap();
    }

    /// The blocks of a prompt that each worker is believed to have.
    fn believed(&mut self, ask: &Ask) -> [f64; 2] {
        let probe = self.fleet.choose(ask, &SIDES, self.now, &mut self.rng);
        assert!(probe.is_err());
        let blocks = |id| {
            let mut considered = self.fleet.considered().iter();
            considered.find(|one| one.worker == id).unwrap().cached / BLOCK
        };
        SIDES.map(blocks)
    }
}

#[test]
fn a_session_stays_while_that_is_cheaper_and_moves_when_the_queue_costs_more() {
    for seed in 0..256 {
        let mut pair = Pair::new(seed);
        let home = pair.send(&turn(1, 20));
        let at = home.worker;
        pair.end(home, NO_REPORT);
        for blocks in 21..26 {
            let next = pair.send(&turn(1, blocks));
            assert_eq!(next.worker, at, "seed {seed}");
            pair.end(next, NO_REPORT);
        }
        let short = pair.send_to(at, turn(2, 4));
        let stays = pair.send(&turn(1, 26));
        assert_eq!(
            stays.worker, at,
            "seed {seed}: four blocks wait, 25 are saved"
        );
        for choice in [short, stays] {
            pair.end(choice, Outcome::Gone);
        }
        let long = [3, 4].map(|session| pair.send_to(at, turn(session, 26)));
        let moves = pair.send(&turn(1, 26));
        assert_ne!(moves.worker, at, "seed {seed}: 56 blocks wait");
        for choice in long.into_iter().chain([moves]) {
            pair.end(choice, Outcome::Gone);
        }
    }
}

#[test]
fn without_hashes_a_session_goes_anywhere() {
    let sides: std::collections::BTreeSet<_> = (0..256)
        .map(|seed| {
            let mut pair = Pair::new(seed);
            let unhashed = |blocks| Ask {
                prefix: Prefix::default(),
                ..turn(1, blocks)
            };
            let first = pair.send(&unhashed(20));
            let at = first.worker;
            pair.end(first, NO_REPORT);
            pair.send(&unhashed(21)).worker == at
        })
        .collect();
    assert_eq!(sides.len(), 2, "the control: both happen");
}

#[test]
fn a_tie_goes_to_the_one_who_has_more_of_the_prompt() {
    for seed in 0..256 {
        let mut pair = Pair::new(seed);
        let at = SIDES[usize::from(seed % 2 == 0)];
        let first = pair.send_to(at, turn(1, 1));
        pair.end(first, Outcome::Gone);
        let saved = BLOCK / 6_000.0;
        let second = pair.send(&turn(1, 1));
        assert!(saved < 0.02 * second.terms.total().0, "else it is no tie");
        assert_eq!(second.worker, at, "seed {seed}");
    }
}

#[test]
fn those_who_wait_count_by_what_is_new_of_them() {
    let mut pair = Pair::new(1);
    let wait = |pair: &mut Pair| {
        let held = pair.send_to(SIDES[0], turn(1, 20));
        let behind = pair.send_to(SIDES[0], turn(2, 1));
        let wait = behind.terms.wait.0;
        pair.end(held, Outcome::Gone);
        pair.end(behind, Outcome::Gone);
        wait
    };
    let (new, cached) = (wait(&mut pair), wait(&mut pair));
    // By the prior's line, where a token after 40,000 others costs twice as much.
    let seconds = |fresh: f64, cached: f64| {
        let reading = fresh * (1.0 + (cached + fresh / 2.0) / 40_000.0);
        0.01 + reading / 6_000.0
    };
    assert!((new - seconds(20.0 * BLOCK + 100.0, 0.0)).abs() < 1e-9);
    assert!((cached - seconds(100.0, 20.0 * BLOCK)).abs() < 1e-9);
}

#[test]
fn what_a_worker_never_had_is_not_believed() {
    let lost = [
        Outcome::Refused,
        Outcome::Unsent,
        Outcome::Failed,
        Outcome::Rejected,
        Outcome::Busy { retry_after: None },
    ];
    for outcome in lost {
        let mut pair = Pair::new(1);
        let known = pair.send_to(SIDES[0], turn(1, 5));
        pair.end(known, NO_REPORT);
        let choice = pair.send_to(SIDES[0], turn(1, 9));
        pair.end(choice, outcome);
        assert_eq!(pair.believed(&turn(1, 9)), [5.0, 0.0], "{outcome:?}");
    }
    for outcome in [Outcome::Gone, NO_REPORT] {
        let mut pair = Pair::new(1);
        let choice = pair.send_to(SIDES[0], turn(1, 9));
        pair.end(choice, outcome);
        assert_eq!(pair.believed(&turn(1, 12)), [9.0, 0.0], "{outcome:?}");
    }
}

#[test]
fn what_a_worker_reports_corrects_the_belief() {
    let after = |cached: Option<f64>| {
        let mut pair = Pair::new(1);
        for outcome in [NO_REPORT, answered(cached)] {
            let choice = pair.send_to(SIDES[0], turn(1, 20));
            pair.end(choice, outcome);
        }
        pair.believed(&turn(1, 20))[0]
    };
    assert_eq!(after(None), 20.0);
    assert_eq!(after(Some(20.0 * BLOCK)), 20.0);
    assert_eq!(
        after(Some(19.5 * BLOCK)),
        20.0,
        "its own blocks end elsewhere"
    );
    assert_eq!(after(Some(10.5 * BLOCK)), 10.0);
    assert_eq!(after(Some(0.0)), 0.0);
    assert_eq!(after(Some(f64::NAN)), 20.0);
    assert_eq!(after(Some(1e7)), 20.0);
}

#[test]
fn a_worker_that_never_reuses_anything_is_believed_nothing_until_it_does() {
    let mut pair = Pair::new(1);
    let send = |pair: &mut Pair, cached| {
        let choice = pair.send_to(SIDES[0], turn(1, 20));
        pair.end(choice, answered(Some(cached)));
        let choice = pair.send_to(SIDES[0], turn(1, 20));
        pair.end(choice, NO_REPORT);
        pair.believed(&turn(1, 20))[0]
    };
    let believed = [(); 4].map(|()| send(&mut pair, 0.0));
    assert_eq!(
        believed,
        [20.0, 20.0, 20.0, 0.0],
        "the first time nothing was believed"
    );
    assert_eq!(send(&mut pair, 0.0), 0.0);
    assert_eq!(send(&mut pair, BLOCK), 20.0);
}

#[test]
fn a_worker_that_was_down_has_nothing_and_its_old_requests_change_nothing() {
    let mut pair = Pair::new(1);
    let old = pair.send_to(SIDES[0], turn(1, 20));
    for _ in 0..3 {
        pair.fleet
            .probe(SIDES[0], Err("no answer".into()), pair.now);
    }
    assert_eq!(pair.believed(&turn(1, 20)), [0.0, 0.0]);
    for _ in 0..2 {
        pair.fleet.probe(SIDES[0], Ok(()), pair.now);
    }
    let new = pair.send_to(SIDES[0], turn(1, 10));
    pair.end(new, NO_REPORT);
    pair.end(old, Outcome::Failed);
    assert_eq!(pair.believed(&turn(1, 20)), [10.0, 0.0]);
}

#[test]
fn an_ejected_worker_has_nothing() {
    let mut pair = Pair::new(1);
    let known = pair.send_to(SIDES[0], turn(1, 20));
    pair.end(known, NO_REPORT);
    let failing = [2, 3, 4].map(|session| pair.send_to(SIDES[0], turn(session, 1)));
    for choice in failing {
        assert_eq!(pair.believed(&turn(1, 20)), [20.0, 0.0]);
        pair.end(choice, Outcome::Failed);
    }
    assert_eq!(pair.believed(&turn(1, 20)), [0.0, 0.0]);
}

#[test]
fn no_more_is_believed_than_its_memory_takes() {
    let mut pair = Pair::new(1);
    let told = Told {
        kv_tokens: Some(10.5 * BLOCK),
        ..Told::default()
    };
    pair.fleet.told(SIDES[0], told);
    for session in [1, 2] {
        let choice = pair.send_to(SIDES[0], turn(session, 6));
        pair.end(choice, NO_REPORT);
    }
    assert_eq!(pair.believed(&turn(1, 6))[0], 4.0);
    assert_eq!(pair.believed(&turn(2, 6))[0], 6.0);
    let choice = pair.send_to(SIDES[0], turn(3, 30));
    pair.end(choice, NO_REPORT);
    assert_eq!(pair.believed(&turn(3, 30))[0], 10.0);
}

#[test]
fn a_cache_that_was_lost_is_not_taken_for_a_slower_machine() {
    let own_after = |reports: [Option<f64>; 2]| {
        let mut pair = Pair::new(1);
        for session in 0..30 {
            let choice = pair.send_to(SIDES[0], turn(session, 1 + (session % 30) as u32));
            pair.end(choice, NO_REPORT);
        }
        let own = pair.send_to(SIDES[0], turn(99, 20));
        let (before, whole) = (own.terms.own, own.terms.own);
        pair.end(own, NO_REPORT);
        for (session, report) in [28, 29].into_iter().zip(reports) {
            // Believed cached but for a bit; it takes as long as if nothing were.
            let mut choice = pair.send_to(SIDES[0], turn(session, 1 + session as u32));
            assert!(choice.terms.own.0 < 0.2 * whole.0);
            pair.now += whole * 1.4;
            pair.fleet.first_byte(&mut choice.booking, pair.now);
            pair.now += choice.terms.decode;
            pair.fleet
                .finish(choice.booking, answered(report), pair.now);
            pair.fleet.check_invariants().unwrap();
        }
        let own = pair.send_to(SIDES[0], turn(100, 20));
        own.terms.own.0 / before.0
    };
    for reports in [[None, None], [Some(0.0), Some(0.0)]] {
        let times = own_after(reports);
        assert!((0.8..1.25).contains(&times), "{times:.2} with {reports:?}");
    }
}

#[test]
fn a_report_about_a_prompt_without_blocks_changes_no_belief() {
    let mut pair = Pair::new(1);
    for session in 0..8 {
        let choice = pair.send_to(SIDES[0], turn(session, 0));
        pair.end(choice, answered(Some(64.0)));
    }
    let choice = pair.send_to(SIDES[0], turn(9, 20));
    pair.end(choice, NO_REPORT);
    assert_eq!(pair.believed(&turn(9, 20)), [20.0, 0.0]);
}
