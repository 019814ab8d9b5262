//! What answers for a model, and how Triton's clients know it.

use crate::line::{Ensemble, Sequencer};
use crate::runner::Runner;

/// What answers for a model.
pub enum Work {
    /// An engine, on threads of the model's own.
    Engine(Runner),
    /// The same, for requests that form sequences.
    Sequences(Sequencer, Runner),
    /// Other models, step by step.
    Ensemble(Ensemble),
}

impl Work {
    /// Where requests wait; an ensemble's wait where its members' do.
    pub fn line(&self) -> Option<&Runner> {
        match self {
            Work::Engine(runner) | Work::Sequences(_, runner) => Some(runner),
            Work::Ensemble(_) => None,
        }
    }
}

/// What kind of model it is, in Triton's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// In the metadata and the configuration.
    pub name: &'static str,
    /// In the configuration.
    pub backend: &'static str,
}
