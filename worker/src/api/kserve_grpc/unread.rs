//! A call that can't be read is its client's mistake.
//!
//! tonic answers INTERNAL (13) to a message that is no protobuf, is cut short, has an odd compression flag or is not
//! there at all. A proxy in front holds 13 against the worker, so one client's damaged messages would take it from all
//! others; it is INVALID_ARGUMENT (3) here. What the worker itself fails at carries its fault as the status' source, by
//! which the two are told apart.

use std::error::Error as _;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tonic::{Code, Status};

/// Answers a call.
pub async fn tell(call: Request, next: Next) -> Response {
    let answer = next.run(call).await;
    let unread = answer.extensions().get().and_then(mistake);
    unread.map_or(answer, Status::into_http)
}

/// What to say instead of a status by which tonic says that it could not read.
pub fn mistake(status: &Status) -> Option<Status> {
    let theirs = status.code() == Code::Internal && status.source().is_none();
    let problem = status.message();
    theirs.then(|| Status::invalid_argument(format!("the call can't be read: {problem}")))
}
