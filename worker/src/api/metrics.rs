//! Metrics on a port of their own, as Triton tells them: what watches a worker need not reach its clients' port, and
//! is answered while that one is full.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;

use crate::line::App;
use crate::observe::exposition;

/// `/metrics`; elsewhere it says where they are.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/", get(|| async { PLACE }))
        .fallback((StatusCode::NOT_FOUND, PLACE))
        .with_state(app)
}

const PLACE: &str = "metrics are at /metrics\n";

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut response = Response::new(Body::from(exposition(&app.shown(), &app.host.machine())));
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}
