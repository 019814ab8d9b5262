//! Stage three: the configuration as it is used.
//!
//! A [`Plan`] is built only by the checks of this room, so whoever holds one may rely on what the field docs say. It
//! holds no text that still needs parsing, no default that still needs filling in, and no reference that may dangle.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};

use crate::decide::Policy;
use crate::units::{Bytes, ModelName, Seconds, WorkerId};

/// Everything the proxy does, as configured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the process keeps its state: pid, admin token.
    pub state: PathBuf,
    /// The longest a stopping process waits for open requests.
    pub drain: Seconds,
    /// Addresses.
    pub listen: Listen,
    /// The admin token, when the operator chose one; the state folder's otherwise.
    pub admin_token: Option<Secret>,
    /// What a client may ask for.
    pub limits: Limits,
    /// Who resolves the names of workers; the system's servers when empty.
    pub dns: Vec<SocketAddr>,
    /// How to choose a worker, and how often.
    pub routing: Routing,
    /// At least one worker; names are unique; a worker's place in this list is its [`WorkerId`].
    pub workers: Vec<WorkerPlan>,
    /// Patterns tried before the built-in paths, first match wins.
    pub routes: Vec<RoutePlan>,
    /// Timeouts of built-in paths, before a worker's own.
    pub timeouts: Timeouts,
    /// Logs.
    pub log: LogPlan,
}

/// Where the proxy listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Client addresses; at least one, and all can be bound side by side.
    pub http: Vec<SocketAddr>,
    /// The admin address.
    pub admin: SocketAddr,
}

/// Bounds on what a client sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Largest request body.
    pub body: Bytes,
    /// All request bodies in memory together.
    pub buffered: Bytes,
    /// Largest request head.
    pub header: Bytes,
    /// The longest a whole head may take to arrive.
    pub header_timeout: Seconds,
    /// The longest a kept-alive connection may be silent between requests.
    pub idle: Seconds,
}

/// The contract's timers. `None` is `"off"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeouts {
    /// Opening a connection to a worker.
    pub connect: Seconds,
    /// From sending the request to the first byte of a streamed answer.
    pub first_byte: Option<Seconds>,
    /// From sending the request to the end of an answer that is not streamed.
    pub answer: Option<Seconds>,
    /// Silence inside an answer.
    pub between_bytes: Option<Seconds>,
    /// The whole exchange, from the request's head to the answer's last byte.
    pub total: Option<Seconds>,
}

/// Timeouts as typed on one layer; what is not typed falls through to the next (worker over route over global).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeoutOverrides {
    /// See [`Timeouts::connect`].
    pub connect: Option<Seconds>,
    /// See [`Timeouts::first_byte`]; the inner `None` is `"off"`.
    pub first_byte: Option<Option<Seconds>>,
    /// See [`Timeouts::answer`].
    pub answer: Option<Option<Seconds>>,
    /// See [`Timeouts::between_bytes`].
    pub between_bytes: Option<Option<Seconds>>,
    /// See [`Timeouts::total`].
    pub total: Option<Option<Seconds>>,
}

impl Timeouts {
    /// These timeouts with a nearer layer laid over them.
    #[must_use]
    pub fn under(&self, nearer: &TimeoutOverrides) -> Timeouts {
        Timeouts {
            connect: nearer.connect.unwrap_or(self.connect),
            first_byte: nearer.first_byte.unwrap_or(self.first_byte),
            answer: nearer.answer.unwrap_or(self.answer),
            between_bytes: nearer.between_bytes.unwrap_or(self.between_bytes),
            total: nearer.total.unwrap_or(self.total),
        }
    }
}

/// How to choose, and how often to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The rule.
    pub policy: Policy,
    /// Sends after the first.
    pub extra: u32,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// Its name in logs, metrics and headers; `[A-Za-z0-9._-]+`.
    pub name: Arc<str>,
    /// Where it is.
    pub origin: Origin,
    /// What it is.
    pub engine: Engine,
    /// The models it serves: what clients say and what it wants to hear, at least one, client names unique.
    pub models: Vec<ModelAlias>,
    /// The most requests it is given at a time; at least 1.
    pub max_inflight: u32,
    /// The typed prior of its speed relative to the others, above zero.
    pub speed: Option<f64>,
    /// Its API key, sent as the engine expects.
    pub key: Option<Secret>,
    /// Headers added to each request to it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How its liveness is asked.
    pub probe: ProbePlan,
    /// Its own timeouts, laid over the route's.
    pub timeouts: TimeoutOverrides,
}

/// Where a worker is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Host name or address, an IPv6 address without its brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// A path that goes before every request's, without a slash at its end; usually empty.
    pub base: String,
    /// `host:port` as the `Host` header says it: brackets around IPv6, no default port.
    pub authority: String,
}

impl Origin {
    /// The target of a request to this worker: a path (and query) under the base, in the form that its protocol wants.
    ///
    /// # Errors
    /// When the base makes it too long.
    pub fn uri(&self, target: PathAndQuery) -> Result<http::Uri, http::Error> {
        let target = if self.base.is_empty() {
            target
        } else {
            PathAndQuery::try_from(format!("{}{target}", self.base))?
        };
        match self.protocol {
            Protocol::Http1 => Ok(http::Uri::from(target)),
            Protocol::H2c => http::Uri::builder()
                .scheme(http::uri::Scheme::HTTP)
                .authority(self.authority.as_str())
                .path_and_query(target)
                .build(),
        }
    }
}

/// What a worker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 in the clear (`http://`).
    Http1,
    /// HTTP/2 in the clear by prior knowledge (`h2c://`).
    H2c,
}

/// What kind of engine a worker is: decides its liveness path and how its key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Our own worker.
    Forebay,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    Llamacpp,
    /// Ollama.
    Ollama,
    /// Text Generation Inference.
    Tgi,
    /// Text Embeddings Inference.
    Tei,
    /// Triton Inference Server.
    Triton,
    /// A hosted OpenAI-compatible service.
    Openai,
    /// Anything else that speaks HTTP.
    Generic,
}

impl Engine {
    /// Where liveness is asked unless the operator says otherwise; `None` is a bare TCP connect.
    #[must_use]
    pub const fn liveness_path(self) -> Option<&'static str> {
        match self {
            Engine::Forebay
            | Engine::Vllm
            | Engine::Sglang
            | Engine::Llamacpp
            | Engine::Tgi
            | Engine::Tei => Some("/health"),
            Engine::Ollama => Some("/api/version"),
            Engine::Triton => Some("/v2/health/ready"),
            Engine::Openai => Some("/v1/models"),
            Engine::Generic => None,
        }
    }
}

/// One model of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAlias {
    /// What clients say.
    pub client: ModelName,
    /// What the worker gets.
    pub worker: ModelName,
}

/// How liveness is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbePlan {
    /// What is asked: a path with its leading slash, or `None` for a bare TCP connect (`generic` without a path).
    pub path: Option<String>,
    /// Time between two probes.
    pub interval: Seconds,
    /// The longest one may take.
    pub timeout: Seconds,
    /// Passes in a row that bring a worker back; at least 1.
    pub rise: u32,
    /// Failures in a row that take it out; at least 1.
    pub fall: u32,
}

/// One `[[route]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutePlan {
    /// The pattern as typed; also the `route` of logs and metrics.
    pub pattern: Pattern,
    /// Who may answer; at least one.
    pub workers: Arc<[WorkerId]>,
    /// Whether its requests may be repeated after they were sent.
    pub repeat: Repeat,
    /// The timeouts that hold here, before a worker's own.
    pub timeouts: Timeouts,
}

/// A path pattern: exact, or everything under a prefix (`/raw/*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// As typed.
    pub text: Arc<str>,
    /// True when the pattern ends in `/*`.
    pub prefix: bool,
}

impl Pattern {
    /// Whether a request path falls under this pattern. `/raw/*` takes `/raw/` and all below, not `/raw` itself.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        if self.prefix {
            path.starts_with(self.text.trim_end_matches('*'))
        } else {
            path == &*self.text
        }
    }
}

/// What may be done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Like inference: until the first byte has gone to the client.
    Safe,
    /// Only what never reached a worker.
    Unsafe,
}

/// Logs.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPlan {
    /// Least severe level that is written to stderr.
    pub level: LogLevel,
    /// Where a line per request goes.
    pub access: AccessTarget,
}

/// Severity of diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Only what needs action.
    Error,
    /// And what may need it.
    Warn,
    /// And what an operator likes to see.
    Info,
    /// And what a developer needs.
    Debug,
    /// Everything.
    Trace,
}

/// Where access-log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// Standard output.
    Stdout,
    /// Nowhere.
    Off,
    /// Appended to a file.
    File(PathBuf),
}

/// A value that is never shown: its `Debug` prints `***`, and it has no `Display` and no serialisation.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a value that must not be shown.
    #[must_use]
    pub fn new(value: &str) -> Self {
        Secret(Arc::from(value))
    }

    /// The value, for sending or comparing.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}
