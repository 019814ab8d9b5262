//! However requests come, pass and end, no more passes than the law allows, and when all have ended all is there again.

use forebay::decide::{Allowance, Quotas, Reserved};
use forebay::rng::Rng;
use forebay::units::Seconds;

const STEPS: usize = 1_000;

/// What breaks a rule on purpose.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Requests forget to end.
    Leak,
    /// Who is refused comes in all the same.
    Barge,
}

/// Something that passed, and when.
type Passed = Vec<(Seconds, f64)>;

/// Whether in some span more passed than the allowance and what comes back in that time.
fn too_much(passed: &Passed, most: f64) -> Option<String> {
    // The span that begins at some passage and ends at this one; the worst is kept as the line goes.
    let mut worst = f64::NEG_INFINITY;
    let mut sum = 0.0;
    for (at, amount) in passed {
        worst = worst.max(most * at.0 / 60.0 - sum);
        sum += amount;
        let beyond = sum - (most * at.0 / 60.0 - worst) - most;
        if beyond > most * 1e-6 {
            return Some(format!("{beyond} too much at {at}"));
        }
    }
    None
}

/// Requests come in bursts, wait, and end with less than they had put aside, or are cancelled.
fn play(seed: u64, fault: Fault) -> Result<(), String> {
    let mut rng = Rng::seeded(seed);
    let most = |rng: &mut Rng, bound| u32::try_from(1 + rng.below(bound)).unwrap();
    let quotas = Quotas {
        concurrent: Some(most(&mut rng, 8)),
        requests: Some(most(&mut rng, 30)),
        tokens: Some(most(&mut rng, 10_000)),
    };
    let mut allowance = Allowance::whole(quotas);
    let mut now = Seconds(rng.unit() * 1e4);
    let mut open: Vec<Reserved> = Vec::new();
    let start = now;
    let mut requests: Passed = Vec::new();
    let mut used = 0.0;
    for step in 0..STEPS {
        if rng.below(4) == 0 {
            now += Seconds(rng.unit() * 5.0);
        }
        if rng.below(2) == 0 || open.is_empty() {
            let begun = allowance.begin(now);
            if begun.is_err() && fault != Fault::Barge {
                continue;
            }
            requests.push((now, 1.0));
            let wanted = Reserved {
                prompt: (rng.unit() * 500.0).ceil(),
                output: (rng.unit() * 2_000.0).ceil(),
            };
            let reserved = allowance.reserve(wanted, now).map(|()| wanted);
            open.push(reserved.unwrap_or_default());
            let held: f64 = open.iter().map(|reserved| reserved.sum()).sum();
            let law = f64::from(quotas.tokens.unwrap()) * (1.0 + (now - start).0 / 60.0);
            if reserved.is_ok() && used + held > law * (1.0 + 1e-6) {
                return Err(format!("step {step}: {used} + {held} tokens of {law}"));
            }
        } else {
            let reserved = open.swap_remove(rng.below(open.len()));
            let reported = |most: f64, rng: &mut Rng| Some((most * rng.unit()) as u64);
            let (prompt, output) = (
                reported(reserved.prompt, &mut rng),
                reported(reserved.output, &mut rng),
            );
            let spent = reserved.settled(prompt, output);
            used += spent.sum();
            if fault != Fault::Leak {
                allowance.end(reserved, spent);
            }
        }
        let most_open = quotas.concurrent.unwrap() as usize;
        if open.len() > most_open && fault != Fault::Leak {
            return Err(format!("step {step}: {} open of {most_open}", open.len()));
        }
    }
    for reserved in open.drain(..) {
        allowance.end(reserved, Reserved::default());
    }
    if allowance.open() != 0 {
        return Err(format!("{} are open for ever", allowance.open()));
    }
    let later = now + Seconds(61.0);
    if allowance.tokens_left(later) != quotas.tokens {
        return Err(format!(
            "tokens are lost: {:?}",
            allowance.tokens_left(later)
        ));
    }
    let many = f64::from(quotas.requests.unwrap());
    too_much(&requests, many).map_or(Ok(()), Err)
}

#[test]
fn no_more_passes_than_the_law_allows_and_nothing_is_lost_over_256_seeds() {
    for seed in 0..256 {
        play(seed, Fault::None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn control_a_request_that_never_ends_is_noticed() {
    assert!((0..256).all(|seed| play(seed, Fault::Leak).is_err()));
}

#[test]
fn control_a_request_that_passes_against_the_law_is_noticed() {
    assert!((0..256).all(|seed| play(seed, Fault::Barge).is_err()));
}

#[test]
fn a_burst_of_fifty_in_a_minute_passes_ten_and_those_that_have_come_back() {
    for seed in 0..256 {
        let mut rng = Rng::seeded(seed);
        let mut allowance = Allowance::whole(Quotas {
            requests: Some(10),
            ..Quotas::default()
        });
        let start = Seconds(rng.unit() * 1e6);
        let within = Seconds(rng.unit() * 5.9);
        let mut at: Vec<f64> = (0..50).map(|_| within.0 * rng.unit()).collect();
        at.sort_by(f64::total_cmp);
        let passed = at
            .iter()
            .filter(|late| allowance.begin(start + Seconds(**late)).is_ok());
        assert!((10..=11).contains(&passed.count()), "seed {seed}");
    }
}
