//! A place on a worker, held for as long as a request is there.

use std::sync::Arc;

use super::{Fleet, Station, report};
use crate::decide::{Booking, Choice, Expense, Outcome};
use crate::observe::Tab;
use crate::units::{Seconds, WorkerId};

/// A booked place. Given back exactly once: by [`Lease::finish`], or when it is dropped, which means that the client
/// left.
pub struct Lease {
    fleet: Arc<Fleet>,
    station: Arc<Station>,
    /// Boxed: a lease goes through many hands, most of them futures that keep room for it.
    booking: Option<Box<Booking>>,
    worker: WorkerId,
    tab: Option<Arc<Tab>>,
}

impl Lease {
    pub(super) fn new(fleet: Arc<Fleet>, station: Arc<Station>, choice: Choice) -> Self {
        Lease {
            fleet,
            station,
            worker: choice.worker,
            booking: Some(Box::new(choice.booking)),
            tab: None,
        }
    }

    /// Whose place it is.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Where it leads.
    #[must_use]
    pub fn station(&self) -> &Arc<Station> {
        &self.station
    }

    /// What it will have taken of its machine goes on this tab.
    pub fn charge_to(&mut self, tab: &Arc<Tab>) {
        self.tab = Some(Arc::clone(tab));
    }

    /// The first byte of the answer came.
    pub fn first_byte(&mut self, now: Seconds) {
        if let Some(booking) = &mut self.booking {
            self.fleet
                .change_at(now, |core| core.state.first_byte(booking, now));
        }
    }

    /// Bytes of the answer came, and with them so many tokens beyond the answer's first.
    pub fn heard(&self, tokens: u32, now: Seconds) {
        self.station.pulse.beats(tokens, now);
    }

    /// Gives the place back and says how it went.
    pub fn finish(mut self, outcome: Outcome, now: Seconds) {
        self.give_back(outcome, now);
    }

    fn give_back(&mut self, outcome: Outcome, now: Seconds) {
        if let Some(booking) = self.booking.take() {
            let (share, change) = self.fleet.change_at(now, |core| {
                let share = core.state.share_of(&booking, now);
                (share, core.state.finish(*booking, outcome, now))
            });
            change.iter().for_each(report);
            if let Some(tab) = self.tab.take().filter(|_| is_paid_for(outcome)) {
                tab.add(Expense::of(share, self.station.hourly));
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.booking.is_some() {
            self.give_back(Outcome::Gone, self.fleet.clock.now());
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

/// Whether whoever asked has to pay for it: not for what failed, or was never begun.
fn is_paid_for(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Answered { .. } | Outcome::Gone | Outcome::Rejected => true,
        Outcome::Failed
        | Outcome::Doubted
        | Outcome::Lost
        | Outcome::Refused
        | Outcome::Unsent
        | Outcome::Busy { .. } => false,
    }
}
