//! What would become of a request if it came now.

use super::Guest;
use crate::decide::{Hold, Shortlist};
use crate::fault::Fault;
use crate::fleet::Foresight;
use crate::units::{ModelName, WorkerId};

/// What would become of a request.
#[derive(Debug)]
pub struct Foreseen {
    /// What it asks for, as far as it could be read.
    pub model: Option<ModelName>,
    /// What would be done with it.
    pub fate: Fate,
    /// Whom the choice considered.
    pub considered: Shortlist,
}

/// What would be done with a request.
#[derive(Debug)]
pub enum Fate {
    /// It would be sent there.
    Sent(WorkerId),
    /// It would stand in line, until one of these takes it.
    Waits(Vec<Hold>),
    /// It would be refused.
    Refused(Fault),
}

impl Foreseen {
    /// A request that is refused before anybody is considered.
    #[must_use]
    pub fn refused(fault: Fault) -> Self {
        Foreseen {
            model: None,
            fate: Fate::Refused(fault),
            considered: Shortlist::default(),
        }
    }
}

impl Guest<'_> {
    /// What its [`turn`](Self::turn) would come to. Nothing is booked, and it stands in no line.
    #[must_use]
    pub fn foresee(&self) -> Foreseen {
        let Foresight {
            worker,
            considered,
            holds,
        } = self.fleet.foresee(self.ask);
        let fate = match worker {
            Ok(worker) => Fate::Sent(worker),
            Err(lack) => {
                let is_patient = self
                    .patience
                    .with(&lack)
                    .is_some_and(|longest| longest.0 > 0.0);
                match (is_patient, self.fleet.may_wait(self.ask, &lack)) {
                    (true, true) if !self.fleet.has_room(self.ask.claim) => {
                        Fate::Refused(self.full(&lack))
                    }
                    (true, true) => Fate::Waits(holds),
                    // Whoever asks so may hear of every model.
                    _ => Fate::Refused(self.refusal(lack).suggesting(|_| true)),
                }
            }
        };
        Foreseen {
            model: self.ask.model.clone(),
            fate,
            considered,
        }
    }
}
