//! Which answer a request gets: liveness, a failure that was asked for, canned bytes, or the engine's own.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::generation::Generation;
use super::{Failure, Framing, Seen, Shared, identity, is_asked, kserve, load, openai};

/// An answer on its way out.
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers, framing aside.
    pub headers: Vec<(String, String)>,
    /// How its end is told on HTTP/1.1.
    pub framing: Framing,
    /// Where its body comes from.
    pub body: Body,
    /// How it goes wrong while the body is written, if it does.
    pub failure: Option<Failure>,
}

/// A body in pieces.
pub enum Body {
    /// Known beforehand.
    Whole(VecDeque<Bytes>),
    /// Made token by token.
    Stream(Box<Generation>),
}

impl Body {
    /// The next piece, when it is due.
    pub async fn next(&mut self) -> Option<Bytes> {
        match self {
            Body::Whole(pieces) => pieces.pop_front(),
            Body::Stream(generation) => generation.next().await,
        }
    }
}

impl Answer {
    /// An answer whose body is known.
    pub fn whole(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Answer {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            framing: Framing::Length,
            body: Body::Whole(VecDeque::from([body.into()])),
            failure: None,
        }
    }

    /// A JSON answer.
    pub fn json(status: u16, value: &Value) -> Self {
        Answer::whole(status, "application/json", value.to_string())
    }

    /// vLLM's error object.
    pub fn error(status: u16, kind: &str, message: &str) -> Self {
        Answer::json(
            status,
            &json!({"error": {"message": message, "type": kind, "param": null, "code": status}}),
        )
    }

    /// Splits a known body in two, so that an answer can be cut in the middle of it.
    fn in_two_pieces(&mut self) {
        if let Body::Whole(pieces) = &mut self.body
            && let [only] = pieces.make_contiguous()
        {
            let second = only.split_off(only.len() / 2);
            pieces.push_back(second);
        }
    }
}

/// The answer to a request, after the time that making it takes.
pub async fn to(shared: &Arc<Shared>, request: &Seen, failure: Option<Failure>) -> Answer {
    if is_asked(&request.target) {
        return identity::answer(shared, request).await;
    }
    let (delay, framing, canned) = {
        let knobs = shared.knobs.lock();
        (knobs.first_byte_delay, knobs.framing, knobs.canned.clone())
    };
    tokio::time::sleep(delay).await;
    match failure {
        Some(Failure::Hang) => return std::future::pending().await,
        Some(Failure::Status(status)) => {
            return Answer::error(status, "InternalServerError", "the engine failed");
        }
        Some(Failure::Busy(seconds)) => {
            let mut answer = Answer::error(429, "TooManyRequests", "the engine is full");
            let wait = ("retry-after".to_owned(), seconds.to_string());
            answer.headers.push(wait);
            return answer;
        }
        _ => {}
    }
    let mut answer = match canned {
        Some(canned) => Answer {
            status: canned.status,
            headers: canned.headers,
            framing: canned.framing,
            body: Body::Whole(canned.pieces.into()),
            failure: None,
        },
        None => {
            let mut own = own(shared, request).await;
            if matches!(own.body, Body::Whole(_)) {
                own.framing = framing;
            }
            own.headers.extend(load::report(shared, request));
            own
        }
    };
    if matches!(failure, Some(Failure::CutAfter(_) | Failure::StallAfter(_))) {
        answer.in_two_pieces();
    }
    answer.failure = failure;
    answer
}

/// The engine's own answer, by path.
async fn own(shared: &Arc<Shared>, request: &Seen) -> Answer {
    let path = request.target.split('?').next().unwrap_or_default();
    if path.starts_with("/raw/") {
        return Answer::whole(200, "application/octet-stream", request.body.clone());
    }
    if path == "/v2" || path.starts_with("/v2/") {
        return kserve::answer(shared, &request.method, path, &request.body).await;
    }
    if request.method != "POST" {
        return Answer::json(405, &json!({"detail": "Method Not Allowed"}));
    }
    openai::answer(shared, path, &request.body).await
}
