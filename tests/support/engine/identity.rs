//! What engines say on the paths by which they are told apart, probed and asked what they serve: the answers that their
//! HTTP references show, cut down to what is read. Our own worker's are golden files, which its tests check too.

use forebay::units::Seconds;
use serde_json::{Value, json};

use super::answer::Answer;
use super::knobs::Dialect;
use super::{Health, Seen, Shared, load, lora, openai};

/// Everything that is asked of a worker and is no client's request. Failures spare it.
pub fn is_asked(target: &str) -> bool {
    lora::is_order(target)
        || matches!(
            target,
            "/health"
                | "/v2"
                | "/v2/health/live"
                | "/v2/health/ready"
                | "/v2/repository/index"
                | "/api/version"
                | "/api/tags"
                | "/info"
                | "/version"
                | "/props"
                | "/get_server_info"
                | "/metrics"
                | "/slots"
                | "/v1/loads"
                | "/api/ps"
                | "/v1/models"
                | "/models"
        )
}

/// The answer to such a question.
pub async fn answer(shared: &Shared, request: &Seen) -> Answer {
    let (health, ready_after, dialect, key) = {
        let knobs = shared.knobs.lock();
        (
            knobs.health,
            knobs.ready_after,
            knobs.dialect,
            knobs.key.clone(),
        )
    };
    match health {
        Health::Silent => return std::future::pending().await,
        Health::Status(status) => return Answer::whole(status, "text/plain", ""),
        Health::Good => {}
    }
    let target = request.target.as_str();
    let guarded = dialect == Dialect::Openai || target.starts_with("/v1/");
    let given = request.header("authorization").unwrap_or_default();
    if guarded && key.is_some_and(|key| given != format!("Bearer {key}")) {
        return Answer::json(401, &json!({"error": "Unauthorized"}));
    }
    let loading = shared.clock.now() < Seconds::from(ready_after);
    let spared = matches!(
        (dialect, target),
        (Dialect::Vllm, "/metrics" | "/v1/models") | (Dialect::Triton, "/v2/health/live")
    );
    if loading && dialect == Dialect::Llamacpp {
        let error = json!({"code": 503, "message": "Loading model", "type": "unavailable_error"});
        return Answer::json(503, &json!({"error": error}));
    }
    if loading && !spared {
        return Answer::whole(503, "text/plain", "loading");
    }
    if lora::is_order(target) {
        return lora::obey(shared, request).await;
    }
    said(shared, dialect, target)
        .unwrap_or_else(|| Answer::json(404, &json!({"detail": "Not Found"})))
}

fn said(shared: &Shared, dialect: Dialect, target: &str) -> Option<Answer> {
    use Dialect::{Forebay, Generic, Llamacpp, Ollama, Sglang, Tei, Tgi, Triton, Vllm};
    let (models, swaps) = {
        let knobs = shared.knobs.lock();
        (knobs.models.clone(), knobs.memory.most > 0)
    };
    let first = models.first().cloned().unwrap_or_default();
    let good = || Some(Answer::whole(200, "text/plain", ""));
    let json = |value: &Value| Some(Answer::json(200, value));
    match (target, dialect) {
        ("/health", Vllm | Sglang | Llamacpp | Tgi | Tei | Forebay)
        | ("/v2/health/live" | "/v2/health/ready", Triton | Forebay) => good(),
        ("/v1/models", Generic | Tei | Triton) => None,
        ("/v1/models", _) => {
            let (context, loras) = {
                let knobs = shared.knobs.lock();
                (knobs.context, knobs.lora.clone())
            };
            let mut list = openai::model_list(&models, owner(dialect, &first), context);
            let rows = list["data"].as_array_mut().unwrap();
            rows.extend(lora::rows(&loras, &first));
            json(&list)
        }
        ("/v2", Triton) => {
            json(&json!({"name": "triton", "version": "2.60.0", "extensions": ["classification"]}))
        }
        ("/v2", Forebay) => Some(golden(include_str!("../../wire/kserve_server.json"))),
        ("/v2/repository/index", Triton) => {
            let entry = |name: &String| json!({"name": name, "version": "1", "state": "READY"});
            json(&models.iter().map(entry).collect())
        }
        ("/api/version", Ollama) => json(&json!({"version": "0.12.0"})),
        ("/api/tags", Ollama) => {
            let tag = |name: &String| json!({"name": name, "model": name, "size": 1, "details": {"family": "llama"}});
            json(&json!({"models": models.iter().map(tag).collect::<Vec<_>>()}))
        }
        ("/info", Tgi) => json(
            &json!({"model_id": first, "router": "text-generation-router", "version": "3.3.0",
                                       "max_concurrent_requests": 128}),
        ),
        ("/info", Tei) => json(
            &json!({"model_id": first, "model_dtype": "float16", "version": "1.8.0",
                                       "model_type": {"embedding": {"pooling": "cls"}}}),
        ),
        ("/version", Vllm) => json(&json!({"version": "0.11.0"})),
        ("/props", Llamacpp) => {
            json(&json!({"total_slots": shared.knobs.lock().slots, "model_path": first}))
        }
        ("/get_server_info", Sglang) => {
            let slots = shared.knobs.lock().lora.slots;
            json(&json!({"model_path": first, "max_total_num_tokens": 20_480,
                         "enable_lora": slots > 0, "max_loras_per_batch": slots}))
        }
        ("/v1/loads", Sglang) => json(&load::sglang(shared)),
        ("/api/ps", Ollama) => json(&load::resident(shared)),
        ("/models", Llamacpp) if swaps => json(&load::routed(shared)),
        ("/metrics" | "/slots", Llamacpp) if swaps => {
            let error = json!({"code": 400, "message": "model name is missing from the request", "type": "invalid_request_error"});
            Some(Answer::json(400, &json!({"error": error})))
        }
        ("/slots", Llamacpp) => json(&load::slots(shared)),
        ("/metrics", Llamacpp) if !shared.knobs.lock().has_metrics => {
            let error = json!({"code": 501, "message": "This server does not support metrics endpoint.", "type": "not_supported_error"});
            Some(Answer::json(501, &json!({"error": error})))
        }
        ("/metrics", _) => load::metrics(shared, dialect, &first)
            .map(|text| Answer::whole(200, "text/plain; version=0.0.4", text)),
        _ => None,
    }
}

/// Whom its models belong to.
fn owner(dialect: Dialect, model: &str) -> &str {
    match dialect {
        Dialect::Vllm => "vllm",
        Dialect::Sglang => "sglang",
        Dialect::Llamacpp => "llamacpp",
        Dialect::Ollama => "library",
        Dialect::Forebay => "forebay",
        Dialect::Openai => "system",
        Dialect::Tgi => model,
        Dialect::Tei | Dialect::Triton | Dialect::Generic => "",
    }
}

fn golden(text: &'static str) -> Answer {
    Answer::whole(200, "application/json", text)
}
