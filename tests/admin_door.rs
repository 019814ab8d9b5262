//! The rules of the admin side's door, one test each, over real sockets (contract §5).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Duration;

use support::engine::Engine;
use support::proxy::{BEARER, Proxy, TOKEN};

const WORKERS: &str = "/api/workers";
const DRAIN: &str = "/api/workers/w/drain";

fn proxy() -> (Engine, Proxy) {
    let engine = Engine::start();
    let proxy = Proxy::before(&engine);
    (engine, proxy)
}

/// The status of a request with these headers.
#[track_caller]
fn status(proxy: &Proxy, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    proxy.admin_call(method, path, headers, "").status
}

/// The cookie that a browser is given for the token.
#[track_caller]
fn cookie(proxy: &Proxy) -> String {
    let welcome = proxy.admin_call("GET", &format!("/?token={TOKEN}"), &[], "");
    assert_eq!(welcome.status, 303);
    welcome.header("set-cookie").unwrap().to_owned()
}

/// What a browser sends back of it.
fn pair(cookie: &str) -> &str {
    cookie.split(';').next().unwrap()
}

#[test]
fn p38_nothing_of_it_is_on_the_client_port() {
    let (_engine, proxy) = proxy();
    let cookie = cookie(&proxy);
    let shown = [
        ("authorization", BEARER),
        ("cookie", pair(&cookie)),
        ("x-forebay-csrf", "1"),
    ];
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/?token=token-of-the-tests"),
        ("GET", "/metrics"),
        ("GET", WORKERS),
        ("GET", "/api/openapi.json"),
        ("POST", DRAIN),
        ("POST", "/api/dry-run"),
    ] {
        let answer = proxy.connect().call_with(method, path, &shown, b"");
        assert_eq!(
            (answer.status, answer.reason()),
            (404, Some("no_route")),
            "{path}"
        );
    }
    assert_eq!(proxy.worker("w")["state"], "up");
}

#[test]
fn p38_three_paths_are_open_and_all_else_wants_the_token() {
    let (_engine, proxy) = proxy();
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(status(&proxy, "GET", path, &[]), 200, "{path}");
        assert_eq!(
            status(&proxy, "GET", path, &[("host", "forebay.example")]),
            200,
            "{path}"
        );
        assert_eq!(
            status(&proxy, "POST", path, &[("authorization", BEARER)]),
            405,
            "{path}"
        );
    }
    let document = proxy.api("/api/openapi.json");
    let paths = document["paths"].as_object().unwrap();
    for path in paths
        .keys()
        .filter(|path| *path == "/" || path.starts_with("/api"))
    {
        let path = path.replace(['{', '}'], "");
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"] {
            let head =
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
            let mut client = support::client::Client::connect(proxy.admin());
            let answer = client.send(head.as_bytes()).head();
            assert_eq!(answer.status, 401, "{method} {path}");
        }
    }
}

#[test]
fn p38_a_wrong_token_is_refused_in_every_form() {
    let (_engine, proxy) = proxy();
    let longer = format!("{BEARER}x");
    let basic = format!("Basic {TOKEN}");
    for value in [
        "Bearer wrong",
        "Bearer ",
        "Bearer",
        TOKEN,
        &longer,
        &basic,
        &BEARER[..BEARER.len() - 1],
    ] {
        assert_eq!(
            status(&proxy, "GET", WORKERS, &[("authorization", value)]),
            401,
            "{value}"
        );
    }
    for path in [
        "/?token=wrong",
        "/?token=",
        "/?token=token-of-the-test",
        "/?TOKEN=token-of-the-tests",
    ] {
        assert_eq!(status(&proxy, "GET", path, &[]), 401, "{path}");
    }
    let elsewhere = format!("{WORKERS}?token={TOKEN}");
    assert_eq!(
        status(&proxy, "GET", &elsewhere, &[]),
        401,
        "in the address of the first page only"
    );
}

#[test]
fn the_cookie_is_for_this_site_this_process_and_no_script() {
    let (engine, proxy) = proxy();
    let cookie = cookie(&proxy);
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"),
        "{cookie}"
    );
    assert!(!cookie.contains(TOKEN));
    assert_eq!(
        status(&proxy, "GET", WORKERS, &[("cookie", pair(&cookie))]),
        200
    );
    let another = Proxy::before(&engine);
    assert_eq!(
        status(&another, "GET", WORKERS, &[("cookie", pair(&cookie))]),
        401
    );
    let as_token = format!("Bearer {}", pair(&cookie).split('=').nth(1).unwrap());
    assert_eq!(
        status(&proxy, "GET", WORKERS, &[("authorization", &as_token)]),
        401
    );
}

#[test]
fn a_browsers_change_needs_the_header_and_a_programs_does_not() {
    let (_engine, proxy) = proxy();
    let cookie = cookie(&proxy);
    let cookie = ("cookie", pair(&cookie));
    let csrf = ("x-forebay-csrf", "1");
    for path in [DRAIN, "/api/dry-run"] {
        assert_eq!(status(&proxy, "POST", path, &[cookie]), 403, "{path}");
        assert_eq!(status(&proxy, "POST", path, &[csrf]), 401, "{path}");
        let form = ("content-type", "application/x-www-form-urlencoded");
        assert_eq!(status(&proxy, "POST", path, &[cookie, form]), 403, "{path}");
    }
    assert_eq!(proxy.worker("w")["state"], "up");
    assert_eq!(status(&proxy, "POST", DRAIN, &[cookie, csrf]), 200);
    assert_eq!(
        status(&proxy, "POST", DRAIN, &[("authorization", BEARER)]),
        200
    );
}

#[test]
fn no_page_of_another_origin_is_allowed_to_ask() {
    let (_engine, proxy) = proxy();
    let cookie = cookie(&proxy);
    let preflight = [
        ("origin", "http://localhost:9999"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "x-forebay-csrf"),
        ("cookie", pair(&cookie)),
    ];
    for (method, path) in [
        ("OPTIONS", DRAIN),
        ("OPTIONS", WORKERS),
        ("GET", WORKERS),
        ("OPTIONS", "/metrics"),
    ] {
        let answer = proxy.admin_call(method, path, &preflight, "");
        let allowed = answer
            .headers
            .iter()
            .any(|(name, _)| name.to_ascii_lowercase().starts_with("access-control"));
        assert!(
            !allowed && (method == "GET" || answer.status == 405),
            "{method} {path}"
        );
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    }
}

#[test]
fn only_names_of_this_machine_are_answered() {
    let (_engine, proxy) = proxy();
    for (host, expected) in [
        ("localhost", 200),
        ("localhost:9000", 200),
        ("forebay.localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:7071", 200),
        ("evil.example", 403),
        ("evil.example:7071", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.0.2.1:7071", 403),
        ("localhost@evil.example", 403),
    ] {
        let headers = [("host", host), ("authorization", BEARER)];
        assert_eq!(status(&proxy, "GET", WORKERS, &headers), expected, "{host}");
    }
    let absolute = format!(
        "GET http://evil.example{WORKERS} HTTP/1.1\r\nhost: localhost\r\nauthorization: {BEARER}\r\n\r\n"
    );
    let mut client = support::client::Client::connect(proxy.admin());
    assert_eq!(client.send(absolute.as_bytes()).head().status, 403);
}

#[test]
fn the_token_is_in_no_log_and_no_answer() {
    let (_engine, proxy) = proxy();
    cookie(&proxy);
    let config = proxy.ask_admin("/api/config");
    let refused = proxy.admin_call("GET", &format!("{WORKERS}?token={TOKEN}"), &[], "");
    let said = [
        config.text(),
        refused.text(),
        &proxy.stderr(),
        &proxy.stdout(),
    ]
    .concat();
    assert!(!said.contains(TOKEN), "{said}");
    let metrics = proxy.ask_admin("/metrics");
    assert!(!metrics.text().contains(TOKEN));
}

#[test]
fn the_environments_token_goes_before_the_configurations_and_that_before_the_files() {
    let engine = Engine::start();
    let configured = "[admin]\ntoken = { env = \"CONFIGURED\" }";
    let setup = || {
        Proxy::setup()
            .worker("w", &engine)
            .variable("CONFIGURED", "of-the-file")
    };
    let status = |proxy: &Proxy, token: &str| {
        let bearer = format!("Bearer {token}");
        status(proxy, "GET", WORKERS, &[("authorization", &bearer)])
    };
    let both = setup().section(configured).start();
    assert_eq!(
        (status(&both, TOKEN), status(&both, "of-the-file")),
        (200, 401)
    );
    let empty = setup()
        .section(configured)
        .variable("FOREBAY_ADMIN_TOKEN", "")
        .launch();
    assert_eq!(
        (status(&empty, TOKEN), status(&empty, "of-the-file")),
        (401, 200)
    );
    let made = setup().variable("FOREBAY_ADMIN_TOKEN", "").launch();
    let file = made.folder().join("state/admin-token");
    let kept = std::fs::read_to_string(file).unwrap();
    assert_eq!(
        (status(&made, kept.trim()), status(&made, "of-the-file")),
        (200, 401)
    );
    assert!(
        !made.stderr().contains(kept.trim()),
        "a pipe is no terminal"
    );
    made.signal("TERM");
    made.wait_exit(Duration::from_secs(10));
}
