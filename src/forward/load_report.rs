//! Asking a worker to tell its load with its answer, and keeping what it tells from a client that did not ask.
//!
//! When a worker may be asked is the fleet's to say (`fleet/load_reports.rs`). A client's own question goes to the
//! worker as it is, and the report back to the client as it came; it is read in passing.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, response};

use super::Errand;
use crate::fleet::{FORMAT, Fleet, REPORT, TEXT};
use crate::units::{Seconds, WorkerId};

/// Who wants a report of one attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadReport {
    by_us: bool,
    by_client: bool,
}

impl LoadReport {
    /// Of an attempt at this worker.
    pub(super) fn wanted(
        fleet: &Fleet,
        worker: WorkerId,
        errand: &Errand<'_>,
        now: Seconds,
    ) -> Self {
        let by_client = errand.head.headers.contains_key(FORMAT);
        LoadReport {
            by_us: !by_client && fleet.asks_load(worker, errand.head.uri.path(), now),
            by_client,
        }
    }

    /// Asks, if it is us who want one.
    pub(super) fn ask(self, headers: &mut HeaderMap) {
        if self.by_us {
            headers.insert(FORMAT, HeaderValue::from_static(TEXT));
        }
    }

    /// Reads it.
    pub(super) fn take(self, fleet: &Arc<Fleet>, worker: WorkerId, head: &mut response::Parts) {
        let report = head.headers.get(REPORT).map(HeaderValue::as_bytes);
        fleet.answered_with(worker, self.by_us && head.status.is_success(), report);
        if report.is_some() && !self.by_client {
            head.headers.remove(REPORT);
        }
    }
}
