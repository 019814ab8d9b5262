//! Which models answer at present, and why the others don't.
//!
//! A model is replaced whole: requests that hold the old one finish on it, later ones find the new one, and there is
//! no moment in between at which neither is there. The price is memory for both while the new one loads. A version that
//! fails to load leaves the one before it in service.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::fault::{Fault, Kind, there_are};
use crate::line::Model;
use crate::units::ModelName;

/// One version of a model, as the repository index tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The model.
    pub name: ModelName,
    /// The version; absent where none was ever loaded.
    pub version: Option<u64>,
    /// Whether it answers.
    pub ready: bool,
    /// Why it does not, or what else there is to say.
    pub reason: String,
}

/// All models that were ever loaded or tried.
#[derive(Default)]
pub struct Registry {
    shelves: RwLock<BTreeMap<ModelName, Shelf>>,
}

/// The versions of a model.
#[derive(Default)]
struct Shelf {
    served: BTreeMap<u64, Arc<Model>>,
    /// Why versions are not served, or are served as they were before.
    reasons: BTreeMap<u64, String>,
    /// Why nothing is known of any version.
    reason: String,
}

/// What was served of a model at one time.
pub struct Serving(Vec<Arc<Model>>);

impl Serving {
    /// Whether what is made of it is as it was: that is, whether it is served, by the very same loads.
    pub fn stands(&self, registry: &Registry, name: &ModelName) -> bool {
        let Serving(now) = registry.serving(name);
        let same = |(one, other): (&Arc<Model>, &Arc<Model>)| Arc::ptr_eq(one, other);
        !now.is_empty() && now.len() == self.0.len() && now.iter().zip(&self.0).all(same)
    }
}

impl Shelf {
    /// Why none of its versions answers.
    fn why(&self) -> &str {
        let newest = self.reasons.values().next_back();
        newest.unwrap_or(&self.reason)
    }

    /// What there is to say of a version.
    fn reason(&self, version: Option<u64>) -> &str {
        let failed = version.and_then(|version| self.reasons.get(&version));
        let served = version.and_then(|version| self.served.get(&version));
        match (failed, served.and_then(|model| model.fallen_back())) {
            (Some(reason), _) => reason,
            (None, Some(refused)) if self.reason.is_empty() => refused,
            (None, _) => &self.reason,
        }
    }
}

impl Registry {
    /// Puts a model's versions into service, or notes why they can't be. Versions that are not named leave.
    pub fn place(&self, name: &ModelName, versions: Vec<(u64, Result<Model, String>)>) {
        let mut shelves = self.shelves.write();
        let shelf = shelves.entry(name.clone()).or_default();
        let mut before = std::mem::take(shelf);
        for (version, loaded) in versions {
            match loaded {
                Ok(model) => {
                    shelf.served.insert(version, Arc::new(model));
                }
                Err(reason) => {
                    shelf.reasons.insert(version, reason);
                    if let Some(old) = before.served.remove(&version) {
                        shelf.served.insert(version, old);
                    }
                }
            }
        }
        // The old ones end their threads when they are dropped, which nobody should wait for with the lock held.
        drop(shelves);
        drop(before);
    }

    /// Notes why a model can't be read; what is served of it stays.
    pub fn fail(&self, name: &ModelName, reason: &str) {
        let mut shelves = self.shelves.write();
        shelves.entry(name.clone()).or_default().reason = reason.to_owned();
    }

    /// Takes a model out of service for this reason; requests that run finish. Says whether it was known.
    pub fn remove(&self, name: &ModelName, reason: &str) -> bool {
        let mut shelves = self.shelves.write();
        let Some(shelf) = shelves.get_mut(name) else {
            return false;
        };
        let before = std::mem::take(shelf);
        let versions = before.served.keys().chain(before.reasons.keys());
        shelf.reasons = versions.map(|&one| (one, reason.to_owned())).collect();
        shelf.reason = reason.to_owned();
        drop(shelves);
        drop(before);
        true
    }

    /// Forgets a model that is no longer in the folder.
    pub fn forget(&self, name: &ModelName) {
        let before = self.shelves.write().remove(name);
        drop(before);
    }

    /// The highest version of every model that answers.
    pub fn served(&self) -> Vec<Arc<Model>> {
        let shelves = self.shelves.read();
        let newest = shelves
            .values()
            .filter_map(|shelf| shelf.served.values().next_back());
        newest.cloned().collect()
    }

    /// Every version that answers of the models with such names.
    pub fn every(&self, such: impl Fn(&ModelName) -> bool) -> Vec<Arc<Model>> {
        let shelves = self.shelves.read();
        let chosen = shelves.iter().filter(|(name, _)| such(name));
        let versions = chosen.flat_map(|(_, shelf)| shelf.served.values());
        versions.cloned().collect()
    }

    /// What is served of a model.
    pub fn serving(&self, name: &ModelName) -> Serving {
        let shelves = self.shelves.read();
        let shelf = shelves.get(name);
        Serving(shelf.map_or_else(Vec::new, |shelf| shelf.served.values().cloned().collect()))
    }

    /// The versions of a model that answer.
    pub fn versions(&self, name: &ModelName) -> Vec<u64> {
        let shelves = self.shelves.read();
        let shelf = shelves.get(name);
        shelf.map_or_else(Vec::new, |shelf| shelf.served.keys().copied().collect())
    }

    /// A model in this version, else in its highest.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, Fault> {
        let unknown = |what: String| Fault::new(Kind::ModelNotFound, what).param("model");
        let shelves = self.shelves.read();
        let answering = |(_, shelf): &(&ModelName, &Shelf)| !shelf.served.is_empty();
        let Some((_, shelf)) = shelves.get_key_value(name).filter(answering) else {
            let known = shelves.iter().filter(answering);
            let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
            let known = there_are(&known);
            let why = shelves.get(name).map_or("", Shelf::why);
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(" ({why})")
            };
            return Err(unknown(format!(
                "no model `{name}` is served here{why}; {known}"
            )));
        };
        let newest = || shelf.served.values().next_back();
        let found = match version {
            None | Some("") => newest(),
            Some(text) => {
                let number = text
                    .parse()
                    .ok()
                    .filter(|number: &u64| number.to_string() == text);
                number.and_then(|number| shelf.served.get(&number))
            }
        };
        found.cloned().ok_or_else(|| {
            let served: Vec<String> = shelf.served.keys().map(u64::to_string).collect();
            let (served, version) = (served.join(", "), version.unwrap_or_default());
            unknown(format!(
                "model `{name}` is served in version {served}, not {version}"
            ))
        })
    }

    /// How each version of each model stands.
    pub fn standings(&self) -> Vec<Standing> {
        let shelves = self.shelves.read();
        let of_one = |(name, shelf): (&ModelName, &Shelf)| {
            let mut versions: Vec<u64> = shelf.served.keys().copied().collect();
            versions.extend(
                shelf
                    .reasons
                    .keys()
                    .filter(|version| !shelf.served.contains_key(version)),
            );
            let standing = |version: Option<u64>| Standing {
                name: name.clone(),
                version,
                ready: version.is_some_and(|version| shelf.served.contains_key(&version)),
                reason: shelf.reason(version).to_owned(),
            };
            if versions.is_empty() {
                return vec![standing(None)];
            }
            versions
                .into_iter()
                .map(|version| standing(Some(version)))
                .collect()
        };
        shelves.iter().flat_map(of_one).collect()
    }
}
