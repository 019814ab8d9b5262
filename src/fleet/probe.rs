//! Watching a worker: one task each asks it every `interval` whether it lives, and now and then what it serves.
//!
//! Liveness is one kind of evidence: it takes a dead worker out and lets a recovered one in. Each probe uses a
//! connection of its own, so that it also proves that new connections are accepted. A probe that runs into its limit
//! while the worker is sending an answer is no failure: it is busy, not dead. Opening the connection and the answer
//! measure the way, the `net` of the price.
//!
//! A worker comes up when it lives, is known for what it is, and has said what it serves, where these are not typed:
//! whoever is told that it is up can send to it. One that was down is asked anew what it is, for something else may
//! have been started there. While it is up a question that fails changes nothing: what it said last holds, and liveness
//! decides.
//!
//! One that answers that it still loads its model is neither alive nor dead: it is shown as loading, and nothing is
//! held against it.

use std::sync::Arc;

use http::Method;
use tokio::time::{MissedTickBehavior, interval};

use super::discover::{self, Inquirer, Silence};
use super::{Fleet, catalogue, dialect};
use crate::clock::Clock;
use crate::config::Choice as _;
use crate::config::plan::{Engine, Models, WorkerPlan};
use crate::decide::State;
use crate::rng::Rng;
use crate::units::{Seconds, WorkerId};
use crate::upstream::{Loss, Reply, Upstream};

/// Time between two lists of what a worker serves, give or take a fifth, so that a fleet is not asked all at once.
const LIST_EVERY: Seconds = Seconds(30.0);

/// Watches one worker for as long as the process lives; the first look is at once.
pub async fn watch(
    fleet: Arc<Fleet>,
    clock: Clock,
    id: WorkerId,
    plan: WorkerPlan,
    upstream: Arc<Upstream>,
) {
    let mut ticks = interval(plan.probe.interval.to_duration());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch {
        inquirer: Inquirer::new(&plan, upstream),
        rng: Rng::seeded(u64::from(id.0)),
        state: State::Starting,
        list_next: Seconds::ZERO,
        fleet,
        clock,
        id,
        plan,
    };
    loop {
        ticks.tick().await;
        watch.look().await;
    }
}

struct Watch {
    fleet: Arc<Fleet>,
    clock: Clock,
    id: WorkerId,
    plan: WorkerPlan,
    inquirer: Inquirer,
    rng: Rng,
    /// As the last probes left it.
    state: State,
    /// When it is asked again what it serves.
    list_next: Seconds,
}

enum Failure {
    /// No answer in time.
    TimedOut(Seconds),
    /// It is not alive, or not fit to serve.
    Other(String),
    /// It lives and loads its model.
    Loading(String),
    /// The probe could not be made, for a reason of our own.
    Ours(String),
    /// It accepts connections, but what it is can't be told yet.
    Unknown(String),
}

/// What a probe says of a worker.
#[derive(Debug, PartialEq)]
enum Verdict {
    Passed,
    Loading(String),
    Failed(String),
}

impl From<Silence> for Failure {
    fn from(silence: Silence) -> Self {
        match silence {
            Silence::TimedOut(limit) => Failure::TimedOut(limit),
            Silence::Lost(loss @ Loss::Exhausted(_)) => Failure::Ours(loss.to_string()),
            Silence::Lost(loss) => Failure::Other(loss.to_string()),
        }
    }
}

impl Fleet {
    /// Opening a connection to a worker took this long.
    pub fn connected(&self, worker: WorkerId, took: Seconds) {
        self.core.lock().state.connected(worker, took);
    }

    /// A worker answered a probe over a connection that took so long to open, so long after it was sent.
    fn answered_probe(&self, worker: WorkerId, connected_in: Seconds, answered_in: Seconds) {
        let mut core = self.core.lock();
        core.state.connected(worker, connected_in);
        core.state.replied(worker, answered_in);
    }
}

impl Watch {
    /// One probe and what follows from it.
    async fn look(&mut self) {
        let began = self.clock.now();
        let verdict = match self.probe().await {
            // There is nothing to take back from a worker that was never up.
            Err(Failure::Unknown(cause)) if self.state == State::Starting => {
                if self.fleet.puzzled(self.id, &cause) {
                    let worker = &*self.plan.name;
                    if self.plan.optional {
                        tracing::info!(worker, cause, "its engine is not known yet");
                    } else {
                        tracing::warn!(worker, cause, "its engine is not known yet");
                    }
                }
                return;
            }
            verdict => unless_mute(verdict, self.fleet.last_heard(self.id), began),
        };
        let Some(verdict) = verdict else { return };
        let passed = verdict == Verdict::Passed;
        let state = match verdict {
            Verdict::Passed => self.fleet.probed(self.id, Ok(())),
            Verdict::Failed(cause) => self.fleet.probed(self.id, Err(cause)),
            Verdict::Loading(cause) => self.fleet.found_loading(self.id, cause),
        };
        if let Some(state) = state {
            self.state = state;
            self.list_later();
            if passed {
                self.ask_bounds().await;
            }
        } else if passed && self.clock.now() >= self.list_next {
            self.list_later();
            self.list_again().await;
            self.ask_bounds().await;
        }
    }

    /// Whether it lives and, unless it is up, whether it may come up.
    async fn probe(&mut self) -> Result<(), Failure> {
        let engine = self.engine().await?;
        self.liveness(engine).await?;
        if self.state != State::Up {
            self.list(engine).await.map_err(Failure::Other)?;
        }
        Ok(())
    }

    /// What it is: as typed, or as found since it was last down.
    async fn engine(&self) -> Result<Engine, Failure> {
        let known = match self.plan.engine {
            None if self.state == State::Down => None,
            Some(typed) => Some(typed),
            None => self.fleet.engine(self.id),
        };
        if let Some(engine) = known {
            return Ok(engine);
        }
        self.inquirer.knock().await?;
        let found = self.inquirer.engine().await?;
        let engine = found.map_err(Failure::Unknown)?;
        if self.fleet.found(self.id, engine) {
            let (worker, engine) = (&*self.plan.name, engine.word());
            tracing::info!(worker, engine, "found out what it is");
        }
        Ok(engine)
    }

    async fn liveness(&self, engine: Engine) -> Result<(), Failure> {
        let own = self.plan.probe.path.as_deref();
        let Some(path) = own.or(engine.liveness_path()) else {
            let took = self.inquirer.knock().await?;
            self.fleet.connected(self.id, took);
            return Ok(());
        };
        let reply = self.inquirer.ask(Method::GET, path).await?;
        if self.is_loading(engine, &reply).await {
            let cause = format!("answered {}: it is loading its model", reply.status);
            return Err(Failure::Loading(cause));
        }
        dialect::verdict(engine, reply.status)
            .map_err(|why| Failure::Other(format!("probe {why}")))?;
        self.fleet
            .answered_probe(self.id, reply.connected_in, reply.answered_in);
        Ok(())
    }

    /// Whether it lives and is only not ready yet.
    async fn is_loading(&self, engine: Engine, reply: &Reply) -> bool {
        let body = reply.body.as_deref();
        if !dialect::is_loading(engine, self.state, reply.status, body) {
            return false;
        }
        let Some(path) = dialect::life_path(engine) else {
            return true;
        };
        let life = self.inquirer.ask(Method::GET, path).await;
        life.is_ok_and(|life| life.status.is_success())
    }

    /// Asks what it serves, where the configuration leaves that open, and which of its models are adapters, as far as
    /// it says.
    async fn list(&self, engine: Engine) -> Result<(), String> {
        let is_open = catalogue::is_open(&self.plan.models);
        if !is_open && !engine.loads_adapters() {
            return Ok(());
        }
        let listing = match self.inquirer.models(engine).await {
            Err(_) if !is_open => return Ok(()),
            listing => listing?,
        };
        let count = listing.bases().count();
        if self.fleet.listed(self.id, listing) {
            tracing::info!(
                worker = &*self.plan.name,
                count,
                "lists other models than before"
            );
            if count != 1 && is_open && self.plan.models != Models::Reported {
                tracing::warn!(
                    worker = &*self.plan.name,
                    count,
                    "\"*\" is its only model, and it lists another number of them"
                );
            }
        }
        Ok(())
    }

    fn list_later(&mut self) {
        let spread = 0.8 + 0.4 * self.rng.unit();
        self.list_next = self.clock.now() + LIST_EVERY * spread;
    }

    /// Asks a worker that is up what bounds its work; what it said last holds while it is silent.
    async fn ask_bounds(&self) {
        if let Some(engine) = self.fleet.engine(self.id)
            && let Ok((told, of_adapters)) = self.inquirer.bounds(engine).await
        {
            self.fleet.told(self.id, told);
            if let Some(told) = of_adapters {
                self.fleet.lora_told(self.id, &told);
            }
        }
    }

    /// Asks a worker that is up what it serves now.
    async fn list_again(&self) {
        let Some(engine) = self.fleet.engine(self.id) else {
            return;
        };
        if let Err(cause) = self.list(engine).await {
            tracing::debug!(
                worker = &*self.plan.name,
                cause,
                "what it served last still holds"
            );
        }
        self.fleet.forget_stale();
    }
}

/// `None` when a probe timed out while the worker was sending, or could not be made: that says nothing of the worker.
fn unless_mute(
    verdict: Result<(), Failure>,
    heard: Option<Seconds>,
    began: Seconds,
) -> Option<Verdict> {
    let failed = |cause| Some(Verdict::Failed(cause));
    match verdict {
        Ok(()) => Some(Verdict::Passed),
        Err(Failure::Other(cause)) => failed(cause),
        Err(Failure::Loading(cause)) => Some(Verdict::Loading(cause)),
        Err(Failure::Ours(cause)) => {
            tracing::warn!(cause, "a worker can't be probed");
            None
        }
        Err(Failure::Unknown(cause)) => failed(discover::unknown_engine(&cause)),
        Err(Failure::TimedOut(_)) if heard.is_some_and(|at| at >= began) => None,
        Err(Failure::TimedOut(limit)) => failed(format!(
            "no answer to the probe within probe.timeout = {limit}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_times_out_while_bytes_come_says_nothing() {
        let says = |failure, heard: Option<f64>| {
            unless_mute(Err(failure), heard.map(Seconds), Seconds(10.0))
        };
        let timed_out = || Failure::TimedOut(Seconds(2.0));
        assert_eq!(says(timed_out(), Some(11.0)), None);
        for heard in [Some(9.0), None] {
            assert!(matches!(says(timed_out(), heard), Some(Verdict::Failed(_))));
        }
        let reset = Failure::Other("reset".into());
        let failed = Verdict::Failed("reset".into());
        assert_eq!(says(reset, Some(11.0)), Some(failed));
    }
}
