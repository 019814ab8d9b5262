//! Where workers are and what they are for: zones, regions, tiers, tags, workers that come and go, and prices, over
//! real sockets. What is decided by them in every case stands in `decide_properties`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::Value;

use support::client::Answer;
use support::engine::Engine;
use support::engine::knobs::{Canned, Failure, Knobs};
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::{Proxy, Setup};
use support::refusal::openai_error;

/// Home is in one zone, Ohio in another and nearly a minute away; the moon is nowhere.
const REGIONS: &str = r#"
    [[region]]
    name = "home"
    zone = "eu"
    rtt = { home = "1ms", ohio = "50s" }
    networks = ["192.0.2.0/24"]
    [[region]]
    name = "ohio"
    zone = "us"
    rtt = { ohio = "1ms" }
    networks = ["198.51.100.0/24"]
    [[region]]
    name = "moon"
    zone = "moon"
    [[machine]]
    name = "home-box"
    region = "home"
    price_per_hour = "3.60 EUR"
    [[machine]]
    name = "ohio-box"
    region = "ohio"
"#;

const AT_HOME: &str = "machine = \"home-box\"";
const IN_OHIO: &str = "machine = \"ohio-box\"";

/// A worker that answers everything.
fn agreeable() -> Engine {
    Engine::with(Knobs {
        canned: Some(Canned::ok("{}")),
        ..Knobs::default()
    })
}

fn worker_of(answer: &Answer) -> &str {
    answer.header("x-forebay-worker").unwrap_or("none")
}

/// A chat with these headers.
fn ask(proxy: &Proxy, headers: &[(&str, &str)]) -> Answer {
    let body = chat("x");
    proxy
        .connect()
        .call_with("POST", CHAT, headers, body.as_bytes())
}

/// Why a request went where it went, once it has ended.
#[track_caller]
fn why(proxy: &Proxy, answer: &Answer) -> Value {
    let path = format!("/api/requests/{}", answer.header("x-request-id").unwrap());
    expect_soon("it is remembered", || proxy.ask_admin(&path).status == 200);
    proxy.api(&path)["choices"][0]["candidates"].clone()
}

/// One worker at home and one in Ohio.
fn two_regions() -> ([Engine; 2], Setup) {
    let engines = [Engine::start(), Engine::start()];
    let setup = Proxy::setup()
        .section(REGIONS)
        .worker_with("near", &engines[0], AT_HOME)
        .worker_with("far", &engines[1], IN_OHIO);
    (engines, setup)
}

#[test]
fn a_route_never_leaves_its_zones_whatever_fails() {
    let [one, other, abroad, nowhere] = [(); 4].map(|()| agreeable());
    let route = r#"
        [routing]
        policy = "round_robin"
        [[route]]
        path = "/eu/*"
        zones = ["eu"]
        repeat = "safe"
    "#;
    let proxy = Proxy::setup()
        .section(&format!("{REGIONS}\n{route}"))
        .worker_with("one", &one, AT_HOME)
        .worker_with("abroad", &abroad, IN_OHIO)
        .worker("nowhere", &nowhere)
        .worker_with("other", &other, AT_HOME)
        .start();
    let call = || proxy.call("POST", "/eu/x", "{}");
    one.tune(|knobs| knobs.fail(Failure::Status(500), u64::MAX));
    for _ in 0..10 {
        assert_eq!(worker_of(&call()), "other");
    }
    let fates = why(&proxy, &call());
    let outside = fates.as_array().unwrap().iter();
    let outside = outside.filter(|one| one["fate"] == "zone");
    assert_eq!(outside.count(), 2, "{fates}");
    other.tune(|knobs| knobs.fail(Failure::ResetAfterRequest, u64::MAX));
    for _ in 0..10 {
        assert!(call().status >= 500);
    }
    one.kill();
    other.kill();
    expect_soon("both are down", || {
        ["one", "other"].map(|name| proxy.worker(name)["state"].clone()) == ["down", "down"]
    });
    assert_eq!(call().reason(), Some("no_worker"));
    assert_eq!((abroad.count(), nowhere.count()), (0, 0));
}

#[test]
fn a_route_whose_zones_have_no_worker_is_403_residency() {
    let worker = agreeable();
    let route = "[[route]]\npath = \"/moon\"\nzones = [\"moon\"]";
    let proxy = Proxy::setup()
        .section(&format!("{REGIONS}\n{route}"))
        .worker_with("near", &worker, AT_HOME)
        .worker_with("far", &worker, IN_OHIO)
        .start();
    let answer = proxy.call("POST", "/moon", "{}");
    openai_error(&answer, 403, "residency");
    assert_eq!(worker.count(), 0);
    assert_eq!(proxy.log_of(1)[0]["reason"], "residency");
}

#[test]
fn a_route_s_tags_choose_among_its_workers() {
    let [plain, seeing, both] = [(); 3].map(|()| agreeable());
    let routes = r#"
        [routing]
        policy = "round_robin"
        [[route]]
        path = "/see"
        tags = ["vision"]
        [[route]]
        path = "/both"
        tags = ["vision", "hearing"]
    "#;
    let proxy = Proxy::setup()
        .section(routes)
        .worker("plain", &plain)
        .worker_with("seeing", &seeing, "tags = [\"vision\"]")
        .worker_with("both", &both, "tags = [\"hearing\", \"vision\"]")
        .start();
    let counts = |path| {
        for _ in 0..4 {
            assert_eq!(proxy.call("POST", path, "{}").status, 200);
        }
        [&plain, &seeing, &both].map(Engine::count)
    };
    assert_eq!(counts("/see"), [0, 2, 2]);
    assert_eq!(counts("/both"), [0, 2, 6]);
}

#[test]
fn a_higher_tier_stands_by_until_the_lower_one_is_down() {
    let [first, spare] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::setup()
        .worker("first", &first)
        .worker_with("spare", &spare, "tier = 1\nspeed = 9.0")
        .start();
    let answer = ask(&proxy, &[]);
    assert_eq!(worker_of(&answer), "first");
    assert_eq!(why(&proxy, &answer)[1]["fate"], "tier");
    first.tune(|knobs| knobs.fail(Failure::Status(500), 1));
    assert_eq!(worker_of(&ask(&proxy, &[])), "spare", "a retry");
    assert_eq!(worker_of(&ask(&proxy, &[])), "first");
    first.kill();
    expect_soon("it is down", || proxy.worker("first")["state"] == "down");
    assert_eq!(worker_of(&ask(&proxy, &[])), "spare");
}

#[test]
fn an_optional_worker_s_absence_worries_nobody_and_is_shown_as_it_is() {
    let [desk, laptop] = [(); 2].map(|()| Engine::start());
    let proxy = Proxy::setup()
        .worker("desk", &desk)
        .worker_with("laptop", &laptop, "optional = true")
        .start();
    laptop.kill();
    expect_soon("it is down", || proxy.worker("laptop")["state"] == "down");
    let down = [("worker", "laptop"), ("state", "down")];
    assert_eq!(proxy.metric("forebay_worker_state", &down), 1.0);
    expect_soon("its leaving is told", || proxy.stderr().contains("laptop"));
    let about = |name: &str| {
        let log = proxy.stderr();
        let lines = log.lines().filter(|line| line.contains(name));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(about("laptop").iter().all(|line| !line.contains("WARN")));
    assert!(proxy.is_ready());
    desk.kill();
    expect_soon("nobody is ready", || !proxy.is_ready());
    let ready = proxy.call("GET", "/ready", "");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("desk: "), "{}", ready.text());
    assert!(!ready.text().contains("laptop"), "{}", ready.text());
    expect_soon("that is a warning", || {
        about("desk").iter().any(|line| line.contains("WARN"))
    });
}

#[test]
fn a_client_s_word_then_its_address_then_the_proxy_s_place_decide_where_it_is() {
    let (_engines, setup) = two_regions();
    let proxy = setup
        .listen("trusted_proxies = [\"127.0.0.1\"]\nregion = \"home\"")
        .start();
    let went = |headers: &[(&str, &str)]| worker_of(&ask(&proxy, headers)).to_owned();
    assert_eq!(went(&[]), "near");
    assert_eq!(went(&[("x-forebay-region", "ohio")]), "far");
    assert_eq!(went(&[("x-forebay-region", "mars")]), "near");
    let from = |address| ("x-forwarded-for", address);
    assert_eq!(went(&[from("192.0.2.1, 198.51.100.7")]), "far");
    assert_eq!(went(&[from("198.51.100.7, 192.0.2.1")]), "near");
    assert_eq!(
        went(&[("x-forebay-region", "home"), from("198.51.100.7")]),
        "near"
    );
    let answer = ask(&proxy, &[("x-forebay-region", "ohio")]);
    let net = [0, 1].map(|place| why(&proxy, &answer)[place]["terms_s"]["net"].clone());
    assert_eq!(net, [0.001, 50.0].map(Value::from));
}

#[test]
fn an_address_in_no_network_is_looked_up_by_its_country() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("country.mmdb");
    let database = [
        ("203.0.113.0".parse().unwrap(), 24, "US"),
        ("203.0.114.0".parse().unwrap(), 24, "FR"),
    ];
    std::fs::write(&file, support::mmdb::countries(&database)).unwrap();
    let engines = [Engine::start(), Engine::start()];
    let ohio = "networks = [\"198.51.100.0/24\"]\n";
    let proxy = Proxy::setup()
        .section(&REGIONS.replace(ohio, &format!("{ohio}countries = [\"US\"]\n")))
        .worker_with("near", &engines[0], AT_HOME)
        .worker_with("far", &engines[1], IN_OHIO)
        .listen("trusted_proxies = [\"127.0.0.0/8\"]\nregion = \"home\"")
        .listen(&format!("geoip = {file:?}"))
        .start();
    for (address, worker) in [
        ("203.0.113.9", "far"),
        ("203.0.114.9", "near"),
        ("203.0.112.9", "near"),
        ("2001:db8::1", "near"),
    ] {
        let answer = ask(&proxy, &[("x-forwarded-for", address)]);
        assert_eq!(worker_of(&answer), worker, "{address}");
    }
}

#[test]
fn what_a_trusted_proxy_tells_is_passed_on_with_its_own_address() {
    for worker in [Engine::start(), Engine::h2c(Knobs::default())] {
        let proxy = Proxy::setup()
            .listen("trusted_proxies = [\"127.0.0.1\"]")
            .worker("w", &worker)
            .start();
        ask(
            &proxy,
            &[
                ("Connection", "x-forwarded-for"),
                ("X-Forwarded-For", "203.0.113.7"),
                ("x-forwarded-for", "10.0.0.2, 10.0.0.3"),
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "shop.example"),
                ("X-Forwarded-Port", "443"),
                ("Forwarded", "for=203.0.113.7"),
            ],
        );
        let seen = worker.only_request();
        let way = "203.0.113.7, 10.0.0.2, 10.0.0.3, 127.0.0.1";
        assert_eq!(seen.all("x-forwarded-for"), [way]);
        assert_eq!(seen.all("x-forwarded-proto"), ["https"]);
        assert_eq!(seen.all("x-forwarded-host"), ["shop.example"]);
        assert_eq!(seen.all("x-forwarded-port"), ["443"]);
        assert_eq!(seen.header("forwarded"), None);
        worker.forget();
        ask(&proxy, &[]);
        let seen = worker.only_request();
        assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(seen.all("x-forwarded-proto"), ["http"]);
        assert_eq!(seen.all("x-forwarded-host"), ["proxy"]);
    }
}

#[test]
fn a_machine_s_price_is_a_term_and_its_workers_are_shown_where_they_are() {
    let (_engines, setup) = two_regions();
    let proxy = setup.section("[routing]\ncost = \"0.5s per cent\"").start();
    let answer = ask(&proxy, &[]);
    // Neither is far: nobody says where the client or the proxy is.
    assert_eq!(worker_of(&answer), "far", "it costs nothing");
    let candidates = why(&proxy, &answer);
    let term = |place: usize, name: &str| candidates[place]["terms_s"][name].as_f64().unwrap();
    assert_eq!(term(0, "price"), 0.0);
    let busy = term(1, "own") + term(1, "decode");
    assert!(
        (term(1, "price") / busy - 0.05).abs() < 1e-6,
        "0.1 cent a second"
    );
    let row = proxy.worker("near");
    let shown = ["region", "zone", "tier", "optional"].map(|key| row[key].clone());
    let expected: [Value; 4] = ["home".into(), "eu".into(), 0.into(), false.into()];
    assert_eq!(shown, expected);
}
