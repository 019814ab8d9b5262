//! What all listeners of a process share: the limits, the count of open connections, who may come in (`entrance`), and
//! how the process stands to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::entrance::Entrance;
use crate::clock::Clock;
use crate::config::plan::Limits;
use crate::observe::Observe;

/// The gate of a process.
pub struct Gate {
    pub(super) clock: Clock,
    pub(super) limits: ArcSwap<Limits>,
    pub(super) observe: Arc<Observe>,
    pub(super) entrance: Entrance,
    open: AtomicUsize,
    /// Whether anybody has come in yet.
    visited: AtomicBool,
    /// Whether answers ask their clients to come back on another connection.
    pub(super) parting: AtomicBool,
    emptied: Notify,
    closed: watch::Sender<bool>,
    phase: watch::Sender<Phase>,
}

impl Gate {
    /// A gate through which nothing has come yet, of a process that may open so many files.
    #[must_use]
    pub fn new(clock: Clock, limits: Limits, observe: Arc<Observe>, files: usize) -> Self {
        Gate {
            clock,
            limits: ArcSwap::from_pointee(limits),
            observe,
            entrance: Entrance::new(files),
            open: AtomicUsize::new(0),
            visited: AtomicBool::new(false),
            parting: AtomicBool::new(false),
            emptied: Notify::new(),
            closed: watch::Sender::new(false),
            phase: watch::Sender::new(Phase::Serving),
        }
    }

    /// A connection's view of the phase.
    pub(super) fn told(&self) -> Told {
        Told(self.phase.subscribe())
    }

    /// Other limits from here on, for connections that are opened then.
    pub fn replan(&self, limits: &Limits) {
        self.limits.store(Arc::new(limits.clone()));
    }

    /// Connections open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// The listeners accept nothing any more.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Waits until the listeners are closed and no connection is open.
    pub async fn emptied(&self) {
        // The gate holds the sender, so the wait can't fail.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
        loop {
            let notified = self.emptied.notified();
            if self.open() == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Whether this process has accepted a connection.
    #[must_use]
    pub fn was_visited(&self) -> bool {
        self.visited.load(Ordering::Acquire)
    }

    /// From here on each answer closes its connection, and none is closed without one: a client of HTTP/1.1 whose
    /// request crosses the closing of an idle connection can't know whether it was read.
    pub fn part(&self) {
        self.parting.store(true, Ordering::Release);
    }

    /// From here on each connection answers the request at hand and no other.
    pub fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Drops every connection where it stands; what it was answering ends with it.
    pub fn cut(&self) {
        self.phase.send_replace(Phase::Cut);
    }

    /// A connection comes in.
    pub(super) fn enter(self: &Arc<Self>) -> Inside {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.visited.store(true, Ordering::Release);
        self.observe.metrics.connection_opened();
        Inside(self.clone())
    }
}

/// How the process stands to its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    Draining,
    Cut,
}

/// A connection's view of the phase.
pub(super) struct Told(watch::Receiver<Phase>);

impl Told {
    /// Waits until the process has come to this phase.
    pub(super) async fn to(&mut self, phase: Phase) {
        // The sender is the gate; when it is gone, so are we.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}

/// A connection that counts as open until this is dropped.
pub(super) struct Inside(Arc<Gate>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.observe.metrics.connection_closed();
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.emptied.notify_waiters();
        }
    }
}
