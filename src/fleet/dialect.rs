//! What an engine's answer to a liveness probe means, and how it wants its key.
//!
//! Sources: the HTTP references of vLLM, SGLang, llama.cpp, Ollama, TGI, TEI, Triton (KServe v2) and OpenAI, as the
//! table in the contract (§3) sums them up.

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::config::plan::{Engine, Secret};

/// What an answer to a probe means: good, or why not.
///
/// # Errors
/// The cause, for logs and the status page.
pub fn verdict(engine: Engine, status: StatusCode) -> Result<(), String> {
    match (engine, status.as_u16()) {
        (_, 200..300) => Ok(()),
        (_, 401 | 403) => Err(format!(
            "the key is missing or wrong (probe answered {status})"
        )),
        (Engine::Llamacpp | Engine::Forebay, 503) => {
            Err("loading its model (probe answered 503)".to_owned())
        }
        _ => Err(format!("probe answered {status}")),
    }
}

/// The header that carries a worker's key: all engines of the table take it as a bearer token.
#[must_use]
pub fn authorization(key: &Secret) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose())).ok()?;
    value.set_sensitive(true);
    Some((AUTHORIZATION, value))
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
