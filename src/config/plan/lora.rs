//! What the operator says of a worker's LoRA adapters.

use crate::units::ModelName;

/// The adapters of one worker, beside those that it lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoraPlan {
    /// How many its card holds at a time, at least 1; `None` is as many as its engine tells.
    pub slots: Option<u32>,
    /// Whether an adapter that it does not list is loaded when a client asks for it; then there is at least one.
    pub load: bool,
    /// Adapters by name, each once.
    pub adapters: Vec<AdapterPlan>,
}

/// An adapter that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterPlan {
    /// What clients and the engine call it.
    pub name: ModelName,
    /// Where the engine finds it: a path on the worker's machine, or whatever else its engine takes. Not empty.
    pub path: String,
}
