//! The front doors. Each parses into one request of `line.rs` and renders what comes back; neither validates on its
//! own, so that both refuse the same things.

mod encoding;
mod json_tensor;
mod kserve_grpc;
mod kserve_http;
pub mod metrics;
mod openai;
mod parameters;
mod path;
mod ranking;
mod repository;
mod settings;
mod statistics;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use serde_json::{Value, json};

use crate::fault::{Fault, Kind};
use crate::line::{App, InferRequest};
use encoding::Encoding;
use parameters::Parameters;

pub use kserve_grpc::router as grpc_router;

/// The largest request body, also once inflated; the proxy's own default.
const BODY_LIMIT: usize = 32 << 20;

/// All paths of the worker.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(health))
        .merge(kserve_http::router())
        .merge(repository::router())
        .merge(settings::router())
        .merge(statistics::router())
        .merge(openai::router())
        .merge(ranking::router())
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), count))
        .with_state(app)
}

/// Every request is live until its answer is made, or its client is gone.
async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let _live = app.enter();
    next.run(request).await
}

/// 200 when all models answer, with what computes them.
async fn health(State(app): State<Arc<App>>) -> Response {
    match app.ready() {
        Ok(()) => json(&well(&app)),
        Err(fault) => openai::refusal(&fault),
    }
}

/// Which models fell back to the CPU is told only where some did.
fn well(app: &App) -> Value {
    let models = app.registry.served();
    let all = models.iter().flat_map(|model| model.devices());
    let devices: BTreeSet<&str> = all.map(|(device, _)| device.name()).collect();
    let mut told = json!({"status": "ok", "devices": devices});
    let fell = models.iter().filter(|model| model.fallen_back().is_some());
    let fell: Vec<&str> = fell.map(|model| model.name.as_str()).collect();
    if !fell.is_empty() {
        told["fallbacks"] = json!(fell);
    }
    told
}

async fn no_route(uri: Uri) -> Response {
    let path = uri.path();
    refusal(
        path,
        &Fault::new(Kind::NoRoute, format!("no such path: {path}")),
    )
}

async fn method_not_allowed(uri: Uri, method: Method) -> Response {
    let path = uri.path();
    let problem = format!("{path} does not take {method}");
    refusal(path, &Fault::new(Kind::MethodNotAllowed, problem))
}

/// An error in the shape that the path's clients read.
fn refusal(path: &str, fault: &Fault) -> Response {
    if path == "/v2" || path.starts_with("/v2/") {
        kserve_http::refusal(fault)
    } else {
        openai::refusal(fault)
    }
}

/// The whole body, inflated and within the limit.
async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Fault> {
    let encoding = Encoding::of_body(headers)?;
    let size = headers.get(CONTENT_LENGTH);
    let announced = size.and_then(|size| size.to_str().ok()?.parse::<usize>().ok());
    let over = || {
        Fault::new(
            Kind::BodyTooLarge,
            format!("the body is over {BODY_LIMIT} bytes"),
        )
    };
    if announced.is_some_and(|size| size > BODY_LIMIT) {
        return Err(over());
    }
    // What is not over the limit and still fails is a client that left; nobody reads the answer.
    let body = to_bytes(body, BODY_LIMIT).await.map_err(|_| over())?;
    match encoding {
        None => Ok(body),
        // However short it came, it may be as long as the limit.
        Some(encoding) => {
            aside(move || encoding.inflate(&body, BODY_LIMIT).map(Bytes::from)).await?
        }
    }
}

/// An answer's body, compressed where the client takes that and it is worth it; says how.
async fn compress(
    headers: &HeaderMap,
    body: Vec<u8>,
) -> Result<(Vec<u8>, Option<Encoding>), Fault> {
    let Some(encoding) = Encoding::of_answer(headers) else {
        return Ok((body, None));
    };
    aside(move || match encoding.deflate(&body) {
        Some(shorter) => (shorter, Some(encoding)),
        None => (body, None),
    })
    .await
}

/// Does what takes a core for a while off the reactor.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    let crashed = |_| Fault::new(Kind::EngineFailed, "a body could not be processed");
    tokio::task::spawn_blocking(work).await.map_err(crashed)
}

/// A body that is not what it should be. serde repeats the string that it stumbles over, which may be a client's text.
fn unreadable(error: &serde_json::Error) -> Fault {
    let said = error.to_string();
    let repeats = ["invalid type: string", "invalid value: string"];
    if !repeats.iter().any(|words| said.starts_with(words)) {
        return Fault::bad(format!("the body can't be read: {said}"));
    }
    let (line, column) = (error.line(), error.column());
    Fault::bad(format!(
        "the body can't be read: a string stands where something else is expected, at line {line} column {column}"
    ))
}

/// An infer request of either protocol, read.
struct Asked {
    /// Given back with the answer.
    id: Option<String>,
    /// The client's own, given back with the answer.
    parameters: Parameters,
    /// What is to be run.
    request: InferRequest,
}

/// Why memory that a client shares with the worker is not taken.
const NO_SHARED_MEMORY: &str = "shared memory is not served: a worker behind a proxy can't tell whose memory it would \
                                be; send tensors in the request, as bytes where size matters";

/// What the worker says of itself (KServe's server metadata), the same in both protocols.
const EXTENSIONS: [&str; 12] = [
    "binary_tensor_data",
    "classification",
    "generate",
    "logging",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "sequence",
    "statistics",
    "trace",
];

/// 200 with a JSON body.
fn json<T: Serialize>(value: &T) -> Response {
    with_status(StatusCode::OK, value)
}

fn with_status<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// A fault's status, `Retry-After` and this body.
fn refuse<T: Serialize>(fault: &Fault, body: &T) -> Response {
    let status = StatusCode::from_u16(fault.kind.status());
    let mut response = with_status(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body);
    if let Some(wait) = fault.retry_after {
        let seconds = HeaderValue::from(wait.0.ceil() as u64);
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}
