//! What engines answer: to liveness probes, to the question what they are (`detect`), and what they serve (`report`),
//! LoRA adapters among it (`lora`).
//!
//! All of it is pure; `probe.rs` and `discover.rs` ask. Sources: the HTTP references of vLLM, SGLang, llama.cpp, Ollama,
//! TGI, TEI, Triton (KServe v2) and OpenAI.

pub mod detect;
pub mod lora;
pub mod report;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, StatusCode};

use serde::Deserialize;

use crate::config::plan::{Engine, Secret};
use crate::facts::nesting;

/// What an answer to a probe means: good, or why not.
///
/// # Errors
/// The cause, for logs and the status page.
pub fn verdict(engine: Engine, status: StatusCode) -> Result<(), String> {
    match (engine, status.as_u16()) {
        (_, 200..300) => Ok(()),
        (_, 401 | 403) => Err(format!("answered {status}: the key is missing or wrong")),
        (Engine::Llamacpp | Engine::Forebay, 503) => {
            Err("answered 503: it is loading its model".to_owned())
        }
        _ => Err(format!("answered {status}")),
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
        assert!(
            verdict(Engine::Llamacpp, StatusCode::SERVICE_UNAVAILABLE)
                .unwrap_err()
                .contains("loading")
        );
        assert!(verdict(Engine::Vllm, StatusCode::FOUND).is_err());
    }
}
