//! What is told of the models that answer: whose statistics, and everything that metrics are made of.

use std::sync::Arc;

use crate::fault::Fault;
use crate::line::{App, Model};
use crate::observe::Shown;
use crate::runner::Runner;

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
    fn shown(&self) -> Shown {
        Shown {
            name: self.name.clone(),
            version: self.version,
            numbers: self.tally.numbers(),
            pending: self.work.line().map_or(0, Runner::pending),
            load: self.load,
            device: self.device.name,
            fallback: self.device.fallback,
            cached: self.keeping.is_some(),
        }
    }
}
