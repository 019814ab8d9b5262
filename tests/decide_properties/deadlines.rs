//! Deadlines: nobody is refused who could have been in time, and who surely can't be is not begun.

use forebay::decide::{Ask, Choice, FleetState, NoChoice, Outcome, Policy, Work};
use forebay::rng::Rng;
use forebay::units::Seconds;

use crate::{ask, spec};

const SEEDS: u64 = 64;
const ANSWERED: Outcome = Outcome::Answered {
    prompt_tokens: None,
    cached_tokens: None,
    output_tokens: None,
};

/// What a prompt of so many tokens really takes.
fn truly(tokens: f64) -> Seconds {
    Seconds(0.05 + tokens * 0.001)
}

/// A worker that takes one request at a time, and the time.
struct Trial {
    fleet: FleetState,
    rng: Rng,
    now: Seconds,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let mut fleet = FleetState::new(vec![spec("a", &["m"], 1)], Policy::LeastTime);
        fleet.probe(forebay::units::WorkerId(0), Ok(()), Seconds::ZERO);
        Trial {
            fleet,
            rng: Rng::seeded(seed),
            now: Seconds(1.0),
        }
    }

    /// A prompt whose client leaves after so long, if it does.
    fn ask(&self, tokens: f64, patience: Option<Seconds>) -> Ask {
        Ask {
            deadline: patience.map(|span| self.now + span),
            ..ask("m", Work::Embed, tokens)
        }
    }

    fn choose(&mut self, tokens: f64, patience: Option<Seconds>) -> Result<Choice, NoChoice> {
        let ask = self.ask(tokens, patience);
        self.fleet.choose(&ask, &[], self.now, &mut self.rng)
    }

    fn answer(&mut self, choice: Choice, tokens: f64) {
        self.now += truly(tokens);
        self.fleet.finish(choice.booking, ANSWERED, self.now);
    }

    /// Serves prompts without a deadline until its speed is known.
    fn warm_up(&mut self) {
        for _ in 0..30 {
            let tokens = self.tokens();
            let choice = self.choose(tokens, None).unwrap();
            self.answer(choice, tokens);
        }
    }

    fn tokens(&mut self) -> f64 {
        let drawn = u32::try_from(self.rng.below(2_000)).unwrap();
        f64::from(16 + drawn)
    }
}

/// How many who could have been in time were refused, and how many were begun who had not nearly
/// the time that it takes.
fn wrong(seed: u64, truth: fn(f64) -> Seconds) -> (usize, usize) {
    let mut trial = Trial::new(seed);
    trial.warm_up();
    let (mut refused, mut begun) = (0, 0);
    for _ in 0..100 {
        let tokens = trial.tokens();
        let hurry = u32::try_from(trial.rng.below(200)).unwrap();
        let patience = truth(tokens) * (f64::from(hurry) / 100.0);
        match trial.choose(tokens, Some(patience)) {
            Ok(choice) => {
                begun += usize::from(hurry < 60);
                trial.answer(choice, tokens);
            }
            Err(NoChoice::Late { takes }) => {
                refused += usize::from(hurry >= 100);
                assert!(takes > patience, "seed {seed}");
                trial.now += Seconds(0.1);
            }
            other => panic!("seed {seed}: {other:?}"),
        }
        trial.fleet.check_invariants().unwrap();
    }
    (refused, begun)
}

#[test]
fn who_can_be_in_time_is_never_refused_and_who_cannot_is_never_begun() {
    for seed in 0..SEEDS {
        assert_eq!(wrong(seed, truly), (0, 0), "seed {seed}");
    }
}

/// Negative control: were the truth another, the checker would notice.
#[test]
fn a_refusal_by_a_wrong_price_is_noticed() {
    for seed in 0..SEEDS {
        assert!(
            wrong(seed, |tokens| truly(tokens) * 0.5).0 > 0,
            "seed {seed}"
        );
    }
}

#[test]
fn a_worker_that_is_unknown_or_was_not_seen_for_a_while_is_tried() {
    let hurry = Some(Seconds(0.01));
    let mut trial = Trial::new(1);
    let choice = trial.choose(1_000.0, hurry).unwrap();
    trial.answer(choice, 1_000.0);
    trial.warm_up();
    assert!(matches!(
        trial.choose(1_000.0, hurry),
        Err(NoChoice::Late { .. })
    ));
    trial.now += Seconds(15.0);
    let choice = trial.choose(1_000.0, hurry).unwrap();
    let beside = trial.choose(1_000.0, hurry);
    assert!(
        matches!(beside, Err(NoChoice::Late { .. })),
        "one is enough"
    );
    trial.answer(choice, 1_000.0);
}

#[test]
fn the_wait_in_line_counts_as_far_as_it_is_certain() {
    let mut trial = Trial::new(1);
    trial.warm_up();
    let mut held = Some(trial.choose(950.0, None).unwrap());
    for _ in 0..60 {
        let ask = trial.ask(950.0, None);
        trial.fleet.stand_in_line(ask, &[], trial.now).unwrap();
    }
    let outlook = |trial: &mut Trial| {
        let ask = trial.ask(950.0, Some(Seconds(10.0)));
        let other = Ask {
            // Its tenant has nobody before it.
            claim: forebay::decide::Claim {
                tenant: 9,
                ..ask.claim
            },
            ..ask.clone()
        };
        let tickets =
            [ask, other].map(|ask| trial.fleet.stand_in_line(ask, &[], trial.now).unwrap());
        let least = tickets.map(|ticket| trial.fleet.outlook(ticket, trial.now).unwrap().least.0);
        for ticket in tickets {
            trial.fleet.leave_line(ticket, trial.now);
        }
        least
    };
    let untold = outlook(&mut trial);
    assert!(
        untold.iter().all(|least| (least - 0.8).abs() < 0.08),
        "{untold:?}"
    );
    for _ in 0..20 {
        trial.answer(held.take().unwrap(), 950.0);
        let grants = trial.fleet.grants(trial.now, &mut trial.rng);
        held = grants.into_iter().next().map(|grant| grant.result.unwrap());
    }
    // A second each: 40 wait without a deadline, whom one with a deadline goes before, but not another tenant's.
    let told = outlook(&mut trial);
    assert!(
        told.iter().all(|least| (least - 0.8).abs() < 0.08),
        "{told:?}"
    );
    let patient = trial.ask(950.0, Some(Seconds(1e6)));
    let ask = Ask {
        deadline: Some(Seconds(2e6)),
        ..patient.clone()
    };
    for _ in 0..40 {
        trial
            .fleet
            .stand_in_line(patient.clone(), &[], trial.now)
            .unwrap();
    }
    let last = trial.fleet.stand_in_line(ask, &[], trial.now).unwrap();
    let outlook = trial.fleet.outlook(last, trial.now).unwrap();
    assert!((outlook.takes.0 - 42.0).abs() < 3.0, "{outlook:?}");
    assert!(
        outlook.least.0 > 25.0 && outlook.least < outlook.takes,
        "{outlook:?}"
    );
}
