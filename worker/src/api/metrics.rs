//! Metrics on a port of their own, as Triton tells them: what watches a worker need not reach its clients' port, and
//! is answered while that one is full.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::routing::get;

use crate::line::App;
use crate::observe::exposition;

/// `/metrics`, and nothing else.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(app)
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut response = Response::new(Body::from(exposition(&app.shown())));
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}
