//! Promises about what is never shown: what clients say (P39) and what operators keep (P40), at any log level, however
//! a request ends.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::json;

use support::client::{Answer, Client, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure, Knobs};
use support::expect_soon;
use support::h2_client::H2Client;
use support::prompt::CHAT;
use support::proxy::{Proxy, TOKEN};
use support::tenant::tenant;

/// What a client says and nobody may repeat. Each stands in one place of a request or an answer.
const CANARIES: [&str; 7] = [
    "canary-prompt",
    "canary-answer",
    "canary-bearer",
    "canary-api-key",
    "canary-cookie",
    "canary-query",
    "canary-user",
];

/// Everything that a proxy shows to its operator, and the errors that it made.
fn everything_shown(proxy: &Proxy, errors: &[String]) -> String {
    let pages = [
        "/metrics",
        "/api/tenants",
        "/api/workers",
        "/api/config",
        "/ready",
        "/health",
        "/",
        "/api/nope",
    ];
    let decisions = proxy.log().into_iter().map(|line| {
        let path = format!("/api/requests/{}", line["id"].as_str().unwrap());
        expect_soon("it is remembered", || proxy.ask_admin(&path).status == 200);
        path
    });
    let asked: Vec<String> = pages
        .map(str::to_owned)
        .into_iter()
        .chain(decisions)
        .map(|page| String::from_utf8_lossy(&proxy.ask_admin(&page).body).into_owned())
        .collect();
    [
        proxy.stdout(),
        proxy.stderr(),
        asked.concat(),
        errors.concat(),
    ]
    .concat()
}

fn body(model: &str, streamed: bool) -> String {
    json!({"model": model, "stream": streamed, "max_tokens": 6, "user": "canary-user",
           "messages": [{"role": "user", "content": "canary-prompt"}]})
    .to_string()
}

/// Sends a request full of canaries, over HTTP/1.1 and over HTTP/2; what the proxy itself said to it.
fn ask(proxy: &Proxy, target: &str, body: &str) -> String {
    let target = format!("{target}?q=canary-query");
    let headers = [
        ("authorization", "Bearer canary-bearer"),
        ("x-api-key", "canary-api-key"),
        ("cookie", "session=canary-cookie"),
    ];
    let mut client = proxy.connect();
    let one = client.call_with("POST", &target, &headers, body.as_bytes());
    let mut client = H2Client::connect(proxy.address());
    let two = client.try_call("POST", &target, &headers, body.as_bytes());
    let own = |answer: Answer| {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        match (answer.reason(), text.split_once("event: error")) {
            (Some(_), _) => text,
            // The event is the proxy's; what stands before it is the worker's.
            (None, Some((_, event))) => event.to_owned(),
            (None, None) => String::new(),
        }
    };
    own(one) + &two.map(own).unwrap_or_default()
}

/// Requests that end in as many ways as there are, each full of canaries; what the proxy itself said to them.
fn end_in_every_way(proxy: &Proxy, worker: &Engine) -> Vec<String> {
    let mut errors = vec![
        ask(proxy, CHAT, &body("m", false)),
        ask(proxy, CHAT, &body("m", true)),
        ask(proxy, CHAT, "{\"model\": \"m\", canary-prompt"),
        ask(proxy, CHAT, "{\"messages\": \"canary-prompt\"}"),
        ask(proxy, "/v1/nothing-here", &body("m", false)),
        ask(proxy, "/v1/messages", &body("unknown", false)),
        ask(proxy, "/v2/models/m/infer", "canary-prompt"),
    ];
    for failure in [
        Failure::ResetBeforeHead,
        Failure::ResetAfterRequest,
        Failure::Hang,
        Failure::Status(500),
        Failure::Busy(1),
        Failure::CutAfter(2),
        Failure::StallAfter(2),
        Failure::Rubbish("HTTP/1.1 canary-answer\r\n\r\ncanary-answer".into()),
        Failure::Stray("canary-answer".into()),
    ] {
        worker.tune(|knobs| knobs.fail(failure, u64::MAX));
        errors.push(ask(proxy, CHAT, &body("m", true)));
        errors.push(ask(proxy, CHAT, &body("m", false)));
    }
    worker.tune(|knobs| {
        knobs.failures = 0;
        knobs.canned = Some(Canned::ok("canary-answer").header("set-cookie", "canary-cookie"));
    });
    ask(proxy, CHAT, &body("m", false));
    errors
}

/// A client that leaves, and heads that cannot be read.
fn misbehave(proxy: &Proxy, worker: &Engine) {
    worker.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let before = worker.count();
    let mut leaving = proxy.connect();
    leaving.send(&request("POST", CHAT, &[], body("m", false).as_bytes()));
    expect_soon("it arrived", || worker.count() > before);
    drop(leaving);
    for bytes in [
        "GET /canary-query canary-prompt HTTP/1.1\r\n\r\n",
        "canary-prompt\r\n\r\n",
        "GET /x HTTP/1.1\r\ncookie canary-cookie\r\n\r\n",
    ] {
        let mut client = proxy.connect();
        client.send(bytes.as_bytes());
        client.half_close();
        client.rest();
    }
}

#[test]
fn p39_nothing_that_clients_say_is_shown_at_any_level_however_a_request_ends() {
    let short = "[timeouts]\nfirst_byte = \"100ms\"\nanswer = \"100ms\"\nbetween_bytes = \"100ms\"";
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::setup()
            .worker("w", &worker)
            .section(&format!("[log]\nlevel = \"trace\"\n{short}"))
            .start();
        let errors = end_in_every_way(&proxy, &worker);
        misbehave(&proxy, &worker);
        // 26 requests over either protocol, and the one that left: a canary would stand in what is looked through now.
        expect_soon("all are logged", || proxy.log().len() >= 53);
        assert!(!proxy.stderr().is_empty(), "the trace level says something");
        assert!(errors.len() == 25 && errors.iter().any(|error| error.contains("error")));
        let shown = everything_shown(&proxy, &errors);
        for canary in CANARIES {
            let place = shown.find(canary);
            let around = place.map(|place| &shown[place.saturating_sub(200)..place + canary.len()]);
            assert!(around.is_none(), "{canary}: …{}", around.unwrap());
        }
    }
}

/// The keys that [`ask`] sends are two, so each request is refused; then one of them is right, in either place.
#[test]
fn p39_a_tenant_s_key_is_shown_to_nobody_and_reaches_no_worker() {
    for right in ["canary-bearer", "canary-api-key"] {
        let worker = Engine::start();
        let limits = "requests_per_minute = 3\nmodels = [\"m\"]";
        let proxy = Proxy::setup()
            .worker("w", &worker)
            .section(&format!(
                "[log]\nlevel = \"trace\"\n{}",
                tenant("app", right, limits)
            ))
            .start();
        let mut errors = vec![ask(&proxy, CHAT, &body("m", false))];
        let headers = [
            [("authorization", "Bearer canary-bearer")],
            [("x-api-key", "canary-api-key")],
        ];
        let mut statuses = Vec::new();
        for headers in headers.iter().cycle().take(12) {
            let model = if statuses.is_empty() { "unknown" } else { "m" };
            let mut client = proxy.connect();
            let answer = client.call_with("POST", CHAT, headers, body(model, false).as_bytes());
            statuses.push(answer.status);
            if answer.reason().is_some() {
                errors.push(answer.text().to_owned());
            }
        }
        assert!(
            [200, 401, 429]
                .iter()
                .all(|status| statuses.contains(status)),
            "{statuses:?}"
        );
        expect_soon("all are logged", || proxy.log().len() >= 14);
        let shown = everything_shown(&proxy, &errors);
        assert!(shown.contains("two different keys") && shown.contains("\"app\""));
        let passed: Vec<_> = worker.requests();
        assert!(!passed.is_empty());
        for canary in ["canary-bearer", "canary-api-key"] {
            assert!(!shown.contains(canary), "{canary}");
            let leaked = |head: &[u8]| String::from_utf8_lossy(head).contains(canary);
            assert!(!passed.iter().any(|seen| leaked(&seen.head)), "{canary}");
        }
    }
}

#[test]
fn p39_an_unknown_model_is_no_label() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    proxy.chat(&body("canary-model", false));
    let metrics = proxy.ask_admin("/metrics");
    assert!(!metrics.text().contains("canary-model"));
    assert_eq!(
        proxy.metric("forebay_requests_total", &[("reason", "model_not_found")]),
        1.0
    );
    assert_eq!(
        proxy.metric("forebay_requests_total", &[("model", "other")]),
        1.0
    );
}

/// A proxy with a secret of each kind in its configuration.
fn with_secrets(worker: &Engine) -> Proxy {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "canary-key-of-file\n").unwrap();
    let by_file = format!("models = [\"n\"]\nkey = {{ file = {:?} }}", file.path());
    Proxy::setup()
        .worker_with(
            "a",
            worker,
            "key = { env = \"CANARY_KEY\" }\nheaders = { \"x-extra\" = \"${CANARY_HEADER}\" }",
        )
        .worker_with("b", worker, &by_file)
        .variable("CANARY_KEY", "canary-key-of-env")
        .variable("CANARY_HEADER", "canary-header")
        .section("[log]\nlevel = \"trace\"")
        .start()
}

#[test]
fn p40_keys_reach_the_worker_and_nobody_else() {
    let worker = Engine::start();
    worker.tune(|knobs| knobs.models.push("n".to_owned()));
    let proxy = with_secrets(&worker);
    let mut errors = Vec::new();
    for model in ["m", "n"] {
        ask(&proxy, CHAT, &body(model, false));
        worker.tune(|knobs| knobs.fail(Failure::ResetAfterRequest, 1));
        errors.push(ask(&proxy, CHAT, &body(model, false)));
    }
    let keys: Vec<String> = worker
        .requests()
        .iter()
        .map(|seen| seen.header("authorization").unwrap().to_owned())
        .collect();
    assert_eq!(keys[0], "Bearer canary-key-of-env");
    assert_eq!(keys[keys.len() - 1], "Bearer canary-key-of-file");
    assert_eq!(
        worker.requests()[0].header("x-extra"),
        Some("canary-header")
    );
    let probe_keys: Vec<String> = worker
        .everything()
        .iter()
        .filter(|seen| seen.is_probe())
        .map(|seen| seen.header("authorization").unwrap_or_default().to_owned())
        .collect();
    assert!(
        probe_keys
            .iter()
            .all(|key| key.starts_with("Bearer canary-key")),
        "{probe_keys:?}"
    );
    let shown = everything_shown(&proxy, &errors);
    for secret in ["canary-key-of-env", "canary-key-of-file", TOKEN] {
        assert!(!shown.contains(secret), "{secret}");
    }
}

#[test]
fn p40_the_state_folder_is_the_processs_own() {
    use std::os::unix::fs::PermissionsExt as _;
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let state = std::fs::metadata(proxy.folder().join("state")).unwrap();
    assert_eq!(state.permissions().mode() & 0o777, 0o700);
}

#[test]
fn p40_the_config_shows_that_there_is_a_key_and_not_which() {
    let worker = Engine::start();
    let proxy = with_secrets(&worker);
    let config = proxy.ask_admin("/api/config");
    assert!(config.text().contains("***"), "{}", config.text());
    assert!(!config.text().contains("canary-key"));
}

#[test]
fn p40_the_admin_side_shows_nothing_without_the_token() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let host = proxy.admin().to_string();
    for path in ["/api/workers", "/api/config", "/", "/?token=wrong"] {
        for bearer in [
            "",
            "authorization: Bearer wrong\r\n",
            "authorization: Bearer \r\n",
        ] {
            let bytes = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{bearer}\r\n");
            let answer = Client::connect(proxy.admin())
                .send(bytes.as_bytes())
                .answer();
            assert_eq!(answer.status, 401, "{path} {bearer:?}");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(
                !text.contains(&worker.url()) && !text.contains(TOKEN),
                "{text}"
            );
        }
    }
    for path in ["/api/workers", "/api/config", "/metrics"] {
        let answer = proxy.call("GET", path, "");
        assert_eq!(
            answer.reason(),
            Some("no_route"),
            "{path} on the client side"
        );
    }
}
