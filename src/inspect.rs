//! From a head and a body to what the request is: which way it goes, and the facts it is routed by.
//!
//! hyper has parsed the head; what it lets through and we can't read safely is refused here: a missing or doubled
//! `Host`, a target that names another host than `Host` does, a transfer coding besides `chunked`, CONNECT, TRACE,
//! unsound requests for a WebSocket.

mod class;
mod client;
mod grpc;
mod limit;
mod websocket;

use std::collections::BTreeSet;

use http::header::{CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Version};

use crate::config::Plan;
use crate::config::plan::{Repeat, RoutePlan, Timeouts};
use crate::decide;
use crate::facts::{self, About, BuiltIn, Inference, Peek, Prefix, RequestFacts, Salt, Spot};
use crate::fault::{Fault, Kind};
use crate::observe::RouteName;
use crate::units::{Length, ModelName};
pub use class::class;
pub use client::Client;
pub use limit::{Limit, deadline};

/// The length of the JSON part of a KServe request with binary tensors.
const KSERVE_HEADER_LENGTH: &str = "inference-header-content-length";

/// What the fleet offers, as far as a request must be read by it.
#[derive(Clone, Copy, Debug)]
pub struct Offered<'a> {
    /// The models served, by the names that clients say.
    pub models: &'a [ModelName],
    /// Those that the tenant may use, and hear of; all when absent.
    pub theirs: Option<&'a BTreeSet<ModelName>>,
    /// Tokens of a prompt and its answer that fit every worker.
    pub room: f64,
    /// The tenant whose prompts share nothing with others'.
    pub apart: Option<&'a str>,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// A `[[route]]` of the plan.
    Route(&'a RoutePlan),
    /// A built-in path.
    BuiltIn(BuiltIn<'a>),
}

impl Way<'_> {
    /// The `route` of logs and metrics: the pattern, or the path of a built-in.
    #[must_use]
    pub fn route(&self) -> RouteName {
        match self {
            Way::Route(route) => RouteName::from(&route.pattern.text),
            Way::BuiltIn(built_in) => RouteName::from(built_in.route()),
        }
    }

    /// What a log line calls such a request.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Way::Route(_) => "route",
            Way::BuiltIn(BuiltIn::Inference(inference)) => inference.kind,
            Way::BuiltIn(BuiltIn::Realtime) => "realtime",
            Way::BuiltIn(_) => "kserve",
        }
    }

    /// Whether it says only how the proxy itself is, which everybody may hear.
    #[must_use]
    pub fn is_public(&self) -> bool {
        matches!(
            self,
            Way::BuiltIn(
                BuiltIn::Health | BuiltIn::Ready | BuiltIn::KServeLive | BuiltIn::KServeReady
            )
        ) || matches!(
            self,
            Way::BuiltIn(BuiltIn::Grpc(call)) if matches!(call.about, About::Live | About::Ready)
        )
    }

    /// Whether the body is read for what it says, and not only for its size.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self, Way::BuiltIn(_))
    }

    /// Whether it is a call of KServe's gRPC service.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        matches!(self, Way::BuiltIn(BuiltIn::Grpc(_)))
    }

    /// Whether its body is a stream that goes on while the answer comes.
    #[must_use]
    pub fn streams(&self, head: &Parts) -> bool {
        match self {
            Way::BuiltIn(built_in) => built_in.streams(),
            // What may be sent again is read whole.
            Way::Route(route) => route.repeat == Repeat::Unsafe && grpc::is_spoken(head),
        }
    }

    /// The timeouts that hold on this way, before a worker's own.
    #[must_use]
    pub fn timeouts<'p>(&'p self, plan: &'p Plan) -> &'p Timeouts {
        match self {
            Way::Route(route) => &route.timeouts,
            Way::BuiltIn(_) => &plan.timeouts,
        }
    }
}

/// Which way a request goes.
///
/// # Errors
/// `bad_request` for a head with more than one reading, `no_route`, `method_not_allowed`.
pub fn way<'a>(head: &'a Parts, plan: &'a Plan) -> Result<Way<'a>, Fault> {
    readable(head)?;
    let upgrades = websocket::is_asked(head)?;
    let path = head.uri.path();
    if let Some(route) = plan.routes.iter().find(|route| route.pattern.matches(path)) {
        return Ok(Way::Route(route));
    }
    let Some(built_in) = BuiltIn::of(path) else {
        return Err(no_route(path));
    };
    if let Some(methods) = built_in.methods()
        && methods != head.method.as_str()
        && !methods.split(", ").any(|taken| head.method == taken)
    {
        let message = format!(
            "{} does not take {}, but {methods}",
            built_in.route(),
            known_method(&head.method)
        );
        return Err(Fault::new(Kind::MethodNotAllowed, message).allow(methods));
    }
    match (built_in, upgrades) {
        (BuiltIn::Realtime, false) => Err(bad("/v1/realtime is a WebSocket: ask for an upgrade")),
        (BuiltIn::Grpc(_), _) => grpc::readable(head).map(|()| Way::BuiltIn(built_in)),
        (BuiltIn::Realtime, true) | (_, false) => Ok(Way::BuiltIn(built_in)),
        (_, true) => Err(bad("there is no WebSocket at this path")),
    }
}

/// Nobody answers this path. What clients most often get wrong is whether their base URL ends in `/v1`.
fn no_route(path: &str) -> Fault {
    let message = "no [[route]] and no built-in path matches this path";
    let with = format!("/v1{path}");
    let once = path.strip_prefix("/v1").unwrap_or(path);
    let tries = [with.as_str(), once, path.trim_end_matches('/')];
    let meant = tries.into_iter().find_map(BuiltIn::of);
    let message = match meant.map(|built_in| built_in.route()) {
        Some(route) => format!("{message}; did you mean {route}?"),
        None => message.to_owned(),
    };
    Fault::new(Kind::NoRoute, message)
}

/// A method as it may be shown: unknown ones are client text.
fn known_method(method: &Method) -> &str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
    ];
    if known.contains(method) {
        method.as_str()
    } else {
        "this method"
    }
}

fn readable(head: &Parts) -> Result<(), Fault> {
    let refused = match head.method {
        Method::CONNECT => Some("CONNECT is refused: this is no tunnel"),
        Method::TRACE => Some("TRACE is refused: a worker would send keys back"),
        _ => None,
    };
    if let Some(why) = refused {
        return Err(Fault::new(Kind::MethodNotAllowed, why).allow(""));
    }
    framing(head)?;
    let hosts: Vec<_> = head.headers.get_all(HOST).iter().take(2).collect();
    let authority = head.uri.authority().map(http::uri::Authority::as_str);
    let host = match hosts[..] {
        [] if head.version >= Version::HTTP_2 && authority.is_some() => return Ok(()),
        [] => return Err(bad("Host is missing (RFC 9112 §3.2)")),
        [host] => host.to_str().unwrap_or_default(),
        _ => return Err(bad("Host is given twice (RFC 9112 §3.2)")),
    };
    if host.contains('@') || host.parse::<http::uri::Authority>().is_err() {
        return Err(bad("Host is empty or no host name"));
    }
    match authority {
        Some(authority) if !authority.eq_ignore_ascii_case(host) => {
            Err(bad("the target and Host name two hosts"))
        }
        _ => Ok(()),
    }
}

/// The body came in chunks; what else it was coded in is lost on the way, as the header names one hop.
fn framing(head: &Parts) -> Result<(), Fault> {
    let codings: Vec<_> = head.headers.get_all(TRANSFER_ENCODING).iter().collect();
    match codings[..] {
        [] => Ok(()),
        [only] if only.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(bad("Transfer-Encoding is something else than `chunked`")),
    }
}

fn bad(message: &str) -> Fault {
    Fault::new(Kind::BadRequest, message)
}

/// The facts that a request is routed by.
///
/// # Errors
/// `bad_request`, also for a `model` that is missing where several are served.
pub fn facts(
    way: &Way<'_>,
    head: &Parts,
    body: &[u8],
    offered: Offered<'_>,
) -> Result<RequestFacts, Fault> {
    match way {
        Way::BuiltIn(BuiltIn::Inference(kind)) => inference(head, body, kind, offered),
        Way::BuiltIn(BuiltIn::KServeModel { model, .. }) => kserve(head, body, model),
        Way::BuiltIn(BuiltIn::Realtime) => realtime(head, offered),
        Way::BuiltIn(BuiltIn::Grpc(_)) => grpc::facts(body, way.streams(head)),
        Way::BuiltIn(_) | Way::Route(_) => Ok(RequestFacts {
            upgrades: websocket::is_asked(head)?,
            ..raw(body)
        }),
    }
}

fn inference(
    head: &Parts,
    body: &[u8],
    kind: &Inference,
    offered: Offered<'_>,
) -> Result<RequestFacts, Fault> {
    if let Some(boundary) = boundary(head)? {
        return form(body, &boundary, kind, offered);
    }
    let peek = facts::peek(body)?;
    let model = named(peek.model.as_deref(), offered)?;
    let prefix = if kind.generates {
        let salt = Salt {
            model: model.as_str(),
            tenant: offered.apart,
        };
        facts::prefix(body, &peek, salt)
    } else {
        Prefix::default()
    };
    Ok(RequestFacts {
        model: Some(model),
        prompt: peek.prompt_length(),
        fills: if may_exceed(&peek, offered.room) {
            facts::fills(body, &peek, kind.generates)
        } else {
            None
        },
        prefix,
        model_at: peek.model_span.map(Spot::Json),
        streamed: peek.stream,
        generates: kind.generates,
        max_tokens: peek.max_tokens,
        timeout: None,
        upgrades: false,
    })
}

/// The model that a body names, or else the only one there is.
fn named(name: Option<&str>, offered: Offered<'_>) -> Result<ModelName, Fault> {
    match (name, offered.models) {
        (Some(name), _) => Ok(ModelName::new(name)),
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            let message = format!("`model` is missing; served are: {}", listed(offered));
            Err(Fault::new(Kind::BadRequest, message).param("model"))
        }
    }
}

/// A form: sound or pictures, of which only the size is known.
#[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
fn form(
    body: &[u8],
    boundary: &str,
    kind: &Inference,
    offered: Offered<'_>,
) -> Result<RequestFacts, Fault> {
    if !kind.takes_forms() {
        let message = format!("{} takes JSON, and no form", kind.path);
        return Err(Fault::new(Kind::BadRequest, message));
    }
    let form = facts::form(body, boundary)?;
    let (name, span) = form.model.unzip();
    let model = named(name.as_deref(), offered)?;
    Ok(RequestFacts {
        model_at: span.map(Spot::Text),
        streamed: form.stream,
        ..embed(Some(model), Length::Bytes(body.len() as f64))
    })
}

/// The boundary of a form; nothing when the body is none.
fn boundary(head: &Parts) -> Result<Option<String>, Fault> {
    let mut kinds = head.headers.get_all(CONTENT_TYPE).iter();
    let kind = kinds.next().and_then(|kind| kind.to_str().ok());
    let boundary = facts::boundary(kind.unwrap_or_default())?;
    if boundary.is_some() && kinds.next().is_some() {
        return Err(bad("Content-Type is given twice"));
    }
    Ok(boundary)
}

/// Whether a request could be too long for anybody: told by its size alone, as its letters take time to count.
fn may_exceed(peek: &Peek, room: f64) -> bool {
    decide::most_at_least(peek.prompt_length()) + f64::from(peek.max_tokens.unwrap_or(0)) > room
}

fn kserve(head: &Parts, body: &[u8], model: &str) -> Result<RequestFacts, Fault> {
    let length = head
        .headers
        .get(KSERVE_HEADER_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let prompt = if body.is_empty() {
        Length::Tokens(1.0)
    } else {
        facts::kserve_work(body, length)
    };
    let model = ModelName::new(&facts::name_in_path(model));
    Ok(RequestFacts {
        timeout: facts::kserve_timeout(body, length),
        ..embed(Some(model), prompt)
    })
}

/// A WebSocket that names its model in the query.
fn realtime(head: &Parts, offered: Offered<'_>) -> Result<RequestFacts, Fault> {
    let query = head.uri.query().unwrap_or_default();
    let (name, span) = facts::model_in_query(query)?.unzip();
    let model = named(name.as_deref(), offered)?;
    Ok(RequestFacts {
        model_at: span.map(Spot::Query),
        upgrades: true,
        ..embed(Some(model), Length::Tokens(1.0))
    })
}

/// On a `[[route]]` only the size is known, not the meaning.
#[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
fn raw(body: &[u8]) -> RequestFacts {
    embed(None, Length::Bytes(body.len() as f64))
}

fn embed(model: Option<ModelName>, prompt: Length) -> RequestFacts {
    RequestFacts {
        model,
        model_at: None,
        streamed: false,
        generates: false,
        max_tokens: None,
        timeout: None,
        upgrades: false,
        prompt,
        fills: None,
        prefix: Prefix::default(),
    }
}

/// Up to eight names, for a message.
fn listed(offered: Offered<'_>) -> String {
    let theirs = |model: &&ModelName| offered.theirs.is_none_or(|theirs| theirs.contains(*model));
    let mut models = offered.models.iter().filter(theirs);
    let shown: Vec<_> = models.by_ref().take(8).map(ModelName::as_str).collect();
    let more = if models.next().is_some() { ", …" } else { "" };
    shown.join(", ") + more
}
