//! The real proxy in front of engine-shaped workers, against the simulation of the same fleet under the same load.
//!
//! Workers behind real sockets take the time that the simulator's own engines take, with every card changed by one
//! factor so that a run lasts seconds and a request still some dozens of milliseconds. The simulation has the same
//! changed cards, and no distance. What the proxy does beside choosing (reading and hashing a prompt, learning the
//! length of a token, relaying), and that it sees the world through sockets and timers, is what can set the two apart.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::path::Path;

use forebay::clock::Clock;
use forebay::decide::Work;
use forebay::simulate::{BLOCK, End, Fleet, Request, load, parse_fleet, simulate};
use forebay::units::Seconds;
use serde_json::json;

use support::engine::Engine;
use support::load::{Call, Timetable};
use support::prompt::CHAT;
use support::proxy::Proxy;

/// Bytes that the workers take for a token.
const TOKEN: usize = 4;
/// More than ever wait at a time.
const CLIENTS: usize = 96;
/// How far apart the means may be, on machines that do other things as well. On quiet ones it is far less
/// (`benches/RESULTS.md`); another policy is further off than this.
const TOLERANCE: f64 = 0.5;
/// The most runs of which the fastest is taken, because whatever else a machine does makes a run slower and none
/// faster.
const RUNS: usize = 3;

/// A fleet file with all cards so many times as fast, and next to the proxy.
fn fleet(file: &str, faster: f64) -> Fleet {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config/fleets")
        .join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut fleet = parse_fleet(&text, &path).unwrap();
    for member in &mut fleet.members {
        member.round_trip = Seconds::ZERO;
        member.card.prefill *= faster;
        for time in [
            &mut member.card.fixed,
            &mut member.card.step,
            &mut member.card.step_per_stream,
        ] {
            *time = *time / faster;
        }
    }
    fleet
}

/// Text whose blocks are the same where a request's blocks have the same names, and nowhere else.
fn text(request: &Request, number: usize) -> String {
    let block = BLOCK as usize * TOKEN;
    let mut text = String::new();
    for (place, name) in request.blocks.iter().enumerate() {
        let words = format!("{name:016x} ");
        while text.len() < (place + 1) * block {
            text += &words;
        }
        text.truncate((place + 1) * block);
    }
    let words = format!("{number:07}.");
    while text.len() < request.prompt as usize * TOKEN {
        text += &words;
    }
    text
}

/// A request as a client sends it.
fn call(request: &Request, number: usize) -> Call {
    let mut text = text(request, number);
    let (path, body) = match request.work {
        Work::Embed | Work::Infer => {
            text.truncate(request.prompt as usize * TOKEN);
            ("/v1/embeddings", json!({"model": "m", "input": text}))
        }
        Work::Generate => {
            // The role is read too.
            text.truncate(request.prompt as usize * TOKEN - "user".len());
            let body = json!({"model": "m", "messages": [{"role": "user", "content": text}], "stream": true,
                "stream_options": {"include_usage": true}, "min_tokens": request.output as usize});
            (CHAT, body)
        }
    };
    Call {
        at: request.at,
        path,
        body: body.to_string(),
    }
}

/// The mean time until an answer is complete in the simulation, once speeds are learned: of some runs that break their
/// first ties otherwise, the median.
fn simulated(fleet: &Fleet, load: &[Request], policy: &str) -> f64 {
    let total = |end: &End| match end {
        End::Answered { total, .. } => total.0,
        End::Failed => panic!("a request fails in the simulation"),
    };
    let mut means = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|seed| {
        let ends = simulate(fleet, load, policy, seed).unwrap();
        let counted = &ends[learning(load)..];
        counted.iter().map(total).sum::<f64>() / counted.len() as f64
    });
    means.sort_by(f64::total_cmp);
    means[means.len() / 2]
}

/// How many requests the proxy learns from before others are counted.
fn learning(load: &[Request]) -> usize {
    load.len() / 3
}

/// The same of one run through a real proxy before workers like those of the fleet, from when each request was due.
fn measured(fleet: &Fleet, load: &[Request]) -> f64 {
    let shaped = |member| Engine::shaped(member, fleet.cache);
    let engines: Vec<Engine> = fleet.members.iter().map(shaped).collect();
    let mut setup = Proxy::setup().probe("interval = \"2s\"");
    for (member, engine) in fleet.members.iter().zip(&engines) {
        setup = setup.worker_with(&member.name, engine, "test = \"auto\"");
    }
    let proxy = setup.start();
    let calls = load.iter().zip(0..);
    let calls: Vec<Call> = calls.map(|(one, number)| call(one, number)).collect();
    let timetable = Timetable {
        clock: Clock::start(),
        clients: CLIENTS,
        calls: &calls,
    };
    let ended = timetable.send(proxy.address(), |_| ());
    let bad: Vec<_> = ended.iter().filter(|one| !one.is_good()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let counted = ended.iter().filter(|one| one.number >= learning(load));
    let totals = counted.map(|one| (one.sent + one.took - load[one.number].at).0);
    totals.sum::<f64>() / (load.len() - learning(load)) as f64
}

/// The simulation tells the real mean, and not that of another policy.
#[track_caller]
#[expect(clippy::print_stdout, reason = "benches/RESULTS.md tells the ratios")]
fn assert_told(fleet: &Fleet, load: &[Request]) {
    let [ours, other] = ["least_time", "round_robin"].map(|rule| simulated(fleet, load, rule));
    let mut fastest = f64::INFINITY;
    for _ in 0..RUNS {
        let real = measured(fleet, load);
        println!("{real:.4} s, simulated {ours:.4} s: {:.3}", real / ours);
        fastest = fastest.min(real);
        if fastest <= (1.0 + TOLERANCE) * ours {
            break;
        }
    }
    let tells = |mean: f64| (fastest / mean - 1.0).abs() <= TOLERANCE;
    assert!(tells(ours), "{fastest:.4} s instead of {ours:.4} s");
    assert!(!tells(other), "{fastest:.4} s is as well {other:.4} s");
}

/// At 160/s, as the fleet file counts: nearer to its 220/s a queue keeps every disturbance for the rest of the run.
#[test]
fn the_classifier_pair_is_as_simulated() {
    let faster = 0.2;
    let fleet = fleet("classifier-pair.toml", faster);
    assert_told(&fleet, &load::classifier(160.0 * faster, 250, 3));
}

#[test]
fn the_pair_is_as_simulated_in_sessions_of_several_turns() {
    let faster = 30.0;
    let fleet = fleet("pair.toml", faster);
    let smallest = fleet.members.iter().map(|member| member.card.blocks).min();
    let mut load = load::tools(0.3, 120, 4);
    // Those that fit everywhere: the proxy does not look yet at which fit where.
    load.retain(|one| one.memory() <= f64::from(smallest.unwrap()));
    for request in &mut load {
        request.at = request.at / faster;
    }
    assert_told(&fleet, &load);
}
