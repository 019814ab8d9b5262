//! Tenants, their keys, and what they are refused.

use forebay::config::plan::KeyHash;

use super::client::Answer;
use super::proxy::Proxy;

/// Anthropic's path.
pub const MESSAGES: &str = "/v1/messages";
/// A path of KServe's.
pub const INFER: &str = "/v2/models/m/infer";

/// A `[[tenant]]` with this key and further lines.
pub fn tenant(name: &str, key: &str, lines: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\nkey_hash = \"{}\"\n{lines}\n",
        hash(key)
    )
}

/// A key's hash, as it is typed.
pub fn hash(key: &str) -> String {
    KeyHash::of(key.as_bytes()).to_string()
}

/// The header in which most clients send a key.
pub fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

/// A request with this key.
#[track_caller]
pub fn ask(proxy: &Proxy, key: &str, path: &str, body: &str) -> Answer {
    let bearer = bearer(key);
    ask_with(proxy, &[("authorization", &bearer)], path, body)
}

/// A request with these headers: a POST if it has a body.
#[track_caller]
pub fn ask_with(proxy: &Proxy, headers: &[(&str, &str)], path: &str, body: &str) -> Answer {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let mut client = proxy.connect();
    client.call_with(method, path, headers, body.as_bytes())
}

/// The message of a refusal, after its shape was checked: that of its path.
#[track_caller]
pub fn refused(answer: &Answer, path: &str, status: u16, reason: &str, kind: &str) -> String {
    let body = answer.json();
    assert_eq!(
        (answer.status, answer.reason()),
        (status, Some(reason)),
        "{path}: {body}"
    );
    let message = match path {
        MESSAGES => {
            assert_eq!(body["type"], "error", "{body}");
            assert_eq!(body["error"]["type"], kind, "{body}");
            &body["error"]["message"]
        }
        INFER => &body["error"],
        _ => {
            assert_eq!(body["error"]["type"], kind, "{body}");
            assert_eq!(body["error"]["code"], reason, "{body}");
            &body["error"]["message"]
        }
    };
    message.as_str().unwrap().to_owned()
}
