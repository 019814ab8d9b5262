//! JSON Web Tokens of tenants over real sockets: which are taken, and what is said of the others.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use forebay::clock;

use support::client::Answer;
use support::engine::Engine;
use support::expect_soon;
use support::prompt::{CHAT, chat};
use support::proxy::Proxy;
use support::tenant::{ask, refused, tenant};

/// Who issues tokens. Its seed makes its key.
struct Issuer {
    pair: Ed25519KeyPair,
    id: &'static str,
}

impl Issuer {
    fn new(id: &'static str, seed: u8) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        Issuer { pair, id }
    }

    fn jwks(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": x}]}).to_string()
    }

    fn token_with(&self, head: &Value, claims: &Value) -> String {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let message = format!("{}.{}", part(head), part(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }

    fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": "EdDSA", "kid": self.id}), claims)
    }
}

/// Good claims of this tenant.
fn claims(tenant: &str) -> Value {
    let exp = clock::wall().0 + 600.0;
    json!({"iss": "https://id", "aud": "forebay", "exp": exp, "sub": tenant})
}

/// Good claims but for this one.
fn changed(name: &str, value: Value) -> Value {
    let mut claims = claims("app");
    claims[name] = value;
    claims
}

fn proxy(worker: &Engine, jwks: &std::path::Path) -> Proxy {
    let section = format!(
        "[jwt]\njwks = {{ file = {jwks:?} }}\nissuer = \"https://id\"\naudience = \"forebay\"\n\
         [[tenant]]\nname = \"app\"\nmodels = [\"m\"]\n{}",
        tenant("typed", "fb_typed", "")
    );
    let setup = Proxy::setup().section(&section);
    setup.worker("w", worker).start()
}

#[track_caller]
fn sent(proxy: &Proxy, token: &str) -> Answer {
    ask(proxy, token, CHAT, &chat("x"))
}

#[test]
fn a_good_token_is_its_tenant_and_reaches_no_worker() {
    let worker = Engine::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let issuer = Issuer::new("one", 1);
    fs::write(&path, issuer.jwks()).unwrap();
    let proxy = proxy(&worker, &path);
    let with = |name: &str, value: Value| issuer.token(&changed(name, value));
    let now = clock::wall().0;
    for good in [
        issuer.token(&claims("app")),
        issuer.token_with(&json!({"alg": "EdDSA"}), &claims("app")),
        with("aud", json!(["other", "forebay"])),
        with("exp", json!(now - 30.0)),
        with("nbf", json!(now + 30.0)),
    ] {
        let answer = sent(&proxy, &good);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(
        sent(&proxy, "fb_typed").status,
        200,
        "keys work beside tokens"
    );
    let log = proxy.log_of(6);
    let tenants = log.iter().map(|line| line["tenant"].as_str().unwrap());
    assert_eq!(tenants.filter(|name| *name == "app").count(), 5);
    for request in worker.requests() {
        assert!(request.all("authorization").is_empty());
    }
}

#[test]
fn what_is_wrong_with_a_token_is_said_without_a_word_of_it() {
    let worker = Engine::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let (issuer, stranger) = (Issuer::new("one", 1), Issuer::new("one", 2));
    fs::write(&path, issuer.jwks()).unwrap();
    let proxy = proxy(&worker, &path);
    let with = |name: &str, value: Value| issuer.token(&changed(name, value));
    let now = clock::wall().0;
    let head = |alg: &str| json!({"alg": alg, "kid": "one"});
    let unsigned = |alg: &str| {
        let token = issuer.token_with(&head(alg), &claims("app"));
        format!("{}.", token.rsplit_once('.').unwrap().0)
    };
    let none = |name: &str| {
        let mut changed = claims("app");
        changed.as_object_mut().unwrap().remove(name);
        issuer.token(&changed)
    };
    let extended = json!({"alg": "EdDSA", "kid": "one", "crit": ["b64"]});
    let elsewhere = json!({"alg": "EdDSA", "kid": "canary"});
    for (token, told) in [
        (
            stranger.token(&claims("app")),
            "no key of the set has signed",
        ),
        (unsigned("none"), "no key of the set has signed"),
        (unsigned("EdDSA"), "no key of the set has signed"),
        (
            issuer.token_with(&head("HS256"), &claims("app")),
            "no key of the set has signed",
        ),
        (issuer.token_with(&elsewhere, &claims("app")), "kid"),
        (issuer.token_with(&extended, &claims("app")), "crit"),
        (with("exp", json!(now - 90.0)), "expired"),
        (with("exp", json!("canary")), "exp is no number"),
        (none("exp"), "no exp"),
        (with("nbf", json!(now + 90.0)), "nbf"),
        (with("iss", json!("canary")), "another issuer"),
        (with("aud", json!("canary")), "another audience"),
        (none("aud"), "another audience"),
        (none("sub"), "no sub"),
        ("canary00.canary00.canary00".to_owned(), "JSON of a token"),
        ("a.%.c".to_owned(), "it is no JWT"),
    ] {
        let answer = sent(&proxy, &token);
        let message = refused(&answer, CHAT, 401, "unauthorized", "authentication_error");
        assert!(message.contains(told), "{told}: {message}");
        assert!(!answer.text().contains("canary"), "{message}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let answer = sent(&proxy, &issuer.token(&claims("canary")));
    let message = refused(&answer, CHAT, 403, "forbidden", "permission_error");
    assert!(message.contains("names no tenant") && !message.contains("canary"));
    assert_eq!(worker.count(), 0);
    let shown = [
        proxy.stderr(),
        proxy.stdout(),
        proxy.ask_admin("/api/config").text().to_owned(),
    ];
    assert!(!shown.concat().contains("canary"));
}

#[test]
fn keys_of_the_issuer_are_taken_over_when_they_change_and_kept_while_they_are_wrong() {
    let worker = Engine::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let (old, new) = (Issuer::new("old", 1), Issuer::new("new", 2));
    let put = |text: &str| {
        let fresh = folder.path().join("fresh");
        fs::write(&fresh, text).unwrap();
        fs::rename(&fresh, &path).unwrap();
    };
    put(&old.jwks());
    let proxy = proxy(&worker, &path);
    let status = |issuer: &Issuer| sent(&proxy, &issuer.token(&claims("app"))).status;
    assert_eq!([status(&old), status(&new)], [200, 401]);
    put("{\"keys\": [{\"kty\": \"oct\", \"k\": \"c2VjcmV0\"}]}");
    let trouble = || proxy.api("/api/tenants")["jwks"]["trouble"].clone();
    expect_soon("the trouble is told", || trouble().is_string());
    assert_eq!([status(&old), status(&new)], [200, 401]);
    put(&new.jwks());
    expect_soon("the new key is taken", || status(&new) == 200);
    assert_eq!(status(&old), 401);
    assert!(trouble().is_null());
    put("{\"keys\": []}");
    expect_soon("a set without keys is good for nobody", || {
        status(&new) == 401
    });
    assert!(trouble().is_null());
    assert!(proxy.stderr().contains("every token is refused"));
}
