//! Where a request stands in line, for whoever asks while it waits.
//!
//! The request's own path is busy waiting then; its answer's head, its heartbeats and its log line are somebody else's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::HeaderValue;
use parking_lot::Mutex;

use crate::decide::Ticket;

/// The place of one request.
#[derive(Debug)]
pub struct Spot {
    id: HeaderValue,
    told: Mutex<Told>,
    streams: AtomicBool,
    begun: AtomicBool,
    told_bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// While it waits.
    ticket: Option<Ticket>,
    /// Where it was when it came, or left in vain.
    position: Option<usize>,
}

impl Spot {
    /// That of the request with this id, which does not wait yet.
    #[must_use]
    pub fn new(id: &HeaderValue) -> Self {
        Spot {
            id: id.clone(),
            told: Mutex::default(),
            streams: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            told_bytes: AtomicU64::new(0),
        }
    }

    /// The request's id.
    #[must_use]
    pub fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// It waits from now on, unless it got its place at once.
    pub(super) fn joined(&self, ticket: Ticket, position: Option<usize>) {
        if position.is_some() {
            let ticket = Some(ticket);
            *self.told.lock() = Told { ticket, position };
        }
    }

    /// It waits no longer.
    pub(super) fn left(&self) {
        self.told.lock().ticket = None;
    }

    /// Its patience ends here.
    pub(super) fn gives_up_at(&self, position: Option<usize>) {
        self.told.lock().position = position;
    }

    /// Its place in line while it waits.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        self.told.lock().ticket
    }

    /// Where it was when it came into line the last time, or where it was when it left in vain.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        self.told.lock().position
    }

    /// Its client wants a stream of events.
    pub fn wants_events(&self) {
        self.streams.store(true, Ordering::Release);
    }

    /// Whether its client can be told that it waits.
    #[must_use]
    pub fn can_be_told(&self) -> bool {
        self.streams.load(Ordering::Acquire) && self.ticket().is_some()
    }

    /// The head of its answer has gone out.
    pub fn begins(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Whether the head of its answer has gone out.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Its client was told that it waits, in so many bytes.
    pub fn was_told(&self, bytes: u64) {
        self.told_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// In how many bytes its client was told that it waits.
    #[must_use]
    pub fn told_bytes(&self) -> u64 {
        self.told_bytes.load(Ordering::Relaxed)
    }
}
