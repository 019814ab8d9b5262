//! KServe v2 over HTTP (Open Inference Protocol, "HTTP/REST"), with Triton's extensions for binary tensors,
//! classification and compressed bodies.
//!
//! Unlike Triton 2.51, malformed JSON, a missing `shape`, a negative shape and `data` of the wrong length are 400, not
//! 500; NaN and Infinity are `null` in JSON, and the output's parameter `not_finite` counts them.

mod answer;
mod generate;
mod request;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::path::Path;
use crate::fault::{Fault, Kind};
use crate::line::{App, Model};
use crate::tensor::TensorSpec;

/// The KServe paths.
pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}", get(metadata))
        .route(
            "/v2/models/{model}/versions/{version}/ready",
            get(model_ready),
        )
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        .merge(generate::router())
        .route("/v2/systemsharedmemory/{*rest}", any(no_shared_memory))
        .route("/v2/cudasharedmemory/{*rest}", any(no_shared_memory))
}

/// An error as KServe clients read it.
pub fn refusal(fault: &Fault) -> Response {
    super::refuse(fault, &json!({"error": fault.message}))
}

/// What the path names.
#[derive(Deserialize)]
struct Target {
    model: String,
    version: Option<String>,
}

impl Target {
    fn find(&self, app: &App) -> Result<Arc<Model>, Fault> {
        app.model(&self.model, self.version.as_deref())
    }
}

async fn server() -> Response {
    super::json(&json!({
        "name": "forebay-worker",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": super::EXTENSIONS,
    }))
}

/// The process lives: it could answer.
async fn live() {}

async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.ready() {
        Ok(()) => ().into_response(),
        Err(fault) => refusal(&fault),
    }
}

async fn model_ready(State(app): State<Arc<App>>, Path(target): Path<Target>) -> Response {
    match app.ready().and_then(|()| target.find(&app)) {
        Ok(_) => ().into_response(),
        Err(fault) => refusal(&fault),
    }
}

async fn metadata(State(app): State<Arc<App>>, Path(target): Path<Target>) -> Response {
    let model = match target.find(&app) {
        Ok(model) => model,
        Err(fault) => return refusal(&fault),
    };
    let describe = |spec: &TensorSpec| {
        json!({
            "name": spec.name,
            "datatype": spec.datatype.name(),
            "shape": spec.kserve_shape(),
        })
    };
    let describe_all =
        |specs: &[TensorSpec]| -> Vec<Value> { specs.iter().map(describe).collect() };
    let versions = app.registry.versions(&model.name);
    let versions: Vec<String> = versions.iter().map(u64::to_string).collect();
    let devices = model.devices();
    let names: Vec<&str> = devices.iter().map(|(device, _)| device.name()).collect();
    super::json(&json!({
        "name": model.name.as_str(),
        "versions": versions,
        "platform": model.platform.name,
        "parameters": {"device": names.join(","), "fallback": model.fallen_back().is_some()},
        "inputs": describe_all(&model.signature.inputs),
        "outputs": describe_all(&model.signature.outputs),
    }))
}

async fn infer(
    State(app): State<Arc<App>>,
    Path(target): Path<Target>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match infer_inner(&app, &target, &headers, body).await {
        Ok(response) => response,
        Err(fault) => refusal(&fault),
    }
}

async fn infer_inner(
    app: &App,
    target: &Target,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    let model = target.find(app)?;
    let body = super::read(headers, body).await?;
    let asked = request::read(&model, headers, &body)?;
    let outputs = model.infer(asked.request).await?;
    let answer = answer::render(&model, asked.id, asked.parameters, &outputs)?;
    answer.response(headers).await
}

async fn no_shared_memory() -> Response {
    refusal(&Fault::new(Kind::NotServed, super::NO_SHARED_MEMORY))
}
