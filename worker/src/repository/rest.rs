//! What changed in a models folder since it was last looked at, for `--model-control poll`.
//!
//! A file that is being copied is there before it is whole, so a model is loaded only when nothing of it changed from
//! one look to the next: neither the list of its files nor their sizes and times. (Triton loads what it finds and has
//! to be told to look again; its users copy elsewhere and rename.) A model that fails to load is tried again when its
//! files change, not before. The look at the files and the judgement are apart, so that the judgement is pure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::repository::names;
use crate::units::ModelName;

/// How deep a model's folder is looked into: versions, and folders of a graph's external data in them.
const DEPTH: usize = 4;

/// All files of a model, each with its size and the time it was written.
pub type Fingerprint = BTreeMap<String, (u64, Option<SystemTime>)>;

/// The fingerprints of all models of a folder.
pub fn fingerprints(folder: &Path) -> std::io::Result<BTreeMap<ModelName, Fingerprint>> {
    let print = |name: ModelName| {
        let mut print = Fingerprint::new();
        add(&folder.join(name.as_str()), DEPTH, &mut print);
        (name, print)
    };
    Ok(names(folder)?.into_iter().map(print).collect())
}

/// A file that can't be looked at is as if it were not there; loading will say why.
fn add(folder: &Path, depth: usize, print: &mut Fingerprint) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        match fs::metadata(&path) {
            Ok(data) if data.is_dir() && depth > 0 => add(&path, depth - 1, print),
            Ok(data) => {
                let seen = (data.len(), data.modified().ok());
                print.insert(path.to_string_lossy().into_owned(), seen);
            }
            Err(_) => {}
        }
    }
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Change {
    /// It is new or has changed, and rests.
    Load(ModelName),
    /// It is gone.
    Unload(ModelName),
}

/// What was seen and what was acted upon.
#[derive(Debug, Default)]
pub struct Watch {
    seen: BTreeMap<ModelName, Fingerprint>,
    acted: BTreeMap<ModelName, Fingerprint>,
}

impl Watch {
    /// Takes what is there as acted upon already.
    pub fn begin(there: BTreeMap<ModelName, Fingerprint>) -> Watch {
        Watch {
            seen: there.clone(),
            acted: there,
        }
    }

    /// Takes a look and says what is to be done.
    pub fn look(&mut self, there: BTreeMap<ModelName, Fingerprint>) -> Vec<Change> {
        let gone = self.acted.keys().filter(|name| !there.contains_key(*name));
        let gone: Vec<ModelName> = gone.cloned().collect();
        let mut changes = Vec::new();
        for name in gone {
            self.acted.remove(&name);
            changes.push(Change::Unload(name));
        }
        for (name, print) in &there {
            let rests = self.seen.get(name) == Some(print);
            if rests && self.acted.get(name) != Some(print) {
                self.acted.insert(name.clone(), print.clone());
                changes.push(Change::Load(name.clone()));
            }
        }
        self.seen = there;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(models: &[(&str, u64)]) -> BTreeMap<ModelName, Fingerprint> {
        let print = |size: u64| Fingerprint::from([("file".to_owned(), (size, None))]);
        let entries = models.iter();
        entries
            .map(|(name, size)| (ModelName::new(name), print(*size)))
            .collect()
    }

    #[test]
    fn only_what_rests_is_loaded_and_only_once() {
        let load = |name: &str| Change::Load(ModelName::new(name));
        let mut watch = Watch::begin(there(&[("old", 1)]));
        assert_eq!(watch.look(there(&[("old", 1), ("new", 1)])), []);
        assert_eq!(watch.look(there(&[("old", 1), ("new", 2)])), []);
        assert_eq!(watch.look(there(&[("old", 1), ("new", 2)])), [load("new")]);
        assert_eq!(watch.look(there(&[("old", 1), ("new", 2)])), []);
        assert_eq!(watch.look(there(&[("old", 3), ("new", 2)])), []);
        assert_eq!(watch.look(there(&[("old", 3), ("new", 2)])), [load("old")]);
    }

    #[test]
    fn what_is_gone_is_unloaded_and_may_come_back() {
        let mut watch = Watch::begin(there(&[("m", 1)]));
        assert_eq!(
            watch.look(there(&[])),
            [Change::Unload(ModelName::new("m"))]
        );
        assert_eq!(watch.look(there(&[])), []);
        assert_eq!(watch.look(there(&[("m", 1)])), []);
        assert_eq!(
            watch.look(there(&[("m", 1)])),
            [Change::Load(ModelName::new("m"))]
        );
    }

    #[test]
    fn files_in_folders_count() {
        let models = tempfile::tempdir().unwrap();
        let version = models.path().join("m/1");
        fs::create_dir_all(&version).unwrap();
        fs::write(version.join("model.onnx"), "x").unwrap();
        let before = fingerprints(models.path()).unwrap();
        assert_eq!(fingerprints(models.path()).unwrap(), before);
        fs::write(version.join("model.onnx"), "xy").unwrap();
        assert_ne!(fingerprints(models.path()).unwrap(), before);
    }
}
