//! How often a request runs: never more than it may, never twice on one worker, and never after its first byte (P3).
//!
//! The workers count what they read. Probes are slower than the tests, so that all that is learned is learned from
//! requests.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use support::client::{Answer, Client, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure};
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::{Proxy, Setup};
use support::refusal::{message, openai_error};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A proxy in front of these workers, which take turns.
fn before(engines: &[Engine]) -> Setup {
    let setup = Proxy::setup()
        .section("[routing]\npolicy = \"round_robin\"")
        // Who is taken out for errors is another suite's matter.
        .section("[eject]\nerrors = 1000")
        .section("[[route]]\npath = \"/raw/*\"")
        .probe("interval = \"60s\"\nrise = 1");
    let named = NAMES.iter().zip(engines);
    named.fold(setup, |setup, (name, engine)| setup.worker(name, engine))
}

fn start<const N: usize>() -> [Engine; N] {
    std::array::from_fn(|_| Engine::start())
}

/// All of them fail in this way, for ever.
fn fail(engines: &[Engine], failure: &Failure) {
    for engine in engines {
        engine.tune(|knobs| knobs.fail(failure.clone(), u64::MAX));
    }
}

fn count(engines: &[Engine]) -> usize {
    engines.iter().map(Engine::count).sum()
}

fn post(client: &mut Client, path: &str, headers: &[(&str, &str)]) -> Answer {
    client.call_with("POST", path, headers, chat("x").as_bytes())
}

#[test]
fn p03_a_post_that_was_sent_runs_three_times_at_most() {
    for failure in [
        Failure::ResetAfterRequest,
        Failure::CutAfter(0),
        Failure::Status(500),
    ] {
        let engines = start::<4>();
        let proxy = before(&engines).start();
        let mut client = proxy.connect();
        // Connections are kept, so that each may die on reuse as well.
        for _ in 0..4 {
            assert_eq!(post(&mut client, CHAT, &[]).status, 200);
        }
        fail(&engines, &failure);
        for round in 0..8 {
            let before = count(&engines);
            let answer = post(&mut client, CHAT, &[]);
            assert!(matches!(answer.status, 500 | 502), "{answer:?}");
            let runs = count(&engines) - before;
            assert!(runs <= 3, "{failure:?}, {round}: {runs} runs");
        }
    }
}

#[test]
fn p03_what_may_not_be_repeated_runs_once() {
    let never = [("x-forebay-retry", "never")];
    for failure in [
        Failure::ResetAfterRequest,
        Failure::CutAfter(0),
        Failure::Status(500),
    ] {
        for (path, headers) in [(CHAT, &never[..]), ("/raw/x", &[])] {
            let engines = start::<3>();
            let proxy = before(&engines).start();
            let mut client = proxy.connect();
            for _ in 0..3 {
                assert_eq!(post(&mut client, path, headers).status, 200);
            }
            fail(&engines, &failure);
            for _ in 0..3 {
                let before = count(&engines);
                let headers = [headers, &[("connection", "close")]].concat();
                client.send(&request("POST", path, &headers, chat("x").as_bytes()));
                // A cut answer may have lost its head.
                client.rest();
                assert_eq!(count(&engines), before + 1, "{failure:?} {path}");
                client = proxy.connect();
            }
        }
    }
}

#[test]
fn p03_nothing_is_repeated_after_the_first_byte() {
    let engines = start::<2>();
    let proxy = before(&engines).start();
    fail(&engines, &Failure::CutAfter(1));
    for body in [chat("x"), stream("x", 9)] {
        let before = count(&engines);
        let mut client = proxy.connect();
        client.send(&request("POST", CHAT, &[], body.as_bytes()));
        client.answer();
        assert_eq!(count(&engines), before + 1);
    }
}

#[test]
fn a_worker_that_says_that_it_is_busy_has_begun_nothing() {
    let never = [("x-forebay-retry", "never")];
    for (path, headers, statuses) in [("/raw/x", &[][..], [200, 200]), (CHAT, &never, [200, 429])] {
        let engines = start::<2>();
        let proxy = before(&engines).start();
        fail(&engines[..1], &Failure::Busy(7));
        let mut client = proxy.connect();
        let mut seen = [(); 2].map(|()| post(&mut client, path, headers).status);
        seen.sort_unstable();
        assert_eq!(seen, statuses, "{path}");
    }
}

#[test]
fn a_failed_answer_goes_to_another_worker_and_the_last_one_to_the_client() {
    let engines = start::<3>();
    let proxy = before(&engines).start();
    fail(&engines[..1], &Failure::Status(502));
    let answers = [(); 3].map(|()| proxy.chat(&chat("x")));
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert!(
        answers
            .iter()
            .any(|answer| answer.header("x-forebay-attempts") == Some("2"))
    );
    let failed = engines[0].count();
    let cause = [("cause", "5xx")];
    let retried = || proxy.metric("forebay_retries_total", &cause) as usize;
    assert_eq!(retried(), failed);
    let attempts = [("worker", "a"), ("outcome", "5xx")];
    assert_eq!(
        proxy.metric("forebay_attempts_total", &attempts) as usize,
        failed
    );

    let odd = Canned::ok("all is lost").status(507).header("X-Odd", "1");
    for engine in &engines {
        engine.tune(|knobs| {
            knobs.failures = 0;
            knobs.canned = Some(odd.clone());
        });
    }
    let answer = proxy.chat(&chat("x"));
    assert_eq!((answer.status, answer.text()), (507, "all is lost"));
    assert_eq!(answer.header("x-odd"), Some("1"));
    assert_eq!(answer.header("x-forebay-attempts"), Some("3"));
    let line = &proxy.log_of(4)[3];
    assert_eq!(
        (&line["attempts"], &line["status"]),
        (&3.into(), &507.into())
    );
    assert_eq!(line["worker"], answer.header("x-forebay-worker").unwrap());
    assert_eq!(retried(), failed + 2);
}

#[test]
fn only_what_the_operator_names_is_repeated() {
    let engines = start::<2>();
    let mut setup = Proxy::setup()
        .section("[routing]\npolicy = \"round_robin\"\nretries = { on = [\"5xx\"] }")
        .probe("interval = \"60s\"\nrise = 1");
    for (name, engine) in NAMES.iter().zip(&engines) {
        setup = setup.worker(name, engine);
    }
    let proxy = setup.start();
    for (failure, status) in [
        (Failure::ResetAfterRequest, 502),
        (Failure::Busy(1), 429),
        (Failure::Status(500), 500),
    ] {
        fail(&engines, &failure);
        let before = count(&engines);
        assert_eq!(proxy.chat(&chat("x")).status, status);
        let repeats = usize::from(status == 500);
        assert_eq!(count(&engines), before + 1 + repeats, "{failure:?}");
    }
}

#[test]
fn a_real_answer_outlives_attempts_that_failed_after_it() {
    let engines = start::<2>();
    let proxy = before(&engines).start();
    fail(&engines[..1], &Failure::Status(500));
    fail(&engines[1..], &Failure::ResetAfterRequest);
    for _ in 0..4 {
        let answer = proxy.chat(&chat("x"));
        assert_eq!(answer.status, 500);
        assert_eq!(answer.header("x-forebay-worker"), Some("a"));
        assert_eq!(answer.header("x-forebay-attempts"), Some("2"));
    }
    let inflight = proxy.metric("forebay_inflight", &[]);
    assert_eq!(inflight, 0.0);
}

#[test]
fn an_answer_that_was_replaced_leaves_its_connection_to_the_next() {
    let engines = start::<2>();
    let proxy = before(&engines).start();
    fail(&engines[..1], &Failure::Status(500));
    let mut client = proxy.connect();
    for _ in 0..10 {
        assert_eq!(post(&mut client, CHAT, &[]).status, 200);
    }
    let seen = engines[0].requests();
    assert!(seen.len() > 1);
    assert!(seen.iter().all(|one| one.connection == seen[0].connection));
}

#[test]
fn repeats_of_failed_requests_are_bounded_by_a_fifth_of_those_that_live() {
    let engines = start::<2>();
    let proxy = before(&engines).start();
    fail(&engines[..1], &Failure::Status(500));
    fail(&engines[1..], &Failure::Hang);
    let mut clients: Vec<_> = (0..50)
        .map(|_| {
            let mut client = proxy.connect();
            client.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
            client
        })
        .collect();
    // Those that fail at once: ten at most are sent to the worker that hangs, the others get their 500.
    expect_soon("each hangs or has its answer", || {
        proxy.log().len() + engines[1].count() == 50
    });
    let repeats = count(&engines) - 50;
    assert!((3..=10).contains(&repeats), "{repeats}");
    assert!(proxy.log().iter().all(|line| line["status"] == 500));
    clients.clear();
    expect_soon("all are gone", || proxy.log().len() == 50);
    // Places in the budget came back: the next repeats again.
    engines[1].tune(|knobs| knobs.failures = 0);
    for _ in 0..10 {
        assert_eq!(proxy.chat(&chat("x")).status, 200);
    }
}

/// A pair of which one is busy and the other holds one request that hangs, and no more.
fn busy_and_full(engines: &[Engine; 2], total: &str) -> (Proxy, Client) {
    let proxy = Proxy::setup()
        .worker("busy", &engines[0])
        .worker_with("full", &engines[1], "max_inflight = 1")
        .section(&format!("[timeouts]\ntotal = \"{total}\""))
        .section(
            "[[route]]\npath = \"/raw/*\"\nworkers = [\"full\"]\ntimeouts = { total = \"off\" }",
        )
        .probe("interval = \"60s\"\nrise = 1")
        .start();
    engines[1].tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut held = proxy.connect();
    held.send(&request("POST", "/raw/x", &[], b"x"));
    expect_soon("it arrived", || engines[1].count() == 1);
    fail(&engines[..1], &Failure::Busy(7));
    (proxy, held)
}

#[test]
fn a_busy_workers_answer_waits_for_a_better_one_and_is_given_if_none_comes() {
    let engines = start::<2>();
    let (proxy, _held) = busy_and_full(&engines, "300ms");
    let answer = proxy.chat(&chat("x"));
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert_eq!(answer.header("retry-after"), Some("7"));
    assert_eq!(answer.header("x-forebay-worker"), Some("busy"));
    assert_eq!(proxy.metric("forebay_queue_depth", &[]), 0.0);
}

#[test]
fn a_request_that_met_a_busy_worker_waits_in_line_for_another() {
    let engines = start::<2>();
    let (proxy, held) = busy_and_full(&engines, "off");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| proxy.chat(&chat("x")));
        expect_soon("it stands in line", || {
            proxy.metric("forebay_queue_depth", &[]) == 1.0
        });
        // The busy one's answer is kept, its place is not.
        let inflight = [("worker", "busy")];
        assert_eq!(proxy.metric("forebay_inflight", &inflight), 0.0);
        drop(held);
        let answer = waiting.join().unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-forebay-worker"), Some("full"));
    });
}

#[test]
fn a_worker_that_does_not_know_a_path_is_not_asked_for_it_again() {
    for status in [404, 405, 501] {
        let engines = start::<2>();
        let proxy = before(&engines).start();
        let canned = Canned::ok("what?").status(status);
        engines[0].tune(|knobs| knobs.canned = Some(canned.clone()));
        for _ in 0..10 {
            assert_eq!(proxy.chat(&chat("x")).status, 200);
        }
        assert_eq!(engines[0].count(), 1);
        let other = r#"{"model":"m","query":"x","documents":["y"]}"#;
        for _ in 0..4 {
            assert_eq!(proxy.call("POST", "/v1/rerank", other).status, 200);
        }
        assert_eq!(engines[0].count(), 2);

        engines[1].tune(|knobs| knobs.canned = Some(canned));
        let answer = proxy.chat(&chat("x"));
        assert_eq!((answer.status, answer.text()), (status, "what?"));
        assert_eq!(answer.header("x-forebay-attempts"), Some("2"));
        let failed = [("outcome", "5xx")];
        assert_eq!(proxy.metric("forebay_attempts_total", &failed), 0.0);
    }
}

#[test]
fn a_worker_that_takes_too_long_is_replaced_if_that_is_allowed() {
    let engines = start::<2>();
    let proxy = before(&engines)
        .section("[timeouts]\nanswer = \"300ms\"\nfirst_byte = \"300ms\"")
        .start();
    fail(&engines[..1], &Failure::Hang);
    for body in [chat("x"), stream("x", 3)] {
        for _ in 0..2 {
            let answer = proxy.chat(&body);
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("x-forebay-worker"), Some("b"));
        }
    }
    let cause = [("cause", "timeout")];
    let retried = proxy.metric("forebay_retries_total", &cause);
    assert_eq!(retried as usize, engines[0].count());
    assert!(retried > 1.0);
    let mut client = proxy.connect();
    let statuses =
        [(); 2].map(|()| post(&mut client, CHAT, &[("x-forebay-retry", "never")]).status);
    assert!(statuses.contains(&504), "{statuses:?}");
}

#[test]
fn a_clients_deadline_ends_its_request() {
    let worker = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &worker, "max_inflight = 1")
        .section("[timeouts]\ntotal = \"1h\"")
        .start();
    worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    let ask = |deadline| {
        let headers = [("x-forebay-deadline", deadline)];
        post(&mut proxy.connect(), CHAT, &headers)
    };
    let told = |answer: &Answer| {
        let error = openai_error(answer, 504, "deadline");
        let message = message(&error);
        assert!(message.contains("x-forebay-deadline = 300ms"), "{message}");
        assert!(message.contains("passed"), "{message}");
    };
    told(&ask("\"300ms\""));
    told(&ask("300ms"));
    assert_eq!(worker.count(), 2);
    for bad in ["2", "soon", "\"\""] {
        openai_error(&ask(bad), 400, "bad_request");
    }
    // In line as well.
    let mut held = proxy.connect();
    held.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
    expect_soon("it arrived", || worker.count() == 3);
    told(&ask("300ms"));
    assert_eq!(worker.count(), 3);
    drop(held);
}

#[test]
fn p01_a_worker_that_loads_its_model_after_a_restart_costs_no_client_anything() {
    let engines = start::<2>();
    let proxy = before(&engines).start();
    engines[0].tune(|knobs| knobs.first_byte_delay = Duration::from_millis(1));
    for round in 0..3 {
        engines[0].kill();
        assert_eq!(proxy.chat(&chat("x")).status, 200, "{round}");
        fail(&engines[..1], &Failure::Status(503));
        engines[0].accept();
        for _ in 0..10 {
            assert_eq!(proxy.chat(&chat("x")).status, 200, "{round}");
        }
        engines[0].tune(|knobs| knobs.failures = 0);
    }
}
