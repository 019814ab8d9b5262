//! What the fleet promises its clients while workers die, hang, slow down and come back, with `[eject]`, `[probe]` and
//! retries as they are when nobody sets them, unless a test says why not.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use support::engine::Engine;
use support::engine::knobs::{Canned, Failure, Health, Knobs};
use support::expect_soon;
use support::load::{Ended, Load};
use support::prompt::{CHAT, chat, stream};
use support::proxy::{Proxy, Setup};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// A short chat.
const SHORT: &str = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;

/// A worker whose answers take so long, however many it has at a time.
fn answers_in(milliseconds: u64) -> Engine {
    Engine::with(Knobs {
        first_byte_delay: Duration::from_millis(milliseconds),
        ..Knobs::default()
    })
}

/// A proxy in front of workers `a`, `b` and `c`, probed as if nothing were configured.
fn before(engines: &[Engine]) -> Setup {
    let named = NAMES.iter().zip(engines);
    named.fold(Proxy::setup().probe(""), |setup, (name, engine)| {
        setup.worker(name, engine)
    })
}

/// So many short chats from eight clients, one after the other.
fn closed(requests: usize) -> Load<'static> {
    Load {
        clients: 8,
        requests,
        rate: None,
        path: CHAT,
        body: SHORT,
    }
}

/// The requests that a load lost, of which there should be none.
#[track_caller]
fn assert_all_good(ended: &[Ended], requests: usize) {
    let lost: Vec<_> = ended.iter().filter(|ended| !ended.is_good()).collect();
    assert!(lost.is_empty(), "{} lost: {:#?}", lost.len(), lost[0]);
    assert_eq!(ended.len(), requests);
}

/// The share of a worker in these requests.
fn share(ended: &[Ended], worker: &str) -> f64 {
    let its = ended.iter().filter(|ended| ended.worker == worker).count();
    its as f64 / ended.len() as f64
}

/// This load, sent again until `a` gets most of it: what a busy machine taught the proxy about `a` wears off.
#[track_caller]
fn until_its_favourite(proxy: &Proxy, load: &Load<'_>) -> Vec<Ended> {
    (0..8)
        .map(|_| load.send(proxy, |_| ()))
        .find(|ended| share(ended, "a") > 0.5)
        .expect("what is fastest becomes the favourite")
}

/// The requests that a worker holds now.
fn holds(proxy: &Proxy, worker: &str) -> u64 {
    proxy.worker(worker)["inflight"].as_u64().unwrap()
}

#[test]
fn p01_no_request_fails_when_the_fast_one_of_two_is_killed_under_load() {
    let engines = [answers_in(8), answers_in(25)];
    let proxy = before(&engines).start();
    let ended = closed(1_500).send(&proxy, |load| {
        expect_soon("it is busy", || {
            load.count() > 400 && holds(&proxy, "a") > 3
        });
        engines[0].kill();
    });
    assert_all_good(&ended, 1_500);
    assert!(share(&ended[..400], "a") > 0.5);
    assert!(proxy.metric("forebay_retries_total", &[]) >= 1.0);
}

#[test]
fn p01_no_request_fails_while_a_worker_flaps() {
    let engines = [answers_in(6), answers_in(12)];
    let proxy = before(&engines).start();
    let ended = closed(3_000).send(&proxy, |load| {
        for flap in 1..=12 {
            expect_soon("it lived for a while", || load.count() > flap * 240 - 120);
            engines[0].kill();
            expect_soon("it was dead for a while", || load.count() > flap * 240);
            engines[0].accept();
        }
    });
    assert_all_good(&ended, 3_000);
    assert!(proxy.metric("forebay_retries_total", &[]) >= 1.0);
}

/// The median of what these took, in seconds.
fn median(ended: &[Ended]) -> f64 {
    let mut took: Vec<f64> = ended.iter().map(|ended| ended.took.0).collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

#[test]
fn p05_a_worker_that_accepts_and_says_nothing_does_not_hold_up_the_others() {
    let engines = [answers_in(10), answers_in(30), answers_in(30)];
    // What hangs is given up by this timer alone, which is half an hour when nobody sets it.
    let proxy = before(&engines)
        .section("[timeouts]\nanswer = \"1s\"")
        .start();
    let open = |requests| Load {
        clients: 64,
        rate: Some(25.0),
        ..closed(requests)
    };
    let calm = until_its_favourite(&proxy, &open(50));
    engines[0].forget();
    engines[0].tune(|knobs| {
        knobs.fail(Failure::Hang, u64::MAX);
        knobs.health = Health::Silent;
    });
    let ended = open(150).send(&proxy, |_| ());
    assert_all_good(&ended, 150);
    assert!((1..=10).contains(&engines[0].count()));
    let medians = [&calm, &ended].map(|ended| median(ended));
    assert!(medians[1] - medians[0] < 0.05, "{medians:?}");
}

#[test]
fn a_fast_worker_that_becomes_five_times_slower_loses_its_traffic_within_ten_seconds() {
    let pace = |seconds| {
        Engine::with(Knobs {
            prefill: seconds / 100.0,
            decode: seconds,
            ..Knobs::default()
        })
    };
    let engines = [pace(0.004), pace(0.010)];
    let proxy = before(&engines).start();
    let body = stream(&"x".repeat(396), 8).replace("true", "false");
    let open = |seconds: usize| Load {
        clients: 64,
        rate: Some(20.0),
        body: &body,
        ..closed(20 * seconds)
    };
    until_its_favourite(&proxy, &open(4));
    engines[0].tune(|knobs| {
        knobs.prefill *= 5.0;
        knobs.decode *= 5.0;
    });
    let slow = open(10).send(&proxy, |_| ());
    assert_all_good(&slow, 200);
    let late = &slow[100..];
    assert!(share(late, "a") <= 0.4, "{}", share(late, "a"));
}

/// Fails unless each of the requests that a worker saw since a time came when it had no more than slow start allows:
/// one, and twice as many for each it answered. It answers none before `takes`, so the proxy can't know of more.
#[track_caller]
fn assert_no_stampede(engine: &Engine, since: f64, takes: f64) {
    let arrivals: Vec<f64> = engine
        .requests()
        .iter()
        .map(|seen| seen.at.0)
        .filter(|at| *at >= since)
        .collect();
    assert!(arrivals.len() >= 30, "only {}", arrivals.len());
    for (before, at) in arrivals.iter().enumerate() {
        let answered = arrivals.iter().filter(|past| *past + takes <= *at).count();
        let allowed = 1_usize << answered.min(20);
        assert!(before - answered < allowed, "{arrivals:?}");
    }
}

/// Lets a worker listen under load; how long it took until it was given a request.
fn joins_in(engine: &Engine, proxy: &Proxy) -> f64 {
    let mut took = 0.0;
    let ended = Load {
        clients: 16,
        rate: Some(100.0),
        ..closed(600)
    }
    .send(proxy, |load| {
        engine.accept();
        let (seen, began) = (engine.count(), load.now());
        expect_soon("it is given a request", || engine.count() > seen);
        took = (load.now() - began).0;
    });
    assert_all_good(&ended, 600);
    took
}

#[test]
fn a_worker_that_comes_back_is_used_within_five_seconds_and_gently() {
    let engines = [answers_in(100), answers_in(150)];
    let proxy = before(&engines).start();
    let ended = closed(100).send(&proxy, |load| {
        expect_soon("it is busy", || load.count() > 30 && holds(&proxy, "a") > 1);
        engines[0].kill();
    });
    assert_all_good(&ended, 100);
    let back = engines[0].now().0;
    let took = joins_in(&engines[0], &proxy);
    assert!(took < 5.0, "{took}");
    assert_no_stampede(&engines[0], back, 0.1);
}

#[test]
fn a_worker_that_joins_late_is_used_within_five_seconds_and_gently() {
    let engines = [answers_in(100), answers_in(150)];
    engines[0].kill();
    let proxy = before(&engines).launch();
    expect_soon("the other is up", || proxy.worker("b")["state"] == "up");
    let took = joins_in(&engines[0], &proxy);
    assert!(took < 5.0, "{took}");
    assert_no_stampede(&engines[0], 0.0, 0.1);
}

#[test]
fn typed_speeds_of_five_to_one_are_honoured_where_nothing_contradicts_them() {
    // Answers in one piece without usage teach no speed, so what was typed stays what is believed.
    let engines = [(); 2].map(|()| {
        Engine::with(Knobs {
            canned: Some(Canned::ok("{}")),
            ..Knobs::default()
        })
    });
    for clients in [1, 8] {
        let proxy = Proxy::setup()
            .probe("")
            .worker_with("a", &engines[0], "speed = 5.0")
            .worker_with("b", &engines[1], "speed = 1.0")
            .section("[routing]\npolicy = \"weighted\"")
            .start();
        let ended = Load {
            clients,
            ..closed(400)
        }
        .send(&proxy, |_| ());
        assert_all_good(&ended, 400);
        let share = share(&ended, "a");
        assert!(
            (share / (5.0 / 6.0) - 1.0).abs() < 0.03,
            "{clients}: {share}"
        );
        assert!(
            ((1.0 - share) * 6.0 - 1.0).abs() < 0.03,
            "{clients}: {share}"
        );
    }
}

#[test]
fn whoever_fails_alone_or_together_gives_the_client_its_own_answer() {
    for count in 1..=3 {
        let engines: Vec<Engine> = (0..count).map(|_| Engine::start()).collect();
        let proxy = before(&engines).start();
        for engine in &engines {
            engine.tune(|knobs| knobs.fail(Failure::Status(500), u64::MAX));
        }
        for _ in 0..20 {
            let answer = proxy.chat(SHORT);
            assert_eq!((answer.status, answer.reason()), (500, None), "{count}");
            assert!(
                answer.header("x-forebay-worker").is_some(),
                "{count}: {}",
                answer.text()
            );
        }
        let out = NAMES[..count]
            .iter()
            .filter(|name| proxy.worker(name)["state"] == "ejected")
            .count();
        assert_eq!(out, count / 2);
        for engine in &engines {
            engine.tune(|knobs| knobs.failures = 0);
        }
        assert_all_good(&closed(40).send(&proxy, |_| ()), 40);
    }
}

#[test]
fn when_the_probes_of_all_fail_requests_are_tried_only_where_the_operator_says_so() {
    for count in 1..=3 {
        for (rule, status) in [("fail", 503), ("queue", 503), ("try_all", 200)] {
            let engines: Vec<Engine> = (0..count).map(|_| Engine::start()).collect();
            let proxy = before(&engines)
                .section(&format!("[routing]\nall_down = \"{rule}\""))
                // Quick, for there are nine proxies to wait for.
                .probe("interval = \"50ms\"\nrise = 1")
                .start();
            let all_are = |state: &str| {
                expect_soon(state, || {
                    NAMES[..count]
                        .iter()
                        .all(|name| proxy.worker(name)["state"] == state)
                });
            };
            for engine in &engines {
                engine.tune(|knobs| knobs.health = Health::Status(500));
            }
            all_are("down");
            let answer = proxy.chat(SHORT);
            assert_eq!(answer.status, status, "{count} {rule}: {}", answer.text());
            assert_eq!(answer.reason(), (status == 503).then_some("no_worker"));
            for engine in &engines {
                engine.tune(|knobs| knobs.health = Health::Good);
            }
            all_are("up");
            assert_eq!(proxy.chat(&chat("x")).status, 200);
        }
    }
}

/// Where Debian and Ubuntu put the library that gives a process another wall clock.
const FAKETIME: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
];

#[test]
fn p10_a_wall_clock_that_jumps_an_hour_either_way_ends_no_request() {
    let Some(library) = FAKETIME.iter().find(|file| Path::new(file).exists()) else {
        // The last line of the test's output.
        println!("skipped: libfaketime is not installed here (Debian's package `libfaketime`)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    let jump = |seconds: &str| {
        let next = folder.path().join("next");
        std::fs::write(&next, seconds).unwrap();
        std::fs::rename(&next, &clock).unwrap();
    };
    jump("+0");
    let engines = [answers_in(100), answers_in(100)];
    let proxy = before(&engines)
        .variable("LD_PRELOAD", library)
        .variable("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap())
        .variable("FAKETIME_NO_CACHE", "1")
        .variable("DONT_FAKE_MONOTONIC", "1")
        .section("[timeouts]\nanswer = \"20s\"\nbetween_bytes = \"20s\"")
        .start();
    let ended = closed(400).send(&proxy, |load| {
        for (jumps, seconds) in (1..).zip(["+3600", "-3600", "+3600", "+0"]) {
            expect_soon("requests pass", || load.count() > jumps * 80);
            jump(seconds);
        }
    });
    assert_all_good(&ended, 400);
    let lines = proxy.log_of(400);
    let hours: BTreeSet<&str> = lines
        .iter()
        .map(|line| &line["time"].as_str().unwrap()[..13])
        .collect();
    assert!(hours.len() >= 3, "its clock did not jump: {hours:?}");
    for line in &lines {
        let took = line["total_s"].as_f64().unwrap();
        assert!((0.1..10.0).contains(&took), "{line}");
    }
}
