//! Which engine a worker is, by answers that only one of them gives.
//!
//! Every question is a GET that reads a constant or a list, so asking never loads a model and never runs one. They are
//! asked in this order because the first settles most engines, and the last counts only beside what the first said:
//!
//! | path | tells | source |
//! |---|---|---|
//! | `/v1/models` | `owned_by` of vLLM, SGLang and llama.cpp; llama.cpp's "Loading model" | vLLM `entrypoints/openai`, SGLang `openai_api`, llama.cpp `tools/server/README.md` |
//! | `/v2` | `name` of Triton and of our own worker | KServe v2, "Server Metadata" |
//! | `/api/version` | Ollama | Ollama `docs/api.md`, "Version" |
//! | `/info` | TEI has a `model_type`, TGI a `model_id` without | their OpenAPI documents |
//! | `/version` | vLLM, where the list of models wants a key: it guards `/v1` only | vLLM `--api-key` |
//!
//! What has OpenAI's list of models and is none of these is `openai`: any service with that API. What wants a key for
//! the list is so too; its liveness probe then says that the key is wrong. What answers none of it is `generic`.
//! Nothing is concluded from a worker that is not itself yet: no answer, 429 and 5xx leave the question open.

use serde::Deserialize;

use super::read;
use crate::config::plan::Engine;

/// What is asked with GET, in this order, until an answer tells.
pub const TELLTALES: [&str; 5] = ["/v1/models", "/v2", "/api/version", "/info", "/version"];

/// What the answers so far say.
#[derive(Debug, Default)]
pub struct Detection {
    /// It has OpenAI's list of models.
    lists: bool,
    /// That list wants another key.
    locked: bool,
    /// Why a later answer may say more.
    open: Option<String>,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<Owned>,
}

#[derive(Deserialize)]
struct Owned {
    owned_by: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "version")]
    _version: String,
}

#[derive(Deserialize)]
struct Info {
    #[serde(rename = "model_id")]
    _model_id: String,
    model_type: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Refusal {
    error: Message,
}

#[derive(Deserialize)]
struct Message {
    message: String,
}

impl Detection {
    /// An answer; the engine if only one gives it.
    pub fn heard(&mut self, path: &str, status: u16, body: &[u8]) -> Option<Engine> {
        match (path, status) {
            ("/v1/models", 200) => self.list(body),
            ("/v1/models", 401 | 403) => {
                self.locked = true;
                None
            }
            ("/v2", 200) => match read::<Named>(body)?.name.as_str() {
                "triton" => Some(Engine::Triton),
                "forebay-worker" => Some(Engine::Forebay),
                _ => None,
            },
            ("/api/version", 200) => read::<Version>(body).map(|_| Engine::Ollama),
            ("/info", 200) => read::<Info>(body).map(|info| match info.model_type {
                Some(_) => Engine::Tei,
                None => Engine::Tgi,
            }),
            ("/version", 200) if self.locked => read::<Version>(body).map(|_| Engine::Vllm),
            (_, 503) if is_loading(body) => Some(Engine::Llamacpp),
            (_, 429 | 500..) => {
                self.unheard(format!("{path} answered {status}"));
                None
            }
            _ => None,
        }
    }

    /// A question stays without a useful answer.
    pub fn unheard(&mut self, cause: String) {
        self.open.get_or_insert(cause);
    }

    /// What it is by elimination.
    ///
    /// # Errors
    /// Why that can't be said yet.
    pub fn conclude(self) -> Result<Engine, String> {
        match self.open {
            _ if self.lists || self.locked => Ok(Engine::Openai),
            Some(cause) => Err(cause),
            None => Ok(Engine::Generic),
        }
    }

    fn list(&mut self, body: &[u8]) -> Option<Engine> {
        let list = read::<ModelList>(body)?;
        self.lists = true;
        let owner = |owner: &str| {
            list.data
                .iter()
                .any(|model| model.owned_by.as_deref() == Some(owner))
        };
        [
            ("vllm", Engine::Vllm),
            ("sglang", Engine::Sglang),
            ("llamacpp", Engine::Llamacpp),
        ]
        .into_iter()
        .find_map(|(name, engine)| owner(name).then_some(engine))
    }
}

/// What llama.cpp's server answers to everything until its model is there.
pub(super) fn is_loading(body: &[u8]) -> bool {
    read::<Refusal>(body).is_some_and(|refusal| refusal.error.message == "Loading model")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What these answers show, in the order of the questions; what is not named is 404.
    fn engine(answers: &[(&str, u16, &str)]) -> Result<Engine, String> {
        let mut detection = Detection::default();
        for path in TELLTALES {
            let answer = answers.iter().find(|(asked, ..)| *asked == path);
            let (status, body) = answer.map_or((404, ""), |(_, status, body)| (*status, *body));
            if let Some(engine) = detection.heard(path, status, body.as_bytes()) {
                return Ok(engine);
            }
        }
        detection.conclude()
    }

    fn owned_by(owner: &str) -> String {
        format!(
            r#"{{"object":"list","data":[{{"id":"m","object":"model","owned_by":"{owner}"}}]}}"#
        )
    }

    #[test]
    fn who_owns_the_models_tells_the_engine() {
        for (owner, expected) in [
            ("vllm", Engine::Vllm),
            ("sglang", Engine::Sglang),
            ("llamacpp", Engine::Llamacpp),
            ("system", Engine::Openai),
            ("somebody", Engine::Openai),
        ] {
            assert_eq!(
                engine(&[("/v1/models", 200, &owned_by(owner))]),
                Ok(expected)
            );
        }
        for nobody in [
            r#"{"data":[{"id":"m","owned_by":null}]}"#,
            r#"{"data":[{"id":"m"}]}"#,
        ] {
            assert_eq!(engine(&[("/v1/models", 200, nobody)]), Ok(Engine::Openai));
        }
    }

    #[test]
    fn engines_with_paths_of_their_own_are_told_by_these() {
        let library = owned_by("library");
        for (path, body, expected) in [
            (
                "/v2",
                r#"{"name":"triton","version":"2.60.0","extensions":[]}"#,
                Engine::Triton,
            ),
            (
                "/v2",
                r#"{"name":"forebay-worker","version":"0.1.0"}"#,
                Engine::Forebay,
            ),
            ("/v2", r#"{"name":"ovms","version":"2025"}"#, Engine::Openai),
            ("/api/version", r#"{"version":"0.12.0"}"#, Engine::Ollama),
            (
                "/info",
                r#"{"model_id":"m","router":"text-generation-router"}"#,
                Engine::Tgi,
            ),
            (
                "/info",
                r#"{"model_id":"m","model_type":{"reranker":{}}}"#,
                Engine::Tei,
            ),
            ("/version", r#"{"version":"1"}"#, Engine::Openai),
        ] {
            let answers = [("/v1/models", 200, library.as_str()), (path, 200, body)];
            assert_eq!(engine(&answers), Ok(expected), "{path} {body}");
        }
    }

    #[test]
    fn a_wrong_key_hides_the_list_only() {
        let locked = ("/v1/models", 401, r#"{"error":"Unauthorized"}"#);
        assert_eq!(engine(&[locked]), Ok(Engine::Openai));
        let vllm = [locked, ("/version", 200, r#"{"version":"0.11.0"}"#)];
        assert_eq!(engine(&vllm), Ok(Engine::Vllm));
    }

    #[test]
    fn nothing_is_concluded_from_a_worker_that_is_not_itself_yet() {
        assert_eq!(engine(&[]), Ok(Engine::Generic));
        assert!(
            engine(&[("/v1/models", 503, "")])
                .unwrap_err()
                .contains("503")
        );
        assert!(engine(&[("/info", 429, "")]).is_err());
        let loading =
            r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
        assert_eq!(
            engine(&[("/v1/models", 503, loading)]),
            Ok(Engine::Llamacpp)
        );
        let mut silent = Detection::default();
        silent.unheard("no answer".into());
        assert_eq!(silent.conclude(), Err("no answer".into()));
    }

    #[test]
    fn answers_that_are_not_what_they_should_be_tell_nothing() {
        for body in [
            "",
            "[]",
            "{}",
            "\u{0}",
            r#"{"data":7}"#,
            r#"{"name":1,"version":2,"model_id":3}"#,
            &"[".repeat(500_000),
            &r#"{"data":"#.repeat(200_000),
            &format!(r#"{{"x":{}"#, "[".repeat(500_000)),
        ] {
            let answers = TELLTALES.map(|path| (path, 200, body));
            assert_eq!(engine(&answers), Ok(Engine::Generic), "{body}");
        }
    }
}
