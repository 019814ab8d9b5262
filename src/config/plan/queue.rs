//! `[queue]`: how requests stand in line.

use std::sync::Arc;

use crate::units::{Bytes, Seconds};

/// The line.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuePlan {
    /// The classes of requests, the highest first; at least one.
    pub classes: Vec<ClassPlan>,
    /// The most requests that wait at a time.
    pub entries: u32,
    /// The most bytes that their bodies have together.
    pub bytes: Bytes,
    /// The longest that a request waits while no worker that could serve it is up.
    pub wait_no_worker: Seconds,
    /// Once somebody has waited so long, one place in four goes to its class first.
    pub age_up: Seconds,
    /// How often a client that waits for a stream is told so; never when absent.
    pub heartbeat: Option<Seconds>,
    /// A model waits so long for another to leave a worker's memory.
    pub swap_after: Seconds,
}

/// A class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassPlan {
    /// Its name.
    pub name: Arc<str>,
    /// The longest that its requests wait for a place on a worker.
    pub wait: Seconds,
    /// How long the eldest of a tenant's has waited when the newest go first; never when absent.
    pub newest_first: Option<Seconds>,
    /// The share of places that lower classes leave free for it, from 0 to 1.
    pub reserve: f64,
}
