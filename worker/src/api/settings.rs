//! Triton's log and trace settings over HTTP ("Logging Extension", "Trace Extension").
//!
//! The log's are in `log.rs`. Traces are not written by this worker: its trace settings say OFF, and asking for
//! anything else is refused with the reason, so that nobody waits for a trace file that never comes.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Map, Value, json};

use crate::api::kserve_http::refusal;
use crate::api::path::Path;
use crate::fault::Fault;
use crate::line::App;

/// The settings' paths.
pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/logging", get(log).post(change_log))
        .route("/v2/trace/setting", get(trace).post(change_trace))
        .route(
            "/v2/models/{model}/trace/setting",
            get(trace_of).post(change_trace_of),
        )
}

async fn log(State(app): State<Arc<App>>) -> Response {
    super::json(&app.log.settings())
}

async fn change_log(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    let changed = read(&headers, body).await;
    let changed = changed.and_then(|wanted| app.log.change(&wanted).map_err(Fault::bad));
    done(changed.map(|()| app.log.settings()))
}

async fn trace() -> Response {
    super::json(&off())
}

async fn change_trace(headers: HeaderMap, body: Body) -> Response {
    let wanted = read(&headers, body).await;
    done(wanted.and_then(|wanted| trace_settings(&wanted)))
}

async fn trace_of(State(app): State<Arc<App>>, Path(model): Path<String>) -> Response {
    done(app.model(&model, None).map(|_| off()))
}

async fn change_trace_of(
    State(app): State<Arc<App>>,
    Path(model): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match app.model(&model, None) {
        Ok(_) => change_trace(headers, body).await,
        Err(fault) => refusal(&fault),
    }
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Map<String, Value>, Fault> {
    let body = super::read(headers, body).await?;
    serde_json::from_slice(&body).map_err(|error| super::unreadable(&error))
}

fn done(outcome: Result<Value, Fault>) -> Response {
    match outcome {
        Ok(settings) => super::json(&settings),
        Err(fault) => refusal(&fault),
    }
}

/// The trace settings after such a change: what they were, or why that can't be.
pub fn trace_settings(wanted: &Map<String, Value>) -> Result<Value, Fault> {
    let settings = off();
    for (name, value) in wanted {
        let Some(present) = settings.get(name) else {
            return Err(Fault::bad(format!("there is no trace setting `{name}`")));
        };
        // null takes a setting back, and Triton's clients write the level as a list or as a word.
        let same = value.is_null() || value == present || name == "trace_level" && value == "OFF";
        if !same {
            let problem = format!("this worker writes no traces, so `{name}` can't be changed");
            return Err(Fault::bad(problem));
        }
    }
    Ok(settings)
}

/// Triton's own words for a server that traces nothing.
fn off() -> Value {
    json!({
        "trace_level": ["OFF"],
        "trace_rate": "1000",
        "trace_count": "-1",
        "log_frequency": "0",
        "trace_file": "",
        "trace_mode": "triton",
    })
}
