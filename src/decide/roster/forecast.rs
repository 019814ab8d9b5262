//! What a request is expected to need, before anybody is chosen for it.

use super::Roster;
use crate::decide::ask::{Ask, Work};
use crate::units::{Seconds, WorkerId};

impl Roster {
    /// The time that each worker which may serve it would be busy with it, if it were there alone and had nothing of its
    /// prompt: with others it would take longer and cost less, as they share the bill.
    pub(in crate::decide) fn forecast(&self, ask: &Ask) -> Vec<(WorkerId, Seconds)> {
        let Some(row) = self.row(ask) else {
            return Vec::new();
        };
        let size = self.size(ask, row);
        let expected = |speeds: &super::super::speed::Speeds| {
            let reading = speeds.prefill(size.work).at(size.reading());
            match size.work {
                Work::Generate => reading + speeds.decoding(size.output, 1.0),
                Work::Embed | Work::Infer => reading,
            }
        };
        let workers = self.serving(ask, row);
        workers
            .map(|worker| (worker.id(), expected(worker.speeds())))
            .collect()
    }
}
