//! Keys of tenants that come and go while the proxy runs, over real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use support::engine::Engine;
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;
use support::tenant::{ask, hash, refused, tenant};

/// A folder with the files of two tenants' keys.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Files(tempfile::tempdir().unwrap());
        files.put("app.keys", &hash("fb_app"));
        files.put("bee.keys", &hash("fb_bee"));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a file in its place, whole.
    fn put(&self, name: &str, text: &str) {
        let fresh = self.path("fresh");
        fs::write(&fresh, text).unwrap();
        fs::rename(fresh, self.path(name)).unwrap();
    }

    fn tenants(&self) -> String {
        let of = |name: &str, path: &Path| {
            format!("[[tenant]]\nname = \"{name}\"\nkey_file = {path:?}\n")
        };
        let typed = tenant("typed", "fb_typed", "");
        of("app", &self.path("app.keys")) + &of("bee", &self.path("bee.keys")) + &typed
    }
}

fn file_of(proxy: &Proxy, tenant: &str) -> Value {
    let tenants = proxy.api("/api/tenants");
    let rows = tenants["tenants"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == tenant).unwrap();
    row["key_file"].clone()
}

#[track_caller]
fn status(proxy: &Proxy, key: &str) -> u16 {
    ask(proxy, key, CHAT, &chat("x")).status
}

#[test]
fn keys_in_a_file_come_and_go_without_a_restart() {
    let worker = Engine::start();
    let files = Files::new();
    let setup = Proxy::setup().section(&files.tenants());
    let proxy = setup.worker("w", &worker).start();
    let statuses = |proxy: &Proxy| ["fb_app", "fb_new", "fb_bee"].map(|key| status(proxy, key));
    assert_eq!(statuses(&proxy), [200, 401, 200]);

    let both = format!("# rotated\n{}\n{}\n", hash("fb_app"), hash("fb_new"));
    files.put("app.keys", &both);
    expect_soon("the new key works", || status(&proxy, "fb_new") == 200);
    assert_eq!(statuses(&proxy), [200, 200, 200]);
    assert_eq!(file_of(&proxy, "app")["keys"], 2);

    let ended = format!("{} until=2020-01-01\n{}\n", hash("fb_app"), hash("fb_new"));
    files.put("app.keys", &ended);
    expect_soon("the old key is refused", || status(&proxy, "fb_app") == 401);
    let answer = ask(&proxy, "fb_app", CHAT, &chat("x"));
    let message = refused(&answer, CHAT, 401, "unauthorized", "authentication_error");
    assert!(message.contains("expired at 2020-01-01"), "{message}");

    files.put("app.keys", "# all are revoked\n");
    expect_soon("every key is refused", || status(&proxy, "fb_new") == 401);
    assert_eq!(statuses(&proxy), [401, 401, 200]);
}

#[test]
fn a_file_that_is_wrong_or_gone_changes_nothing_and_that_is_said() {
    let worker = Engine::start();
    let files = Files::new();
    let setup = Proxy::setup().section(&files.tenants());
    let proxy = setup.worker("w", &worker).start();
    let trouble = || {
        file_of(&proxy, "app")["trouble"]
            .as_str()
            .map(str::to_owned)
    };
    let is_told = |part: &str| {
        expect_soon(part, || trouble().is_some_and(|told| told.contains(part)));
        expect_soon("the log says it too", || proxy.stderr().contains(part));
        assert_eq!(status(&proxy, "fb_app"), 200);
    };
    files.put("app.keys", &format!("{}\nfb_canary\n", hash("fb_other")));
    is_told("line 2");
    assert_eq!(status(&proxy, "fb_other"), 401);
    fs::remove_file(files.path("app.keys")).unwrap();
    is_told("No such file");
    // What another tenant has stays that one's, and the rest of the file holds.
    files.put(
        "app.keys",
        &format!("{}\n{}\n", hash("fb_app"), hash("fb_typed")),
    );
    is_told("is a key of typed already");
    assert_eq!(status(&proxy, "fb_typed"), 200);
    expect_soon("the log has them", || {
        let log = proxy.log();
        let of = |tenant: &str| log.iter().any(|line| line["tenant"] == tenant);
        of("typed") && of("app")
    });
    files.put("app.keys", &hash("fb_app"));
    expect_soon("all is well", || trouble().is_none());
    assert!(!proxy.stderr().contains("canary"));
    assert!(!proxy.stderr().contains(&hash("fb_typed")));
}
