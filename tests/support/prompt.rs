//! The requests that most tests send.

use serde_json::json;

/// Where they are sent.
pub const CHAT: &str = "/v1/chat/completions";

/// A chat with model `m` that says this; the worker's answer says its words again.
pub fn chat(content: &str) -> String {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string()
}

/// The same, answered as server-sent events, in so many tokens.
pub fn stream(content: &str, tokens: usize) -> String {
    json!({"model": "m", "stream": true, "max_tokens": tokens, "messages": [{"role": "user", "content": content}]})
        .to_string()
}

/// The text that a streamed chat said, put together from its events.
#[track_caller]
pub fn said(events: &str) -> String {
    events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str::<serde_json::Value>(data).unwrap())
        .filter_map(|data| {
            let delta = &data["choices"][0]["delta"]["content"];
            delta.as_str().map(str::to_owned)
        })
        .collect()
}
