//! What the rest of the house says of adapters, and what it sees of them.

use crate::units::{ModelName, Seconds};

/// A model of a worker that is an adapter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdapterName {
    /// What clients say.
    pub client: ModelName,
    /// What the engine calls it.
    pub engine: ModelName,
}

/// What an engine says of its adapters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoraTold {
    /// Adapters that its card holds at a time, where it tells.
    pub slots: Option<u32>,
    /// Those with requests in its batch: they are on its card.
    pub running: Vec<ModelName>,
    /// Those with requests that wait.
    pub waiting: Vec<ModelName>,
}

/// Something became known of one adapter on a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoraNews {
    /// It was loaded when asked to be, which took so long.
    Loaded(Seconds),
    /// It could not be.
    Refused,
    /// It is not there any more.
    Gone,
}

/// The adapters of a worker as people see them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoraView {
    /// Adapters that its card holds at a time, where that is known.
    pub slots: Option<u32>,
    /// Those believed to be there, the latest used last.
    pub loaded: Vec<ModelName>,
    /// Those with requests that wait for them.
    pub waiting: Vec<ModelName>,
    /// Those that can't be loaded.
    pub refused: Vec<ModelName>,
    /// What a load is believed to take.
    pub load: Seconds,
    /// From how many loads that is known.
    pub loads: u64,
}
