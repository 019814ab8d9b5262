//! Asking a worker whether it lives: one GET over a connection of its own, or a bare connect.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full, Limited};

use super::connect::{self, Sender, lost};
use super::{Loss, UpstreamRequest};
use crate::clock::Clock;
use crate::config::plan::Origin;
use crate::units::{Bytes as ByteCount, Seconds};

/// An answer is read this far, so that the connection ends cleanly, and no further.
const READ: ByteCount = ByteCount(64 << 10);

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probed {
    /// The answer's status; `None` when nothing was asked.
    pub status: Option<StatusCode>,
    /// How long opening the connection took: one round trip, and the name's resolution if it has one.
    pub connected_in: Seconds,
}

/// Connects, and asks `path` where there is one. The caller bounds the whole.
///
/// # Errors
/// The [`Loss`] that says why there was no answer.
pub async fn probe(
    origin: &Origin,
    path: Option<&str>,
    headers: &HeaderMap,
    connect: Seconds,
    clock: Clock,
) -> Result<Probed, Loss> {
    let began = clock.now();
    let Some(path) = path else {
        connect::tcp(origin, connect).await?;
        return Ok(Probed {
            status: None,
            connected_in: clock.now() - began,
        });
    };
    let request = request(origin, path, headers)?;
    let sender = connect::open(origin, connect).await?;
    let connected_in = clock.now() - began;
    let response = match sender {
        Sender::Http1(mut connection) => connection.sender.send_request(request).await,
        Sender::Http2(mut sender) => sender.send_request(request).await,
    };
    let response = response.map_err(|error| lost(&error))?;
    let status = response.status();
    // What it says beyond its status is of no interest; an answer that breaks off is judged by its status too.
    let _ = Limited::new(response.into_body(), READ.to_usize())
        .collect()
        .await;
    Ok(Probed {
        status: Some(status),
        connected_in,
    })
}

fn request(origin: &Origin, path: &str, headers: &HeaderMap) -> Result<UpstreamRequest, Loss> {
    let mut request = http::Request::new(Full::new(Bytes::new()));
    let refused = |error: http::Error| Loss::Refused(error.to_string());
    let target = PathAndQuery::try_from(path).map_err(|error| refused(error.into()))?;
    *request.uri_mut() = origin.uri(target).map_err(refused)?;
    *request.headers_mut() = headers.clone();
    Ok(request)
}
