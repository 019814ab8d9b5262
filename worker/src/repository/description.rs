//! `model.toml`: as typed, then checked.
//!
//! Unknown keys are mistakes, so that a slip of the pen does not silently leave a default in force; and a key that has
//! no meaning for the model's kind is refused for the same reason.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::units::Pooling;

/// What a model is for.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// Tensors in, tensors out.
    Tensor,
    /// Texts in, vectors out; and tensors.
    Embedding(Embedding),
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
    /// The batches that it runs before it is ready, in rows.
    pub warmup: Vec<usize>,
}

/// What runs a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// ONNX Runtime.
    Onnx,
    /// Nothing: the output is the input. For trying the wire without a model or a library.
    Echo,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    engine: Option<String>,
    kind: Option<String>,
    tokenizer: Option<PathBuf>,
    pooling: Option<String>,
    normalize: Option<bool>,
    max_tokens: Option<usize>,
    #[serde(default)]
    warmup: Vec<usize>,
}

/// The most rows of a batch that a model is warmed up with.
const WARM_ROWS: usize = 1024;

/// Reads a model folder's description; a folder without one is a tensor model.
pub fn read(folder: &Path) -> Result<Description, String> {
    let typed = match fs::read_to_string(folder.join("model.toml")) {
        Ok(text) => toml::from_str(&text).map_err(|error| format!("model.toml: {error}"))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Typed::default(),
        Err(error) => return Err(format!("model.toml: {error}")),
    };
    describe(typed, folder).map_err(|problem| format!("model.toml: {problem}"))
}

fn describe(mut typed: Typed, folder: &Path) -> Result<Description, String> {
    let warmup = std::mem::take(&mut typed.warmup);
    if let Some(rows) = warmup.iter().find(|rows| !(1..=WARM_ROWS).contains(*rows)) {
        return Err(format!("warmup: {rows} rows; expected 1 to {WARM_ROWS}"));
    }
    let (engine, kind) = check(typed, folder)?;
    Ok(Description {
        engine,
        kind,
        warmup,
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
            no_text_keys(&typed)?;
            Ok((engine, Kind::Tensor))
        }
        Some("embedding") if engine == Engine::Onnx => {
            Ok((engine, Kind::Embedding(embedding(typed, folder)?)))
        }
        Some("embedding") => Err("engine = \"echo\" has no vectors to give; use kind = \"tensor\"".into()),
        Some("classifier") => Err(
            "kind = \"classifier\" is not served by this version; kind = \"tensor\" gives its raw logits".into(),
        ),
        Some(other) => Err(one_of("kind", other, "\"tensor\" or \"embedding\"")),
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
    if typed.max_tokens == Some(0) {
        return Err("max_tokens = 0: expected at least 1".into());
    }
    Ok(Embedding {
        tokenizer,
        pooling,
        normalize: typed.normalize.unwrap_or(true),
        max_tokens: typed.max_tokens,
    })
}

fn no_text_keys(typed: &Typed) -> Result<(), String> {
    let keys = [
        ("tokenizer", typed.tokenizer.is_some()),
        ("pooling", typed.pooling.is_some()),
        ("normalize", typed.normalize.is_some()),
        ("max_tokens", typed.max_tokens.is_some()),
    ];
    match keys.iter().find(|(_, given)| *given) {
        Some((key, _)) => Err(format!(
            "{key}: only an embedding model has it; add kind = \"embedding\""
        )),
        None => Ok(()),
    }
}

fn one_of(key: &str, value: &str, allowed: &str) -> String {
    format!("{key} = \"{value}\": expected {allowed}")
}
