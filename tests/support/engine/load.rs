//! What engines tell of their load, each in its own words: its own requests and those of others together.

use serde_json::{Value, json};

use super::knobs::Dialect;
use super::{Seen, Shared, lora};

/// What there is to tell.
struct Load {
    running: usize,
    waiting: usize,
    kv_use: f64,
    kv_blocks: u32,
}

fn load(shared: &Shared) -> Load {
    let (running, waiting) = shared.pace.load();
    let knobs = shared.knobs.lock();
    let running = running + knobs.foreign_running;
    Load {
        running,
        waiting: waiting + knobs.foreign_waiting,
        kv_use: (running as f64 / knobs.slots.max(1) as f64).min(1.0),
        kv_blocks: knobs.kv_blocks,
    }
}

/// The metrics of an engine of this kind, if it has any.
pub fn metrics(shared: &Shared, dialect: Dialect, model: &str) -> Option<String> {
    if !shared.knobs.lock().has_metrics {
        return None;
    }
    let Load {
        running,
        waiting,
        kv_use,
        kv_blocks,
    } = load(shared);
    let gauge = |name: &str, labels: &str, value: f64| {
        format!("# TYPE {name} gauge\n{name}{labels} {value:?}\n")
    };
    let counts = |[runs, waits]: [&str; 2], labels: &str| {
        gauge(runs, labels, running as f64) + &gauge(waits, labels, waiting as f64)
    };
    let of_model = format!("{{engine=\"0\",model_name=\"{model}\"}}");
    Some(match dialect {
        Dialect::Vllm | Dialect::Openai => {
            let cache = format!(
                "{{block_size=\"16\",cache_dtype=\"auto\",engine=\"0\",num_gpu_blocks=\"{kv_blocks}\"}}"
            );
            counts(
                ["vllm:num_requests_running", "vllm:num_requests_waiting"],
                &of_model,
            ) + &gauge("vllm:kv_cache_usage_perc", &of_model, kv_use)
                + &lora::metric(&shared.knobs.lock().lora)
                + &gauge("vllm:cache_config_info", &cache, 1.0)
        }
        Dialect::Sglang => {
            counts(
                ["sglang:num_running_reqs", "sglang:num_queue_reqs"],
                &of_model,
            ) + &gauge("sglang:token_usage", &of_model, kv_use)
        }
        Dialect::Llamacpp => counts(
            ["llamacpp:requests_processing", "llamacpp:requests_deferred"],
            "",
        ),
        Dialect::Tgi => counts(["tgi_batch_current_size", "tgi_queue_size"], ""),
        Dialect::Tei => gauge("te_queue_size", "", waiting as f64),
        Dialect::Triton => {
            let labels = format!("{{model=\"{model}\",version=\"1\"}}");
            gauge(
                "nv_inference_pending_request_count",
                &labels,
                waiting as f64,
            )
        }
        Dialect::Ollama | Dialect::Forebay | Dialect::Generic => return None,
    })
}

/// llama.cpp's `/slots`.
pub fn slots(shared: &Shared) -> Value {
    let slots = shared.knobs.lock().slots;
    let busy = load(shared).running;
    (0..slots)
        .map(|id| json!({"id": id, "is_processing": id < busy, "params": {}}))
        .collect()
}

/// Ollama's `/api/ps`: all of its models, where it does not swap.
pub fn resident(shared: &Shared) -> Value {
    let knobs = shared.knobs.lock();
    let there = match knobs.memory.most {
        0 => &knobs.models,
        _ => &knobs.memory.loaded,
    };
    let row = |name: &String| json!({"name": name, "model": name, "expires_at": "2024-06-04T14:38:31.83753-07:00"});
    json!({"models": there.iter().map(row).collect::<Vec<_>>()})
}

/// `/models` of llama.cpp's router.
pub fn routed(shared: &Shared) -> Value {
    let knobs = shared.knobs.lock();
    let state = |name: &String| match knobs.memory.loaded.contains(name) {
        true => "loaded",
        false => "unloaded",
    };
    let row = |name: &String| json!({"id": name, "object": "model", "in_cache": true, "status": {"value": state(name), "args": ["llama-server"]}});
    json!({"data": knobs.models.iter().map(row).collect::<Vec<_>>(), "object": "list"})
}

/// SGLang's `/v1/loads`.
pub fn sglang(shared: &Shared) -> Value {
    let Load {
        running,
        waiting,
        kv_use,
        ..
    } = load(shared);
    json!({"loads": [{"dp_rank": 0, "num_running_reqs": running, "num_waiting_reqs": waiting,
                      "token_usage": kv_use, "max_total_num_tokens": 20_480}]})
}

/// The report that an answer carries in its head, if the request asks for one that this engine gives.
pub fn report(shared: &Shared, request: &Seen) -> Option<(String, String)> {
    if !shared.knobs.lock().tells_load {
        return None;
    }
    let format = request.header("endpoint-load-metrics-format")?;
    let Load {
        waiting, kv_use, ..
    } = load(shared);
    let report = match format {
        "text" => format!(
            "TEXT named_metrics.kv_cache_usage_perc={kv_use:?}, named_metrics.num_requests_waiting={waiting}.0"
        ),
        "json" => {
            let metrics = json!({"kv_cache_usage_perc": kv_use, "num_requests_waiting": waiting});
            format!("JSON {}", json!({"named_metrics": metrics}))
        }
        _ => return None,
    };
    Some(("endpoint-load-metrics".to_owned(), report))
}
