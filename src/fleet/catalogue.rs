//! Which models there are, what each worker calls them, and how long a prompt everyone takes: a picture that requests
//! read without the fleet's lock.
//!
//! A LoRA adapter is a model like any other here, with a note of what its engine calls it.
//!
//! Names come from two sides. What the operator typed is fixed; what workers report comes and goes. A new picture is
//! drawn whenever a report changes something, under the lock under which the fleet learns it, so that the last picture
//! is always that of the last report.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::plan::{ModelAlias, Models};
use crate::units::{ModelName, WorkerId};

/// A model of a worker: what clients say and what the worker gets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alias {
    /// What clients say.
    pub client: ModelName,
    /// What the worker gets.
    pub worker: ModelName,
    /// What its engine calls the adapter, if it is one.
    pub adapter: Option<ModelName>,
}

/// An adapter that a worker has or can be told to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Adapter {
    /// What its engine calls it.
    pub name: ModelName,
    /// What a request for it says.
    pub asked: ModelName,
    /// Whether the operator named it.
    pub typed: bool,
}

/// What a worker says that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer<'a> {
    /// All models that it lists.
    pub listed: &'a [ModelName],
    /// Which are adapters, and others that it can be told to load.
    pub adapters: &'a [Adapter],
}

/// All models at one moment.
#[derive(Debug, Default)]
pub struct Catalogue {
    served: Vec<ModelName>,
    known: BTreeSet<ModelName>,
    /// By worker, sorted by what clients say.
    workers: Vec<Vec<Alias>>,
    room: f64,
}

impl Catalogue {
    /// A picture of what workers serve. `typed` are names of the configuration, `remembered` those seen lately, `room`
    /// is that of whoever has the least.
    pub(super) fn new(
        workers: Vec<Vec<Alias>>,
        typed: impl Iterator<Item = ModelName>,
        remembered: impl Iterator<Item = ModelName>,
        room: f64,
    ) -> Self {
        let listed = workers.iter().flatten().map(|alias| alias.client.clone());
        let served: BTreeSet<_> = listed.chain(typed).collect();
        let known = remembered.chain(served.iter().cloned()).collect();
        Catalogue {
            served: served.into_iter().collect(),
            known,
            workers,
            room,
        }
    }

    /// Tokens of a prompt and its answer that fit every worker.
    #[must_use]
    pub fn room(&self) -> f64 {
        self.room
    }

    /// Client-facing names that are configured or that a worker serves, sorted.
    #[must_use]
    pub fn served(&self) -> &[ModelName] {
        &self.served
    }

    /// Whether a name is one of ours: served, or seen lately.
    #[must_use]
    pub fn knows(&self, model: &ModelName) -> bool {
        self.known.contains(model)
    }

    /// All names of ours, in order.
    pub(super) fn known(&self) -> impl Iterator<Item = &ModelName> {
        self.known.iter()
    }

    /// What a worker serves, sorted by what clients say.
    #[must_use]
    pub fn of(&self, worker: WorkerId) -> &[Alias] {
        self.workers.get(worker.index()).map_or(&[], Vec::as_slice)
    }

    /// A worker's name for a model, where it differs from the client's.
    #[must_use]
    pub fn renamed(&self, worker: WorkerId, model: &ModelName) -> Option<&ModelName> {
        let name = &self.alias(worker, model)?.worker;
        Some(name).filter(|name| *name != model)
    }

    /// What a worker's engine calls a model that is an adapter there.
    #[must_use]
    pub fn adapter(&self, worker: WorkerId, model: &ModelName) -> Option<&ModelName> {
        self.alias(worker, model)?.adapter.as_ref()
    }

    fn alias(&self, worker: WorkerId, model: &ModelName) -> Option<&Alias> {
        let aliases = self.of(worker);
        let place = aliases.binary_search_by(|alias| alias.client.cmp(model));
        aliases.get(place.ok()?)
    }
}

/// What a worker serves, sorted by what clients say: what was typed, and where that leaves it open, what it reports.
/// `"*"` stands for its only model that is no adapter; of one that reports several, or none yet, it means nothing.
/// Adapters that the operator named are served beside.
pub(super) fn aliases(typed: &Models, offer: Offer<'_>) -> Vec<Alias> {
    let known = |name: &ModelName| offer.adapters.iter().find(|one| one.name == *name);
    let alias = |client: &ModelName, worker: &ModelName| Alias {
        client: client.clone(),
        worker: known(worker)
            .map_or(worker, |adapter| &adapter.asked)
            .clone(),
        adapter: known(worker).map(|adapter| adapter.name.clone()),
    };
    let mut aliases: Vec<_> = match typed {
        Models::Reported => offer.listed.iter().map(|name| alias(name, name)).collect(),
        Models::Named(named) => {
            let mut bases = offer.listed.iter().filter(|name| known(name).is_none());
            let only = bases.next().filter(|_| bases.next().is_none());
            let model = |named: &ModelAlias| {
                let worker = named.worker.as_ref().or(only)?;
                Some(alias(&named.client, worker))
            };
            named.iter().filter_map(model).collect()
        }
    };
    let beside = offer.adapters.iter().filter(|adapter| adapter.typed);
    aliases.extend(beside.map(|adapter| alias(&adapter.name, &adapter.name)));
    let by_name: BTreeMap<_, _> = aliases
        .into_iter()
        .map(|alias| (alias.client.clone(), alias))
        .collect();
    by_name.into_values().collect()
}

/// Whether a worker must be asked what it serves.
pub(super) fn is_open(typed: &Models) -> bool {
    match typed {
        Models::Reported => true,
        Models::Named(named) => named.iter().any(|alias| alias.worker.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<ModelName> {
        names.iter().map(|name| ModelName::new(name)).collect()
    }

    fn shown(typed: &Models, reported: &[&str]) -> Vec<String> {
        let listed = names(reported);
        let offer = Offer {
            listed: &listed,
            adapters: &[],
        };
        aliases(typed, offer)
            .iter()
            .map(|alias| format!("{}={}", alias.client, alias.worker))
            .collect()
    }

    fn typed(aliases: &[(&str, Option<&str>)]) -> Models {
        let alias = |(client, worker): &(&str, Option<&str>)| ModelAlias {
            client: ModelName::new(client),
            worker: worker.map(ModelName::new),
        };
        Models::Named(aliases.iter().map(alias).collect())
    }

    #[test]
    fn what_is_typed_stands_and_what_is_open_is_reported() {
        assert_eq!(shown(&Models::Reported, &["b", "a"]), ["a=a", "b=b"]);
        let fixed = typed(&[("good", Some("big")), ("any", Some("x"))]);
        assert_eq!(shown(&fixed, &["other"]), ["any=x", "good=big"]);
        let open = typed(&[("chat", None)]);
        assert_eq!(shown(&open, &["big"]), ["chat=big"]);
        assert_eq!(shown(&open, &["big", "small"]).len(), 0);
        assert_eq!(shown(&open, &[]).len(), 0);
        assert!(is_open(&Models::Reported) && is_open(&open) && !is_open(&fixed));
    }

    #[test]
    fn a_picture_merges_workers_and_knows_more_than_it_serves() {
        let both = typed(&[("chat", Some("big")), ("same", Some("same"))]);
        let listed = names(&["same", "a"]);
        let offer = |listed| Offer {
            listed,
            adapters: &[],
        };
        let workers = vec![
            aliases(&both, offer(&[])),
            aliases(&Models::Reported, offer(&listed)),
        ];
        let (typed, seen) = (names(&["chat", "same", "later"]), names(&["gone"]));
        let catalogue = Catalogue::new(workers, typed.into_iter(), seen.into_iter(), 9.0);
        assert_eq!(catalogue.served(), names(&["a", "chat", "later", "same"]));
        assert!(catalogue.knows(&ModelName::new("gone")) && catalogue.knows(&ModelName::new("a")));
        assert!(!catalogue.knows(&ModelName::new("never")));
        let renamed = |worker, model| catalogue.renamed(WorkerId(worker), &ModelName::new(model));
        assert_eq!(renamed(0, "chat"), Some(&ModelName::new("big")));
        assert_eq!(renamed(0, "same"), None);
        assert_eq!(renamed(1, "chat"), None);
        assert_eq!(renamed(7, "chat"), None);
    }

    #[test]
    fn adapters_are_models_beside_the_base_and_never_the_only_one() {
        let adapter = |name: &str, typed| Adapter {
            name: ModelName::new(name),
            asked: ModelName::new(&format!("big:{name}")),
            typed,
        };
        let adapters = [adapter("sql", false), adapter("tax", true)];
        let shown = |typed: &Models| -> Vec<String> {
            let listed = names(&["big", "sql"]);
            let offer = Offer {
                listed: &listed,
                adapters: &adapters,
            };
            let aliases = aliases(typed, offer).into_iter();
            let show = |alias: Alias| {
                let mark = if alias.adapter.is_some() { "+" } else { "" };
                format!("{}={}{mark}", alias.client, alias.worker)
            };
            aliases.map(show).collect()
        };
        assert_eq!(
            shown(&Models::Reported),
            ["big=big", "sql=big:sql+", "tax=big:tax+"]
        );
        assert_eq!(
            shown(&typed(&[("chat", None), ("query", Some("sql"))])),
            ["chat=big", "query=big:sql+", "tax=big:tax+"]
        );
    }
}
