//! What a choice would come to, for whoever only wants to know.

use super::{Core, Fleet};
use crate::decide::{Ask, Hold, NoChoice, Shortlist};
use crate::units::WorkerId;

/// What a choice would lead to.
#[derive(Debug)]
pub struct Foresight {
    /// Who would have the place, or why there is none.
    pub worker: Result<WorkerId, NoChoice>,
    /// Who could give one.
    pub considered: Shortlist,
    /// What keeps each of those who serve it.
    pub holds: Vec<Hold>,
}

impl Fleet {
    /// Whom a request would be given to now; nothing is booked, and the next request is drawn as if nobody had looked.
    #[must_use]
    pub fn foresee(&self, ask: &Ask) -> Foresight {
        let now = self.clock.now();
        let mut core = self.core.lock();
        let Core { state, rng, .. } = &mut *core;
        let worker = state.foresee(ask, now, &mut rng.clone());
        Foresight {
            worker,
            considered: state.shortlist(),
            holds: state.holds(ask),
        }
    }
}
