//! One model of a worker that swaps.

use crate::decide::load_time::LoadTime;
use crate::units::{ModelName, Seconds};

/// What a swap is believed to take before one was seen: some gigabytes from a disk.
pub(super) const PRIOR: Seconds = Seconds(10.0);

/// One model of a worker.
#[derive(Clone, Debug)]
pub(super) struct Resident {
    pub name: ModelName,
    /// Whether it is in memory,
    pub loaded: bool,
    /// or on its way there, for a request in flight.
    pub loading: bool,
    pub inflight: u32,
    /// When it was last used, counted in uses.
    pub used: u64,
    /// Whether somebody waits who could use it here.
    pub wanted: bool,
    /// Whether it takes no more requests, to make room.
    pub leaves: bool,
    pub swap: LoadTime,
}

impl Resident {
    pub(super) fn new(name: &ModelName) -> Self {
        Resident {
            name: name.clone(),
            loaded: false,
            loading: false,
            inflight: 0,
            used: 0,
            wanted: false,
            leaves: false,
            swap: LoadTime::guessed(PRIOR),
        }
    }

    pub(super) fn takes_place(&self) -> bool {
        self.loaded || self.loading
    }

    pub(super) fn is_idle(&self) -> bool {
        self.loaded && self.inflight == 0
    }

    /// Whether it may be unloaded for another.
    pub(super) fn is_spare(&self) -> bool {
        self.is_idle() && (self.leaves || !self.wanted)
    }

    pub(super) fn unload(&mut self) {
        (self.loaded, self.leaves) = (false, false);
    }
}
