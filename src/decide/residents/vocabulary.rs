//! What is told of the models in a worker's memory, and what a request pays for its own.

use crate::units::{ModelName, Seconds};

/// A model of a worker by both its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineName {
    /// What clients say.
    pub client: ModelName,
    /// What the engine says.
    pub engine: ModelName,
}

/// What people see of a worker's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct ResidentsView {
    /// How many models fit, where that is known.
    pub most: Option<u32>,
    /// Those believed to be there, the latest used last.
    pub loaded: Vec<ModelName>,
    /// For whom another has to leave.
    pub awaited: Option<ModelName>,
    /// What bringing one in takes, for those of which a swap was seen.
    pub swaps: Vec<(ModelName, Seconds)>,
}

/// What a request waits for because of its model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::decide) struct Swap {
    /// Until it is in memory.
    pub takes: Seconds,
    /// What it lays on the model that it pushes out.
    pub evicts: Seconds,
    /// Whether its time tells nothing of the card's speed.
    pub clouds: bool,
}

impl Swap {
    /// Nothing.
    pub(in crate::decide) const NONE: Swap = Swap {
        takes: Seconds::ZERO,
        evicts: Seconds::ZERO,
        clouds: false,
    };
}
