//! Which workers may be considered at all, the best kind first.
//!
//! A worker on *hold* answered that it can't just now (429, or a 503 while it loads) and asked to be left alone: it is
//! passed over while anybody else is alive, even if that one is at its cap and the request waits in line. When all who
//! are alive are on hold, the hold yields to the one that ends first: a single worker's own 429 still reaches its client,
//! and says more than one that the proxy makes up.
//!
//! One that is out for errors while its probes pass may have died and come back, or may be sick. While anybody else serves
//! it stays out; but rather than let requests wait out its time with nobody else left, it is tried.
//!
//! One that is drained by hand gets nothing, whoever else is left: its operator is about to stop it.
//!
//! When nobody is alive, the operator's rule says whether those who are not are tried after all.
//!
//! Among workers of one kind the operator's tiers decide: the lowest that somebody is left in is asked, and the next one
//! stands by, as HAProxy's `backup` servers and Envoy's priorities do. A worker at its cap is still there, so requests
//! wait for it; one that is down, ejected or on hold, was tried or is too small leaves its tier to the others. Who does not
//! know the request's path comes after those who do, in whatever tier: it could only refuse.

use super::worker::Worker;

/// What may be expected of a worker, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Alive and willing.
    Free,
    /// Alive, but it asked to be left alone.
    Held,
    /// Out for errors, and its probes pass since.
    Vouched,
    /// Out for errors; comes back by itself.
    Ejected,
    /// Its operator lets it have no new requests.
    Draining,
    /// Its probes fail.
    Down,
}

/// How soon a worker is asked, as far as that does not depend on what it holds: the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// What may be expected of it.
    pub standing: Standing,
    /// Whether it is known not to serve the request's path.
    pub strange: bool,
    /// Where the operator put it.
    pub tier: u8,
}

/// What becomes of requests that only workers serve which are ejected or down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllDown {
    /// They go to the ejected whose probes pass, and wait for one that comes back; without one they are refused.
    #[default]
    Queue,
    /// They are refused.
    Fail,
    /// They are sent to those who don't refuse connections: to the ejected, and to the dead when there are none.
    TryAll,
}

impl AllDown {
    /// Whether requests may go to a worker if there is nobody better.
    pub(super) fn admits(self, worker: &Worker) -> bool {
        match worker.condition().standing() {
            Standing::Free | Standing::Held => true,
            Standing::Vouched => self != AllDown::Fail,
            Standing::Draining => false,
            Standing::Ejected | Standing::Down => {
                self == AllDown::TryAll && !worker.condition().breaker().refuses()
            }
        }
    }
}
