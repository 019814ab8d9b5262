//! Why a request still waits: what keeps each worker that serves it from taking it.

use std::sync::Arc;

use super::super::ask::Ask;
use super::super::considered::Exclusion;
use super::Roster;
use crate::units::WorkerId;

/// One worker that does not take a request now.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// Its name.
    pub worker: Arc<str>,
    /// Requests it holds,
    pub held: u32,
    /// and the most that it may be given now.
    pub limit: u32,
    /// What speaks against it; nothing when its place is free, for this moment.
    pub why: Option<Exclusion>,
}

impl Roster {
    /// Those who serve the model of this request where it may go, and why they don't take it.
    pub(in crate::decide) fn holds(&self, ask: &Ask, tried: &[WorkerId]) -> Vec<Hold> {
        let Some(row) = self.row(ask) else {
            return Vec::new();
        };
        let fit = self.fit(ask, row, tried);
        let hold = |worker: &super::Worker| Hold {
            worker: worker.spec().name.clone(),
            held: worker.inflight(),
            limit: worker.limit(),
            why: fit.excludes(worker),
        };
        self.serving(ask, row).map(hold).collect()
    }
}
