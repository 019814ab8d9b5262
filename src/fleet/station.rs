//! What there is of one worker outside the lock: what its plan says, the connections to it, and what its relays report.
//!
//! A place on a worker ([`super::Lease`]) holds the station that it leads to. So a request that was given a place goes
//! where that was when it was given, whatever another plan says meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::load_reports::Courtesy;
use super::loader::Loader;
use crate::clock::Clock;
use crate::config::Plan;
use crate::config::plan::WorkerPlan;
use crate::units::{Money, Seconds};
use crate::upstream::{Addresses, Upstream};

/// One worker of one plan.
pub struct Station {
    /// What the plan says of it; the last that did, if it is in the plan no more.
    pub plan: WorkerPlan,
    /// The connections to it.
    pub upstream: Arc<Upstream>,
    /// Whether it is in the plan no more.
    pub leaves: bool,
    /// What an hour of its machine costs.
    pub(super) hourly: Option<Money>,
    pub(super) loader: Arc<Loader>,
    pub(super) pulse: Arc<Pulse>,
}

/// What relays report without taking the lock.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Tokens that passed since they were last taken away.
    tokens: AtomicU64,
    /// When bytes last came, in milliseconds since the start.
    heard: AtomicU64,
    /// Whether its answers may be asked to tell its load.
    pub courtesy: Courtesy,
}

impl Station {
    /// That of a worker without connections yet.
    pub(super) fn new(plan: &Plan, worker: &WorkerPlan, clock: Clock) -> Self {
        let addresses = Arc::new(Addresses::of(&worker.origin, worker.optional));
        Station {
            upstream: Arc::new(
                Upstream::new(worker.origin.clone(), addresses, clock)
                    .with_grpc(worker.grpc.clone()),
            ),
            leaves: false,
            hourly: hourly(plan, worker),
            loader: Arc::new(Loader::of(worker)),
            pulse: Arc::default(),
            plan: worker.clone(),
        }
    }

    /// The same worker in another plan: with its connections.
    pub(super) fn replanned(&self, plan: &Plan, worker: &WorkerPlan) -> Self {
        let loader = if self.plan.lora == worker.lora {
            self.loader.clone()
        } else {
            Arc::new(Loader::of(worker))
        };
        Station {
            upstream: self.upstream.clone(),
            leaves: false,
            hourly: hourly(plan, worker),
            loader,
            pulse: self.pulse.clone(),
            plan: worker.clone(),
        }
    }

    /// The same in a plan that does not have it.
    pub(super) fn leaving(&self) -> Self {
        Station {
            plan: self.plan.clone(),
            upstream: self.upstream.clone(),
            leaves: true,
            hourly: self.hourly,
            loader: self.loader.clone(),
            pulse: self.pulse.clone(),
        }
    }

    /// Whether another plan means the same by it, so that nothing that serves it need begin anew.
    pub(super) fn is_as(&self, other: &Station) -> bool {
        self.plan == other.plan && self.leaves == other.leaves && self.hourly == other.hourly
    }
}

impl Pulse {
    /// Bytes of an answer came, and with them so many tokens.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds of a process's life"
    )]
    pub(super) fn beats(&self, tokens: u32, now: Seconds) {
        self.heard.store((now.0 * 1e3) as u64, Ordering::Relaxed);
        if tokens > 0 {
            self.tokens.fetch_add(u64::from(tokens), Ordering::Relaxed);
        }
    }

    /// The tokens that passed since this was last asked.
    #[expect(
        clippy::cast_precision_loss,
        reason = "tokens of a quarter of a second"
    )]
    pub(super) fn take_tokens(&self) -> f64 {
        self.tokens.swap(0, Ordering::Relaxed) as f64
    }

    /// When bytes last came.
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds of a process's life"
    )]
    pub(super) fn last_heard(&self) -> Option<Seconds> {
        let millis = self.heard.load(Ordering::Relaxed);
        (millis > 0).then(|| Seconds(millis as f64 / 1e3))
    }
}

fn hourly(plan: &Plan, worker: &WorkerPlan) -> Option<Money> {
    plan.machine_of(worker)?.price_per_hour
}
