//! Head fields on their way through: what passes, what ends here, what is ours.
//!
//! End-to-end fields pass both ways, values and their order per name untouched. Hop-by-hop fields end here (RFC 9110
//! §7.6.1): the fixed ones and those that `Connection` names. That is done before ours are set, so that no `Connection`
//! can take ours away. Keys of clients end here where tenants have them, and are the worker's to judge otherwise. What
//! says who the client is (`X-Forwarded-*`, `Forwarded`) is `forwarded.rs`'s affair.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    PROXY_AUTHENTICATE, TE, TRANSFER_ENCODING,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use super::load_report::LoadReport;
use super::{Errand, forwarded, quota, tunnel};
use crate::admission::may_hold_key;
use crate::config::plan::{Origin, WorkerPlan};
use crate::facts::{self, BuiltIn, Spot, percent_encoded};
use crate::fault::{Fault, Kind};
use crate::fleet::authorization;
use crate::inspect::Way;
use crate::observe::Exchange;
use crate::units::{ModelName, Seconds};
use crate::upstream::{Outgoing, UpstreamRequest};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Asks those on the way not to keep a stream back.
pub(super) const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// The request's id, both ways.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How many attempts an answer took.
pub(super) const X_FOREBAY_ATTEMPTS: HeaderName = HeaderName::from_static("x-forebay-attempts");
/// Where a request stood in line that waited.
pub(super) const X_FOREBAY_QUEUE_POSITION: HeaderName =
    HeaderName::from_static("x-forebay-queue-position");
/// Why the proxy refused or failed a request.
pub(super) const X_FOREBAY_REASON: HeaderName = HeaderName::from_static("x-forebay-reason");
/// Whose answer it is.
pub(super) const X_FOREBAY_WORKER: HeaderName = HeaderName::from_static("x-forebay-worker");

/// A request as one worker gets it, ready to be made as often as it must be sent.
pub(super) struct Draft<'a> {
    errand: &'a Errand<'a>,
    worker: &'a WorkerPlan,
    id: &'a HeaderValue,
    report: LoadReport,
    uri: Uri,
    body: Bytes,
    /// What the worker calls the model, where that differs.
    name: Option<ModelName>,
    /// The body came compressed, and goes out plain.
    is_undone: bool,
}

impl<'a> Draft<'a> {
    /// What goes to this worker, which calls the model `name` where that differs from the client's.
    pub(super) fn new(
        errand: &'a Errand<'_>,
        worker: &'a WorkerPlan,
        name: Option<&ModelName>,
        id: &'a HeaderValue,
    ) -> Result<Self, Fault> {
        let uri = target(errand, name)
            .and_then(|target| origin(errand, worker).uri(target))
            .map_err(|_| Fault::new(Kind::BadRequest, "the target is no valid path"))?;
        Ok(Draft {
            errand,
            worker,
            id,
            report: LoadReport::default(),
            uri,
            body: body(errand, name),
            name: name.cloned(),
            is_undone: name.is_some() && errand.facts.model_at.is_some(),
        })
    }

    /// The same, with a wish for a report.
    pub(super) fn wanting(self, report: LoadReport) -> Self {
        Draft { report, ..self }
    }

    /// The request.
    pub(super) fn request(&self) -> UpstreamRequest {
        let body = match self.errand.stream {
            Some(stream) => Outgoing::flowing(stream.named(self.name.as_ref())),
            None => Outgoing::whole(self.body.clone()),
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.errand.head.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = request_headers(self.errand, self.worker, self.id);
        if self.is_undone {
            request.headers_mut().remove(CONTENT_ENCODING);
        }
        self.report.ask(request.headers_mut());
        if self.errand.facts.upgrades {
            tunnel::switch(request.headers_mut());
        }
        request
    }
}

/// Where the worker takes such a request.
fn origin<'w>(errand: &Errand<'_>, worker: &'w WorkerPlan) -> &'w Origin {
    let grpc = worker.grpc.as_ref().filter(|_| errand.is_grpc);
    grpc.unwrap_or(&worker.origin)
}

/// Path and query: the client's, but for a model that they name and the worker calls otherwise.
fn target(errand: &Errand<'_>, name: Option<&ModelName>) -> Result<PathAndQuery, http::Error> {
    let uri = &errand.head.uri;
    if let (Some(name), Some(Spot::Query(span)), Some(query)) =
        (name, &errand.facts.model_at, uri.query())
    {
        let (before, after) = (&query[..span.start], &query[span.end..]);
        let name = percent_encoded(name.as_str());
        let target = format!("{}?{before}{name}{after}", uri.path());
        return Ok(PathAndQuery::try_from(target)?);
    }
    match (errand.way, name) {
        (Way::BuiltIn(BuiltIn::KServeModel { rest, .. }), Some(name)) => {
            let query = uri
                .query()
                .map_or_else(String::new, |query| format!("?{query}"));
            Ok(PathAndQuery::try_from(format!(
                "/v2/models/{}{rest}{query}",
                percent_encoded(name.as_str())
            ))?)
        }
        _ => Ok(uri
            .path_and_query()
            .cloned()
            .unwrap_or(PathAndQuery::from_static("/"))),
    }
}

/// The body, with the value of `model` changed where the worker calls it otherwise, and no other byte. One that came
/// compressed goes out plain then: under its old label it would be another body.
fn body(errand: &Errand<'_>, name: Option<&ModelName>) -> Bytes {
    let (Some(name), Some(spot)) = (name, &errand.facts.model_at) else {
        return errand.body.clone();
    };
    let (span, name) = match spot {
        Spot::Json(span) => (span, sonic_rs::to_string(name.as_str()).unwrap_or_default()),
        Spot::Text(span) => (span, name.as_str().to_owned()),
        Spot::Query(_) => return errand.body.clone(),
        Spot::Message(span) => {
            let message = facts::first_message(errand.text).ok().flatten();
            let renamed = message.and_then(|message| facts::renamed(message, span.clone(), name));
            return renamed.map_or_else(|| errand.body.clone(), Bytes::from);
        }
    };
    let mut body = BytesMut::with_capacity(errand.text.len() + name.len());
    body.put_slice(&errand.text[..span.start]);
    body.put_slice(name.as_bytes());
    body.put_slice(&errand.text[span.end..]);
    body.freeze()
}

fn request_headers(errand: &Errand<'_>, worker: &WorkerPlan, id: &HeaderValue) -> HeaderMap {
    let mut headers = passing(&errand.head.headers, !errand.plan.tenants.is_empty());
    if errand.facts.streamed && errand.plan.queue.heartbeat.is_some() {
        // Its answer may follow heartbeats, whose head has promised plain text.
        headers.remove(ACCEPT_ENCODING);
    }
    forwarded::tell(&mut headers, errand);
    headers.insert(X_REQUEST_ID, id.clone());
    if errand.is_grpc {
        // Ends here like every hop-by-hop field, and gRPC wants it at every hop.
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let origin = origin(errand, worker);
    if !origin.protocol.is_http2()
        && let Ok(host) = HeaderValue::from_str(&origin.authority)
    {
        headers.insert(HOST, host);
    }
    for (name, value) in &worker.headers {
        headers.insert(name.clone(), value.clone());
    }
    if let Some((name, value)) = worker.key.as_ref().and_then(authorization) {
        headers.insert(name, value);
    }
    headers
}

/// The fields of a client that go on to the worker, in their order; keys end here where tenants have them.
#[must_use]
pub fn passing(from: &HeaderMap, keys_are_ours: bool) -> HeaderMap {
    let named = named_by_connection(from);
    let mut headers = HeaderMap::with_capacity(from.len() + 8);
    let ends = |name: &HeaderName| named.contains(name) || (keys_are_ours && may_hold_key(name));
    let passing = from.iter().filter(|(name, _)| passes(name) && !ends(name));
    headers.extend(passing.map(|(name, value)| (name.clone(), value.clone())));
    headers
}

/// Whether a client's field goes on to the worker: neither hop-by-hop, nor ours to say.
fn passes(name: &HeaderName) -> bool {
    let ours = matches!(
        name.as_str(),
        "host" | "content-length" | "expect" | "proxy-authorization"
    );
    !ours && !is_hop_by_hop(name) && !forwarded::tells(name)
}

/// Whether a field ends at the next hop, beside those that `Connection` names. Told by text, which compares faster than
/// a list of names.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade"
    )
}

/// The fields that `Connection` names; usually none.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    // By bytes: a name beside an odd one is a name.
    let lines = headers.get_all(CONNECTION).iter();
    lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
}

/// Makes a worker's fields fit for the client, and adds ours.
pub(super) fn answer(headers: &mut HeaderMap, streamed: bool, exchange: &Exchange, now: Seconds) {
    presentable(headers);
    if streamed {
        headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    headers.append(SERVER_TIMING, exchange.server_timing(now));
    if let Some(quota) = exchange.quota() {
        quota::show(headers, quota);
    }
    ours(headers, exchange);
}

/// Leaves of a worker's fields those that its client may see.
pub fn presentable(headers: &mut HeaderMap) {
    // A length that `Connection` names is still the length: the client needs it to see where the answer ends. Beside a
    // transfer coding it is void (RFC 9112 §6.3) and would cut the answer short.
    let coded = headers.contains_key(TRANSFER_ENCODING);
    let length = headers.remove(CONTENT_LENGTH).filter(|_| !coded);
    let named = named_by_connection(headers);
    // Why an answer is an error is ours to say, and this one is the worker's.
    let ends = |name: &&HeaderName| {
        [PROXY_AUTHENTICATE, X_FOREBAY_REASON].contains(name)
            || is_hop_by_hop(name)
            || named.contains(name)
    };
    let ending: Vec<_> = headers.keys().filter(ends).cloned().collect();
    for name in ending {
        headers.remove(name);
    }
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length);
    }
}

/// Makes the fields behind an answer fit for the client. What is read before a body has no business there, least of all
/// what only the proxy may say (RFC 9110 §6.5.1).
pub fn trailers(fields: &mut HeaderMap) {
    let ending: Vec<_> = fields
        .keys()
        .filter(|name| ends_in_trailers(name))
        .cloned()
        .collect();
    for name in ending {
        fields.remove(name);
    }
}

/// Whether a field may not stand behind a body: framing, routing, content, caches, cookies, credentials, control.
fn ends_in_trailers(name: &HeaderName) -> bool {
    let misplaced = matches!(
        name.as_str(),
        "age"
            | "authorization"
            | "cache-control"
            | "content-encoding"
            | "content-length"
            | "content-range"
            | "content-type"
            | "cookie"
            | "date"
            | "expires"
            | "host"
            | "location"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "retry-after"
            | "server-timing"
            | "set-cookie"
            | "trailer"
            | "vary"
            | "www-authenticate"
            | "x-request-id"
    );
    misplaced || is_hop_by_hop(name) || name.as_str().starts_with("x-forebay-")
}

/// The fields that every answer carries.
pub(super) fn ours(headers: &mut HeaderMap, exchange: &Exchange) {
    headers.insert(X_REQUEST_ID, exchange.id().clone());
    match exchange.attempts() {
        0 => {}
        1 => drop(headers.insert(X_FOREBAY_ATTEMPTS, HeaderValue::from_static("1"))),
        more => drop(headers.insert(X_FOREBAY_ATTEMPTS, HeaderValue::from(more))),
    }
    if let Some(position) = exchange.position() {
        headers.insert(X_FOREBAY_QUEUE_POSITION, HeaderValue::from(position));
    }
    if let Some(worker) = exchange.worker() {
        headers.insert(X_FOREBAY_WORKER, worker);
    }
}

/// Whether an answer is a stream of server-sent events.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.and_then(|kind| kind.split(|byte| *byte == b';').next())
        .is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn connection_names_fields_in_lists_and_lines() {
        let named = named_by_connection(&map(&[
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
        ]));
        assert_eq!(named, ["close", "x-secret", "x-other"]);
    }

    #[test]
    fn what_is_hop_by_hop_or_ours_does_not_pass() {
        let passing = [
            "trailer",
            "x-forward",
            "authorization",
            "x-forebay-session",
            "cookie",
        ];
        let ending = [
            "te",
            "keep-alive",
            "connection",
            "host",
            "expect",
            "forwarded",
            "x-forwarded-anything",
        ];
        assert!(
            passing
                .iter()
                .all(|name| passes(&HeaderName::from_static(name)))
        );
        assert!(
            !ending
                .iter()
                .any(|name| passes(&HeaderName::from_static(name)))
        );
    }

    #[test]
    fn event_streams_are_told_by_their_media_type() {
        assert!(is_event_stream(&map(&[(
            "content-type",
            "Text/Event-Stream; charset=utf-8"
        )])));
        assert!(!is_event_stream(&map(&[(
            "content-type",
            "application/json"
        )])));
        assert!(!is_event_stream(&HeaderMap::new()));
    }
}
