//! Asking a worker about itself: one small request over a connection of its own, or a bare connect.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};

use super::connect::{Connector, Sender, lost};
use super::{Loss, Outgoing, UpstreamRequest};
use crate::config::plan::Origin;
use crate::units::{Bytes as ByteCount, Seconds};

/// What a worker is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// How.
    pub method: Method,
    /// Where.
    pub path: &'a str,
    /// With these fields.
    pub headers: &'a HeaderMap,
    /// With this body.
    pub body: Bytes,
    /// An answer is read this far.
    pub most: ByteCount,
}

/// What it answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The body; `None` when it was too long or broke off.
    pub body: Option<Bytes>,
    /// How long opening the connection took: one round trip.
    pub connected_in: Seconds,
    /// How long after it was sent the answer's head came.
    pub answered_in: Seconds,
}

/// Asks; waits first until the worker's name is known.
pub(super) async fn ask(
    worker: &Connector,
    question: &Question<'_>,
    connect: Seconds,
) -> Result<Reply, Loss> {
    worker.addresses.found().await;
    let request = request(&worker.origin, question)?;
    let began = worker.clock.now();
    let sender = worker.open(connect).await?;
    let connected_in = worker.clock.now() - began;
    let sent = worker.clock.now();
    let response = match sender {
        Sender::Http1(mut connection) => connection.sender.send_request(request).await,
        Sender::Http2(mut sender) => sender.send_request(request).await,
    };
    let response = response.map_err(|error| lost(&error))?;
    let answered_in = worker.clock.now() - sent;
    let status = response.status();
    // Read also where nobody looks at it, so that the connection ends cleanly.
    let body = Limited::new(response.into_body(), question.most.to_usize())
        .collect()
        .await;
    Ok(Reply {
        status,
        body: body.ok().map(http_body_util::Collected::to_bytes),
        connected_in,
        answered_in,
    })
}

/// Connects and says nothing; how long it took.
pub(super) async fn knock(worker: &Connector, connect: Seconds) -> Result<Seconds, Loss> {
    worker.addresses.found().await;
    let began = worker.clock.now();
    worker.tcp(connect).await?;
    Ok(worker.clock.now() - began)
}

fn request(origin: &Origin, question: &Question<'_>) -> Result<UpstreamRequest, Loss> {
    let mut request = http::Request::new(Outgoing::whole(question.body.clone()));
    let refused = |error: http::Error| Loss::Refused(error.to_string());
    let target = PathAndQuery::try_from(question.path).map_err(|error| refused(error.into()))?;
    *request.method_mut() = question.method.clone();
    *request.uri_mut() = origin.uri(target).map_err(refused)?;
    *request.headers_mut() = question.headers.clone();
    Ok(request)
}
