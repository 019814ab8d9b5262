//! What engines answer: to liveness probes, to the question what they are (`detect`), what they serve (`report`), LoRA
//! adapters among it (`lora`), and how much they have to do (`load`, `orca`).
//!
//! All of it is pure; `probe.rs`, `discover.rs` and `scrape.rs` ask. Sources: the HTTP references of vLLM, SGLang,
//! llama.cpp, Ollama, TGI, TEI, Triton (KServe v2) and OpenAI.

pub mod detect;
pub mod load;
pub mod lora;
pub mod orca;
pub mod report;
mod samples;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, StatusCode};

use serde::Deserialize;

use crate::config::plan::{Engine, Secret};
use crate::decide::State;
use crate::facts::nesting;

/// What an answer to a probe means: good, or why not.
///
/// # Errors
/// The cause, for logs and the status page.
pub fn verdict(engine: Engine, status: StatusCode) -> Result<(), String> {
    match (engine, status.as_u16()) {
        (_, 200..300) => Ok(()),
        (_, 401 | 403) => Err(format!("answered {status}: the key is missing or wrong")),
        _ => Err(format!("answered {status}")),
    }
}

/// Whether an answer to a probe means that a worker in this state lives and still loads its model.
///
/// llama.cpp says so in words. A 503 of SGLang and forebay-worker, and Triton's refusal to be ready, mean it too,
/// unless they were up: then something went wrong with them. vLLM, TGI and TEI answer no probe before their model is
/// there, and 503 when their engine is dead; so it is taken for loading only before they were ever up, when somebody in
/// front of them may have answered.
#[must_use]
pub fn is_loading(engine: Engine, state: State, status: StatusCode, body: Option<&[u8]>) -> bool {
    let was_up = matches!(state, State::Up | State::Ejected | State::Draining);
    let never_up = matches!(state, State::Starting | State::Loading);
    match (engine, status.as_u16()) {
        (Engine::Llamacpp, 503) => !was_up || body.is_some_and(detect::is_loading),
        (Engine::Sglang | Engine::Forebay, 503) | (Engine::Triton, 400 | 503) => !was_up,
        (Engine::Vllm | Engine::Tgi | Engine::Tei, 503) => never_up,
        _ => false,
    }
}

/// Where an engine that is not ready says whether it lives at all, if that is another place.
#[must_use]
pub const fn life_path(engine: Engine) -> Option<&'static str> {
    match engine {
        Engine::Triton => Some("/v2/health/live"),
        _ => None,
    }
}

/// The header that carries a worker's key: all engines of the table take it as a bearer token.
#[must_use]
pub fn authorization(key: &Secret) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose())).ok()?;
    value.set_sensitive(true);
    Some((AUTHORIZATION, value))
}

/// JSON of this shape, or nothing.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    if nesting::is_too_deep(body) {
        return None;
    }
    sonic_rs::from_slice(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_key_is_told_from_a_dead_worker() {
        assert!(verdict(Engine::Openai, StatusCode::OK).is_ok());
        assert!(
            verdict(Engine::Openai, StatusCode::UNAUTHORIZED)
                .unwrap_err()
                .contains("key")
        );
        assert!(verdict(Engine::Vllm, StatusCode::FOUND).is_err());
    }

    #[test]
    fn who_loads_is_told_from_who_is_ill() {
        use State::{Down, Loading, Starting, Up};
        let loads = |engine, state, body: &[u8]| {
            is_loading(engine, state, StatusCode::SERVICE_UNAVAILABLE, Some(body))
        };
        let said =
            br#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
        let by_state = |engine, body: &[u8]| {
            [Starting, Loading, Down, Up].map(|state| loads(engine, state, body))
        };
        assert_eq!(by_state(Engine::Llamacpp, said), [true; 4]);
        assert_eq!(by_state(Engine::Llamacpp, b""), [true, true, true, false]);
        assert_eq!(by_state(Engine::Sglang, b""), [true, true, true, false]);
        assert_eq!(by_state(Engine::Vllm, b""), [true, true, false, false]);
        assert_eq!(by_state(Engine::Openai, b""), [false; 4]);
        let refused = StatusCode::BAD_REQUEST;
        assert!(is_loading(Engine::Triton, Down, refused, None));
        assert!(!is_loading(Engine::Sglang, Down, refused, None));
    }
}
