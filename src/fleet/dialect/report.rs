//! What an engine says of itself: its models, and what bounds how much it does at a time.
//!
//! | engine | models | slots and memory |
//! |---|---|---|
//! | vllm | `GET /v1/models`, LoRA adapters too | `GET /metrics`: `vllm:cache_config_info` |
//! | sglang | `GET /v1/models` | `GET /get_server_info`: `max_total_num_tokens`, `hicache_ratio` |
//! | llamacpp | `GET /v1/models` | `GET /props`: `total_slots` |
//! | forebay, openai | `GET /v1/models` | |
//! | ollama | `GET /api/tags` | |
//! | tgi, tei | `GET /info`: `model_id` | |
//! | triton | `POST /v2/repository/index`, those that are `READY` | |
//! | generic | can't be asked | |
//!
//! Sources: the pages named in `detect.rs`; Ollama `docs/api.md`, "List Local Models"; Triton
//! `protocol/extension_model_repository.md`; vLLM "Production Metrics". TGI's `max_concurrent_requests` and TEI's bound
//! their queues, not what runs at once, so they are no slots.

use std::collections::BTreeSet;

use http::Method;
use serde::Deserialize;

use super::read;
use crate::config::plan::Engine;
use crate::decide::Told;
use crate::units::ModelName;

/// The most models that one worker is believed to serve; what it lists beyond is left out.
pub const MOST_MODELS: usize = 1_000;

/// How an engine is asked for its models; `None` when it can't be.
#[must_use]
pub fn models_question(engine: Engine) -> Option<(Method, &'static str)> {
    match engine {
        Engine::Vllm | Engine::Sglang | Engine::Llamacpp | Engine::Forebay | Engine::Openai => {
            Some((Method::GET, "/v1/models"))
        }
        Engine::Ollama => Some((Method::GET, "/api/tags")),
        Engine::Tgi | Engine::Tei => Some((Method::GET, "/info")),
        Engine::Triton => Some((Method::POST, "/v2/repository/index")),
        Engine::Generic => None,
    }
}

/// How an engine is asked for what bounds its work; `None` when it does not say.
#[must_use]
pub fn bounds_question(engine: Engine) -> Option<&'static str> {
    match engine {
        Engine::Vllm => Some("/metrics"),
        Engine::Sglang => Some("/get_server_info"),
        Engine::Llamacpp => Some("/props"),
        _ => None,
    }
}

#[derive(Deserialize)]
struct OpenAiList {
    data: Vec<OpenAiModel>,
}

#[derive(Deserialize)]
struct OpenAiModel {
    id: String,
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
}

#[derive(Deserialize)]
struct ServerInfo {
    max_total_num_tokens: f64,
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

/// What an answer to [`bounds_question`] says.
#[must_use]
pub fn bounds(engine: Engine, body: &[u8]) -> Told {
    match engine {
        Engine::Llamacpp => Told {
            slots: read::<Props>(body).map(|props| props.total_slots.max(1)),
            ..Told::default()
        },
        Engine::Sglang => {
            let info = read::<ServerInfo>(body);
            Told {
                kv_tokens: info.as_ref().map(|info| info.max_total_num_tokens),
                kept_tokens: info.and_then(|info| info.kept_tokens()),
                ..Told::default()
            }
        }
        Engine::Vllm => Told {
            kv_tokens: vllm_cache(&String::from_utf8_lossy(body)),
            ..Told::default()
        },
        _ => Told::default(),
    }
}

/// Blocks times their size, over all engines behind the address.
fn vllm_cache(metrics: &str) -> Option<f64> {
    let engines = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("vllm:cache_config_info{"))
        .filter_map(|labels| Some(label(labels, "block_size")? * label(labels, "num_gpu_blocks")?));
    Some(engines.sum()).filter(|tokens| *tokens > 0.0)
}

fn label(labels: &str, name: &str) -> Option<f64> {
    let whole = |pair: &&str| pair.split_once('=').is_some_and(|(key, _)| key == name);
    let (_, value) = labels.split(',').find(whole)?.split_once('=')?;
    value.split('"').nth(1)?.parse().ok()
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

    #[test]
    fn slots_and_memory_are_read_where_an_engine_tells_them() {
        let props = bounds(Engine::Llamacpp, br#"{"total_slots":4,"chat_template":""}"#);
        assert_eq!(props.slots, Some(4));
        let info = bounds(
            Engine::Sglang,
            br#"{"max_total_num_tokens":20480,"tp_size":1}"#,
        );
        assert_eq!((info.kv_tokens, info.kept_tokens), (Some(20_480.0), None));
        let kept = |size| {
            let info = format!(
                r#"{{"max_total_num_tokens":1000,"enable_hierarchical_cache":true,"hicache_ratio":2.5,"hicache_size":{size}}}"#
            );
            bounds(Engine::Sglang, info.as_bytes()).kept_tokens
        };
        assert_eq!((kept(0), kept(40)), (Some(2_500.0), None));
        let metrics = "# TYPE vllm:cache_config_info gauge\n\
            vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\",num_gpu_blocks_override=\"None\"} 1.0\n\
            vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"500\"} 1.0\n";
        assert_eq!(
            bounds(Engine::Vllm, metrics.as_bytes()).kv_tokens,
            Some(24_000.0)
        );
        for body in [
            "",
            "{}",
            "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0",
        ] {
            for engine in [Engine::Vllm, Engine::Sglang, Engine::Llamacpp, Engine::Tgi] {
                assert_eq!(bounds(engine, body.as_bytes()), Told::default());
            }
        }
    }
}
