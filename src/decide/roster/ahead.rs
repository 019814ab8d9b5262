//! What a place is worth to a request beside another: see `fleet/ahead.rs`.

use super::super::ask::Ask;
use super::super::queue::Waiter;
use super::Roster;
use crate::units::{Seconds, WorkerId};

impl Roster {
    /// The worker that could be given this request now, if it is the only one.
    pub(in crate::decide) fn only_place(&self, waiter: &Waiter) -> Option<WorkerId> {
        let row = self.row(&waiter.ask)?;
        let fit = self.fit(&waiter.ask, row, &waiter.tried);
        let mut places = self
            .serving(&waiter.ask, row)
            .filter(|worker| fit.excludes(worker).is_none());
        let place = places.next()?.id();
        places.next().is_none().then_some(place)
    }

    /// The seconds that a request saves on a worker by what is cached there of its prompt, less what it takes to bring in
    /// its adapter and its model.
    pub(in crate::decide) fn saves(&mut self, id: WorkerId, ask: &Ask) -> Seconds {
        let (Some(row), Some(_)) = (self.row(ask), self.workers.get(id.index())) else {
            return Seconds::ZERO;
        };
        let size = self.size(ask, row);
        self.look_up(ask, row, size);
        let worker = &self.workers[id.index()];
        let cached = worker.sized(size.cached(self.reuse.cached(id)), row);
        let slope = worker.speeds().prefill(size.work).slope;
        Seconds(slope * (size.reading() - cached.reading())) - cached.load()
    }
}
