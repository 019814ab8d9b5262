//! What every refusal of the proxy's own has to look like on an OpenAI path.

use serde_json::Value;

use super::client::Answer;

/// The error object of OpenAI's shape, after its other promises were checked.
#[track_caller]
pub fn openai_error(answer: &Answer, status: u16, reason: &str) -> Value {
    let shown = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(
        (answer.status, answer.reason()),
        (status, Some(reason)),
        "{shown}"
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], reason, "{shown}");
    assert!(error["type"].is_string(), "{shown}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty()),
        "{shown}"
    );
    assert!(error.get("param").is_some(), "{shown}");
    error
}

/// What an error says.
#[track_caller]
pub fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap()
}
