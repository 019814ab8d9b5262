//! Triton's generate extension: a flat JSON object in, a flat one out, for whoever has no KServe client at hand.
//!
//! A key that is an input's name brings its elements, bare or in a list; the shape follows from the model: one row,
//! with at most one axis that is free. A key that names nothing is ignored, as in Triton. An output of one element is
//! bare. A model here answers once, so a stream has one event. What can't be read is 400, where Triton 2.51 says 500.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Target, refusal, request};
use crate::api::json_tensor::{Cells, Flat};
use crate::api::parameters;
use crate::api::path::Path;
use crate::fault::{Fault, Kind};
use crate::line::{App, Form, InferRequest, Model, Named, Output};
use crate::tensor::{Elements, Tensor, TensorSpec};

/// The extension's paths.
pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/models/{model}/generate", post(generate))
        .route("/v2/models/{model}/generate_stream", post(stream))
        .route(
            "/v2/models/{model}/versions/{version}/generate",
            post(generate),
        )
        .route(
            "/v2/models/{model}/versions/{version}/generate_stream",
            post(stream),
        )
}

async fn generate(
    State(app): State<Arc<App>>,
    Path(target): Path<Target>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match answer(&app, &target, &headers, body).await {
        Ok(answer) => crate::api::json(&answer),
        Err(fault) => refusal(&fault),
    }
}

async fn stream(
    State(app): State<Arc<App>>,
    Path(target): Path<Target>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answer = match answer(&app, &target, &headers, body).await {
        Ok(answer) => answer,
        Err(fault) => return refusal(&fault),
    };
    let mut response = Response::new(Body::from(format!("data: {answer}\n\n")));
    let head = response.headers_mut();
    let events = HeaderValue::from_static("text/event-stream; charset=utf-8");
    head.insert(CONTENT_TYPE, events);
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

async fn answer(
    app: &App,
    target: &Target,
    headers: &HeaderMap,
    body: Body,
) -> Result<Value, Fault> {
    let model = target.find(app)?;
    let body = crate::api::read(headers, body).await?;
    let asked: Map<String, Value> =
        serde_json::from_slice(&body).map_err(|error| crate::api::unreadable(&error))?;
    let id = asked.get("id").cloned();
    let outputs = model.infer(read(&model, asked)?).await?;
    let mut answer = json!({
        "model_name": model.name.as_str(),
        "model_version": model.version.to_string(),
    });
    if let Some(id) = id {
        answer["id"] = id;
    }
    for output in &outputs {
        answer[&output.name] = bare(output)?;
    }
    Ok(answer)
}

fn read(model: &Model, mut asked: Map<String, Value>) -> Result<InferRequest, Fault> {
    let parameters = match asked.get("parameters") {
        Some(Value::Object(parameters)) => parameters.clone(),
        _ => Map::new(),
    };
    let mut inputs = Vec::new();
    for spec in &model.signature.inputs {
        if let Some(value) = asked.remove(&spec.name) {
            let tensor = tensor(spec, model.has_rows(), value);
            let name = spec.name.clone();
            let tensor = tensor.map_err(|problem| Fault::bad(format!("`{name}`: {problem}")))?;
            inputs.push(Named { name, tensor });
        }
    }
    Ok(InferRequest {
        inputs,
        outputs: vec![],
        form: Form::default(),
        urgency: parameters::urgency(&parameters)?,
        sequence: parameters::sequence(&parameters)?,
    })
}

/// One row of this input, or as many as there are elements for where nothing else may vary.
fn tensor(spec: &TensorSpec, rows: bool, value: Value) -> Result<Tensor, String> {
    let mixed = |_| "neither one element nor a list of elements of one kind".to_owned();
    let cells = Cells::deserialize(value).map_err(mixed)?;
    let elements: Elements = cells.into_elements(spec.datatype)?;
    let count = elements.len();
    let fits = |shape: &Vec<usize>| crate::tensor::volume(shape) == Some(count);
    let one = request::shape(spec, rows, count).filter(fits);
    let shape = one.or_else(|| request::shape(spec, false, count));
    let tensor = shape.and_then(|shape| Tensor::new(shape, elements));
    let expected = spec.kserve_shape();
    tensor.ok_or_else(|| format!("{count} elements don't tell a shape like {expected:?}"))
}

/// The elements of an output: itself where there is one, else a flat list.
fn bare(output: &Output) -> Result<Value, Fault> {
    let unwritable = |_| Fault::new(Kind::EngineFailed, "the answer can't be written as JSON");
    let mut elements = serde_json::to_value(Flat(output.tensor.elements())).map_err(unwritable)?;
    match elements.as_array_mut() {
        Some(list) if list.len() == 1 => Ok(list.swap_remove(0)),
        _ => Ok(elements),
    }
}
