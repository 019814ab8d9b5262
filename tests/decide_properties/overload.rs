//! A line to which more come than are served, and whose clients give up: newest first answers more of them in time than
//! first come, first served, and takes nothing from any class or tenant.

use forebay::decide::{LineRules, MOST_CLASSES, Policy, Rules, Ticket};
use forebay::units::Seconds;

use crate::classes::Line;

const SEEDS: u64 = 64;
/// Clients give up after so long, and the newest go first after half of it.
const PATIENCE: Seconds = Seconds(10.0);
const PLACES: u32 = 2;

fn line(seed: u64, newest_first: Option<Seconds>, age_up: Seconds) -> Line {
    let line = LineRules {
        age_up,
        newest_first: [newest_first; MOST_CLASSES],
        ..LineRules::default()
    };
    let rules = Rules {
        line,
        ..Policy::LeastTime.into()
    };
    Line::with(seed, rules, PLACES)
}

/// Those of a class who have waited so long leave.
fn give_up(line: &mut Line, patience: Seconds) {
    let (now, waiting) = (line.now, line.waiting.iter());
    let gone: Vec<Ticket> = waiting
        .filter(|(_, (_, since))| now - *since >= patience)
        .map(|(ticket, _)| *ticket)
        .collect();
    for ticket in gone {
        line.fleet.leave_line(ticket, now);
        line.waiting.remove(&ticket);
    }
}

/// How many were served in half of their patience, when so many come at a time on average as are served.
fn goodput(seed: u64, load: usize, newest_first: Option<Seconds>) -> usize {
    let mut line = line(seed, newest_first, Seconds(1e9));
    for _ in 0..200 {
        // A uniform count from 0 to twice the mean.
        let most = PLACES as usize * load * 2;
        for _ in 0..line.rng.below(most + 1) {
            line.arrive(0, 0);
        }
        line.second();
        give_up(&mut line, PATIENCE);
    }
    line.fleet.check_invariants().unwrap();
    let soon = |wait: Seconds| wait.0 <= PATIENCE.0 / 2.0;
    line.served.iter().filter(|(_, wait)| soon(*wait)).count()
}

#[test]
fn under_twice_the_load_newest_first_serves_more_in_time() {
    for seed in 0..SEEDS {
        let fifo = goodput(seed, 2, None);
        let lifo = goodput(seed, 2, Some(PATIENCE * 0.5));
        assert!(lifo > 2 * fifo && lifo > 300, "seed {seed}: {fifo}, {lifo}");
    }
}

/// How long each waited who was served, in order, while less comes than is served: in bursts, so that some wait.
fn calm(seed: u64, newest_first: Option<Seconds>) -> Vec<f64> {
    let mut line = line(seed, newest_first, Seconds(60.0));
    for _ in 0..200 {
        if line.rng.below(3) == 0 {
            for _ in 0..line.rng.below(6) {
                line.arrive(0, 0);
            }
        }
        line.second();
    }
    line.served.iter().map(|(_, wait)| wait.0).collect()
}

#[test]
fn a_calm_line_is_first_come_first_served() {
    for seed in 0..SEEDS {
        let calm = |mark| calm(seed, mark);
        assert_eq!(calm(Some(PATIENCE)), calm(None), "seed {seed}");
        assert!(calm(None).iter().any(|wait| *wait > 0.0), "seed {seed}");
    }
}

/// Negative control: with a mark that is passed at once the order is another one.
#[test]
fn a_mark_of_nothing_is_noticed() {
    let same = (0..SEEDS).filter(|seed| calm(*seed, Some(Seconds::ZERO)) == calm(*seed, None));
    assert!(same.count() < 8);
}

/// The shares of the places that two classes get which both want more than all of them, and the least and the most that a
/// tenant of the higher one gets.
fn crowded(seed: u64) -> ([f64; 2], [usize; 2]) {
    let mut line = line(seed, Some(Seconds(5.0)), Seconds(10.0));
    for _ in 0..400 {
        for _ in 0..3 {
            let tenant = [0, 0, 0, 1, 2][line.rng.below(5)];
            line.arrive(0, tenant);
            line.arrive(2, 7);
        }
        line.second();
        give_up(&mut line, Seconds(30.0));
    }
    line.fleet.check_invariants().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let share = |class| {
        let own = line.served.iter().filter(|(claim, _)| claim.class == class);
        own.count() as f64 / line.served.len() as f64
    };
    let turns = [0, 1, 2].map(|tenant| line.turns(tenant));
    let [least, most] = [turns.iter().min(), turns.iter().max()].map(|turns| *turns.unwrap());
    ([share(0), share(2)], [least, most])
}

#[test]
fn in_a_line_that_stands_no_class_and_no_tenant_starves() {
    for seed in 0..SEEDS {
        let ([high, low], [least, most]) = crowded(seed);
        assert!(high > 0.6 && low > 0.15, "seed {seed}: {high} {low}");
        assert!(least * 10 > most * 8, "seed {seed}: {least} {most}");
    }
}
