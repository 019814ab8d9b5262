//! What an engine says of itself: its models, and what bounds how much it does at a time.
//!
//! | engine | models | slots, memory and context |
//! |---|---|---|
//! | vllm | `GET /v1/models`, LoRA adapters too | there, `max_model_len`; `GET /metrics`: `vllm:cache_config_info` |
//! | sglang | `GET /v1/models` | there, `max_model_len`; `GET /get_server_info`: `context_length`, `max_total_num_tokens`, `hicache_ratio` |
//! | llamacpp | `GET /v1/models` | `GET /props`: `total_slots`, `n_ctx` of one slot |
//! | forebay, openai | `GET /v1/models` | |
//! | ollama | `GET /api/tags` | |
//! | tgi | `GET /info`: `model_id` | there, `max_input_tokens`, `max_total_tokens` |
//! | tei | `GET /info`: `model_id` | there, `max_input_length`, unless `auto_truncate` |
//! | triton | `POST /v2/repository/index`, those that are `READY` | |
//! | generic | can't be asked | |
//!
//! Sources: the pages named in `detect.rs`; Ollama `docs/api.md`, "List Local Models"; Triton
//! `protocol/extension_model_repository.md`; vLLM "Production Metrics". TGI's `max_concurrent_requests` and TEI's bound
//! their queues, not what runs at once, so they are no slots.
//!
//! Where the models of one worker differ in their context, the longest counts: it is one bound for the worker, and one
//! too many sent there is refused by the engine, one too few would be refused by us.

use std::collections::BTreeSet;

use http::Method;
use serde::Deserialize;

use super::{read, samples};
use crate::config::plan::Engine;
use crate::decide::Told;
use crate::units::ModelName;

/// The most models that one worker is believed to serve; what it lists beyond is left out.
pub const MOST_MODELS: usize = 1_000;

/// Letters of a version; what is longer is cut.
const LONGEST_VERSION: usize = 40;

/// Where most engines list their models.
const MODELS: &str = "/v1/models";

/// How an engine is asked for its models; `None` when it can't be.
#[must_use]
pub fn models_question(engine: Engine) -> Option<(Method, &'static str)> {
    match engine {
        Engine::Vllm | Engine::Sglang | Engine::Llamacpp | Engine::Forebay | Engine::Openai => {
            Some((Method::GET, MODELS))
        }
        Engine::Ollama => Some((Method::GET, "/api/tags")),
        Engine::Tgi | Engine::Tei => Some((Method::GET, "/info")),
        Engine::Triton => Some((Method::POST, "/v2/repository/index")),
        Engine::Generic => None,
    }
}

/// Where an engine says what bounds its work.
#[must_use]
pub const fn bounds_questions(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Vllm => &["/metrics", MODELS],
        Engine::Sglang => &["/get_server_info", MODELS],
        Engine::Llamacpp => &["/props"],
        Engine::Tgi | Engine::Tei => &["/info"],
        _ => &[],
    }
}

/// Where an engine says of which version it is, if it does.
#[must_use]
pub const fn version_question(engine: Engine) -> Option<&'static str> {
    match engine {
        Engine::Vllm => Some("/version"),
        Engine::Sglang => Some("/get_server_info"),
        Engine::Llamacpp => Some("/props"),
        Engine::Ollama => Some("/api/version"),
        Engine::Tgi | Engine::Tei => Some("/info"),
        Engine::Triton | Engine::Forebay => Some("/v2"),
        Engine::Openai | Engine::Generic => None,
    }
}

#[derive(Deserialize)]
struct Versioned {
    version: Option<String>,
    /// llama.cpp's word.
    build_info: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiList {
    data: Vec<OpenAiModel>,
}

#[derive(Deserialize)]
struct OpenAiModel {
    id: String,
    /// Tokens of a prompt and its answer together; a LoRA adapter says none.
    #[serde(default)]
    max_model_len: Option<f64>,
}

#[derive(Deserialize)]
struct Tags {
    models: Vec<Tag>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
}

#[derive(Deserialize)]
struct Info {
    model_id: String,
    /// TGI's word for the longest prompt …
    #[serde(default)]
    max_input_tokens: Option<f64>,
    /// … and TEI's, which TGI's was once.
    #[serde(default)]
    max_input_length: Option<f64>,
    #[serde(default)]
    max_total_tokens: Option<f64>,
    /// Whether longer ones are cut.
    #[serde(default)]
    auto_truncate: bool,
}

#[derive(Deserialize)]
struct Indexed {
    name: String,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
struct Props {
    total_slots: u32,
    #[serde(default)]
    default_generation_settings: Settings,
}

#[derive(Default, Deserialize)]
struct Settings {
    #[serde(default)]
    n_ctx: Option<f64>,
}

#[derive(Deserialize)]
struct ServerInfo {
    max_total_num_tokens: f64,
    #[serde(default)]
    context_length: Option<f64>,
    /// Whether longer prompts are cut.
    #[serde(default)]
    allow_auto_truncate: bool,
    #[serde(default)]
    enable_hierarchical_cache: bool,
    #[serde(default)]
    hicache_ratio: f64,
    #[serde(default)]
    hicache_size: f64,
}

impl ServerInfo {
    /// Tokens of prompts that stay in the host's memory: a multiple of the card's, unless a size in bytes is typed.
    fn kept_tokens(&self) -> Option<f64> {
        let by_ratio = self.enable_hierarchical_cache && self.hicache_size <= 0.0;
        let most = self.hicache_ratio.max(1.0) * self.max_total_num_tokens;
        by_ratio.then_some(most)
    }
}

/// The models of an answer to [`models_question`], sorted and once each. Names that no configuration could hold are
/// left out.
///
/// # Errors
/// When it is not such an answer.
pub fn models(engine: Engine, body: &[u8]) -> Result<Vec<ModelName>, String> {
    let names: Vec<String> = match engine {
        Engine::Ollama => {
            let tags: Tags = listed(body)?;
            tags.models.into_iter().map(|tag| tag.name).collect()
        }
        Engine::Tgi | Engine::Tei => vec![listed::<Info>(body)?.model_id],
        Engine::Triton => {
            let index: Vec<Indexed> = listed(body)?;
            let ready = index.into_iter().filter(|entry| entry.state == "READY");
            ready.map(|entry| entry.name).collect()
        }
        _ => {
            let list: OpenAiList = listed(body)?;
            list.data.into_iter().map(|model| model.id).collect()
        }
    };
    let sound: BTreeSet<_> = names
        .iter()
        .filter_map(|name| ModelName::sound(name))
        .collect();
    Ok(sound.into_iter().take(MOST_MODELS).collect())
}

/// The version in an answer to [`version_question`].
#[must_use]
pub fn version(body: &[u8]) -> Option<String> {
    let said: Versioned = read(body)?;
    let sound = |text: &String| !text.is_empty() && !text.chars().any(char::is_control);
    let version = said.version.or(said.build_info).filter(sound)?;
    Some(version.chars().take(LONGEST_VERSION).collect())
}

/// What an answer to one of the [`bounds_questions`] says.
#[must_use]
pub fn bounds(engine: Engine, path: &str, body: &[u8]) -> Told {
    let told = match (engine, path) {
        (_, MODELS) => longest_context(body),
        (Engine::Llamacpp, _) => read(body).map(llamacpp),
        (Engine::Sglang, _) => read(body).map(sglang),
        (Engine::Tgi | Engine::Tei, _) => read(body).map(info),
        (Engine::Vllm, _) => Some(Told {
            kv_tokens: vllm_cache(&String::from_utf8_lossy(body)),
            ..Told::default()
        }),
        _ => None,
    };
    told.unwrap_or_default()
}

/// The longest context of a list of models.
fn longest_context(body: &[u8]) -> Option<Told> {
    let list: OpenAiList = read(body)?;
    let contexts = list.data.iter().filter_map(|model| model.max_model_len);
    Some(Told {
        context: above_zero(contexts.reduce(f64::max)),
        ..Told::default()
    })
}

/// It ends an answer where the context ends, so that only the prompt must fit.
fn llamacpp(props: Props) -> Told {
    Told {
        slots: Some(props.total_slots.max(1)),
        longest_prompt: above_zero(props.default_generation_settings.n_ctx),
        ..Told::default()
    }
}

fn sglang(info: ServerInfo) -> Told {
    Told {
        context: above_zero(info.context_length),
        kv_tokens: above_zero(Some(info.max_total_num_tokens)),
        kept_tokens: info.kept_tokens(),
        cuts: info.allow_auto_truncate,
        ..Told::default()
    }
}

fn info(info: Info) -> Told {
    Told {
        context: above_zero(info.max_total_tokens),
        longest_prompt: above_zero(info.max_input_tokens.or(info.max_input_length)),
        cuts: info.auto_truncate,
        ..Told::default()
    }
}

fn above_zero(tokens: Option<f64>) -> Option<f64> {
    tokens.filter(|tokens| *tokens > 0.0)
}

/// Blocks times their size, over all engines behind the address.
fn vllm_cache(metrics: &str) -> Option<f64> {
    let engines = samples::of(metrics, "vllm:cache_config_info");
    let tokens = engines
        .filter_map(|info| Some(info.number("block_size")? * info.number("num_gpu_blocks")?));
    above_zero(Some(tokens.sum()))
}

fn listed<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    read(body).ok_or_else(|| "its list of models can't be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(engine: Engine, body: &str) -> Vec<String> {
        let models = models(engine, body.as_bytes()).unwrap();
        models.iter().map(ModelName::to_string).collect()
    }

    #[test]
    fn each_engine_lists_its_models_in_its_own_way() {
        let list = r#"{"object":"list","data":[
            {"id":"sql","parent":"base","owned_by":"vllm"},{"id":"base","parent":null,"owned_by":"vllm"},{"id":"sql"}]}"#;
        assert_eq!(names(Engine::Vllm, list), ["base", "sql"]);
        let tags = r#"{"models":[{"name":"llama3.2:latest","model":"llama3.2:latest","size":1}]}"#;
        assert_eq!(names(Engine::Ollama, tags), ["llama3.2:latest"]);
        let index = r#"[{"name":"a","version":"1","state":"READY"},{"name":"b"},
            {"name":"c","version":"1","state":"UNAVAILABLE","reason":"unloaded"}]"#;
        assert_eq!(names(Engine::Triton, index), ["a"]);
        let info = r#"{"model_id":"BAAI/bge-m3","model_type":{"embedding":{}}}"#;
        assert_eq!(names(Engine::Tei, info), ["BAAI/bge-m3"]);
        assert!(models(Engine::Vllm, b"<html>").is_err());
        assert!(models(Engine::Triton, b"{}").is_err());
    }

    #[test]
    fn no_more_and_no_odder_names_are_believed_than_a_configuration_may_hold() {
        let long = "x".repeat(257);
        let list = format!(
            r#"{{"data":[{{"id":""}},{{"id":"*"}},{{"id":"a\nb"}},{{"id":"{long}"}},{{"id":"ok"}}]}}"#
        );
        assert_eq!(names(Engine::Openai, &list), ["ok"]);
        let many: Vec<_> = (0..2 * MOST_MODELS)
            .map(|id| format!(r#"{{"id":"{id}"}}"#))
            .collect();
        let list = format!(r#"{{"data":[{}]}}"#, many.join(","));
        assert_eq!(names(Engine::Openai, &list).len(), MOST_MODELS);
    }

    fn told(engine: Engine, path: &str, body: &str) -> Told {
        bounds(engine, path, body.as_bytes())
    }

    #[test]
    fn slots_and_memory_are_read_where_an_engine_tells_them() {
        let props = r#"{"total_slots":4,"chat_template":""}"#;
        assert_eq!(told(Engine::Llamacpp, "/props", props).slots, Some(4));
        let sglang = |info: &str| told(Engine::Sglang, "/get_server_info", info);
        let info = sglang(r#"{"max_total_num_tokens":20480,"context_length":null}"#);
        assert_eq!((info.kv_tokens, info.kept_tokens), (Some(20_480.0), None));
        let kept = |size| {
            sglang(&format!(
                r#"{{"max_total_num_tokens":1000,"enable_hierarchical_cache":true,"hicache_ratio":2.5,"hicache_size":{size}}}"#
            ))
            .kept_tokens
        };
        assert_eq!((kept(0), kept(40)), (Some(2_500.0), None));
        let metrics = "# TYPE vllm:cache_config_info gauge\n\
            vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\",num_gpu_blocks_override=\"None\"} 1.0\n\
            vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"500\"} 1.0\n";
        let memory = told(Engine::Vllm, "/metrics", metrics).kv_tokens;
        assert_eq!(memory, Some(24_000.0));
    }

    #[test]
    fn the_context_is_read_where_an_engine_tells_it() {
        let list = r#"{"data":[{"id":"sql","max_model_len":null},{"id":"small","max_model_len":4096},
            {"id":"base","max_model_len":32768}]}"#;
        for engine in [Engine::Vllm, Engine::Sglang] {
            assert_eq!(told(engine, MODELS, list).context, Some(32_768.0));
        }
        let prompt = |engine, path, body: &str| {
            let told = told(engine, path, body);
            (told.longest_prompt, told.context, told.cuts)
        };
        let slot = r#"{"total_slots":4,"default_generation_settings":{"n_ctx":8192,"id":0}}"#;
        let (props, info) = ("/props", "/info");
        let llamacpp = prompt(Engine::Llamacpp, props, slot);
        assert_eq!(llamacpp, (Some(8_192.0), None, false));
        let tgi = r#"{"model_id":"m","max_input_tokens":4095,"max_total_tokens":4096}"#;
        let tgi = prompt(Engine::Tgi, info, tgi);
        assert_eq!(tgi, (Some(4_095.0), Some(4_096.0), false));
        let tei = |cuts| {
            let body =
                format!(r#"{{"model_id":"m","max_input_length":512,"auto_truncate":{cuts}}}"#);
            prompt(Engine::Tei, info, &body)
        };
        assert_eq!(tei(false), (Some(512.0), None, false));
        assert!(tei(true).2);
        let sglang =
            r#"{"max_total_num_tokens":900,"context_length":800,"allow_auto_truncate":true}"#;
        let sglang = prompt(Engine::Sglang, "/get_server_info", sglang);
        assert_eq!(sglang, (None, Some(800.0), true));
    }

    #[test]
    fn a_version_is_read_where_an_engine_tells_it() {
        let told = |body: &str| version(body.as_bytes());
        assert_eq!(told(r#"{"version":"0.11.0"}"#).as_deref(), Some("0.11.0"));
        let props = r#"{"total_slots":4,"build_info":"b6500-0a1b2c3d"}"#;
        assert_eq!(told(props).as_deref(), Some("b6500-0a1b2c3d"));
        for silent in [
            "",
            "{}",
            r#"{"version":""}"#,
            r#"{"version":"a\nb"}"#,
            r#"{"version":1}"#,
        ] {
            assert_eq!(told(silent), None, "{silent}");
        }
        let long = format!(r#"{{"version":"{}"}}"#, "ü".repeat(99));
        assert_eq!(told(&long).unwrap().chars().count(), LONGEST_VERSION);
    }

    #[test]
    fn what_an_engine_does_not_say_bounds_nothing() {
        for body in [
            "",
            "{}",
            r#"{"data":[{"id":"a"},{"id":"b","max_model_len":0}]}"#,
            "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0",
        ] {
            for engine in [Engine::Vllm, Engine::Sglang, Engine::Llamacpp, Engine::Tgi] {
                for path in bounds_questions(engine) {
                    assert_eq!(told(engine, path, body), Told::default());
                }
            }
        }
        assert!(bounds_questions(Engine::Ollama).is_empty());
    }
}
