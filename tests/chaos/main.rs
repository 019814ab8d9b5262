//! Chaos: a load over workers that are killed, hung, slowed, cut, filled and made to talk rubbish, while configurations
//! come and go and one process takes over from the other. One seed draws all of it; times are real, so two runs of a
//! seed do the same deeds and meet other requests by them.
//!
//! The promises each have tests of their own, in which one thing goes wrong at a time. Here all of it goes wrong at once,
//! and what is asked is what must hold whatever happens (`verdict.rs`): nobody gets another's answer, no cut answer passes
//! for a whole one, every failure has a cause on the worker that it is laid on, every request is logged once, and when all
//! is over nothing is left behind. A failure is accounted for by what befell that worker while the request was under way,
//! and only by what may cause it: a killed or slow worker, a reload or a swap never is a cause (P1, P11, P12), except that a
//! stream breaks which had begun (P2). Beside that some clients talk over WebSockets and by gRPC (`talkers.rs`) with workers
//! that nothing befalls, so that all of their talks have to end well but those that a swap ends, which say so.
//!
//! `./run chaos [SECONDS [SEED]]` runs the long one, ten minutes without arguments.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod askers;
mod harm;
mod plan;
mod storm;
mod talkers;
mod verdict;

use storm::{Seen, Weather, rage};
use verdict::{Verdict, judge};

/// The short ones.
const SHORT: Weather = Weather {
    seed: 8,
    seconds: 8.0,
    loses: b"",
};

/// Lets it rage, judges, and says so.
#[expect(clippy::print_stdout, reason = "the table is what a run is for")]
fn judged(weather: Weather) -> (Seen, Verdict) {
    let Weather { seed, seconds, .. } = weather;
    println!("\nseed {seed}, {seconds} s\n");
    let seen = rage(weather);
    let verdict = judge(&seen);
    println!("{}", verdict.table(&seen));
    (seen, verdict)
}

/// What is broken, by the names of the invariants.
fn broken(verdict: &Verdict) -> Vec<&'static str> {
    let broken = verdict.invariants.iter();
    let broken = broken.filter(|one| !one.broken.is_empty());
    broken.map(|one| one.holds).collect()
}

#[test]
fn in_a_short_storm_all_holds() {
    let (seen, verdict) = judged(SHORT);
    assert!(verdict.holds(), "broken: {:?}", broken(&verdict));
    let met = |what| seen.done.contains_key(what);
    let talks = |kind: &str| {
        let ids = seen.talked.iter().map(|talked| &talked.id);
        ids.filter(|id| id.starts_with(kind)).count()
    };
    assert!(talks("ws") > 20 && talks("grpc") > 20);
    assert!(
        met("killed") && met("reloads") && met("swaps"),
        "{:?}",
        seen.done
    );
}

/// Negative control: what a relay loses is found out.
#[test]
fn a_relay_that_loses_the_ends_of_streams_is_found_out() {
    let loses = b"E\r\ndata: [DONE]\n\n\r\n";
    let seconds = 1.0;
    let (_, verdict) = judged(Weather {
        loses,
        seconds,
        ..SHORT
    });
    assert_eq!(broken(&verdict), ["no cut answer looks whole"]);
}

/// `./run chaos`.
#[test]
#[ignore = "as long as one likes"]
#[expect(clippy::disallowed_methods, reason = "its arguments")]
fn a_long_storm() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let weather = Weather {
        seed: number("CHAOS_SEED").unwrap_or(1.0) as u64,
        seconds: number("CHAOS_SECONDS").unwrap_or(600.0),
        loses: b"",
    };
    let (_, verdict) = judged(weather);
    assert!(verdict.holds(), "broken: {:?}", broken(&verdict));
}
