//! Asking a worker whether it lives: one GET over a connection of its own, or a bare connect.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full, Limited};

use super::connect::{Connector, Sender, lost};
use super::{Loss, UpstreamRequest};
use crate::config::plan::Origin;
use crate::units::{Bytes as ByteCount, Seconds};

/// An answer is read this far, so that the connection ends cleanly, and no further.
const READ: ByteCount = ByteCount(64 << 10);

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probed {
    /// The answer's status; `None` when nothing was asked.
    pub status: Option<StatusCode>,
    /// How long opening the connection took: one round trip.
    pub connected_in: Seconds,
}

/// Connects, and asks `path` where there is one; waits first until the worker's name is known.
pub(super) async fn probe(
    worker: &Connector,
    path: Option<&str>,
    headers: &HeaderMap,
    connect: Seconds,
) -> Result<Probed, Loss> {
    worker.addresses.found().await;
    let clock = worker.clock;
    let began = clock.now();
    let Some(path) = path else {
        worker.tcp(connect).await?;
        return Ok(Probed {
            status: None,
            connected_in: clock.now() - began,
        });
    };
    let request = request(&worker.origin, path, headers)?;
    let sender = worker.open(connect).await?;
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
