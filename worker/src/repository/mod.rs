//! The models folder: what lies there and what it means.
//!
//! Two layouts are understood. Ours: `NAME/model.toml` beside `NAME/1/model.onnx` (and `tokenizer.json`). Triton's:
//! `NAME/config.pbtxt` beside `NAME/1/model.onnx`, or the graph alone. Both files may lie in one folder: `model.toml`
//! says how texts are read, `config.pbtxt` how requests wait and gather. A built-in step and an ensemble have no graph,
//! and need no version folder. Numbered folders are versions; the highest is served unless a version policy says
//! otherwise. A folder that is not a model is a mistake and said, not skipped; it is its own mistake only, and its
//! neighbours are served.

mod config;
mod description;
mod rest;
mod step;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

use config::Runs;
pub use config::{
    Config, Control, Declared, EnsemblePlan, Filling, Instance, SequencePlan, Signal, State,
    Switch, Warmup, With, encode,
};
use description::Description;
pub use description::{Classifier, Embedding, Engine, Kind};
pub use rest::{Change, Watch, fingerprints};
pub use step::Step;

use crate::units::{Device, ModelName};

/// What the values of outputs stand for, by the outputs' names.
pub type Labels = BTreeMap<String, Vec<String>>;

/// A model as the folder describes it, checked, not yet loaded.
#[derive(Debug)]
pub struct ModelPlan {
    /// The name of the folder.
    pub name: ModelName,
    /// The versions that are served, in ascending order; at least one.
    pub versions: Vec<VersionPlan>,
    /// What runs it.
    pub engine: Engine,
    /// What it is for.
    pub kind: Kind,
    /// What computes it where its configuration leaves that open; absent = what the worker says.
    pub device: Option<Device>,
    /// Whether the CPU may stand in for a card; absent = what the worker says.
    pub fallback: Option<bool>,
    /// How it is served.
    pub config: Config,
    /// What the values of its outputs stand for.
    pub labels: Labels,
    /// The batches that it runs before it is ready, in rows, beside the configuration's own warm-ups.
    pub warmup: Vec<usize>,
    /// Its folder.
    pub folder: PathBuf,
}

/// One version of a model.
#[derive(Debug)]
pub struct VersionPlan {
    /// Its number.
    pub version: u64,
    /// The graph; absent for an engine that needs none.
    pub graph: Option<PathBuf>,
    /// When the graph was last written, in seconds since 1970.
    pub created: u64,
}

impl ModelPlan {
    /// The models that it is made of.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        let steps = match &self.engine {
            Engine::Ensemble(plan) => &plan.steps[..],
            Engine::Onnx | Engine::Step(_) | Engine::Echo => &[],
        };
        steps.iter().map(|step| step.model.as_str())
    }
}

/// What a models folder holds, each model or what is wrong with it.
pub type Found = BTreeMap<ModelName, Result<ModelPlan, String>>;

/// Reads a models folder.
pub fn scan(folder: &Path) -> Result<Found, String> {
    let names = names(folder).map_err(|error| format!("--models {}: {error}", folder.display()))?;
    let found = names.into_iter().map(|name| {
        let plan = plan(folder, &name);
        (name, plan)
    });
    Ok(found.collect())
}

/// The models of a folder: the names of its folders, hidden ones left out.
pub fn names(folder: &Path) -> io::Result<Vec<ModelName>> {
    let entries = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let shown = entries.filter(|path| path.is_dir() && !is_hidden(path));
    let mut names: Vec<ModelName> = shown
        .filter_map(|path| name_of(&path).map(ModelName::new))
        .collect();
    names.sort();
    Ok(names)
}

/// Reads one model, or says what is wrong with it.
pub fn plan(models: &Path, name: &ModelName) -> Result<ModelPlan, String> {
    let folder = models.join(name.as_str());
    let described =
        read(&folder, name).map_err(|problem| format!("{}: {problem}", folder.display()))?;
    let unused = described.config.accelerator.unused.iter();
    let unused = unused.filter(|_| matches!(described.engine, Engine::Ensemble(_)));
    for warning in described.config.warnings.iter().chain(unused) {
        tracing::warn!(model = name.as_str(), "config.pbtxt: {warning}");
    }
    Ok(described)
}

fn read(folder: &Path, name: &ModelName) -> Result<ModelPlan, String> {
    let Description {
        engine,
        kind,
        device,
        fallback,
        warmup,
        text: described,
    } = description::read(folder)?;
    let text = match fs::read_to_string(folder.join("config.pbtxt")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("config.pbtxt: {error}")),
    };
    let config = config::read(&text, name.as_str());
    let mut config = config.map_err(|problem| format!("config.pbtxt: {problem}"))?;
    let runs = std::mem::replace(&mut config.runs, Runs::Graph);
    if runs != Runs::Graph && kind != Kind::Tensor {
        return Err("model.toml: kind: what has no graph takes and gives tensors only".into());
    }
    agree(device, &config)?;
    let engine = runs_on(engine, runs, folder, &text)?;
    if let Some(problem) = no_place(&engine, device, fallback) {
        return Err(format!(
            "model.toml: {}",
            config::placed(&described, problem)
        ));
    }
    if let Some(problem) = no_card(&engine, &config) {
        return Err(format!("config.pbtxt: {}", config::placed(&text, problem)));
    }
    if matches!(engine, Engine::Ensemble(_)) && !warmup.is_empty() {
        let problem = "model.toml: warmup: an ensemble runs nothing itself; warm its members up";
        return Err(problem.into());
    }
    let there = versions(folder)?;
    let versions = match engine {
        Engine::Onnx => graphs(folder, there, &config)?,
        Engine::Step(_) | Engine::Ensemble(_) | Engine::Echo => vec![VersionPlan {
            version: there.into_iter().max().unwrap_or(1),
            graph: None,
            created: written(&folder.join("config.pbtxt")),
        }],
    };
    Ok(ModelPlan {
        name: name.clone(),
        versions,
        engine,
        kind,
        device,
        fallback,
        labels: labels(folder, &config)?,
        config,
        warmup,
        folder: folder.to_owned(),
    })
}

/// What runs a model, of which `model.toml` and `config.pbtxt` may both say something.
fn runs_on(described: Engine, runs: Runs, folder: &Path, text: &str) -> Result<Engine, String> {
    match (described, runs) {
        (engine, Runs::Graph) => Ok(engine),
        (Engine::Onnx, Runs::Ensemble(plan)) => Ok(Engine::Ensemble(plan)),
        (Engine::Onnx, Runs::Step(settings)) => {
            let step = step::read(&settings, folder).map(Engine::Step);
            step.map_err(|problem| format!("config.pbtxt: {}", config::placed(text, &problem)))
        }
        (Engine::Step(_) | Engine::Ensemble(_) | Engine::Echo, _) => {
            Err("model.toml and config.pbtxt each say what runs the model; one may".into())
        }
    }
}

/// Refuses a `model.toml` and a `config.pbtxt` that name different devices.
fn agree(described: Option<Device>, config: &Config) -> Result<(), String> {
    let Some(described) = described else {
        return Ok(());
    };
    let on_card = |device: Device| device != Device::Cpu;
    let mut configured = config.instances.iter().filter_map(|one| one.device);
    if !configured.any(|device| on_card(device) != on_card(described)) {
        return Ok(());
    }
    let kind = match described {
        Device::Cpu => "KIND_GPU",
        Device::Cuda | Device::TensorRt => "KIND_CPU",
    };
    Err(format!(
        "model.toml says device = \"{described}\", and config.pbtxt's instance_group {kind}; leave one of them out"
    ))
}

/// What a `model.toml` says of devices, of a model that has none to choose.
fn no_place(
    engine: &Engine,
    device: Option<Device>,
    fallback: Option<bool>,
) -> Option<&'static str> {
    let on_card = device.is_some_and(|device| device != Device::Cpu);
    match engine {
        Engine::Onnx => None,
        Engine::Step(_) | Engine::Echo => {
            on_card.then_some("device: what has no graph computes on the CPU")
        }
        Engine::Ensemble(_) if device.is_some() => {
            Some("device: an ensemble runs nothing itself; its members have devices")
        }
        Engine::Ensemble(_) => {
            let problem = "fallback: an ensemble runs nothing itself; its members have devices";
            fallback.map(|_| problem)
        }
    }
}

/// A card that a `config.pbtxt` wants for what has no graph. (An ensemble has no `instance_group` at all.)
fn no_card(engine: &Engine, config: &Config) -> Option<&'static str> {
    let graph = matches!(engine, Engine::Onnx);
    let mut wanted = config.instances.iter().filter_map(|one| one.device);
    let card = wanted.any(|device| device != Device::Cpu);
    (card && !graph).then_some("instance_group: `KIND_GPU`: what has no graph computes on the CPU")
}

/// The labels of every output that has a file of them.
fn labels(folder: &Path, config: &Config) -> Result<Labels, String> {
    let named = config
        .outputs
        .iter()
        .filter_map(|output| Some((&output.name, output.labels.as_ref()?)));
    let read = |(output, file): (&String, &String)| Ok((output.clone(), lines(folder, file)?));
    named.map(read).collect()
}

/// The lines of a file of labels in a model's folder.
fn lines(folder: &Path, file: &str) -> Result<Vec<String>, String> {
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(file).components().all(inside) {
        return Err(format!(
            "label_filename: \"{file}\" is not in the model's folder"
        ));
    }
    let text = fs::read_to_string(folder.join(file));
    let text = text.map_err(|error| format!("label_filename: {file}: {error}"))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The graphs of the versions that are served.
fn graphs(folder: &Path, there: Vec<u64>, config: &Config) -> Result<Vec<VersionPlan>, String> {
    let file = &config.file;
    if there.is_empty() {
        return Err(format!("has no version folder; expected 1/{file} in it"));
    }
    let chosen = config.versions.choose(there);
    if chosen.is_empty() {
        return Err("version_policy: none of its versions is there".into());
    }
    let graph = |version: u64| {
        let graph = folder.join(version.to_string()).join(file);
        if !graph.is_file() {
            return Err(format!("has no {version}/{file}"));
        }
        Ok(VersionPlan {
            version,
            created: written(&graph),
            graph: Some(graph),
        })
    };
    chosen.into_iter().map(graph).collect()
}

fn is_hidden(path: &Path) -> bool {
    name_of(path).is_none_or(|name| name.starts_with('.'))
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The numbered folders. Leading zeros would make two names for one number, so `01` is not a version.
fn versions(folder: &Path) -> Result<Vec<u64>, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let number = |path: PathBuf| {
        let name = name_of(&path)?;
        let number: u64 = name.parse().ok()?;
        (path.is_dir() && number.to_string() == name).then_some(number)
    };
    Ok(entries
        .filter_map(|entry| number(entry.ok()?.path()))
        .collect())
}

fn written(file: &Path) -> u64 {
    fs::metadata(file)
        .and_then(|data| data.modified())
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |age| age.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Pooling;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn only(models: &tempfile::TempDir) -> ModelPlan {
        plan(models.path(), &ModelName::new("m")).unwrap()
    }

    #[test]
    fn tritons_layout_is_a_tensor_model_at_its_highest_version() {
        let models = folder(&[
            ("m/1/model.onnx", ""),
            ("m/12/model.onnx", ""),
            ("m/notes/x", ""),
        ]);
        let plan = only(&models);
        assert_eq!(plan.name.as_str(), "m");
        assert_eq!(plan.versions.len(), 1);
        assert_eq!(plan.versions[0].version, 12);
        assert!(matches!(plan.kind, Kind::Tensor));
    }

    #[test]
    fn an_embedding_model_has_sensible_defaults() {
        let models = folder(&[
            ("m/1/model.onnx", ""),
            ("m/model.toml", "kind = \"embedding\""),
            ("m/tokenizer.json", "{}"),
        ]);
        let plan = only(&models);
        let Kind::Embedding(embedding) = &plan.kind else {
            panic!("not an embedding model")
        };
        assert_eq!(embedding.tokenizer, models.path().join("m/tokenizer.json"));
        assert_eq!(embedding.pooling, Pooling::Mean);
        assert!(embedding.normalize);
    }

    #[test]
    fn each_mistake_is_said_and_is_its_own() {
        let models = folder(&[
            ("a/x", ""),
            ("b/1/x", ""),
            ("c/1/model.onnx", ""),
            ("c/model.toml", "kind = \"embedding\"\npoolin = \"mean\""),
            ("d/1/model.onnx", ""),
            ("d/model.toml", "kind = \"decoder\""),
            ("e/1/model.onnx", ""),
            ("e/model.toml", "kind = \"embedding\""),
            ("f/1/model.onnx", ""),
            ("f/model.toml", "pooling = \"cls\""),
            ("g/1/model.onnx", ""),
            ("g/config.pbtxt", "max_batch_sise: 4"),
            ("h/1/model.onnx", ""),
            (
                "h/config.pbtxt",
                "version_policy { specific { versions: 2 } }",
            ),
            ("i/1/model.onnx", ""),
            ("i/model.toml", "device = \"cuda\""),
            ("i/config.pbtxt", "instance_group { kind: KIND_CPU }"),
            ("j/1/model.onnx", ""),
            ("j/model.toml", "device = \"gpu\""),
            ("k/1/model.onnx", ""),
            ("k/model.toml", "fallback = \"cuda\""),
            ("l/1/model.onnx", ""),
            ("l/tokenizer.json", "{}"),
            ("l/model.toml", "kind = \"embedding\"\nmax_tokens = 1048577"),
            ("well/1/model.onnx", ""),
            (".hidden/x", ""),
        ]);
        let found = scan(models.path()).unwrap();
        let problems: Vec<String> = found.into_values().filter_map(Result::err).collect();
        let said = problems.join("\n");
        assert_eq!(problems.len(), 12, "{said}");
        for words in [
            "has no version folder",
            "has no 1/model.onnx",
            "poolin",
            "\"decoder\"",
            "tokenizer.json",
            "models of kind = \"embedding\"",
            "max_batch_sise",
            "none of its versions",
            "instance_group KIND_CPU; leave one",
            "expected \"cpu\", \"cuda\" or \"tensorrt\"",
            "fallback = \"cuda\": expected \"cpu\"",
            "max_tokens = 1048577: expected 1 to 1048576",
        ] {
            assert!(said.contains(words), "{words:?} is missing in {said}");
        }
    }

    #[test]
    fn several_versions_are_served_where_the_policy_says_so() {
        let models = folder(&[
            ("m/1/graph.onnx", ""),
            ("m/2/graph.onnx", ""),
            ("m/3/graph.onnx", ""),
            (
                "m/config.pbtxt",
                "default_model_filename: \"graph.onnx\" version_policy { latest { num_versions: 2 } }",
            ),
        ]);
        let served = only(&models).versions;
        let served: Vec<u64> = served.iter().map(|one| one.version).collect();
        assert_eq!(served, [2, 3]);
    }

    #[test]
    fn a_missing_folder_is_a_mistake() {
        let empty = tempfile::tempdir().unwrap();
        assert!(scan(empty.path()).unwrap().is_empty());
        assert!(scan(&empty.path().join("none")).is_err());
    }
}
