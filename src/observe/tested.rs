//! A test request as it is seen: one line of the access log, told from clients' by its kind, and a counter of its own.
//!
//! Not an [`Exchange`](super::Exchange): that counts a client's request, and a test has no client.

use super::Observe;
use super::access_line::AccessLine;
use super::names::NONE;
use super::request_id;
use crate::clock;
use crate::units::{ModelName, Seconds, WorkerId};

/// A test request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Tested<'a> {
    /// Whom it measured.
    pub worker: WorkerId,
    /// The model, by the name that clients say.
    pub model: &'a ModelName,
    /// Where it was sent, by the built-in path's name.
    pub path: &'static str,
    /// The worker's status, or the one that a client would have been told.
    pub status: u16,
    /// How it ended.
    pub outcome: &'static str,
    /// The length of its body.
    pub bytes_in: u64,
    /// The length of the answer's.
    pub bytes_out: u64,
    /// From sending to the first byte.
    pub first_byte: Option<Seconds>,
    /// From sending to the end.
    pub total: Seconds,
}

impl Observe {
    /// Counts and logs a test request.
    pub fn tested(&self, tested: &Tested<'_>) {
        let worker = self.worker_name(tested.worker);
        let named = worker.as_deref().unwrap_or(NONE);
        self.metrics.tests.count([named, tested.outcome]);
        if !self.log.is_on() {
            return;
        }
        let id = request_id::taken_or_made(None);
        let line = AccessLine {
            time: &clock::rfc3339(clock::wall() - tested.total),
            id: id.to_str().unwrap_or_default(),
            kind: Some("test"),
            tenant: NONE,
            route: Some(tested.path),
            method: "POST",
            path: tested.path,
            model: Some(tested.model.as_str()),
            worker: worker.as_deref(),
            attempts: 1,
            status: tested.status,
            reason: tested.outcome,
            bytes_in: tested.bytes_in,
            bytes_out: tested.bytes_out,
            first_byte: tested.first_byte,
            total: tested.total,
            ..AccessLine::default()
        };
        self.log.append(&line.render());
    }
}
