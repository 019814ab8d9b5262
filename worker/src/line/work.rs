//! What answers for a model, and how Triton's clients know it.

use crate::line::{Ensemble, Sequencer};
use crate::runner::{Lobby, Runner};
use crate::units::Seconds;

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
    /// Where requests stand by that wait for the answer to another.
    pub fn lobby(&self) -> &Lobby {
        match self {
            Work::Engine(runner) | Work::Sequences(_, runner) => runner.lobby(),
            Work::Ensemble(ensemble) => ensemble.lobby(),
        }
    }

    /// How many requests wait here; of an ensemble those that stand by, since its steps' wait where its members' do.
    pub fn pending(&self) -> usize {
        match self {
            Work::Engine(runner) | Work::Sequences(_, runner) => runner.pending(),
            Work::Ensemble(ensemble) => ensemble.lobby().count(),
        }
    }

    /// When it makes sense to ask again; an ensemble has no line that would tell.
    pub fn comeback(&self) -> Seconds {
        match self {
            Work::Engine(runner) | Work::Sequences(_, runner) => runner.comeback(),
            Work::Ensemble(_) => Seconds(1.0),
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
