//! The verbs that ask a running proxy: the real binary beside the real proxy.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use support::client::request;
use support::command::{self, Said};
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::{Proxy, TOKEN};
use support::queue::occupy;

/// Runs a verb beside this proxy, with these variables and no others.
fn forebay_with(proxy: &Proxy, variables: &[(&str, &str)], arguments: &[&str]) -> Said {
    command::forebay(proxy.folder(), variables, arguments)
}

/// The same with the token of all tests.
fn forebay(proxy: &Proxy, arguments: &[&str]) -> Said {
    forebay_with(proxy, &[("FOREBAY_ADMIN_TOKEN", TOKEN)], arguments)
}

/// What it says when all is well: in a pipe without a colour, and no wider than a terminal.
#[track_caller]
fn told(proxy: &Proxy, arguments: &[&str]) -> String {
    let said = forebay(proxy, arguments);
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(0), ""),
        "{arguments:?}"
    );
    let is_table = !arguments.contains(&"--json");
    assert!(!is_table || said.fits(), "{}", said.out);
    said.out
}

#[test]
fn workers_are_listed_and_changed() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker("desk", &engine)
        .worker_with(
            "a-worker-with-a-very-long-name",
            &engine,
            "max_inflight = 4",
        )
        .start();
    let list = told(&proxy, &["workers"]);
    assert_eq!(list, told(&proxy, &["workers", "list"]));
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(list.contains("\ndesk ") && list.contains(" 0/4 "), "{list}");
    assert!(list.contains("\na-worker-with-a-very-… up "), "{list}");
    let json = told(&proxy, &["workers", "drain", "desk", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["state"], "draining");
    let drained = told(&proxy, &["workers"]);
    assert!(drained.contains("\n  drained by hand\n"), "{drained}");
    told(&proxy, &["workers", "resume", "desk"]);
    let faster = told(&proxy, &["workers", "speed", "desk", "2.5"]);
    assert!(faster.contains("\n  speed 2.5 set by hand\n"), "{faster}");
    let row = proxy.worker("desk");
    assert_eq!(
        (&row["state"], &row["override"]["speed"]),
        (&"up".into(), &2.5.into())
    );
}

#[test]
fn a_drain_waits_for_what_the_worker_holds() {
    let engine = Engine::start();
    let proxy = Proxy::setup().worker("w", &engine).start();
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut held = proxy.connect();
    held.send(&request("POST", CHAT, &[], chat("x").as_bytes()));
    expect_soon("it holds one", || proxy.worker("w")["inflight"] == 1);
    let drain = ["workers", "drain", "w", "--wait", "--within", "300ms"];
    let late = forebay(&proxy, &drain);
    assert_eq!((late.code, late.out.as_str()), (Some(1), ""));
    assert_eq!(late.err, "w still holds 1 request, and stays drained.\n");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| told(&proxy, &["workers", "drain", "w", "--wait"]));
        expect_soon("the log tells of it", || {
            proxy.stderr().matches("drained by hand").count() >= 2
        });
        assert!(!waits.is_finished());
        drop(held);
        assert!(waits.join().unwrap().contains("\nw "));
    });
}

#[test]
fn a_wait_ends_when_nobody_wants_the_drain_any_more() {
    let engine = Engine::start();
    let proxy = Proxy::setup().worker("w", &engine).start();
    let _held = occupy(&proxy, &engine);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| forebay(&proxy, &["workers", "drain", "w", "--wait"]));
        expect_soon("it is drained", || proxy.worker("w")["state"] == "draining");
        assert_eq!(proxy.change("/api/workers/w/resume", "").status, 200);
        let said = waits.join().unwrap();
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
        assert!(
            said.err.contains("w is not drained any more"),
            "{}",
            said.err
        );
    });
}

#[test]
fn a_wait_ends_with_the_proxy() {
    let engine = Engine::start();
    let proxy = Proxy::setup().worker("w", &engine).start();
    let _held = occupy(&proxy, &engine);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| forebay(&proxy, &["workers", "drain", "w", "--wait"]));
        expect_soon("it is drained", || proxy.worker("w")["state"] == "draining");
        proxy.signal("KILL");
        let said = waits.join().unwrap();
        assert_eq!(said.code, Some(1));
        assert!(said.err.contains("No proxy answers at"), "{}", said.err);
    });
}

#[test]
fn a_request_that_nobody_sends_is_foreseen() {
    let engine = Engine::start();
    let proxy = Proxy::setup().worker("w", &engine).start();
    let body = chat("canary");
    let table = told(&proxy, &["why", "--dry-run", &body]);
    assert!(table.starts_with("it would go to w: "), "{table}");
    assert!(table.contains("\nw              picked "), "{table}");
    std::fs::write(proxy.folder().join("body.json"), &body).unwrap();
    let json = told(&proxy, &["why", "--dry-run", "@body.json", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["worker"], &json["model"]),
        (&"w".into(), &"m".into())
    );
    let embeds = told(
        &proxy,
        &["why", "--dry-run", r#"{"model":"m","input":"canary"}"#],
    );
    assert!(
        embeds.contains("\nas a POST to /v1/embeddings\n"),
        "{embeds}"
    );
    let nameless = forebay(&proxy, &["why", "--dry-run", r#"{"inputs":[]}"#]);
    assert_eq!(nameless.code, Some(2));
    assert!(
        nameless.err.contains("/v2/models/NAME/infer"),
        "{}",
        nameless.err
    );
    let other = forebay(&proxy, &["why", "--dry-run", &body, "--path", "/nowhere"]);
    let refused = "it would be refused: 404 no_route: no [[route]]";
    assert!(other.out.starts_with(refused), "{}", other.out);
    assert_eq!(engine.count(), 0, "nothing was sent");
    let missing = forebay(&proxy, &["why", "--dry-run", "@missing"]);
    assert_eq!(missing.code, Some(2));
    assert!(!proxy.stderr().contains("canary"));
}

#[test]
fn requests_are_found_and_explained() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker("w", &engine)
        .section("[routing]\nretries = { extra = 0 }")
        .start();
    let nothing = forebay(&proxy, &["why"]);
    assert_eq!(
        (nothing.code, nothing.err.as_str()),
        (Some(1), "No request has ended yet.\n")
    );
    let ask = |id: &str, body: &str| {
        let headers = [("x-request-id", id)];
        let mut client = proxy.connect();
        client.call_with("POST", CHAT, &headers, body.as_bytes())
    };
    engine.tune(|knobs| knobs.chunk_delay = Duration::from_millis(30));
    ask("slow", &stream("x", 8));
    engine.tune(|knobs| knobs.chunk_delay = Duration::ZERO);
    ask("quick", &chat("x"));
    engine.tune(|knobs| knobs.fail(Failure::ResetAfterRequest, 1));
    ask("bad", &chat("x"));
    expect_soon("all have ended", || {
        proxy.ask_admin("/api/requests/bad").status == 200
    });

    let ids = |arguments: &[&str]| -> Vec<String> {
        let table = told(&proxy, arguments);
        let rows = table.lines().skip(1);
        rows.map(|row| row.split_whitespace().nth(1).unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&["requests"]), ["bad", "quick", "slow"]);
    assert_eq!(ids(&["requests", "--slow", "--limit", "1"]), ["slow"]);
    assert_eq!(ids(&["requests", "--failed"]), ["bad"]);
    assert_eq!(
        ids(&["requests", "--tenant", "app", "--since", "1h"]).len(),
        0
    );

    let slowest = told(&proxy, &["why", "--slow"]);
    let first = slowest.lines().next().unwrap();
    assert!(
        first.starts_with("decode: ") && first.ends_with(": w wrote the answer"),
        "{first}"
    );
    assert!(slowest.contains("slow: 200 ok, came "), "{slowest}");
    let row = slowest.lines().find(|line| line.starts_with("w "));
    assert!(row.unwrap().contains(" picked "), "{slowest}");
    let bad = told(&proxy, &["why", "bad"]);
    assert!(bad.contains("\nbad: 502 worker_failed, came "), "{bad}");
    assert_eq!(told(&proxy, &["why"]), bad);
    assert_eq!(told(&proxy, &["why", "--last"]), bad);
    let json = told(&proxy, &["why", "quick", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["id"], "quick");
}

#[test]
fn what_is_wrong_with_the_arguments_is_2_and_what_does_not_work_1() {
    let engine = Engine::start();
    let proxy = Proxy::setup().worker("desk", &engine).start();
    for (arguments, part) in [
        (&["workers", "drain", "dsk"][..], "did you mean desk?"),
        (&["workers", "speed", "desk", "0"], "from 0.001 to 1000"),
        (&["workers", "speed", "desk", "1e9"], "from 0.001 to 1000"),
        (&["workers", "speed", "desk", "NaN"], "is no speed"),
        (&["workers", "speed", "desk", "inf"], "is no speed"),
        (
            &["workers", "drain", "../desk/%2F"],
            "no worker of this name",
        ),
        (&["workers", "resume", "dësk"], "did you mean desk?"),
        (
            &["workers", "drain", "desk", "--within", "10"],
            "the unit is missing",
        ),
        (&["why", "nobody"], "no request of this id"),
        (&["requests", "--since", "soon"], "answers 400"),
        (&["workers", "--admin", "desk"], "not a URL"),
        (&["why", "x", "--slow"], "cannot be used with"),
    ] {
        let said = forebay(&proxy, arguments);
        assert_eq!(
            (said.code, said.out.as_str()),
            (Some(2), ""),
            "{arguments:?}"
        );
        assert!(said.err.contains(part), "{}", said.err);
    }
    let admin = format!("http://{}", proxy.admin());
    let wrong = [("FOREBAY_ADMIN_TOKEN", "wrong-token")];
    let said = forebay_with(&proxy, &wrong, &["workers", "--admin", &admin]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("answers 401") && !said.err.contains("wrong-token"));
    proxy.signal("TERM");
    proxy.wait_exit(Duration::from_secs(10));
    let said = forebay(&proxy, &["workers"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains("Is `forebay serve` running?"),
        "{}",
        said.err
    );
}

#[test]
fn the_state_folder_tells_address_and_token_to_its_owner_alone() {
    let engine = Engine::start();
    let made = [("FOREBAY_ADMIN_TOKEN", "")];
    let proxy = Proxy::setup()
        .worker("desk", &engine)
        .variable(made[0].0, made[0].1)
        .launch();
    for file in ["admin.json", "admin-token"] {
        let path = proxy.folder().join("state").join(file);
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file}");
    }
    let listed = forebay_with(&proxy, &[], &["workers"]);
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    assert!(listed.out.contains("\ndesk "), "{}", listed.out);
    // From elsewhere the folder can be named as systemd does.
    let state = proxy.folder().join("state");
    let elsewhere = tempfile::tempdir().unwrap();
    let named = [("STATE_DIRECTORY", state.to_str().unwrap())];
    let listed = command::forebay(elsewhere.path(), &named, &["workers"]);
    assert_eq!(listed.code, Some(0), "{}", listed.err);
}
