//! `model.toml`: as typed, then checked.
//!
//! Unknown keys are mistakes, so that a slip of the pen does not silently leave a default in force; and a key that has
//! no meaning for the model's kind is refused for the same reason.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::config::EnsemblePlan;
use super::step::{self, Step};
use crate::units::{Activation, Device, Pooling};

/// What a model is for.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// Tensors in, tensors out.
    Tensor,
    /// Texts in, vectors out; and tensors.
    Embedding(Embedding),
    /// Texts, or pairs of them, in, a score for each class out; and tensors.
    Classifier(Classifier),
}

/// How a classifier reads and answers.
#[derive(Debug, PartialEq)]
pub struct Classifier {
    /// How it reads. Its graph gives the scores as they are, so nothing is pooled.
    pub text: Embedding,
    /// The names of its classes, in their order; may be fewer than there are, or none.
    pub labels: Vec<String>,
    /// How scores become probabilities; absent = softmax, and sigmoid where there is one class only.
    pub activation: Option<Activation>,
}

/// How an embedding model reads and answers.
#[derive(Debug, PartialEq)]
pub struct Embedding {
    /// Its `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// How token states become one vector.
    pub pooling: Pooling,
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
    /// Where texts are cut; absent = as the tokenizer's file says.
    pub max_tokens: Option<usize>,
}

/// What a `model.toml` says.
#[derive(Debug)]
pub struct Description {
    /// What runs the model.
    pub engine: Engine,
    /// What it is for.
    pub kind: Kind,
    /// What computes it; absent = what the worker says.
    pub device: Option<Device>,
    /// Whether the CPU may stand in for a card; absent = what the worker says.
    pub fallback: Option<bool>,
    /// The batches that it runs before it is ready, in rows.
    pub warmup: Vec<usize>,
    /// The file itself.
    pub text: String,
}

/// What runs a model.
#[derive(Debug, PartialEq)]
pub enum Engine {
    /// ONNX Runtime.
    Onnx,
    /// What is built in.
    Step(Step),
    /// Other models.
    Ensemble(EnsemblePlan),
    /// Nothing: the output is the input. For trying the wire without a model or a library.
    Echo,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    engine: Option<String>,
    kind: Option<String>,
    device: Option<String>,
    fallback: Option<String>,
    tokenizer: Option<PathBuf>,
    pooling: Option<String>,
    normalize: Option<bool>,
    max_tokens: Option<usize>,
    labels: Option<Vec<String>>,
    activation: Option<String>,
    #[serde(default)]
    warmup: Vec<usize>,
}

/// The most rows of a batch that a model is warmed up with.
const WARM_ROWS: usize = 1024;

/// Reads a model folder's description; a folder without one is a tensor model.
pub fn read(folder: &Path) -> Result<Description, String> {
    let text = match fs::read_to_string(folder.join("model.toml")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("model.toml: {error}")),
    };
    let described = match step::from_toml(&text) {
        Ok(Some(settings)) => step::read(&settings, folder).map(Description::of_step),
        Ok(None) => toml::from_str(&text)
            .map_err(|error| error.to_string())
            .and_then(|typed| describe(typed, folder)),
        Err(problem) => Err(problem),
    };
    let described = described.map_err(|problem| format!("model.toml: {problem}"))?;
    Ok(Description { text, ..described })
}

impl Description {
    fn of_step(step: Step) -> Description {
        Description {
            engine: Engine::Step(step),
            kind: Kind::Tensor,
            warmup: Vec::new(),
            device: None,
            fallback: None,
            text: String::new(),
        }
    }
}

fn describe(mut typed: Typed, folder: &Path) -> Result<Description, String> {
    let warmup = std::mem::take(&mut typed.warmup);
    if let Some(rows) = warmup.iter().find(|rows| !(1..=WARM_ROWS).contains(*rows)) {
        return Err(format!("warmup: {rows} rows; expected 1 to {WARM_ROWS}"));
    }
    let device = typed.device.take().map(|name| {
        let allowed = "\"cpu\", \"cuda\" or \"tensorrt\"";
        Device::from_name(&name).ok_or_else(|| one_of("device", &name, allowed))
    });
    let fallback = typed.fallback.take().map(|name| match name.as_str() {
        "cpu" => Ok(true),
        "none" => Ok(false),
        other => Err(one_of("fallback", other, "\"cpu\" or \"none\"")),
    });
    let (engine, kind) = check(typed, folder)?;
    Ok(Description {
        engine,
        kind,
        device: device.transpose()?,
        fallback: fallback.transpose()?,
        warmup,
        text: String::new(),
    })
}

fn check(typed: Typed, folder: &Path) -> Result<(Engine, Kind), String> {
    let engine = match typed.engine.as_deref() {
        None | Some("onnx") => Engine::Onnx,
        Some("echo") => Engine::Echo,
        Some(other) => return Err(one_of("engine", other, "\"onnx\" or \"echo\"")),
    };
    match typed.kind.as_deref() {
        None | Some("tensor") => {
            only(
                &typed,
                "embedding",
                &["pooling", "normalize", "tokenizer", "max_tokens"],
            )?;
            only(&typed, "classifier", &["labels", "activation"])?;
            Ok((engine, Kind::Tensor))
        }
        Some("embedding" | "classifier") if engine == Engine::Echo => {
            Err("engine = \"echo\" has no vectors to give; use kind = \"tensor\"".into())
        }
        Some("embedding") => {
            only(&typed, "classifier", &["labels", "activation"])?;
            Ok((engine, Kind::Embedding(embedding(typed, folder)?)))
        }
        Some("classifier") => {
            only(&typed, "embedding", &["pooling", "normalize"])?;
            Ok((engine, Kind::Classifier(classifier(typed, folder)?)))
        }
        Some(other) => Err(one_of(
            "kind",
            other,
            "\"tensor\", \"embedding\" or \"classifier\"",
        )),
    }
}

fn embedding(typed: Typed, folder: &Path) -> Result<Embedding, String> {
    let pooling = match typed.pooling.as_deref() {
        None | Some("mean") => Pooling::Mean,
        Some("cls") => Pooling::Cls,
        Some("none") => Pooling::None,
        Some(other) => return Err(one_of("pooling", other, "\"mean\", \"cls\" or \"none\"")),
    };
    let tokenizer = folder.join(typed.tokenizer.unwrap_or_else(|| "tokenizer.json".into()));
    if !tokenizer.is_file() {
        let path = tokenizer.display();
        return Err(format!("tokenizer: {path} does not exist"));
    }
    let most = typed.max_tokens;
    if let Some(most) = most.filter(|most| !(1..=step::TOKENS).contains(most)) {
        let problem = format!("max_tokens = {most}: expected 1 to {}", step::TOKENS);
        return Err(problem);
    }
    Ok(Embedding {
        tokenizer,
        pooling,
        normalize: typed.normalize.unwrap_or(true),
        max_tokens: typed.max_tokens,
    })
}

fn classifier(mut typed: Typed, folder: &Path) -> Result<Classifier, String> {
    let activation = match typed.activation.as_deref() {
        None => None,
        Some("softmax") => Some(Activation::Softmax),
        Some("sigmoid") => Some(Activation::Sigmoid),
        Some("none") => Some(Activation::None),
        Some(other) => {
            let allowed = "\"softmax\", \"sigmoid\" or \"none\"";
            return Err(one_of("activation", other, allowed));
        }
    };
    let labels = typed.labels.take().unwrap_or_default();
    let text = Embedding {
        pooling: Pooling::None,
        normalize: false,
        ..embedding(typed, folder)?
    };
    Ok(Classifier {
        text,
        labels,
        activation,
    })
}

/// Refuses keys that only models of another kind have.
fn only(typed: &Typed, kind: &str, keys: &[&str]) -> Result<(), String> {
    let given = [
        ("tokenizer", typed.tokenizer.is_some()),
        ("pooling", typed.pooling.is_some()),
        ("normalize", typed.normalize.is_some()),
        ("max_tokens", typed.max_tokens.is_some()),
        ("labels", typed.labels.is_some()),
        ("activation", typed.activation.is_some()),
    ];
    let strange = |(key, given): &&(&str, bool)| *given && keys.contains(key);
    match given.iter().find(strange) {
        Some((key, _)) => Err(format!("{key}: it is for models of kind = \"{kind}\"")),
        None => Ok(()),
    }
}

fn one_of(key: &str, value: &str, allowed: &str) -> String {
    format!("{key} = \"{value}\": expected {allowed}")
}
