//! The LoRA adapters of a worker: those that it lists, those that it can be told to load, and what it says of them.

use std::sync::Arc;

use super::Profile;
use crate::config::plan::Engine;
use crate::decide::{AdapterName, LoraTold};
use crate::fleet::Fleet;
use crate::fleet::catalogue::{Adapter, Alias};
use crate::fleet::dialect::lora;
use crate::units::{ModelName, WorkerId};

/// What a worker lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::fleet) struct Listing {
    /// All models, adapters among them.
    pub models: Vec<ModelName>,
    /// Which are adapters.
    pub adapters: Vec<lora::Listed>,
}

impl Listing {
    /// The models that are no adapters.
    pub(in crate::fleet) fn bases(&self) -> impl Iterator<Item = &ModelName> {
        let is_adapter = |name: &ModelName| self.adapters.iter().any(|one| one.name == *name);
        self.models.iter().filter(move |name| !is_adapter(name))
    }
}

impl Profile {
    /// The adapters that it lists, and those that it can be told to load.
    pub(super) fn adapters(&self) -> Vec<Adapter> {
        let engine = self.engine.unwrap_or(Engine::Generic);
        let listed = &self.listing.adapters;
        let adapter = |name: &ModelName, base: Option<&ModelName>| {
            Some(Adapter {
                asked: lora::called(engine, name, base)?,
                name: name.clone(),
                typed: self.lora.adapters.iter().any(|one| one.name == *name),
            })
        };
        let there = listed.iter().map(|one| adapter(&one.name, Some(&one.base)));
        let may_load = self.lora.load && engine.loads_adapters();
        let others = self.lora.adapters.iter().map(|one| &one.name);
        let others = others.filter(|name| may_load && !listed.iter().any(|one| one.name == **name));
        let base = self.listing.bases().next();
        let others = others.map(|name| adapter(name, base));
        there.chain(others).flatten().collect()
    }
}

/// Those of a worker's models that are adapters.
pub(super) fn of(aliases: &[Alias]) -> Vec<AdapterName> {
    let adapter = |alias: &Alias| {
        Some(AdapterName {
            client: alias.client.clone(),
            engine: alias.adapter.clone()?,
        })
    };
    aliases.iter().filter_map(adapter).collect()
}

impl Fleet {
    /// A worker tells of its adapters.
    pub(in crate::fleet) fn lora_told(self: &Arc<Self>, worker: WorkerId, told: &LoraTold) {
        self.change(|core, _now| core.state.lora_told(worker, told));
    }
}
