//! Reload: another configuration while requests are under way. The real binary, its file, its signals and its admin
//! side.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use support::client::request;
use support::engine::Engine;
use support::engine::knobs::{Failure, Knobs};
use support::expect_soon;
use support::load::Load;
use support::prompt::{CHAT, chat, said, stream};
use support::proxy::{Proxy, TOKEN};
use support::tenant::{self, tenant};

/// A worker as a test writes one.
fn worker(name: &str, engine: &Engine, model: &str) -> String {
    let url = engine.url();
    format!(
        "[[worker]]\nname = \"{name}\"\nurl = \"{url}\"\nengine = \"vllm\"\nmodels = [\"{model}\"]\ntest = \"off\"\n"
    )
}

/// Runs `forebay reload` beside this proxy: its exit code, and what it says.
fn reload(proxy: &Proxy, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("reload")
        .args(arguments)
        .current_dir(proxy.folder())
        .env_clear()
        .env("FOREBAY_ADMIN_TOKEN", TOKEN)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn reloads(proxy: &Proxy, result: &str) -> f64 {
    proxy.metric("forebay_config_reloads_total", &[("result", result)])
}

fn names(proxy: &Proxy) -> Vec<String> {
    let workers = proxy.api("/api/workers");
    let rows = workers["workers"].as_array().unwrap();
    let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
    rows.iter().map(name).collect()
}

#[test]
fn p11_five_reloads_under_load_lose_nothing_and_a_stream_outlives_its_worker() {
    const REQUESTS: usize = 4_200;
    let [stays, leaves, comes] = [(); 3].map(|()| Engine::start());
    let slow = Engine::with(Knobs {
        models: vec!["m".into(), "slow".into()],
        decode: 0.05,
        ..Knobs::default()
    });
    let proxy = Proxy::setup()
        .worker("stays", &stays)
        .worker("leaves", &leaves)
        .worker_with("slow", &slow, "models = [\"slow\"]")
        .start();
    let first = proxy.configuration();
    let (before, _) = first.split_once("[[worker]]").unwrap();
    let second = format!(
        "{before}[limits]\nbody = \"1MiB\"\n{}{}",
        worker("stays", &stays, "m"),
        worker("comes", &comes, "m")
    );
    let mut streaming = proxy.connect();
    let body = stream("on and on", 100).replace("\"m\"", "\"slow\"");
    streaming.send(&request("POST", CHAT, &[], body.as_bytes()));
    let mut head = streaming.head();
    let load = Load {
        clients: 8,
        requests: REQUESTS,
        rate: None,
        path: CHAT,
        body: &chat("hello"),
    };
    let ended = load.send(&proxy, |running| {
        for (turn, text) in [&second, &first, &second, &first, &second]
            .into_iter()
            .enumerate()
        {
            expect_soon("the load goes on", || running.count() >= 500 * (turn + 1));
            proxy.reconfigure(text);
        }
    });
    let lost: Vec<_> = ended.iter().filter(|one| !one.is_good()).collect();
    assert!(lost.is_empty() && ended.len() == REQUESTS, "{lost:?}");
    assert_eq!(reloads(&proxy, "ok"), 5.0);
    assert!(
        ended.iter().any(|one| one.worker == "leaves")
            && ended.iter().any(|one| one.worker == "comes")
    );
    streaming.finish(&mut head);
    assert!(
        head.complete && said(head.text()).split_whitespace().count() >= 100,
        "{head:?}"
    );
    expect_soon("who has left and holds nothing is shown no more", || {
        names(&proxy) == ["stays", "comes"]
    });
    for metric in ["forebay_worker_state", "forebay_attempts_total"] {
        assert_eq!(proxy.metric(metric, &[("worker", "leaves")]), 0.0);
        assert!(proxy.metric(metric, &[("worker", "stays")]) > 0.0);
    }
}

#[test]
fn a_wrong_configuration_is_refused_whole_and_the_plan_before_lives_on() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let config = proxy.api("/api/config");
    let wrong = proxy.configuration() + "[limits]\nbody = \"0\"\nhaeder = \"1KiB\"\n[queue.x]\n";
    proxy.configure(&wrong);
    let (code, told) = reload(&proxy, &[]);
    assert_eq!(code, Some(2), "{told}");
    for problem in [
        "limits.body",
        "limits.haeder",
        "the plan before stays in force",
    ] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    assert!(reloads(&proxy, "refused") >= 1.0 && reloads(&proxy, "ok") == 0.0);
    assert_eq!(proxy.api("/api/config"), config);
    let kept = std::fs::read_to_string(proxy.folder().join("state/plan.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), config);
    let last = proxy.api("/api/reload");
    assert_eq!(last["result"], "refused");
    assert!(last["problems"].as_array().unwrap().len() >= 2, "{last}");
    assert_eq!(proxy.chat(&chat("still here")).status, 200);
    assert!(proxy.stderr().contains("the configuration is refused"));
}

#[test]
fn p14_a_start_with_a_wrong_configuration_starts_nothing_and_leaves_the_last_good_plan_to_be_seen()
{
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let plan = proxy.folder().join("state/plan.json");
    let kept = std::fs::read_to_string(&plan).unwrap();
    let address = proxy.address();
    proxy.configure(&(proxy.configuration() + "[limits]\nbody = \"0\"\nhaeder = \"1KiB\"\n"));
    proxy.signal("TERM");
    assert_eq!(proxy.wait_exit(Duration::from_secs(10)).code(), Some(0));
    let started = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("serve")
        .current_dir(proxy.folder())
        .env_clear()
        .env("FOREBAY_ADMIN_TOKEN", TOKEN)
        .output()
        .unwrap();
    let told = String::from_utf8(started.stderr).unwrap();
    assert_eq!(started.status.code(), Some(2), "{told}");
    for problem in ["limits.body", "limits.haeder"] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    assert!(std::net::TcpStream::connect(address).is_err());
    assert_eq!(std::fs::read_to_string(&plan).unwrap(), kept);
}

#[test]
fn a_dry_run_prints_what_would_change_and_changes_nothing() {
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::setup()
        .variable("KEY", "secret-one")
        .worker_with(
            "w",
            &engine,
            "key = { env = \"KEY\" }\nmodels = [\"m\", \"n\"]",
        )
        .start();
    let text = proxy.configuration().replace("\"m\", \"n\"", "\"m\"");
    let text = text + &tenant("app", "key", "models = [\"n\"]");
    // Nobody takes over a file that is written on and on; a round in which the writer was held up tells nothing.
    let is_told_alone = (1..=5).any(|round| {
        let limits = format!("[limits]\nbody = \"{round}MiB\"\n[queue]");
        let fresh =
            text.replace("[queue]", &limits) + &worker(&format!("new-{round}"), &other, "m");
        let before = proxy.api("/api/config");
        let (code, told) = while_written(&proxy, &fresh, || reload(&proxy, &["--dry-run"]));
        assert!(code == Some(0) && !told.contains("secret-one"), "{told}");
        let body = before["limits"]["body"].as_str().unwrap();
        let changed = format!("~ limits.body: {body} -> {round}MiB");
        let added = format!("+ worker.new-{round}: {}", other.url());
        let tells = |line: &str| told.lines().any(|told| told == line);
        let lost = "! clients lose n: no worker serves it any more";
        let remark = "warning: tenant app: no worker is configured to have the model n";
        [&*changed, &*added, lost, remark].into_iter().all(tells)
            && proxy.api("/api/config") == before
    });
    assert!(is_told_alone);
}

/// What this comes to while this is written into the configuration again and again.
fn while_written<T>(proxy: &Proxy, text: &str, what: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    proxy.configure(text);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                proxy.configure(text);
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        let done = what();
        is_over.store(true, Ordering::Release);
        done
    })
}

#[test]
fn a_file_that_changes_is_taken_over_once_it_rests_and_so_is_one_on_sighup() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let body = |proxy: &Proxy| proxy.api("/api/config")["limits"]["body"].clone();
    proxy.configure(&(proxy.configuration() + "[limits]\nbody = \"1MiB\"\n"));
    expect_soon("the file is followed", || body(&proxy) == "1MiB");
    let by = |who: &str| proxy.api("/api/reload")["by"] == who;
    expect_soon("it is told who asked", || by("file"));
    proxy.signal("HUP");
    expect_soon("SIGHUP is answered", || by("SIGHUP"));
    assert!(reloads(&proxy, "unchanged") >= 1.0);
}

#[test]
fn a_pipe_in_the_place_of_the_file_is_refused_and_holds_up_nobody() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let file = proxy.folder().join("forebay.toml");
    let text = proxy.configuration();
    std::fs::remove_file(&file).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    let answer = proxy.change("/api/reload", "");
    assert_eq!(answer.status, 422);
    assert!(
        answer.text().contains("no regular file"),
        "{}",
        answer.text()
    );
    std::fs::remove_file(&file).unwrap();
    proxy.reconfigure(&(text + "[limits]\nbody = \"1MiB\"\n"));
    assert_eq!(proxy.api("/api/config")["limits"]["body"], "1MiB");
}

#[test]
fn a_name_that_is_typed_no_more_is_gone_also_when_a_worker_once_told_it() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .queue("")
        .worker_with("w", &engine, "# models = as it says")
        .start();
    assert_eq!(proxy.chat(&chat("hello")).status, 200);
    let typed = "models = { small = \"m\" }";
    let text = proxy.configuration();
    proxy.reconfigure(&text.replace("# models = as it says", typed));
    assert_eq!(proxy.chat(&chat("hello")).reason(), Some("model_not_found"));
    let small = chat("hello").replace("\"m\"", "\"small\"");
    assert_eq!(proxy.chat(&small).status, 200);
}

#[test]
fn what_needs_a_restart_is_named_and_the_rest_is_taken_over() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let client = proxy.address().to_string();
    let fresh = proxy.configuration().replace(&client, "127.0.0.1:1");
    let waits = "! listen.http needs a restart or forebay serve --upgrade";
    let outcome = |fresh: &str, last: &str| {
        // Who follows the file may take it over first; then there is nothing left to be told.
        while_written(&proxy, fresh, || {
            let (code, told) = reload(&proxy, &["--dry-run"]);
            assert_eq!(code, Some(0));
            assert!(told.contains(waits), "{told}");
            assert!(
                told.ends_with(last) || told.ends_with("Nothing changes.\n"),
                "{told}"
            );
        });
    };
    outcome(&fresh, "Nothing else changes.\n");
    let fresh = fresh + "[limits]\nbody = \"1MiB\"\n";
    outcome(&fresh, "The rest would be taken over.\n");
    proxy.configure(&fresh);
    let (code, told) = reload(&proxy, &[]);
    assert_eq!(code, Some(0));
    assert!(told.contains(waits), "{told}");
    let config = proxy.api("/api/config");
    assert_eq!(config["limits"]["body"], "1MiB");
    assert_eq!(config["listen"]["http"][0], client);
    assert_eq!(proxy.chat(&chat("here")).status, 200);
}

#[test]
fn who_waits_for_a_worker_that_is_removed_is_judged_anew() {
    let [engine, gone] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::setup()
        .queue("wait_no_worker = \"10m\"")
        .worker("w", &engine)
        .worker_with("gone", &gone, "models = [\"only-there\"]")
        .start();
    gone.kill();
    expect_soon("it is down", || proxy.worker("gone")["state"] == "down");
    let mut waiting = proxy.connect();
    let body = chat("hello").replace("\"m\"", "\"only-there\"");
    waiting.send(&request("POST", CHAT, &[], body.as_bytes()));
    expect_soon("it stands in line", || {
        proxy.api("/api/queue")["entries"] == 1
    });
    let text = proxy.configuration();
    let (kept, _) = text.rsplit_once("[[worker]]").unwrap();
    proxy.reconfigure(kept);
    let answer = waiting.answer();
    assert_eq!(
        (answer.status, answer.reason()),
        (404, Some("model_not_found"))
    );
}

#[test]
fn who_stays_keeps_what_it_holds_what_was_learned_and_what_was_done_by_hand() {
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::setup()
        .worker("w", &engine)
        .worker("x", &other)
        .start();
    for _ in 0..8 {
        proxy.chat(&chat("hello"));
    }
    proxy.change("/api/workers/x/drain", "");
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut held = proxy.connect();
    held.send(&request("POST", CHAT, &[], chat("held").as_bytes()));
    expect_soon("it is held", || proxy.worker("w")["inflight"] == 1);
    let known = |name: &str| {
        let row = proxy.worker(name);
        ["inflight", "requests", "prefill", "override"].map(|key| row[key].clone())
    };
    let before = [known("w"), known("x")];
    let fresh = proxy
        .configuration()
        .replace("name = \"w\"", "name = \"w\"\nmax_inflight = 7\ntier = 1");
    proxy.reconfigure(&fresh);
    assert_eq!([known("w"), known("x")], before);
    assert_eq!(proxy.worker("w")["max_inflight"], 7);
    assert_eq!(proxy.worker("w")["tier"], 1);
}

#[test]
fn another_machine_behind_an_old_name_begins_anew() {
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::before(&engine);
    for _ in 0..8 {
        proxy.chat(&chat("hello"));
    }
    proxy.reconfigure(&proxy.configuration().replace(&engine.url(), &other.url()));
    let row = proxy.worker("w");
    assert_eq!(
        (row["requests"].as_u64(), row["url"].as_str()),
        (Some(0), Some(&*other.url()))
    );
    expect_soon("it is up", || proxy.worker("w")["state"] == "up");
    assert_eq!(proxy.chat(&chat("hello")).status, 200);
    assert_eq!(other.count(), 1);
}

#[test]
fn routes_and_keys_hold_from_the_next_request_on() {
    let with_key = |name, key| tenant(name, key, "requests_per_minute = 3");
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::setup()
        .section(&with_key("one", "key-one"))
        .worker("w", &engine)
        .worker("x", &other)
        .start();
    let ask = |path: &str, key: &str| tenant::ask(&proxy, key, path, &chat("hello"));
    assert_eq!(
        [ask(CHAT, "key-one").status, ask(CHAT, "key-two").status],
        [200, 401]
    );
    let route = "[[route]]\npath = \"/mine\"\nworkers = [\"x\"]\n";
    let fresh = proxy.configuration() + &with_key("two", "key-two") + route;
    proxy.reconfigure(&fresh);
    assert_eq!(ask(CHAT, "key-two").status, 200);
    let answer = ask("/mine", "key-two");
    assert_eq!(answer.header("x-forebay-worker"), Some("x"));
    let left = [
        ask(CHAT, "key-one").status,
        ask(CHAT, "key-one").status,
        ask(CHAT, "key-one").status,
    ];
    assert_eq!(left, [200, 200, 429], "what was used stays used");
    proxy.reconfigure(&fresh.replace(&with_key("one", "key-one"), ""));
    assert_eq!(ask(CHAT, "key-one").status, 401);
}

#[test]
fn a_file_in_the_folder_of_workers_is_a_worker_for_as_long_as_it_is_there() {
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let folder = tempfile::tempdir().unwrap();
    let alone = |engine: &Engine| worker("other", engine, "m").replace("[[worker]]\n", "");
    let proxy = Proxy::setup()
        .top(&format!("workers_dir = {:?}", folder.path()))
        .worker("w", &engine)
        .start();
    assert_eq!(names(&proxy), ["w"]);
    let file = folder.path().join("other.toml");
    std::fs::write(folder.path().join("other.toml~"), "not ours").unwrap();
    std::fs::write(&file, alone(&other)).unwrap();
    expect_soon("it joins", || names(&proxy) == ["w", "other"]);
    std::fs::write(&file, "name = 7").unwrap();
    expect_soon("a mistake is told", || {
        proxy.api("/api/reload")["result"] == "refused"
    });
    let told = proxy.api("/api/reload")["problems"].to_string();
    assert!(told.contains("other.toml:1:8: worker.name = 7"), "{told}");
    assert_eq!(names(&proxy), ["w", "other"]);
    std::fs::remove_file(&file).unwrap();
    expect_soon("it leaves", || names(&proxy) == ["w"]);
}

/// What `forebay workers` says to this, and its code.
fn workers(proxy: &Proxy, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("workers")
        .args(arguments)
        .current_dir(proxy.folder())
        .env_clear()
        .env("FOREBAY_ADMIN_TOKEN", TOKEN)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_worker_is_added_by_hand_outlives_reloads_and_leaves_when_it_is_told_to() {
    let engine = Engine::start();
    let other = Engine::with(Knobs {
        models: vec!["n".into()],
        ..Knobs::default()
    });
    let proxy = Proxy::before(&engine);
    let bare = other.address().to_string();
    let (code, told) = workers(&proxy, &["add", &bare]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains(&format!("+ worker.worker: {}", other.url())),
        "{told}"
    );
    let body = chat("hello").replace("\"m\"", "\"n\"");
    expect_soon("what it serves is known", || {
        proxy.chat(&body).status == 200
    });
    let text = proxy.configuration() + "[limits]\nbody = \"1MiB\"\n";
    proxy.reconfigure(&text);
    assert_eq!(names(&proxy), ["w", "worker"]);

    let twin = workers(&proxy, &["add", &bare, "--name", "w"]);
    assert_eq!(twin.0, Some(2), "{}", twin.1);
    assert!(
        twin.1.contains("added by hand:1:8: worker.name"),
        "{}",
        twin.1
    );
    proxy.reconfigure(&text.replace("1MiB", "2MiB"));
    assert_eq!(
        names(&proxy),
        ["w", "worker"],
        "what was refused holds up nobody"
    );

    let (code, told) = workers(&proxy, &["remove", "w"]);
    assert!(code == Some(2) && told.contains("way out"), "{told}");
    let (code, told) = workers(&proxy, &["remove", "worker"]);
    assert!(
        code == Some(0) && told.contains("- worker.worker: "),
        "{told}"
    );
    expect_soon("it leaves", || names(&proxy) == ["w"]);
    assert_eq!(workers(&proxy, &["add", "no url"]).0, Some(2));
}

#[test]
fn a_worker_that_is_added_for_some_time_leaves_at_its_end() {
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::before(&engine);
    let added = proxy.change(
        "/api/workers/guest/add",
        &format!(r#"{{"url":"{}","for":"1500ms"}}"#, other.url()),
    );
    assert_eq!(added.json()["result"], "ok", "{}", added.text());
    expect_soon("its time is over", || {
        proxy.api("/api/reload")["by"] == "time"
    });
    expect_soon("it is gone again", || names(&proxy) == ["w"]);
    let log = proxy.stderr();
    assert!(log.contains("added by hand"), "{log}");
}

#[test]
fn a_worker_that_can_not_be_added_takes_no_change_of_the_file_along() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    proxy.configure(&(proxy.configuration() + "[limits]\nbody = \"1MiB\"\n"));
    let nowhere = proxy.change("/api/workers/guest/add", r#"{"url":"x://y"}"#);
    assert_eq!(nowhere.status, 422, "{}", nowhere.text());
    expect_soon("the file is taken over", || {
        proxy.api("/api/config")["limits"]["body"] == "1MiB"
    });
    assert_eq!(reloads(&proxy, "refused"), 0.0);
    assert_eq!(names(&proxy), ["w"]);
}

#[test]
fn of_workers_that_come_at_once_each_is_answered_for_itself() {
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::before(&engine);
    let add = |name: &str, url: &str| {
        let path = format!("/api/workers/{name}/add");
        proxy.change(&path, &format!(r#"{{"url":"{url}"}}"#)).status
    };
    let statuses = std::thread::scope(|scope| {
        let good = scope.spawn(|| add("good", &other.url()));
        let bad = scope.spawn(|| add("bad", "x://y"));
        [good, bad].map(|adding| adding.join().unwrap())
    });
    assert_eq!(statuses, [200, 422]);
    assert_eq!(names(&proxy), ["w", "good"]);
}

#[test]
fn the_log_level_is_set_while_it_runs_for_all_and_for_one_room() {
    let [engine, other] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::before(&engine);
    let set = |body: &str| proxy.change("/api/log", body).status;
    let told = |what: &str| proxy.stderr().contains(what);
    assert_eq!(set(r#"{"level": "loud"}"#), 400);
    let nowhere = proxy.change("/api/log", r#"{"level": "debug", "room": "cellar"}"#);
    let rooms = nowhere.json()["error"]["message"].to_string();
    assert!(
        nowhere.status == 400 && rooms.contains("fleet, forward"),
        "{rooms}"
    );
    assert_eq!(set(r#"{"level": "error"}"#), 200);
    let says_the_same = "the configuration says what it said before";
    proxy.reconfigure(&proxy.configuration());
    proxy.change("/api/workers/w/drain", "");
    let guest = format!(r#"{{"url":"{}"}}"#, other.url());
    assert_eq!(proxy.change("/api/workers/guest/add", &guest).status, 200);
    assert_eq!(proxy.change("/api/workers/guest/remove", "").status, 200);
    let by_hand = ["drained", "added", "removed"].map(|what| format!("{what} by hand"));
    expect_soon("a change by hand is told at every level", || {
        by_hand.iter().all(|what| told(what))
    });
    assert!(!told(says_the_same));
    assert_eq!(set(r#"{"level": "info", "room": "serve"}"#), 200);
    proxy.reconfigure(&proxy.configuration());
    expect_soon("one room speaks", || told(says_the_same));
    proxy.reconfigure(&(proxy.configuration() + "[log]\nlevel = \"debug\"\n"));
    expect_soon("the configuration's level holds again", || {
        told("log.level: info -> debug")
    });
}
