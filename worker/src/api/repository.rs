//! Triton's model repository and model configuration over HTTP ("Model Repository Extension", "Model Configuration
//! Extension").
//!
//! What a load can't do is 400 with the cause (a model that is not in the folder: 404), where Triton 2.51 answers 500;
//! unloading what is not loaded is 200, unloading what does not exist 404. An ensemble that is loaded brings those of
//! its members that are not; one that is unloaded takes them along where `unload_dependents` says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::kserve_http::refusal;
use crate::api::parameters;
use crate::api::path::Path;
use crate::engine::Placement;
use crate::fault::{Fault, Kind};
use crate::line::{App, Model, Order, Standing};
use crate::repository;
use crate::tensor::{Datatype, TensorSpec};
use crate::units::{Device, ModelName};

/// The parameter that unloads what an ensemble is made of along with it.
pub const UNLOAD_DEPENDENTS: &str = "unload_dependents";

/// The repository's paths.
pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/repository/index", post(index))
        .route("/v2/repository/models/{model}/load", post(load))
        .route("/v2/repository/models/{model}/unload", post(unload))
        .route("/v2/models/{model}/config", get(config))
        .route("/v2/models/{model}/versions/{version}/config", get(config))
}

/// What an index, a load or an unload says in its body, which may be empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    ready: bool,
    parameters: Map<String, Value>,
}

async fn asked(headers: &HeaderMap, body: Body) -> Result<Asked, Fault> {
    let body = super::read(headers, body).await?;
    if body.is_empty() {
        return Ok(Asked::default());
    }
    serde_json::from_slice(&body).map_err(|error| super::unreadable(&error))
}

fn done(outcome: Result<Response, Fault>) -> Response {
    outcome.unwrap_or_else(|fault| refusal(&fault))
}

async fn index(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    done(index_inner(app, &headers, body).await)
}

async fn index_inner(app: Arc<App>, headers: &HeaderMap, body: Body) -> Result<Response, Fault> {
    let asked = asked(headers, body).await?;
    let standings = standings(app, asked.ready).await?;
    let shown: Vec<Value> = standings.iter().map(entry).collect();
    Ok(super::json(&shown))
}

/// How every model of the folder stands, or only those that are ready.
pub async fn standings(app: Arc<App>, ready: bool) -> Result<Vec<Standing>, Fault> {
    let look = Arc::clone(&app);
    let there = tokio::task::spawn_blocking(move || repository::names(&look.folder)).await;
    let failed = || Fault::new(Kind::EngineFailed, "the models folder can't be read");
    let there = there.map_err(|_| failed())?.map_err(|_| failed())?;
    let mut standings = app.registry.standings();
    for name in there {
        if !standings.iter().any(|standing| standing.name == name) {
            standings.push(Standing {
                name,
                version: None,
                ready: false,
                reason: String::new(),
            });
        }
    }
    standings.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
    standings.retain(|standing| standing.ready || !ready);
    Ok(standings)
}

/// A version's state; what was never tried has none, as in Triton.
pub fn state(standing: &Standing) -> Option<&'static str> {
    match (standing.ready, standing.version, &standing.reason[..]) {
        (true, ..) => Some("READY"),
        (false, None, "") => None,
        (false, ..) => Some("UNAVAILABLE"),
    }
}

/// A version as the index shows it.
fn entry(standing: &Standing) -> Value {
    let mut entry = json!({"name": standing.name.as_str()});
    if let Some(version) = standing.version {
        entry["version"] = json!(version.to_string());
    }
    if let Some(state) = state(standing) {
        entry["state"] = json!(state);
    }
    if !standing.reason.is_empty() {
        entry["reason"] = json!(standing.reason);
    }
    entry
}

async fn load(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    done(load_inner(&app, &name, &headers, body).await)
}

async fn load_inner(
    app: &App,
    name: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    let asked = asked(headers, body).await?;
    load_as_described(app, name, asked.parameters.keys().next()).await?;
    Ok(().into_response())
}

/// Loads a model. Triton lets a client describe it by parameters, which is refused.
pub async fn load_as_described(
    app: &App,
    name: &str,
    parameter: Option<&String>,
) -> Result<(), Fault> {
    if let Some(parameter) = parameter {
        let problem = format!(
            "the parameter `{parameter}` is not served by this version: a model is loaded as its folder describes it"
        );
        return Err(Fault::bad(problem));
    }
    let name = ModelName::new(name);
    app.order(|reply| Order::Load(name, reply)).await
}

/// Takes a model out of service, and the models that it is made of where that is asked for.
pub async fn unload_by_name(app: &App, name: &str, members: bool) -> Result<(), Fault> {
    let name = ModelName::new(name);
    let order = |reply| Order::Unload {
        name,
        members,
        reply,
    };
    app.order(order).await
}

async fn unload(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    done(unload_inner(&app, &name, &headers, body).await)
}

async fn unload_inner(
    app: &App,
    name: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    let asked = asked(headers, body).await?;
    let members = parameters::flag(&asked.parameters, UNLOAD_DEPENDENTS)?;
    unload_by_name(app, name, members.unwrap_or(false)).await?;
    Ok(().into_response())
}

/// What the path names.
#[derive(Deserialize)]
struct Target {
    model: String,
    version: Option<String>,
}

async fn config(State(app): State<Arc<App>>, Path(target): Path<Target>) -> Response {
    let found = app.model(&target.model, target.version.as_deref());
    done(found.map(|model| super::json(&complete(&model))))
}

/// The configuration as the model is served by it: what its file leaves out comes from the graph, or is what is
/// done without it; Triton's clients read these fields unasked.
pub fn complete(model: &Model) -> Value {
    let mut document = model.document.clone();
    let batched = model.has_rows();
    document["name"] = json!(model.name.as_str());
    document["platform"] = json!(model.platform.name);
    document["backend"] = json!(model.platform.backend);
    document["instance_group"] = instance_groups(model);
    if document["version_policy"].is_null() {
        document["version_policy"] = json!({"latest": {"num_versions": 1}});
    }
    if model.platform.backend == "onnxruntime" && document["default_model_filename"] == "" {
        document["default_model_filename"] = json!("model.onnx");
    }
    document["max_batch_size"] = json!(model.most_rows.unwrap_or(if batched { 32 } else { 0 }));
    for (side, specs) in [
        ("input", &model.signature.inputs),
        ("output", &model.signature.outputs),
    ] {
        let declared = document[side].as_array().cloned().unwrap_or_default();
        let whole = specs.iter().map(|spec| {
            let known = declared
                .iter()
                .find(|tensor| tensor["name"] == spec.name.as_str());
            describe(spec, known.cloned().unwrap_or_else(|| json!({})), batched)
        });
        document[side] = whole.collect();
    }
    document
}

/// The instances as they are, whatever was asked for: one group for each device and card.
fn instance_groups(model: &Model) -> Value {
    let mut places: BTreeMap<(Device, u32), usize> = BTreeMap::new();
    for Placement { device, card, .. } in &model.placements {
        *places.entry((*device, *card)).or_default() += 1;
    }
    let groups = places.into_iter().enumerate();
    let groups = groups.map(|(number, ((device, card), count))| {
        let name = format!("{}_{number}", model.name);
        match device {
            Device::Cpu => json!({"name": name, "kind": "KIND_CPU", "count": count}),
            Device::Cuda | Device::TensorRt => {
                json!({"name": name, "kind": "KIND_GPU", "count": count, "gpus": [card]})
            }
        }
    });
    groups.collect()
}

fn describe(spec: &TensorSpec, mut tensor: Value, batched: bool) -> Value {
    let datatype = match spec.datatype {
        Datatype::Bytes => "STRING",
        other => other.name(),
    };
    tensor["name"] = json!(spec.name);
    tensor["data_type"] = json!(format!("TYPE_{datatype}"));
    tensor["dims"] = json!(spec.kserve_shape()[usize::from(batched)..]);
    tensor
}
