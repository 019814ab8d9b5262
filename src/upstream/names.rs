//! Where workers are: names become addresses in the background, and never on a request's path.
//!
//! Each host that is a name has a task that looks it up when its answer expires, within bounds: not more often than
//! every [`SOONEST`], not less often than every [`LATEST`], whatever its TTL says. Each look reads the system's
//! resolver configuration and hosts file anew, so that a machine that changes networks is followed. A name that DNS
//! does not know is asked of the system as well (`getaddrinfo`), which may know it by mDNS or another service of its
//! own.
//!
//! All addresses of a name are used: connections start at each in turn. One that could not be connected to comes last
//! for a while.
//!
//! Guaranteed (promise P9): a failure of any kind, a refusal, an empty answer or silence, never takes an address away;
//! a name keeps its last addresses until it is given others.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::plan::Origin;
use crate::units::Seconds;

/// The least time between two looks, and until the next after a failure.
const SOONEST: Duration = Duration::from_secs(1);
/// The most time between two looks.
const LATEST: Duration = Duration::from_mins(1);
/// The validity of an answer that does not tell its own.
const UNTOLD: Duration = Duration::from_secs(30);
/// The longest that one look may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an address that could not be connected to comes last.
const SHUNNED: Seconds = Seconds(10.0);

/// The addresses of a worker.
#[derive(Debug)]
pub struct Addresses {
    host: String,
    port: u16,
    /// Whether it is no reason to worry when the name is gone.
    optional: bool,
    known: ArcSwap<Known>,
    turn: AtomicUsize,
    /// How many times the addresses changed; nothing before they are known.
    changes: watch::Sender<u64>,
}

/// Addresses, sorted, each with the time until which it is shunned, in milliseconds since the start.
#[derive(Debug, Default)]
struct Known(Vec<(SocketAddr, AtomicU64)>);

impl Addresses {
    /// Those of an origin, of a worker that comes and goes or not: known at once when its host is an address, else once
    /// [`Addresses::follow`] has found them.
    #[must_use]
    pub fn of(origin: &Origin, optional: bool) -> Self {
        let addresses = Addresses {
            host: origin.host.clone(),
            port: origin.port,
            optional,
            known: ArcSwap::default(),
            turn: AtomicUsize::new(0),
            changes: watch::Sender::new(0),
        };
        if let Ok(address) = origin.host.parse() {
            addresses.replace(vec![address]);
        }
        addresses
    }

    /// Keeps the addresses of a name up to date for as long as the process lives; an address needs no care. Without
    /// `servers` the system's are asked.
    pub async fn follow(&self, servers: &[SocketAddr]) {
        if self.host.parse::<IpAddr>().is_ok() {
            return;
        }
        let mut failing = false;
        loop {
            let found = look_up(&self.host, servers).await;
            let next = match found {
                Ok((addresses, valid)) => {
                    failing = false;
                    self.replace(addresses);
                    valid.clamp(SOONEST, LATEST)
                }
                Err(cause) => {
                    if !failing {
                        self.complain(&cause);
                    }
                    failing = true;
                    SOONEST
                }
            };
            sleep(next).await;
        }
    }

    /// Waits until at least one address is known.
    pub(super) async fn found(&self) {
        // The sender is ours, so that it can't be gone.
        let _ = self
            .changes
            .subscribe()
            .wait_for(|changes| *changes > 0)
            .await;
    }

    /// Grows whenever the addresses change. A connection that was opened before may lead to where nobody is any more.
    pub(super) fn version(&self) -> u64 {
        *self.changes.borrow()
    }

    /// The addresses in the order in which a new connection should try them.
    pub(super) fn in_turn(&self, now: Seconds) -> Vec<SocketAddr> {
        let known = self.known.load();
        let Known(known) = &**known;
        let count = known.len().max(1);
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let (mut first, last): (Vec<_>, Vec<_>) = (0..known.len())
            .map(|step| &known[(start + step) % count])
            .partition(|(_, shunned)| shunned.load(Ordering::Relaxed) <= millis(now));
        first.extend(last);
        first.into_iter().map(|(address, _)| *address).collect()
    }

    /// This address could not be connected to.
    pub(super) fn shun(&self, address: SocketAddr, now: Seconds) {
        let known = self.known.load();
        if let Some((_, shunned)) = known.0.iter().find(|(known, _)| *known == address) {
            shunned.store(millis(now + SHUNNED), Ordering::Relaxed);
        }
    }

    /// The host as configured.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    fn replace(&self, mut addresses: Vec<IpAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        let known = self.known.load();
        let same = known
            .0
            .iter()
            .map(|(address, _)| address.ip())
            .eq(addresses.iter().copied());
        if same || addresses.is_empty() {
            return;
        }
        let fresh = |ip| (SocketAddr::new(ip, self.port), AtomicU64::new(0));
        self.known.store(Arc::new(Known(
            addresses.iter().copied().map(fresh).collect(),
        )));
        self.changes.send_modify(|changes| *changes += 1);
        if self.host.parse::<IpAddr>().is_err() {
            tracing::info!(host = self.host, ?addresses, "a worker's name was resolved");
        }
    }

    fn complain(&self, cause: &str) {
        let host = &self.host;
        let kept = if self.version() == 0 {
            ""
        } else {
            "; its last addresses are kept"
        };
        if self.optional {
            tracing::info!(host, cause, "a worker's name can't be resolved{kept}");
        } else {
            tracing::warn!(host, cause, "a worker's name can't be resolved{kept}");
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "milliseconds of a process's life"
)]
fn millis(at: Seconds) -> u64 {
    (at.0 * 1e3) as u64
}

/// A name's addresses, at least one, and how long they are valid.
async fn look_up(host: &str, servers: &[SocketAddr]) -> Result<(Vec<IpAddr>, Duration), String> {
    let cause = match timeout(PATIENCE, ask_dns(host, servers)).await {
        Ok(Ok(found)) => return Ok(found),
        Ok(Err(cause)) => cause,
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };
    if !servers.is_empty() {
        return Err(cause);
    }
    match timeout(PATIENCE, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(found)) => {
            let addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            if addresses.is_empty() {
                Err(cause)
            } else {
                Ok((addresses, UNTOLD))
            }
        }
        _ => Err(cause),
    }
}

async fn ask_dns(host: &str, servers: &[SocketAddr]) -> Result<(Vec<IpAddr>, Duration), String> {
    let builder = if servers.is_empty() {
        TokioResolver::builder_tokio().map_err(|error| error.to_string())?
    } else {
        let servers = servers.iter().map(|server| name_server(*server)).collect();
        let config = ResolverConfig::from_name_servers(servers);
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let resolver = builder.build().map_err(|error| error.to_string())?;
    let found = resolver
        .lookup_ip(host)
        .await
        .map_err(|error| error.to_string())?;
    let addresses: Vec<IpAddr> = found.iter().collect();
    if addresses.is_empty() {
        return Err("the answer holds no address".to_owned());
    }
    let records = found.as_lookup().answers().iter();
    let valid = records
        .map(|record| Duration::from_secs(record.ttl.into()))
        .min()
        .unwrap_or(UNTOLD);
    Ok((addresses, valid))
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let at = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, connections)
}
