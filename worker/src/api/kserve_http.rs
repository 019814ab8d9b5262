//! KServe v2 over HTTP with JSON tensors (Open Inference Protocol, "HTTP/REST").
//!
//! The binary tensor extension is not spoken yet and is refused by name, with what to write instead. One exception:
//! `binary_data_output` on the request as a whole is only a preference, which tritonclient states of its own accord
//! when no outputs are named; it reads a JSON answer as well, so it gets one. Unlike Triton 2.51, malformed JSON, a
//! missing `shape`, a negative shape and `data` of the wrong length are 400, not 500.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::json_tensor::{Cells, Flat};
use crate::batch::Urgency;
use crate::fault::Fault;
use crate::line::{self, App, InferRequest, Model, Named};
use crate::tensor::{Datatype, TensorSpec};
use crate::units::Seconds;

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
        "extensions": ["model_configuration", "model_repository", "schedule_policy", "statistics", "trace", "logging"],
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
    super::json(&json!({
        "name": model.name.as_str(),
        "versions": versions,
        "platform": model.platform,
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
    if headers.contains_key("inference-header-content-length") {
        return Err(no_binary("the body"));
    }
    let body = super::read(headers, body).await?;
    let typed: InferBody =
        serde_json::from_slice(&body).map_err(|error| super::unreadable(&error))?;
    let id = typed.id.clone();
    let outputs = model.infer(typed.check()?).await?;
    Ok(super::json(&answer(&model, id.as_deref(), &outputs)))
}

fn no_binary(what: &str) -> Fault {
    Fault::bad(format!(
        "{what} uses the binary tensor extension, which this version does not speak; use JSON tensors (in \
         tritonclient: binary_data=False on every input and output)"
    ))
}

/// An infer request as typed.
#[derive(Deserialize)]
struct InferBody {
    id: Option<String>,
    #[serde(default)]
    parameters: Map<String, Value>,
    inputs: Vec<InputBody>,
    #[serde(default)]
    outputs: Vec<OutputBody>,
}

#[derive(Deserialize)]
struct InputBody {
    name: String,
    shape: Vec<i64>,
    datatype: String,
    #[serde(default)]
    parameters: Map<String, Value>,
    data: Option<Cells>,
}

#[derive(Deserialize)]
struct OutputBody {
    name: String,
    #[serde(default)]
    parameters: Map<String, Value>,
}

impl InferBody {
    fn check(self) -> Result<InferRequest, Fault> {
        refuse_parameters("the request", &self.parameters)?;
        let outputs = self.outputs.into_iter().map(OutputBody::check);
        let inputs = self.inputs.into_iter().map(InputBody::check);
        Ok(InferRequest {
            urgency: urgency(&self.parameters)?,
            inputs: inputs.collect::<Result<_, _>>()?,
            outputs: outputs.collect::<Result<_, _>>()?,
        })
    }
}

impl InputBody {
    fn check(self) -> Result<Named, Fault> {
        let name = self.name;
        refuse_parameters(&format!("input `{name}`"), &self.parameters)?;
        let problem = |what: String| Fault::bad(format!("input `{name}`: {what}"));
        let datatype = Datatype::from_name(&self.datatype).ok_or_else(|| {
            problem(format!(
                "`{}` is no datatype of the protocol",
                self.datatype
            ))
        })?;
        let cells = self
            .data
            .ok_or_else(|| problem("`data` is missing".into()))?;
        let elements = cells.into_elements(datatype).map_err(problem)?;
        let tensor = line::tensor(&name, &self.shape, elements)?;
        Ok(Named { name, tensor })
    }
}

impl OutputBody {
    fn check(self) -> Result<String, Fault> {
        refuse_parameters(&format!("output `{}`", self.name), &self.parameters)?;
        Ok(self.name)
    }
}

/// How soon a request wants to run: `priority` counts levels from 1, 0 being the model's default; `timeout` is in
/// microseconds, 0 being none (Triton, "Schedule Policy Extension").
fn urgency(parameters: &Map<String, Value>) -> Result<Urgency, Fault> {
    let number = |name: &str| match parameters.get(name) {
        None => Ok(0),
        Some(value) => value.as_u64().ok_or_else(|| {
            let problem = format!("the parameter `{name}` is not a whole number of at least 0");
            Fault::bad(problem)
        }),
    };
    let (priority, timeout) = (number("priority")?, number("timeout")?);
    let level = usize::try_from(priority)
        .unwrap_or(usize::MAX)
        .checked_sub(1);
    Ok(Urgency {
        level,
        timeout: (timeout > 0).then(|| Seconds(timeout as f64 / 1e6)),
    })
}

/// Refuses parameters that would change what the answer means; others are ignored, as the protocol asks.
fn refuse_parameters(whose: &str, parameters: &Map<String, Value>) -> Result<(), Fault> {
    let asks = |name: &str| {
        let value = parameters.get(name);
        value.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
    };
    if asks("binary_data") || asks("binary_data_size") {
        return Err(no_binary(whose));
    }
    let later = ["shared_memory_region", "classification", "sequence_id"];
    match later.into_iter().find(|name| asks(name)) {
        Some(name) => Err(Fault::bad(format!(
            "{whose} has the parameter `{name}`, which this version does not serve"
        ))),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct InferAnswer<'a> {
    model_name: &'a str,
    model_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    outputs: Vec<OutputAnswer<'a>>,
}

#[derive(Serialize)]
struct OutputAnswer<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    data: Flat<'a>,
}

fn answer<'a>(model: &'a Model, id: Option<&'a str>, outputs: &'a [Named]) -> InferAnswer<'a> {
    let output = |output: &'a Named| OutputAnswer {
        name: &output.name,
        datatype: output.tensor.elements().datatype().name(),
        shape: output.tensor.shape(),
        data: Flat(output.tensor.elements()),
    };
    InferAnswer {
        model_name: model.name.as_str(),
        model_version: model.version.to_string(),
        id,
        outputs: outputs.iter().map(output).collect(),
    }
}
