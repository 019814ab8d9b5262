//! The status page in a real browser, in front of the real proxy.
//!
//! Without Chromium these tests are skipped and say so; CI has it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use support::browser::Browser;
use support::engine::Engine;
use support::engine::knobs::Knobs;
use support::expect_soon;
use support::prompt::{CHAT, chat, stream};
use support::proxy::{Proxy, Setup, TOKEN};
use support::queue::{join, occupy};
use support::tenant::tenant;

/// What a browser would run, if it were let.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";
/// How wide a small telephone is.
const NARROW: u32 = 390;
/// Whether nothing is wider than the window.
const FITS: &str = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";

/// Whether what is shown is marked as old.
const STALE: &str = "document.querySelector('main').classList.contains('stale')";

/// Takes a browser to the page; `None` where there is none.
#[track_caller]
fn visit(proxy: &Proxy) -> Option<Browser> {
    let mut browser = Browser::start()?;
    browser.resize(1280, 900);
    browser.open(&format!("http://{}/?token={TOKEN}", proxy.admin()));
    browser.expect_text("as of ");
    assert_eq!(browser.ask("location.search"), "", "the token is gone");
    Some(browser)
}

/// A worker with this pace, whose model is called something hostile as well.
fn engine(prefill: f64, decode: f64) -> Engine {
    Engine::with(Knobs {
        models: vec!["m".to_owned(), HOSTILE.to_owned()],
        prefill,
        decode,
        ..Knobs::default()
    })
}

fn pair(fast: &Engine, slow: &Engine) -> Setup {
    let models = format!("models = ['m', '{HOSTILE}']");
    Proxy::setup()
        .worker_with("big", fast, &models)
        .worker_with("small", slow, &models)
}

/// The text of a worker's row.
fn row(name: &str) -> String {
    format!("document.querySelector('#workers tr[data-key=\"{name}\"]').innerText")
}

#[test]
fn the_fleet_is_shown_and_followed() {
    let (fast, slow) = (engine(0.0001, 0.001), engine(0.001, 0.004));
    let proxy = pair(&fast, &slow).start();
    let Some(mut browser) = visit(&proxy) else {
        return;
    };
    browser.expect_text("2 of 2 workers up");
    browser.expect_text("Nobody waits.");
    browser.expect_text("None since the start.");
    let small = row("small");
    browser.expect(
        "nothing is known yet",
        &format!("{small}.includes('unknown')"),
    );
    for _ in 0..6 {
        assert_eq!(proxy.chat(&stream("a few words", 8)).status, 200);
    }
    let hostile = chat("x").replacen("\"m\"", &format!("\"{HOSTILE}\""), 1);
    assert_eq!(proxy.chat(&hostile).status, 200);
    assert_eq!(proxy.chat("{\"model\":\"n\"}").status, 404);
    browser.expect_text("404 model_not_found");
    browser.expect(
        "a hostile name is a text",
        &format!("document.querySelector('#requests').innerText.includes('{HOSTILE}')"),
    );
    browser.expect(
        "what is worth something is a multiple",
        "/\\d\\.\\d ×/.test(document.body.innerText)",
    );
    assert_eq!(browser.ask("document.images.length"), 0);
    slow.kill();
    browser.expect("its end is seen", &format!("{small}.includes('down:')"));
    browser.expect_text("1 of 2 workers up");
    assert_eq!(browser.ask("document.title"), "1 of 2 up – Forebay");
    assert_eq!(browser.ask(STALE), false);
    browser.picture("fleet-light");
    browser.prefer("dark");
    browser.picture("fleet-dark");
    browser.resize(NARROW, 844);
    browser.picture("fleet-narrow");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_request_is_asked_why_by_keyboard() {
    let (fast, slow) = (engine(0.0001, 0.0), engine(0.001, 0.0));
    let proxy = pair(&fast, &slow).start();
    for id in ["first", "last"] {
        let headers = [("x-request-id", id)];
        let mut client = proxy.connect();
        let asked = client.call_with("POST", CHAT, &headers, chat("why").as_bytes());
        assert_eq!(asked.status, 200);
    }
    let Some(mut browser) = visit(&proxy) else {
        return;
    };
    browser.expect(
        "both are listed",
        "document.querySelectorAll('#requests tr[data-key]').length === 2",
    );
    let on_a_request = "document.activeElement.matches('#requests tr[data-key] button')";
    let reached = (0..20).any(|_| {
        browser.press("Tab");
        browser.ask(on_a_request) == true
    });
    assert!(reached, "no request is reached by Tab");
    let drawn = browser.ask("document.querySelector('#drawn').textContent");
    browser.expect(
        "a picture later",
        &format!("document.querySelector('#drawn').textContent !== {drawn}"),
    );
    assert_eq!(
        browser.ask(on_a_request),
        true,
        "the focus outlives a picture"
    );
    browser.press("Enter");
    browser.expect(
        "it says where the time went",
        "/\\d %/.test(document.querySelector('.why p')?.textContent)",
    );
    browser.expect_text("picked");
    browser.expect_text("id last");
    browser.expect_text("The list stands still while a request is open.");
    assert_eq!(proxy.chat(&chat("another")).status, 200);
    browser.picture("why-light");
    browser.resize(NARROW, 844);
    assert_eq!(browser.ask(FITS), true);
    browser.picture("why-narrow");
    browser.press("Escape");
    browser.expect("it is closed", "!document.querySelector('.why')");
    browser.expect(
        "the list goes on",
        "document.querySelectorAll('#requests tr[data-key]').length === 3",
    );
    assert_eq!(browser.ask(on_a_request), true, "the focus comes back");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_request_that_is_none_of_the_latest_any_more_opens_and_closes() {
    let (fast, slow) = (engine(0.0001, 0.0), engine(0.001, 0.0));
    let proxy = pair(&fast, &slow).start();
    let ask = |id: &str| {
        let headers = [("x-request-id", id)];
        let mut client = proxy.connect();
        let asked = client.call_with("POST", CHAT, &headers, chat("why").as_bytes());
        assert_eq!(asked.status, 200);
    };
    ["old-one", "old-two"].into_iter().for_each(ask);
    let Some(mut browser) = visit(&proxy) else {
        return;
    };
    let button =
        |id: &str| format!("document.querySelector('#requests tr[data-key$=\"{id}\"] button')");
    let is_listed = |id: &str| format!("{} !== null", button(id));
    let [one, two] = ["old-one", "old-two"].map(button);
    browser.expect(
        "both are listed",
        &[is_listed("old-one"), is_listed("old-two")].join(" && "),
    );
    browser.ask(&format!("{one}.click()"));
    browser.expect_text("id old-one");
    for number in 0..15 {
        ask(&format!("new-{number}"));
    }
    expect_soon("all have ended", || {
        let ended = proxy.api("/api/requests?limit=100");
        ended["requests"].as_array().unwrap().len() == 17
    });
    // The first may have been drawn before that.
    for _ in 0..2 {
        let drawn = browser.ask("document.querySelector('#drawn').textContent");
        browser.expect(
            "a picture later",
            &format!("document.querySelector('#drawn').textContent !== {drawn}"),
        );
    }
    browser.ask(&format!("{two}.click()"));
    browser.expect_text("id old-two");
    assert_eq!(browser.ask("document.querySelectorAll('.why').length"), 1);
    browser.press("Escape");
    browser.expect(
        "the list goes on",
        &format!(
            "!document.querySelector('.why') && !{one} && !{two} && {}",
            is_listed("new-14")
        ),
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_telephone_at_night_sees_all_of_a_rich_fleet() {
    let busy = engine(0.0, 0.0);
    let lines = format!("models = ['m', '{HOSTILE}']\nmax_inflight = 1\nmachine = \"desk\"");
    let long = format!(
        "models = [\"{}\"]",
        "a-model-with-a-name-without-end/".repeat(6)
    );
    let sections = [
        "[[machine]]\nname = \"desk\"\nregion = \"home\"\nprice_per_hour = \"1 EUR\"",
        "[[region]]\nname = \"home\"\nzone = \"eu\"",
        &tenant(
            "app",
            "fb_key",
            "tokens_per_minute = 60000\nbudget = \"3 EUR/day\"",
        ),
    ];
    let other = Engine::start();
    let proxy = Proxy::setup()
        .queue("classes = [\"paid\", \"free\"]\nwait_no_worker = \"1m\"")
        .section(&sections.join("\n"))
        .worker_with("first", &busy, &lines)
        .worker_with("second", &other, &long)
        .start();
    let Some(mut browser) = visit(&proxy) else {
        return;
    };
    browser.expect_text("3.00 EUR/day");
    browser.expect(
        "the region is told",
        "/home\\s+eu\\s+1 of 1/.test(document.querySelector('#regions').innerText)",
    );
    browser.picture("rich-light");
    browser.resize(NARROW, 844);
    browser.expect("nothing is wider than the telephone", FITS);
    let ground = "getComputedStyle(document.body).backgroundColor";
    let day = browser.ask(ground);
    browser.prefer("dark");
    browser.expect(
        "it is dark",
        &format!("{ground} !== '{}'", day.as_str().unwrap()),
    );
    browser.picture("rich-narrow-dark");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn who_waits_is_seen_by_class() {
    let engine = Engine::start();
    let proxy = Proxy::setup()
        .worker_with("w", &engine, "max_inflight = 1")
        .queue("classes = [\"paid\", \"free\"]\nwait = \"5m\"")
        .start();
    let Some(mut browser) = visit(&proxy) else {
        return;
    };
    let held = occupy(&proxy, &engine);
    let waits = join(&proxy, "free", "x");
    browser.expect_text("1 waiting");
    browser.expect(
        "its class is told",
        "/free\\s+1\\s/.test(document.querySelector('#line').innerText)",
    );
    browser.expect(
        "its worker is full",
        &format!("{}.includes('1 of 1')", row("w")),
    );
    browser.picture("line-light");
    drop((held, waits));
    browser.expect_text("Nobody waits.");
}

#[test]
fn two_hundred_workers_are_searched() {
    let engine = Engine::start();
    let mut setup = Proxy::setup()
        .probe("interval = \"10s\"\ntimeout = \"1s\"\nrise = 1\nfall = 1")
        .worker("the-one", &engine);
    for number in 1..200 {
        // Nobody listens there.
        setup = setup.worker_at(
            &format!("gpu-{number:03}"),
            &format!("http://127.0.1.{number}:9"),
            "",
        );
    }
    let proxy = setup.launch();
    let Some(mut browser) = visit(&proxy) else {
        return;
    };
    browser.expect_text("1 of 200 workers up");
    browser.expect_text("199 down, 1 up");
    let rows = "document.querySelectorAll('#workers tr[data-key]').length";
    assert_eq!(browser.ask(rows), 200);
    browser.picture("many-light");
    browser.ask("document.querySelector('#sought').focus()");
    browser.enter("GPU-17");
    browser.expect("the others are hidden", &format!("{rows} === 10"));
    browser.expect_text("10 of 200 shown");
    browser.resize(NARROW, 844);
    browser.expect("nothing is wider than the telephone", FITS);
    browser.picture("many-narrow");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_fleet_of_which_nothing_is_known_is_no_riddle() {
    // Nobody listens there.
    let proxy = Proxy::setup()
        .worker_at("w", "http://127.0.1.1:9", "")
        .launch();
    let Some(mut browser) = visit(&proxy) else {
        return;
    };
    browser.expect_text("0 of 1 workers up");
    browser.expect_text("Nothing can be answered now:");
    browser.expect_text("None since the start.");
    browser.expect("it is down", &format!("{}.includes('down:')", row("w")));
    browser.picture("empty-light");
    proxy.configure("nonsense");
    browser.expect_text("The configuration was refused at");
    proxy.signal("KILL");
    browser.expect_text("Forebay can't be reached. What is shown is from");
    assert_eq!(browser.ask(STALE), true);
    browser.picture("gone-light");
}

#[test]
fn after_an_upgrade_the_page_says_that_it_is_a_stranger() {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    let Some(mut browser) = visit(&proxy) else {
        return;
    };
    let successor = proxy.successor();
    proxy.signal("QUIT");
    browser.expect_text("Forebay no longer knows this browser");
    assert!(proxy.wait_exit(Duration::from_secs(30)).success());
    browser.open(&format!("http://{}/?token={TOKEN}", successor.admin()));
    browser.expect_text("1 of 1 workers up");
}
