//! Liveness probes: one task per worker asks it every `interval` whether it lives.
//!
//! Liveness is one kind of evidence: it takes a dead worker out and lets a recovered one in. Each probe uses a connection
//! of its own, so that it also proves that new connections are accepted. A probe that runs into its limit while the
//! worker is sending an answer is no failure: it is busy, not dead. Opening the connection measures the round trip, the
//! `net` of the price.

use std::sync::Arc;

use http::HeaderMap;
use http::header::HOST;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Fleet, dialect};
use crate::clock::Clock;
use crate::config::plan::{Engine, WorkerPlan};
use crate::units::{Seconds, WorkerId};
use crate::upstream::{Loss, Upstream};

/// Asks one worker for as long as the process lives; the first time at once.
pub async fn watch(
    fleet: Arc<Fleet>,
    clock: Clock,
    id: WorkerId,
    plan: WorkerPlan,
    upstream: Arc<Upstream>,
) {
    let headers = headers(&plan);
    let mut ticks = interval(plan.probe.interval.to_duration());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let began = clock.now();
        let verdict = ask(&upstream, &plan, &headers)
            .await
            .map(|rtt| fleet.connected(id, rtt));
        let Some(verdict) = unless_mute(verdict, fleet.last_heard(id), began) else {
            continue;
        };
        fleet.probed(id, verdict);
    }
}

enum Failure {
    /// The probe could not be made, for a reason of our own.
    Ours(String),
    TimedOut(Seconds),
    Other(String),
}

/// One probe; the round trip when it passed.
async fn ask(
    upstream: &Upstream,
    plan: &WorkerPlan,
    headers: &HeaderMap,
) -> Result<Seconds, Failure> {
    let limit = plan.probe.timeout;
    let probing = upstream.probe(plan.probe.path.as_deref(), headers, limit);
    let probed = match timeout(limit.to_duration(), probing).await {
        Err(_) | Ok(Err(Loss::ConnectTimeout { .. })) => return Err(Failure::TimedOut(limit)),
        Ok(Err(loss @ Loss::Exhausted(_))) => return Err(Failure::Ours(loss.to_string())),
        Ok(Err(loss)) => return Err(Failure::Other(loss.to_string())),
        Ok(Ok(probed)) => probed,
    };
    if let Some(status) = probed.status {
        dialect::verdict(plan.engine.unwrap_or(Engine::Generic), status).map_err(Failure::Other)?;
    }
    Ok(probed.connected_in)
}

/// `None` when a probe timed out while the worker was sending, or could not be made: that says nothing of the worker.
fn unless_mute(
    verdict: Result<(), Failure>,
    heard: Option<Seconds>,
    began: Seconds,
) -> Option<Result<(), String>> {
    match verdict {
        Ok(()) => Some(Ok(())),
        Err(Failure::Other(cause)) => Some(Err(cause)),
        Err(Failure::Ours(cause)) => {
            tracing::warn!(cause, "a worker can't be probed");
            None
        }
        Err(Failure::TimedOut(_)) if heard.is_some_and(|at| at >= began) => None,
        Err(Failure::TimedOut(limit)) => Some(Err(format!(
            "no answer to the probe within probe.timeout = {limit}"
        ))),
    }
}

/// What every request of our own to a worker carries.
pub(super) fn headers(plan: &WorkerPlan) -> HeaderMap {
    let mut headers: HeaderMap = plan.headers.iter().cloned().collect();
    if let Ok(host) = plan.origin.authority.parse() {
        headers.insert(HOST, host);
    }
    if let Some((name, value)) = plan.key.as_ref().and_then(dialect::authorization) {
        headers.insert(name, value);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_times_out_while_bytes_come_says_nothing() {
        let timed_out = || Err(Failure::TimedOut(Seconds(2.0)));
        assert!(unless_mute(timed_out(), Some(Seconds(11.0)), Seconds(10.0)).is_none());
        assert!(
            unless_mute(timed_out(), Some(Seconds(9.0)), Seconds(10.0))
                .unwrap()
                .is_err()
        );
        assert!(
            unless_mute(timed_out(), None, Seconds(10.0))
                .unwrap()
                .is_err()
        );
        assert!(
            unless_mute(
                Err(Failure::Other("reset".into())),
                Some(Seconds(11.0)),
                Seconds(10.0)
            )
            .unwrap()
            .is_err()
        );
    }
}
