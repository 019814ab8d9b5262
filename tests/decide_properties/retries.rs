//! However attempts end, repeats stay within their budget, and no request is sent more often than it may be.

use forebay::decide::{Ending, Permit, RetryBudget, RetryRules, Tally, Verdict};
use forebay::rng::Rng;

const STEPS: usize = 2_000;
const ENDINGS: [Ending; 6] = [
    Ending::Refused,
    Ending::Reset,
    Ending::ServerError,
    Ending::Busy,
    Ending::Unsupported,
    Ending::Timeout,
];

/// A request under way.
struct Live {
    tally: Tally,
    sends: u32,
}

/// Requests come, fail in every way and end; `leaky` ones forget to give their place in the budget back.
fn play(seed: u64, extra: u32, leaky: bool) -> Result<(), String> {
    let mut rng = Rng::seeded(seed);
    let mut budget = RetryBudget::default();
    let mut live: Vec<Live> = Vec::new();
    for step in 0..STEPS {
        if live.is_empty() || rng.below(3) == 0 {
            let tally = Tally::new(Permit::Everything, RetryRules::all(extra));
            live.push(Live { tally, sends: 1 });
            continue;
        }
        let place = rng.below(live.len());
        let others = live.len();
        let request = &mut live[place];
        let ending = ENDINGS[rng.below(ENDINGS.len())];
        let (before, held) = (budget.repeats(), request.tally.is_budgeted());
        let verdict = request.tally.verdict(ending, others, &mut budget);
        if budget.repeats() > before && budget.repeats() > RetryBudget::most(others) {
            return Err(format!("step {step}: a repeat began beyond the budget"));
        }
        if verdict == Verdict::Elsewhere {
            request.sends += u32::from(ending != Ending::Refused);
            let costs = matches!(ending, Ending::ServerError | Ending::Timeout);
            if costs && !held && budget.repeats() == before {
                return Err(format!("step {step}: a repeat for nothing"));
            }
        } else {
            let request = live.swap_remove(place);
            if request.tally.is_budgeted() && !leaky {
                budget.end();
            }
        }
        if live.iter().any(|request| request.sends > 1 + extra) {
            return Err(format!("step {step}: sent too often"));
        }
        let holding = live.iter().filter(|one| one.tally.is_budgeted()).count();
        if holding != budget.repeats() {
            let counted = budget.repeats();
            return Err(format!(
                "step {step}: {holding} repeat, {counted} are counted"
            ));
        }
    }
    Ok(())
}

#[test]
fn repeats_stay_within_their_budget_over_256_seeds() {
    for seed in 0..256 {
        let extra = u32::try_from(seed % 4).unwrap();
        play(seed, extra, false).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn control_a_place_that_is_not_given_back_is_noticed() {
    assert!((0..256).all(|seed| play(seed, 2, true).is_err()));
}
