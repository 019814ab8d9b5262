//! The models folder: what lies there and what it means, read once at the start.
//!
//! Two layouts are understood. Ours: `NAME/model.toml` beside `NAME/1/model.onnx` (and `tokenizer.json`). Triton's
//! without a `config.pbtxt`: `NAME/1/model.onnx` alone, a plain tensor model. Numbered folders are versions and the
//! highest is served, Triton's default policy. A folder that is not a model is a mistake and said, not skipped; all
//! mistakes are reported together.

mod description;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

pub use description::{Embedding, Engine, Kind};

use crate::units::ModelName;

/// A model as the folder describes it, checked, not yet loaded.
#[derive(Debug)]
pub struct ModelPlan {
    /// The name of the folder.
    pub name: ModelName,
    /// The version that is served.
    pub version: u64,
    /// The graph; absent for an engine that needs none.
    pub graph: Option<PathBuf>,
    /// When the graph was last written, in seconds since 1970.
    pub created: u64,
    /// What it is for.
    pub kind: Kind,
}

/// Reads a models folder, or says everything that is wrong with it.
pub fn scan(folder: &Path) -> Result<Vec<ModelPlan>, Vec<String>> {
    let entries = fs::read_dir(folder)
        .map_err(|error| vec![format!("--models {}: {error}", folder.display())])?;
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir() && !is_hidden(path))
        .collect();
    folders.sort();
    if folders.is_empty() {
        let folder = folder.display();
        return Err(vec![format!(
            "--models {folder}: holds no model; expected NAME/1/model.onnx, with or without NAME/model.toml"
        )]);
    }
    let (mut plans, mut problems) = (Vec::new(), Vec::new());
    for folder in folders {
        match plan(&folder) {
            Ok(plan) => plans.push(plan),
            Err(problem) => problems.push(format!("{}: {problem}", folder.display())),
        }
    }
    if problems.is_empty() {
        Ok(plans)
    } else {
        Err(problems)
    }
}

fn is_hidden(path: &Path) -> bool {
    name_of(path).is_none_or(|name| name.starts_with('.'))
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn plan(folder: &Path) -> Result<ModelPlan, String> {
    let name = name_of(folder).ok_or("the folder's name is not UTF-8")?;
    if folder.join("config.pbtxt").exists() {
        tracing::warn!(
            "model {name}: config.pbtxt is not read by this version; the graph's own inputs and outputs count"
        );
    }
    let (engine, kind) = description::read(folder)?;
    let newest = versions(folder)?.into_iter().max();
    let Engine::Onnx = engine else {
        return Ok(ModelPlan {
            name: ModelName::new(name),
            version: newest.unwrap_or(1),
            graph: None,
            created: 0,
            kind,
        });
    };
    let version = newest.ok_or("has no version folder; expected 1/model.onnx in it")?;
    let graph = folder.join(version.to_string()).join("model.onnx");
    if !graph.is_file() {
        return Err(format!("has no {version}/model.onnx"));
    }
    Ok(ModelPlan {
        name: ModelName::new(name),
        version,
        created: written(&graph),
        graph: Some(graph),
        kind,
    })
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

    #[test]
    fn tritons_layout_is_a_tensor_model_at_its_highest_version() {
        let models = folder(&[
            ("m/1/model.onnx", ""),
            ("m/12/model.onnx", ""),
            ("m/notes/x", ""),
        ]);
        let plans = scan(models.path()).unwrap();
        assert_eq!(plans[0].name.as_str(), "m");
        assert_eq!(plans[0].version, 12);
        assert!(matches!(plans[0].kind, Kind::Tensor));
    }

    #[test]
    fn an_embedding_model_has_sensible_defaults() {
        let models = folder(&[
            ("m/1/model.onnx", ""),
            ("m/model.toml", "kind = \"embedding\""),
            ("m/tokenizer.json", "{}"),
        ]);
        let plans = scan(models.path()).unwrap();
        let Kind::Embedding(embedding) = &plans[0].kind else {
            panic!("not an embedding model")
        };
        assert_eq!(embedding.tokenizer, models.path().join("m/tokenizer.json"));
        assert_eq!(embedding.pooling, Pooling::Mean);
        assert!(embedding.normalize);
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let models = folder(&[
            ("a/x", ""),
            ("b/1/x", ""),
            ("c/1/model.onnx", ""),
            ("c/model.toml", "kind = \"embedding\"\npoolin = \"mean\""),
            ("d/1/model.onnx", ""),
            ("d/model.toml", "kind = \"classifier\""),
            ("e/1/model.onnx", ""),
            ("e/model.toml", "kind = \"embedding\""),
            ("f/1/model.onnx", ""),
            ("f/model.toml", "pooling = \"cls\""),
        ]);
        let problems = scan(models.path()).unwrap_err();
        let said = problems.join("\n");
        assert_eq!(problems.len(), 6, "{said}");
        for words in [
            "has no version folder",
            "has no 1/model.onnx",
            "poolin",
            "classifier",
            "tokenizer.json",
            "only an embedding model",
        ] {
            assert!(said.contains(words), "{words:?} is missing in {said}");
        }
    }

    #[test]
    fn an_empty_folder_and_a_missing_one_are_mistakes() {
        let empty = tempfile::tempdir().unwrap();
        assert!(scan(empty.path()).unwrap_err()[0].contains("holds no model"));
        assert!(scan(&empty.path().join("none")).is_err());
    }
}
