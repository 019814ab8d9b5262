//! What clients lose by another plan: models that they may ask for now and that nobody would serve any more.
//!
//! A worker whose models are typed will have those. One that says itself what it has is believed to go on with what it
//! has now; what a new one brings is not known, so a name that only it will have is told as lost until it has spoken.

use std::collections::BTreeSet;

use crate::config::Plan;
use crate::config::plan::{Models, WorkerPlan};
use crate::fleet::Catalogue;
use crate::units::ModelName;

/// The names that are lost by going over to `fresh`, in order.
pub(super) fn models(fresh: &Plan, running: &Plan, catalogue: &Catalogue) -> Vec<String> {
    let served = |worker: &WorkerPlan| -> Vec<ModelName> {
        let adapters = worker.lora.adapters.iter().map(|one| one.name.clone());
        let own: Vec<_> = match &worker.models {
            Models::Named(named) => named.iter().map(|alias| alias.client.clone()).collect(),
            Models::Reported => {
                let mut known = running.workers.iter();
                let known = known.find(|known| known.name == worker.name);
                let aliases = known.map_or(&[][..], |known| catalogue.of(known.id));
                aliases.iter().map(|alias| alias.client.clone()).collect()
            }
        };
        own.into_iter().chain(adapters).collect()
    };
    let kept: BTreeSet<_> = fresh.workers.iter().flat_map(served).collect();
    let now = catalogue.served().iter();
    now.filter(|name| !kept.contains(*name))
        .map(ModelName::to_string)
        .collect()
}
