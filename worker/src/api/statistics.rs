//! Triton's statistics over HTTP ("Statistics Extension"). What is counted, and where Triton counts otherwise, stands
//! in `observe.rs`. An unknown model is 404 here as everywhere; Triton 2.51 says 400.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::kserve_http::refusal;
use crate::api::path::Path;
use crate::line::{App, Model};
use crate::observe::{Batch, Spent, Statistics};

/// The statistics' paths.
pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/models/stats", get(all))
        .route("/v2/models/{model}/stats", get(some))
        .route("/v2/models/{model}/versions/{version}/stats", get(some))
}

/// What the path names.
#[derive(Deserialize)]
struct Target {
    model: String,
    version: Option<String>,
}

async fn all(State(app): State<Arc<App>>) -> Response {
    tell(&app, None, None)
}

async fn some(State(app): State<Arc<App>>, Path(target): Path<Target>) -> Response {
    tell(&app, Some(&target.model), target.version.as_deref())
}

fn tell(app: &App, name: Option<&str>, version: Option<&str>) -> Response {
    match app.versions(name, version) {
        Ok(models) => {
            let entries: Vec<Value> = models.iter().map(|model| entry(model)).collect();
            super::json(&json!({"model_stats": entries}))
        }
        Err(fault) => refusal(&fault),
    }
}

/// `response_stats` is for decoupled models and `memory_usage` for devices that have a memory of their own.
fn entry(model: &Model) -> Value {
    let numbers = model.tally.numbers();
    let batches: Vec<Value> = numbers.batches.iter().map(runs).collect();
    json!({
        "name": model.name.as_str(),
        "version": model.version.to_string(),
        "last_inference": numbers.last,
        "inference_count": numbers.inferences,
        "execution_count": numbers.executions,
        "inference_stats": requests(&numbers),
        "response_stats": {},
        "batch_stats": batches,
        "memory_usage": [],
    })
}

fn requests(numbers: &Statistics) -> Value {
    json!({
        "success": spent(numbers.success),
        "fail": spent(numbers.fail()),
        "queue": spent(numbers.queue),
        "compute_input": spent(numbers.input),
        "compute_infer": spent(numbers.infer),
        "compute_output": spent(numbers.output),
        "cache_hit": spent(numbers.hit),
        "cache_miss": spent(numbers.miss),
    })
}

fn runs((rows, batch): (&usize, &Batch)) -> Value {
    json!({
        "batch_size": rows,
        "compute_input": spent(batch.input),
        "compute_infer": spent(batch.infer),
        "compute_output": spent(batch.output),
    })
}

fn spent(spent: Spent) -> Value {
    json!({"count": spent.count, "ns": spent.nanos})
}
