//! Where engines say how much they have to do.
//!
//! | engine | asked | running | waiting | memory in use |
//! |---|---|---|---|---|
//! | vllm | `/metrics` | `vllm:num_requests_running` | `vllm:num_requests_waiting` | `vllm:kv_cache_usage_perc`, once `vllm:gpu_cache_usage_perc` |
//! | sglang | `/metrics` (`--enable-metrics`) | `sglang:num_running_reqs` | `sglang:num_queue_reqs` | `sglang:token_usage` |
//! | | else `/v1/loads` | `num_running_reqs` | `num_waiting_reqs` | `token_usage` |
//! | llamacpp | `/metrics` (`--metrics`) | `llamacpp:requests_processing` | `llamacpp:requests_deferred` | `llamacpp:kv_cache_usage_ratio`, no longer told |
//! | | else `/slots` | `is_processing` of each | | |
//! | | as a router `/models`: whose `status` is `loaded` or `loading` | | | |
//! | tgi | `/metrics` | `tgi_batch_current_size` | `tgi_queue_size` | |
//! | tei | `/metrics` | | `te_queue_size` | |
//! | triton, forebay | at `metrics_url` only: another port | | `nv_inference_pending_request_count` | |
//! | ollama | `/api/ps`: which models are in its memory, nothing of its load | | | |
//!
//! openai and generic are asked only where a `metrics_url` is typed. What stands at a `metrics_url` may be of any of
//! these engines, as their names don't collide.
//!
//! Engines that split work over several schedulers have a series for each (vLLM's `engine`, SGLang's `dp_rank`): counts
//! are added, shares averaged. vLLM, SGLang and TEI count the texts of a request, TGI and Triton requests.
//!
//! **Asking wakes nobody.** llama.cpp counts a question for its metrics as use, which keeps a model in memory that
//! would otherwise be unloaded (ggml-org/llama.cpp#20227), so it is asked only while it is used anyway; Ollama's
//! `/api/ps` loads nothing and resets no timer.
//!
//! Sources: vLLM "Production Metrics"; SGLang "Production Metrics" and `entrypoints/v1_loads.py`; llama.cpp
//! `tools/server` README, "Using multiple models" among it; TGI's page "Metrics"; TEI `core/src/queue.rs`; Triton
//! `user_guide/metrics.md`; Ollama `docs/api.md`, "List Running Models". `/get_server_info` of SGLang is said to tell a
//! load, too; its fields could not be verified, so it is not asked for one.

use serde::Deserialize;

use super::{read, samples};
use crate::config::plan::Engine;
use crate::decide::Load;
use crate::units::ModelName;

/// Where most engines have their metrics.
const METRICS: &str = "/metrics";
/// SGLang's own word, whether it has metrics or not.
const LOADS: &str = "/v1/loads";
/// llama.cpp's, unless that is turned off.
const SLOTS: &str = "/slots";
/// Which models Ollama has in its memory.
const RESIDENT: &str = "/api/ps";
/// All that a llama.cpp server knows which starts others, one for each model, with the state of each.
const ROUTED: &str = "/models";

/// Requests that run, by engine.
const RUNNING: [&str; 4] = [
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
    "tgi_batch_current_size",
];
/// Requests that wait.
const WAITING: [&str; 6] = [
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "llamacpp:requests_deferred",
    "tgi_queue_size",
    "te_queue_size",
    "nv_inference_pending_request_count",
];
/// The share of memory in use.
const KV_USE: [&str; 4] = [
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
];
/// Those of them that count texts.
const BY_TEXT: [&str; 3] = ["vllm:", "sglang:", "te_"];

/// What an engine says.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// How much it has to do.
    Load(Load),
    /// Which models are in its memory.
    Resident(Vec<ModelName>),
}

/// Where an engine says how much it has to do, the best place first; the first that has an answer is enough.
#[must_use]
pub const fn questions(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Vllm | Engine::Tgi | Engine::Tei => &[METRICS],
        Engine::Sglang => &[METRICS, LOADS],
        Engine::Llamacpp => &[METRICS, SLOTS, ROUTED],
        Engine::Ollama => &[RESIDENT],
        Engine::Forebay | Engine::Triton | Engine::Openai | Engine::Generic => &[],
    }
}

/// What an engine calls a model when it tells what is in its memory: Ollama never leaves the tag out.
#[must_use]
pub fn called(engine: Engine, model: &ModelName) -> ModelName {
    let last = model.as_str().rsplit('/').next().unwrap_or_default();
    match engine {
        Engine::Ollama if !last.contains(':') => ModelName::new(&format!("{model}:latest")),
        _ => model.clone(),
    }
}

/// Whether asking an engine counts as using it, so that one that nobody uses may not be asked.
#[must_use]
pub const fn is_use(engine: Engine) -> bool {
    matches!(engine, Engine::Llamacpp)
}

/// What an answer to one of the [`questions`] says, or one of a `metrics_url`; nothing when it says nothing of the
/// kind.
#[must_use]
pub fn answer(path: &str, body: &[u8]) -> Option<Answer> {
    let load = match path {
        LOADS => read(body).map(sglang),
        SLOTS => read(body).map(|slots: Vec<Slot>| llamacpp(&slots)),
        RESIDENT => return read(body).map(resident),
        ROUTED => return read(body).and_then(routed),
        _ => Some(metrics(&String::from_utf8_lossy(body))),
    };
    load.filter(Load::is_told).map(Answer::Load)
}

fn metrics(text: &str) -> Load {
    let sum = |metric: &&'static str| Some((*metric, samples::sum(text, metric)?));
    let mean = |metric: &&'static str| samples::mean(text, metric);
    let (running, waiting) = (RUNNING.iter().find_map(sum), WAITING.iter().find_map(sum));
    let counts_texts = |metric: &str| BY_TEXT.iter().any(|prefix| metric.starts_with(prefix));
    let mut counts = running.iter().chain(&waiting);
    Load {
        by_text: counts.any(|(metric, _)| counts_texts(metric)),
        running: running.map(|(_, count)| count),
        waiting: waiting.map(|(_, count)| count),
        kv_use: KV_USE.iter().find_map(mean),
    }
}

#[derive(Deserialize)]
struct Loads {
    loads: Vec<Rank>,
}

#[derive(Deserialize)]
struct Rank {
    num_running_reqs: f64,
    num_waiting_reqs: f64,
    #[serde(default)]
    token_usage: f64,
    #[serde(default)]
    max_total_num_tokens: f64,
}

/// Before its first batch it says that it has no memory at all; that is no load of zero.
#[expect(clippy::cast_precision_loss, reason = "ranks of one engine")]
fn sglang(Loads { loads }: Loads) -> Load {
    if loads.is_empty() || loads.iter().any(|rank| rank.max_total_num_tokens <= 0.0) {
        return Load::default();
    }
    let sum = |of: fn(&Rank) -> f64| loads.iter().map(of).sum::<f64>();
    Load {
        running: Some(sum(|rank| rank.num_running_reqs)),
        waiting: Some(sum(|rank| rank.num_waiting_reqs)),
        kv_use: Some(sum(|rank| rank.token_usage) / loads.len() as f64),
        by_text: true,
    }
}

#[derive(Deserialize)]
struct Slot {
    is_processing: bool,
}

#[expect(clippy::cast_precision_loss, reason = "slots of one engine")]
fn llamacpp(slots: &[Slot]) -> Load {
    let busy = slots.iter().filter(|slot| slot.is_processing).count();
    Load {
        running: (!slots.is_empty()).then_some(busy as f64),
        ..Load::default()
    }
}

#[derive(Deserialize)]
struct Resident {
    models: Vec<Loaded>,
}

#[derive(Deserialize)]
struct Loaded {
    name: String,
}

fn resident(Resident { models }: Resident) -> Answer {
    let names = models
        .iter()
        .filter_map(|loaded| ModelName::sound(&loaded.name));
    Answer::Resident(names.take(super::report::MOST_MODELS).collect())
}

#[derive(Deserialize)]
struct Routed {
    data: Vec<Child>,
}

#[derive(Deserialize)]
struct Child {
    id: String,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Status {
    value: String,
}

/// A server with one model of its own lists that without a state, and tells nothing.
fn routed(Routed { data }: Routed) -> Option<Answer> {
    if data.iter().all(|child| child.status.is_none()) {
        return None;
    }
    let is_there = |status: &Status| matches!(status.value.as_str(), "loaded" | "loading");
    let there = data
        .iter()
        .filter(|child| child.status.as_ref().is_some_and(is_there));
    let names = there.filter_map(|child| ModelName::sound(&child.id));
    Some(Answer::Resident(
        names.take(super::report::MOST_MODELS).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Running, waiting, memory in use, and whether texts were counted.
    type Told = (Option<f64>, Option<f64>, Option<f64>, bool);

    fn load(path: &str, body: &str) -> Option<Told> {
        match answer(path, body.as_bytes())? {
            Answer::Load(load) => Some((load.running, load.waiting, load.kv_use, load.by_text)),
            Answer::Resident(_) => None,
        }
    }

    #[test]
    fn each_engine_tells_in_its_own_metrics() {
        let vllm = "vllm:num_requests_running{engine=\"0\"} 3.0\nvllm:num_requests_running{engine=\"1\"} 4.0\n\
            vllm:num_requests_waiting{engine=\"0\"} 2.0\n\
            vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.25\n";
        let sglang = "sglang:num_running_reqs{model_name=\"m\"} 5\nsglang:num_queue_reqs{model_name=\"m\"} 1\n\
            sglang:token_usage{model_name=\"m\"} 0.28\n";
        let llamacpp = "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 2\n\
            llamacpp:requests_deferred 46\n";
        for (text, told) in [
            (vllm, (Some(7.0), Some(2.0), Some(0.375), true)),
            (sglang, (Some(5.0), Some(1.0), Some(0.28), true)),
            (llamacpp, (Some(2.0), Some(46.0), None, false)),
            (
                "tgi_batch_current_size 4\ntgi_queue_size 7\n",
                (Some(4.0), Some(7.0), None, false),
            ),
            ("te_queue_size 9\n", (None, Some(9.0), None, true)),
            (
                "nv_inference_pending_request_count{model=\"a\",version=\"1\"} 2\n\
                 nv_inference_pending_request_count{model=\"b\",version=\"1\"} 3\n",
                (None, Some(5.0), None, false),
            ),
            (
                "vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n",
                (Some(1.0), None, Some(0.5), true),
            ),
        ] {
            assert_eq!(load(METRICS, text), Some(told), "{text}");
            assert_eq!(load("/own/metrics", text), Some(told));
        }
        assert_eq!(load(METRICS, "go_goroutines 5\n<html>"), None);
    }

    #[test]
    fn what_is_no_metric_is_read_as_json() {
        let ranks = |most| {
            format!(
                r#"{{"loads":[{{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":2,"token_usage":0.25,"max_total_num_tokens":{most}}},
                {{"dp_rank":1,"num_running_reqs":4,"num_waiting_reqs":0,"token_usage":0.75,"max_total_num_tokens":1000}}]}}"#
            )
        };
        let told = (Some(7.0), Some(2.0), Some(0.5), true);
        assert_eq!(load(LOADS, &ranks(1_000)), Some(told));
        assert_eq!(load(LOADS, &ranks(0)), None, "not ready yet");
        assert_eq!(load(LOADS, r#"{"loads":[]}"#), None);
        let slots = r#"[{"id":0,"is_processing":true,"params":{}},{"id":1,"is_processing":false}]"#;
        assert_eq!(load(SLOTS, slots), Some((Some(1.0), None, None, false)));
        for broken in ["", "[]", "{}", "[[", r#"[{"id":0}]"#] {
            assert_eq!(load(SLOTS, broken), None, "{broken}");
        }
        let models = r#"{"models":[{"name":"mistral:latest","expires_at":"2024-06-04T14:38:31Z"},{"name":""}]}"#;
        let resident = Answer::Resident(vec![ModelName::new("mistral:latest")]);
        assert_eq!(answer(RESIDENT, models.as_bytes()), Some(resident));
    }

    #[test]
    fn a_router_tells_which_of_its_models_it_has_loaded() {
        let models = r#"{"data":[{"id":"a","status":{"value":"loaded","args":["llama-server"]}},
            {"id":"b","status":{"value":"unloaded"}},{"id":"c","status":{"value":"loading"}},{"id":"d"}]}"#;
        let there = Answer::Resident(["a", "c"].map(ModelName::new).into());
        assert_eq!(answer(ROUTED, models.as_bytes()), Some(there));
        let single = r#"{"object":"list","data":[{"id":"a"}]}"#;
        assert_eq!(answer(ROUTED, single.as_bytes()), None);
    }

    #[test]
    fn a_tag_that_was_left_out_is_the_latest_for_ollama() {
        let called = |engine, name: &str| called(engine, &ModelName::new(name)).to_string();
        assert_eq!(called(Engine::Ollama, "qwen3"), "qwen3:latest");
        assert_eq!(
            called(Engine::Ollama, "h:1/me/qwen3"),
            "h:1/me/qwen3:latest"
        );
        assert_eq!(called(Engine::Ollama, "qwen3:8b"), "qwen3:8b");
        assert_eq!(called(Engine::Llamacpp, "qwen3"), "qwen3");
    }
}
