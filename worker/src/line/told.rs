//! What is told of the models that answer: whose statistics, and everything that metrics are made of.

use std::sync::Arc;

use crate::fault::Fault;
use crate::line::{App, Model, Work};
use crate::observe::Shown;
use crate::units::Device;

impl App {
    /// The versions that answer: of every model, of one, or a single one.
    pub fn versions(
        &self,
        name: Option<&str>,
        version: Option<&str>,
    ) -> Result<Vec<Arc<Model>>, Fault> {
        let Some(name) = name else {
            self.answering()?;
            return Ok(self.registry.every(|_| true));
        };
        let found = self.model(name, version)?;
        match version {
            Some(_) => Ok(vec![found]),
            None => Ok(self.registry.every(|model| model.as_str() == name)),
        }
    }

    /// What there is to tell of every version that answers; nothing while they load.
    pub fn shown(&self) -> Vec<Shown> {
        let models = self.registry.every(|_| true);
        models.iter().map(|model| model.shown()).collect()
    }
}

impl Model {
    /// What computes it, each once, and whether that is one that it fell back to; of an ensemble, what computes its
    /// members.
    pub fn devices(&self) -> Vec<(Device, bool)> {
        let mut devices: Vec<(Device, bool)> = match &self.work {
            Work::Ensemble(ensemble) => {
                let members = ensemble.members().iter();
                members.flat_map(|member| member.devices()).collect()
            }
            Work::Engine(_) | Work::Sequences(..) => {
                let all = self.placements.iter();
                all.map(|one| (one.device, one.refused.is_some())).collect()
            }
        };
        devices.sort();
        devices.dedup();
        devices
    }

    /// Why it, or a member of it, computes on another device than was asked for, if one does.
    pub fn fallen_back(&self) -> Option<&str> {
        let own = self.placements.iter();
        let own = own.filter_map(|one| one.refused.as_deref()).next();
        own.or_else(|| match &self.work {
            Work::Ensemble(ensemble) => {
                let mut members = ensemble.members().iter();
                members.find_map(|member| member.fallen_back())
            }
            Work::Engine(_) | Work::Sequences(..) => None,
        })
    }

    fn shown(&self) -> Shown {
        Shown {
            name: self.name.clone(),
            version: self.version,
            numbers: self.tally.numbers(),
            pending: self.work.pending(),
            load: self.load,
            devices: self.devices(),
            cached: self.keeping.is_some(),
        }
    }
}
