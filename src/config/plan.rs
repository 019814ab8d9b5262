//! Stage three: the configuration as it is used.
//!
//! A [`Plan`] is built only by the checks of this room, so whoever holds one may rely on what the field docs say. It
//! holds no text that still needs parsing, no default that still needs filling in, and no reference that may dangle.

mod cost;
mod geoip;
mod jwks;
mod key_file;
mod key_hash;
mod lora;
mod machine;
mod origin;
mod queue;
pub mod region;
mod seat;
mod tenant;
mod tls;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;

use crate::decide::{AllDown, Policy, RegionId};
use crate::units::{Bytes, Currency, Seconds, WorkerId};
pub use cost::{CostRate, MoneyUnit};
pub use geoip::GeoIp;
pub use jwks::{Jwk, Jwks, JwtPlan};
pub use key_file::{KeyFile, read_keys};
pub use key_hash::KeyHash;
pub use lora::{AdapterPlan, LoraPlan};
pub use machine::MachinePlan;
pub use origin::{Origin, Protocol};
pub use queue::{ClassPlan, QueuePlan};
pub use region::{Country, RegionPlan, Zone, ZonesPlan};
pub use tenant::{KeyPlan, TenantPlan};
pub use tls::{CertFile, ClientTls, Identity, ServerTls};
pub use worker::{Engine, ModelAlias, Models, ProbePlan, TestPlan, WorkerPlan};

/// Everything the proxy does, as configured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the process keeps its state: pid, admin token.
    pub state: PathBuf,
    /// The longest a stopping process waits for open requests.
    pub drain: Seconds,
    /// A folder in which each file is one more worker.
    pub workers_dir: Option<PathBuf>,
    /// What all amounts of money are in; `None` where there is none, and none was named.
    pub currency: Option<Currency>,
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
    /// How requests stand in line.
    pub queue: QueuePlan,
    /// Where machines and clients are; names are unique; a region's place in this list is its [`RegionId`].
    pub regions: Vec<RegionPlan>,
    /// Boxes that workers share or that have a price; names are unique.
    pub machines: Vec<MachinePlan>,
    /// At least one worker, in the order of the file; names are unique.
    pub workers: Vec<WorkerPlan>,
    /// Patterns tried before the built-in paths, first match wins.
    pub routes: Vec<RoutePlan>,
    /// Who may send requests; names and keys are unique. None means everybody, without a key.
    pub tenants: Vec<TenantPlan>,
    /// Whose tokens are taken in the place of keys.
    pub jwt: Option<JwtPlan>,
    /// Timeouts of built-in paths, before a worker's own.
    pub timeouts: Timeouts,
    /// Logs.
    pub log: LogPlan,
    /// The files that all this stands in, but for those that are followed by themselves (keys, JWKS).
    pub files: Vec<PathBuf>,
    /// What is no mistake and yet does not do what it seems to, a sentence each.
    pub remarks: Vec<String>,
}

impl Plan {
    /// The machine that a worker names.
    #[must_use]
    pub fn machine_of(&self, worker: &WorkerPlan) -> Option<&MachinePlan> {
        let mut machines = self.machines.iter();
        machines.find(|machine| worker.machine.as_ref() == Some(&machine.name))
    }

    /// The region that a worker is in.
    #[must_use]
    pub fn region_of(&self, worker: &WorkerPlan) -> Option<&RegionPlan> {
        let region = self.machine_of(worker)?.region?;
        self.regions.get(usize::from(region.0))
    }
}

/// Where the proxy listens.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Client addresses; at least one, and all can be bound side by side.
    pub http: Vec<SocketAddr>,
    /// The admin address.
    pub admin: SocketAddr,
    /// Whose `X-Forwarded-*` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Where the proxy is.
    pub region: Option<RegionId>,
    /// What tells an address's country.
    pub geoip: Option<Arc<GeoIp>>,
    /// What clients are shown; without it nothing is encrypted.
    pub tls: Option<Arc<ServerTls>>,
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
    /// The least that must come of a body in a second; zero asks for nothing.
    pub body_rate: Bytes,
    /// The longest a kept-alive connection may be silent between requests.
    pub idle: Seconds,
    /// Connections that one address may have open; zero for as many as it likes.
    pub connections_per_address: u32,
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
    /// Silence of a WebSocket's end after which it is sent a ping.
    pub ping: Option<Seconds>,
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
    /// See [`Timeouts::ping`].
    pub ping: Option<Option<Seconds>>,
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
            ping: nearer.ping.unwrap_or(self.ping),
        }
    }
}

/// How to choose, and how often to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// The rule.
    pub policy: Policy,
    /// The time over which a worker's weight counts what it finishes before it fails; above zero.
    pub horizon: Seconds,
    /// What happens when nobody who could answer is healthy.
    pub all_down: AllDown,
    /// Trying again.
    pub retries: Retries,
    /// With more candidates than this a few are drawn and compared; at least 3.
    pub sample_above: u32,
    /// What money is worth in seconds; nothing when absent.
    pub cost: Option<CostRate>,
}

/// Sending again, before the first byte has gone to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Sends after the first.
    pub extra: u32,
    /// What is tried again, each once; a request that was never sent always is.
    pub on: Vec<RetryOn>,
}

/// A failure after which a request may be sent to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryOn {
    /// The worker refused the connection.
    Refused,
    /// The connection broke before the answer.
    Reset,
    /// The worker answered with an error of its own.
    ServerError,
    /// The worker answered that it has no room: 429 or 503.
    Busy,
    /// The worker took too long.
    Timeout,
}

/// One `[[route]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutePlan {
    /// The pattern as typed; also the `route` of logs and metrics.
    pub pattern: Pattern,
    /// Who may answer, as far as names and tags say; at least one.
    pub workers: Arc<[WorkerId]>,
    /// What all of them carry.
    pub tags: Vec<Arc<str>>,
    /// Where its requests may go; anywhere when absent.
    pub zones: Option<ZonesPlan>,
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
    /// Whether it names the hashes of the prompt's blocks.
    pub replay: bool,
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
