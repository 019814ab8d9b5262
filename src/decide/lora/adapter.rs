//! One adapter on one worker.

use crate::units::{ModelName, Seconds};

/// How long an adapter is not asked for after a load of it failed.
const FIRST_REFUSAL: Seconds = Seconds(10.0);
/// The longest that it is not.
const LONGEST_REFUSAL: Seconds = Seconds(300.0);

/// What is believed of it.
#[derive(Clone, Debug)]
pub(super) struct Adapter {
    /// What the engine calls it.
    pub name: ModelName,
    /// Whether it is on the card.
    pub on_card: bool,
    /// Whether it is being brought there, for a request in flight.
    pub loading: bool,
    /// Its requests in flight.
    pub inflight: u32,
    /// When these began, counted in uses.
    pub since: u64,
    /// When it was last used, likewise.
    pub used: u64,
    /// Whether the engine says that requests of it wait.
    pub waits: bool,
    /// Loads that failed, in a row …
    refusals: i32,
    /// … and until when none is tried.
    pub refused: Option<Seconds>,
}

impl Adapter {
    /// One that nothing is known of.
    pub(super) fn new(name: &ModelName) -> Self {
        Adapter {
            name: name.clone(),
            on_card: false,
            loading: false,
            inflight: 0,
            since: 0,
            used: 0,
            waits: false,
            refusals: 0,
            refused: None,
        }
    }

    /// Whether it takes a slot of the card.
    pub(super) fn takes_slot(&self) -> bool {
        self.on_card || self.loading
    }

    /// It is on the card. Whether it was on its way there.
    pub(super) fn settle(&mut self) -> bool {
        self.on_card = true;
        (self.refusals, self.refused) = (0, None);
        std::mem::take(&mut self.loading)
    }

    /// It is not there.
    pub(super) fn leave(&mut self) {
        (self.on_card, self.loading) = (false, false);
    }

    /// It could not be loaded.
    pub(super) fn refuse(&mut self, now: Seconds) {
        self.leave();
        let longer = FIRST_REFUSAL * 2.0_f64.powi(self.refusals);
        self.refused = Some(now + longer.min(LONGEST_REFUSAL));
        self.refusals = self.refusals.saturating_add(1);
    }
}
