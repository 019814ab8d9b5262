//! Keys, models and limits of tenants over real sockets: who is let in, what the others are told, and that all a
//! request took comes back however it ends.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::{Value, json};

use forebay::rng::Rng;

use support::client::{Client, request};
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure, Knobs};
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::{Proxy, Setup};
use support::tenant::{INFER, MESSAGES, ask, ask_with, bearer, hash, refused, tenant};

const KEY: &str = "fb_of-the-app";

/// One worker with the models `m` and `n`, and these tenants.
fn proxy(worker: &Engine, tenants: &str) -> Proxy {
    worker.tune(|knobs| knobs.models = vec!["m".to_owned(), "n".to_owned()]);
    let models = "models = [\"m\", \"n\"]";
    let setup: Setup = Proxy::setup().section(tenants);
    setup.worker_with("w", worker, models).start()
}

/// A body for each path that names model `n`.
fn bodies() -> [(&'static str, String); 3] {
    let chat = json!({"model": "n", "max_tokens": 4, "messages": []}).to_string();
    let tensor = json!({"name": "x", "shape": [1], "datatype": "FP32", "data": [1]});
    [
        (CHAT, chat.clone()),
        (MESSAGES, chat),
        (
            "/v2/models/n/infer",
            json!({"inputs": [tensor]}).to_string(),
        ),
    ]
}

#[test]
fn every_refusal_has_its_status_reason_words_and_shape_and_reaches_no_worker() {
    let worker = Engine::start();
    let old = hash("fb_old");
    let keys = format!(
        "[[tenant]]\nname = \"app\"\nkey_hash = [\"{}\", {{ hash = \"{old}\", until = \"2020-01-01\" }}]\n\
         models = [\"m\"]\ntokens_per_minute = 100\n",
        hash(KEY)
    );
    let full = tenant("full", "fb_full", "requests_per_minute = 1");
    let proxy = proxy(&worker, &format!("{keys}{full}"));
    assert_eq!(ask(&proxy, "fb_full", CHAT, &chat("x")).status, 200);
    worker.forget();
    let right = bearer(KEY);
    for (path, body) in bodies() {
        let shape = if path.starts_with("/v2") { INFER } else { path };
        let check = |headers: &[(&str, &str)], status, reason, kind, said: &str| {
            let answer = ask_with(&proxy, headers, path, &body);
            let message = refused(&answer, shape, status, reason, kind);
            assert!(message.contains(said), "{message}");
            let challenge = answer.header("www-authenticate");
            assert_eq!(challenge, (status == 401).then_some("Bearer"));
            answer
        };
        let bad_key = |headers: &[(&str, &str)], said| {
            check(headers, 401, "unauthorized", "authentication_error", said);
        };
        bad_key(&[], "Authorization: Bearer KEY");
        bad_key(&[("authorization", "Bearer ")], "Authorization: Bearer KEY");
        bad_key(
            &[("authorization", "Basic eDp5")],
            "Authorization: Bearer KEY",
        );
        bad_key(&[("authorization", "Bearer fb_wrong")], "not known");
        bad_key(&[("x-api-key", "fb_old")], "expired at 2020-01-01");
        let two = [("authorization", right.as_str()), ("x-api-key", "fb_full")];
        check(
            &two,
            400,
            "bad_request",
            "invalid_request_error",
            "two different keys",
        );
        let own = [("authorization", right.as_str())];
        check(&own, 403, "forbidden", "permission_error", "it may use: m");
        let limited = [("api-key", "fb_full")];
        let answer = check(
            &limited,
            429,
            "rate_limited",
            "rate_limit_error",
            "as it may: 1 a minute",
        );
        let number = |name| answer.header(name).unwrap().parse::<u32>().unwrap();
        assert!((50..=60).contains(&number("retry-after")));
        assert_eq!(
            (number("ratelimit-limit"), number("ratelimit-remaining")),
            (1, 0)
        );
        assert!((50..=60).contains(&number("ratelimit-reset")));
    }
    let large = json!({"model": "m", "max_tokens": 101, "messages": []}).to_string();
    let answer = ask(&proxy, KEY, CHAT, &large);
    let message = refused(&answer, CHAT, 429, "rate_limited", "rate_limit_error");
    assert!(
        message.contains("no wait helps") && message.contains("100"),
        "{message}"
    );
    assert_eq!(answer.header("retry-after"), None);
    assert_eq!(worker.count(), 0);
}

#[test]
fn a_key_may_come_in_three_places_and_reaches_no_worker() {
    let worker = Engine::start();
    let proxy = proxy(&worker, &tenant("app", KEY, ""));
    let both = bearer(KEY);
    for headers in [
        vec![("authorization", "Bearer fb_of-the-app")],
        vec![("Authorization", "bearer  fb_of-the-app ")],
        vec![("x-api-key", KEY)],
        vec![("Api-Key", KEY)],
        vec![("authorization", both.as_str()), ("x-api-key", KEY)],
        vec![("authorization", "Basic eDp5"), ("x-api-key", KEY)],
    ] {
        let answer = ask_with(&proxy, &headers, CHAT, &chat("x"));
        assert_eq!(answer.status, 200, "{headers:?}: {}", answer.text());
    }
    let seen = worker.requests();
    assert_eq!(seen.len(), 6);
    for request in seen {
        for field in ["authorization", "x-api-key", "api-key"] {
            assert!(request.all(field).is_empty(), "{field}");
        }
    }
}

#[test]
fn without_tenants_nothing_is_asked_and_keys_pass() {
    let worker = Engine::start();
    let proxy = Proxy::before(&worker);
    let headers = [("authorization", "Bearer theirs"), ("x-api-key", "other")];
    assert_eq!(ask_with(&proxy, &headers, CHAT, &chat("x")).status, 200);
    let seen = worker.only_request();
    assert_eq!(seen.header("authorization"), Some("Bearer theirs"));
    assert_eq!(seen.header("x-api-key"), Some("other"));
}

#[test]
fn only_the_state_of_the_proxy_is_told_without_a_key() {
    let worker = Engine::start();
    let route = "[[route]]\npath = \"/raw/*\"\n";
    let proxy = proxy(&worker, &format!("{}{route}", tenant("app", KEY, "")));
    for path in ["/health", "/ready", "/v2/health/live", "/v2/health/ready"] {
        assert_eq!(ask_with(&proxy, &[], path, "").status, 200, "{path}");
    }
    for path in [
        "/v1/models",
        "/v1/models/m",
        "/v2",
        "/v2/repository/index",
        "/v2/models/m",
        "/raw/x",
    ] {
        let answer = ask_with(&proxy, &[], path, "");
        assert_eq!(
            (answer.status, answer.reason()),
            (401, Some("unauthorized")),
            "{path}"
        );
    }
    assert_eq!(worker.count(), 0);
    ask(&proxy, KEY, "/raw/x", "");
    assert_eq!(worker.only_request().target, "/raw/x");
}

#[test]
fn a_tenant_is_shown_its_own_models_and_no_others() {
    let worker = Engine::start();
    let proxy = proxy(
        &worker,
        &tenant("app", KEY, "models = [\"n\", \"not-there\"]"),
    );
    let names = |list: &Value, key: &str| {
        let names = list.as_array().unwrap().iter();
        names
            .map(|model| model[key].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let models = ask(&proxy, KEY, "/v1/models", "").json();
    assert_eq!(names(&models["data"], "id"), ["n"]);
    let index = ask(&proxy, KEY, "/v2/repository/index", "").json();
    assert_eq!(names(&index, "name"), ["n"]);
    for (model, status) in [("n", 200), ("m", 404), ("not-there", 404)] {
        let answer = ask(&proxy, KEY, &format!("/v1/models/{model}"), "");
        assert_eq!(answer.status, status, "{model}");
    }
    let unnamed = ask(&proxy, KEY, CHAT, "{\"messages\":[]}");
    let message = refused(&unnamed, CHAT, 400, "bad_request", "invalid_request_error");
    assert!(message.ends_with("served are: n"), "{message}");
    assert_eq!(ask(&proxy, KEY, CHAT, &chat("x")).status, 403);
}

/// So many requests at once; the statuses of their answers, and each `Retry-After`.
fn burst(proxy: &Proxy, key: &str, count: usize) -> Vec<(u16, Option<u32>)> {
    let body = chat("x");
    let one = || {
        let answer = ask(proxy, key, CHAT, &body);
        let wait = answer
            .header("retry-after")
            .map(|wait| wait.parse().unwrap());
        (answer.status, wait)
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn of_fifty_parallel_requests_ten_a_minute_pass_and_another_tenant_feels_nothing() {
    let worker = Engine::start();
    let ten = tenant("ten", KEY, "requests_per_minute = 10");
    let free = tenant("free", "fb_free", "");
    let proxy = proxy(&worker, &format!("{ten}{free}"));
    let answers = burst(&proxy, KEY, 50);
    let passed = answers.iter().filter(|(status, _)| *status == 200).count();
    assert!((10..=11).contains(&passed), "{passed} passed");
    for (status, wait) in answers.iter().filter(|(status, _)| *status != 200) {
        assert_eq!(*status, 429);
        assert!((1..=6).contains(&wait.unwrap()), "{wait:?}");
    }
    assert!(
        burst(&proxy, "fb_free", 20)
            .iter()
            .all(|(status, _)| *status == 200)
    );
    expect_soon("all are counted by tenant", || {
        let refused = [("tenant", "ten"), ("reason", "rate_limited")];
        let count = |labels: &[_]| proxy.metric("forebay_requests_total", labels) as usize;
        count(&refused) + passed == 50 && count(&[("tenant", "free"), ("code", "200")]) == 20
    });
}

/// What is left of a tenant's tokens a minute, told by the refusal of a request that is larger than all of them.
#[track_caller]
fn left(proxy: &Proxy, key: &str) -> u32 {
    let large = json!({"model": "m", "max_tokens": 2_000_000_000, "messages": []}).to_string();
    let answer = ask(proxy, key, CHAT, &large);
    assert_eq!(answer.status, 429, "{}", answer.text());
    answer
        .header("ratelimit-remaining")
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn tokens_are_put_aside_and_settled_by_what_is_reported() {
    let worker = Engine::start();
    // So few a second that none come back while the test looks.
    let proxy = proxy(&worker, &tenant("app", KEY, "tokens_per_minute = 600"));
    let ask_for = |tokens: u32| {
        let body = json!({"model": "m", "max_tokens": tokens, "messages": []}).to_string();
        ask(&proxy, KEY, CHAT, &body)
    };
    let report = |output: u32| {
        let usage = json!({"usage": {"prompt_tokens": 10, "completion_tokens": output}});
        worker.tune(|knobs| knobs.canned = Some(Canned::ok(&usage.to_string())));
    };
    let soon = |what: &str, from: u32, to: u32| {
        expect_soon(what, || (from..=to).contains(&left(&proxy, KEY)));
    };
    report(20);
    assert_eq!(ask_for(500).status, 200);
    soon("what was not used is back", 570, 600);
    worker.tune(|knobs| knobs.fail(Failure::Status(500), 9));
    assert_eq!(ask_for(500).status, 500);
    soon("a failure costs nothing", 570, 600);
    worker.tune(|knobs| knobs.failures = 0);
    report(900);
    assert_eq!(ask_for(500).status, 200);
    soon("more than was there is owed", 0, 0);
    let answer = ask_for(1);
    let message = refused(&answer, CHAT, 429, "rate_limited", "rate_limit_error");
    assert!(
        message.contains("0 of the 600 a minute are left"),
        "{message}"
    );
    let wait: u32 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((5..=40).contains(&wait), "{wait}");
    let tokens = [("tenant", "app"), ("kind", "output")];
    assert_eq!(proxy.metric("forebay_tokens_total", &tokens), 920.0);
}

#[test]
fn an_answer_tells_how_the_tightest_limit_stands_unless_its_worker_does() {
    let worker = Engine::start();
    let lines = "requests_per_minute = 1000000\ntokens_per_minute = 1000";
    let tenants = tenant("app", KEY, lines) + &tenant("free", "fb_free", "");
    let proxy = proxy(&worker, &tenants);
    let told = |key: &str| {
        let body = json!({"model": "m", "max_tokens": 500, "messages": []}).to_string();
        let answer = ask(&proxy, key, CHAT, &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]
            .map(|name| answer.header(name).map(|text| text.parse::<u32>().unwrap()))
    };
    let [limit, remaining, reset] = told(KEY).map(Option::unwrap);
    assert_eq!(limit, 1_000);
    assert!((450..=500).contains(&remaining), "{remaining}");
    assert!((30..=34).contains(&reset), "{reset}");
    assert_eq!(told("fb_free"), [None; 3]);
    let own = Canned::ok("{}").header("RateLimit-Limit", "7");
    worker.tune(|knobs| knobs.canned = Some(own));
    assert_eq!(told("fb_free"), [Some(7), None, None]);
    expect_soon("the first is settled", || left(&proxy, KEY) > 600);
    assert_eq!(told(KEY), [Some(7), None, None]);
}

#[test]
fn only_models_that_it_may_use_are_shown_or_suggested_to_a_tenant() {
    let (here, there) = (Engine::start(), Engine::start());
    let place = |name: &str, zone: &str| {
        let region = format!("[[region]]\nname = \"{name}\"\nzone = \"{zone}\"\n");
        format!("{region}[[machine]]\nname = \"{name}\"\nregion = \"{name}\"\n")
    };
    let tenants = [
        tenant("app", KEY, "zones = [\"eu\"]"),
        tenant("one", "fb_one", "models = [\"nearby\", \"chat\"]"),
        tenant("all", "fb_all", ""),
    ];
    let sections = place("home", "eu") + &place("away", "us") + &tenants.concat();
    let worker = |place: &str, models: &str| format!("machine = \"{place}\"\nmodels = [{models}]");
    let setup: Setup = Proxy::setup().section(&sections);
    let proxy = setup
        .worker_with("w", &here, &worker("home", "\"chat\""))
        .worker_with("v", &there, &worker("away", "\"chat\", \"nearby1\""))
        .start();
    let shown = |key: &str| {
        let list = ask(&proxy, key, "/v1/models", "").json();
        let names = list["data"].as_array().unwrap().iter();
        names
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(KEY), ["chat"]);
    assert_eq!(shown("fb_all"), ["chat", "nearby1"]);
    assert_eq!(ask(&proxy, KEY, "/v1/models/nearby1", "").status, 404);
    let asked = chat("x").replace("\"m\"", "\"nearby\"");
    for (key, is_named) in [("fb_all", true), ("fb_one", false), (KEY, false)] {
        let answer = ask(&proxy, key, CHAT, &asked);
        let message = refused(&answer, CHAT, 404, "model_not_found", "not_found_error");
        assert_eq!(message.contains("nearby1"), is_named, "{message}");
    }
}

#[test]
fn a_client_that_leaves_has_used_what_passed_to_it() {
    let worker = Engine::with(Knobs {
        decode: 0.01,
        ..Knobs::default()
    });
    let proxy = proxy(&worker, &tenant("app", KEY, "tokens_per_minute = 600"));
    let mut leaving = proxy.connect();
    let bearer = bearer(KEY);
    let headers = [("authorization", bearer.as_str())];
    leaving.send(&request(
        "POST",
        CHAT,
        &headers,
        stream("x", 500).as_bytes(),
    ));
    let mut answer = leaving.head();
    while answer.chunks.len() < 5 {
        assert!(leaving.chunk(&mut answer));
    }
    assert!(left(&proxy, KEY) < 110, "500 are put aside");
    drop(leaving);
    expect_soon("the rest is back", || left(&proxy, KEY) > 400);
}

#[test]
fn however_two_hundred_requests_end_no_place_is_lost() {
    let worker = Engine::with(Knobs {
        decode: 0.001,
        ..Knobs::default()
    });
    let proxy = proxy(&worker, &tenant("app", KEY, "max_concurrent = 4"));
    let bearer = bearer(KEY);
    let headers = [("authorization", bearer.as_str())];
    let cancel = |seed: u64| {
        let mut rng = Rng::seeded(seed);
        for _ in 0..50 {
            let body = if rng.below(2) == 0 {
                stream("x y", 20)
            } else {
                chat("x")
            };
            let bytes = request("POST", CHAT, &headers, body.as_bytes());
            let mut client = proxy.connect();
            // Cut within the head, within the body, before the answer, within it, or after it.
            let sent = if rng.below(3) == 0 {
                rng.below(bytes.len())
            } else {
                bytes.len()
            };
            client.send(&bytes[..sent]);
            if sent == bytes.len() && rng.below(2) == 0 {
                let mut answer = client.head();
                for _ in 0..rng.below(30) {
                    if answer.header("transfer-encoding").is_none() || !client.chunk(&mut answer) {
                        break;
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || cancel(seed));
        }
    });
    expect_soon("no request is open", || {
        let open = &proxy.api("/api/tenants")["tenants"][0]["open"];
        *open == 0 && proxy.metric("forebay_inflight", &[("worker", "w")]) == 0.0
    });
    // Four hang at once: every place is there.
    worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    let holding: Vec<_> = (0..4)
        .map(|_| {
            let mut client = proxy.connect();
            client.send(&request("POST", CHAT, &headers, chat("x").as_bytes()));
            client
        })
        .collect();
    expect_soon("four are with the worker", || {
        proxy.metric("forebay_inflight", &[("worker", "w")]) == 4.0
    });
    let answer = ask(&proxy, KEY, CHAT, &chat("x"));
    let message = refused(&answer, CHAT, 429, "rate_limited", "rate_limit_error");
    assert!(message.contains("max_concurrent"), "{message}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    drop(holding);
    worker.tune(|knobs| knobs.failures = 0);
    expect_soon("the places are free again", || {
        ask(&proxy, KEY, CHAT, &chat("x")).status == 200
    });
}

#[test]
fn a_private_prefix_is_believed_of_its_own_tenant_alone() {
    let worker = Engine::with(Knobs {
        prefix_cache: true,
        ..Knobs::default()
    });
    let tenants = [
        tenant("one", "fb_one", ""),
        tenant("two", "fb_two", ""),
        tenant("apart", "fb_apart", "private_prefix = true"),
    ];
    let proxy = proxy(&worker, &tenants.concat());
    let body = chat(&"word ".repeat(1_500));
    let believed = |id: &str, key: &str| {
        let headers = [("x-request-id", id), ("x-api-key", key)];
        assert_eq!(ask_with(&proxy, &headers, CHAT, &body).status, 200);
        let path = format!("/api/requests/{id}");
        expect_soon("it is remembered", || proxy.ask_admin(&path).status == 200);
        let picked = &proxy.api(&path)["choices"][0]["candidates"][0];
        picked["cached_tokens"].as_f64().unwrap() > 1_000.0
    };
    assert!(!believed("1", "fb_one"), "nobody has sent it yet");
    assert!(
        believed("2", "fb_two"),
        "tenants share what they do not keep apart"
    );
    assert!(!believed("3", "fb_apart"));
    assert!(believed("4", "fb_apart"));
}

#[test]
fn a_request_is_told_under_its_tenant_s_name_and_never_by_its_key() {
    let worker = Engine::start();
    let proxy = proxy(&worker, &tenant("app", KEY, ""));
    let id = [("x-request-id", "one"), ("x-api-key", KEY)];
    assert_eq!(ask_with(&proxy, &id, CHAT, &chat("x y")).status, 200);
    ask(&proxy, "fb_wrong", CHAT, &chat("x"));
    let log = proxy.log_of(2);
    let tenants: Vec<_> = log.iter().map(|line| &line["tenant"]).collect();
    assert_eq!(tenants, ["app", "-"]);
    assert_eq!(proxy.api("/api/requests/one")["tenant"], "app");
    for (tenant, code) in [("app", "200"), ("-", "401")] {
        let labels = [("tenant", tenant), ("code", code)];
        assert_eq!(
            proxy.metric("forebay_requests_total", &labels),
            1.0,
            "{tenant}"
        );
    }
    let tokens = [("tenant", "app"), ("model", "m"), ("kind", "prompt")];
    assert!(proxy.metric("forebay_tokens_total", &tokens) > 0.0);
    let config = proxy.ask_admin("/api/config");
    assert!(config.text().contains(&hash(KEY)[.."sha256:".len() + 8]));
    assert!(!config.text().contains(&hash(KEY)), "a beginning is enough");
}

/// Sends a chat that says this and waits until it stands in line.
#[track_caller]
fn stands_in_line(proxy: &Proxy, headers: &[(&str, &str)], said: &str) -> Client {
    let depth = || proxy.metric("forebay_queue_depth", &[]);
    let before = depth();
    let mut client = proxy.connect();
    client.send(&request("POST", CHAT, headers, chat(said).as_bytes()));
    expect_soon("it waits", || depth() == before + 1.0);
    client
}

#[test]
fn a_tenant_s_class_says_who_goes_first_and_no_word_raises_it() {
    let worker = Engine::start();
    let tenants = [("high", "paid"), ("low", "batch")]
        .map(|(name, class)| tenant(name, name, &format!("class = \"{class}\"")));
    let proxy = Proxy::setup()
        .section(&tenants.concat())
        .worker_with("w", &worker, "max_inflight = 1")
        .start();
    let (high, low) = (bearer("high"), bearer("low"));
    let high = [("authorization", high.as_str())];
    let boasting = [
        ("authorization", low.as_str()),
        ("x-forebay-priority", "paid"),
    ];
    worker.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let mut held = proxy.connect();
    held.send(&request("POST", CHAT, &high, chat("held").as_bytes()));
    expect_soon("the place is taken", || worker.count() == 1);
    let waiting = [
        stands_in_line(&proxy, &boasting, "low"),
        stands_in_line(&proxy, &high, "high"),
    ];
    drop(held);
    for mut client in waiting {
        assert_eq!(client.answer().status, 200);
    }
    let said = |number: usize| -> Value {
        let body: Value = serde_json::from_slice(&worker.requests()[number].body).unwrap();
        body["messages"][0]["content"].clone()
    };
    assert_eq!([said(1), said(2)], ["high", "low"]);
}

#[test]
fn a_tenant_s_requests_stay_in_its_zones_whatever_fails() {
    let [eu, us] = [Engine::start(), Engine::start()];
    let regions = "[[region]]\nname = \"home\"\nzone = \"eu\"\n[[region]]\nname = \"ohio\"\nzone = \"us\"\n\
                   [[machine]]\nname = \"a\"\nregion = \"home\"\n[[machine]]\nname = \"b\"\nregion = \"ohio\"\n";
    let bound = tenant("bound", "bound", "zones = [\"eu\"]");
    let proxy = Proxy::setup()
        .section(&(bound + &tenant("free", "free", "")))
        .section(regions)
        .worker_with("eu", &eu, "machine = \"a\"")
        .worker_with("us", &us, "machine = \"b\"")
        .start();
    for _ in 0..10 {
        assert_eq!(ask(&proxy, "bound", CHAT, &chat("x")).status, 200);
    }
    assert_eq!((eu.count(), us.count()), (10, 0));
    eu.kill();
    expect_soon("it is down", || proxy.worker("eu")["state"] != "up");
    let answer = ask(&proxy, "bound", CHAT, &chat("x"));
    assert!(answer.status >= 500, "{}", answer.text());
    assert_eq!(us.count(), 0);
    assert_eq!(ask(&proxy, "free", CHAT, &chat("x")).status, 200);
}
