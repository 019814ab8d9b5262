//! A call of KServe's gRPC service: whether its head is one, and what its first message says.

use http::Version;
use http::header::CONTENT_TYPE;
use http::request::Parts;

use super::{bad, embed};
use crate::facts::{self, PREFIX, RequestFacts, Spot};
use crate::fault::{Fault, Kind};
use crate::units::{Length, ModelName};

/// Refuses what can be no call.
///
/// # Errors
/// `bad_request` over HTTP/1.1, `unsupported_encoding` for another content type.
pub(super) fn readable(head: &Parts) -> Result<(), Fault> {
    if head.version != Version::HTTP_2 {
        return Err(bad("gRPC is spoken over HTTP/2"));
    }
    if is_spoken(head) {
        return Ok(());
    }
    let message = "the content type of a gRPC call is application/grpc";
    Err(Fault::new(Kind::UnsupportedEncoding, message))
}

/// Whether a head is a call's, on whatever path.
pub(super) fn is_spoken(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|kind| facts::is_grpc(kind.as_bytes()));
    is_grpc && head.version == Version::HTTP_2
}

/// What the first message says, undone where it came compressed. A call that is no stream has no other: what stood
/// behind it would be passed on unread.
///
/// # Errors
/// `bad_request`, `unsupported_encoding`.
#[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
pub(super) fn facts(body: &[u8], streams: bool) -> Result<RequestFacts, Fault> {
    let message = facts::first_message(body)?;
    let message = message.ok_or_else(|| bad("the call has no whole message"))?;
    if !streams && body.len() > PREFIX + message.len() {
        return Err(bad("the call goes on behind its message"));
    }
    let Some((name, span)) = facts::model_in_message(message)? else {
        return Err(bad("the message names no model").param("model"));
    };
    let model = ModelName::new(&name);
    Ok(RequestFacts {
        model_at: Some(Spot::Message(span)),
        ..embed(Some(model), Length::Bytes(message.len() as f64))
    })
}
