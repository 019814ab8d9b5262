//! Built-in steps: models without a graph, for what stands before and after one in an ensemble.
//!
//! A `config.pbtxt` asks for one by `backend: "forebay"` and `parameters { key: "step" value { string_value: "…" } }`,
//! which is how Triton's own backends take their settings; a `model.toml` says `step = "…"`. Both lead to the same
//! words and values, read here. What a step does not know is a mistake, as everywhere.
//!
//! The names of a step's tensors are fixed (`engine/step.rs`): the maps of an ensemble give them others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::units::{Activation, Padding, Pooling};

/// The setting that says which step it is.
pub const STEP: &str = "step";

/// The settings of a step, by name, as text.
pub type Settings = BTreeMap<String, String>;

/// What a built-in step does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Texts to token ids.
    Tokenize {
        /// Its `tokenizer.json`.
        tokenizer: PathBuf,
        /// Where texts are cut; absent = as the tokenizer's file says.
        max_tokens: Option<usize>,
        /// How short ones are filled up.
        padding: Padding,
    },
    /// Token ids to texts.
    Detokenize {
        /// Its `tokenizer.json`.
        tokenizer: PathBuf,
        /// Whether tokens that stand for no text are left out.
        skip_special_tokens: bool,
    },
    /// The states of a text's tokens to one vector.
    Pool(Pooling),
    /// Vectors to length 1.
    Normalize,
    /// Scores to probabilities.
    Activate(Activation),
    /// Scores to the place and the value of the highest.
    Argmax,
    /// Places to the names of what stands there.
    Label(Vec<String>),
    /// Scores to whether they are at least so high.
    Threshold(f32),
}

/// All steps, each with its settings.
const STEPS: [(&str, &[&str]); 9] = [
    ("argmax", &[]),
    ("detokenize", &["tokenizer", "skip_special_tokens"]),
    ("label", &["label_filename"]),
    ("normalize", &[]),
    ("pool", &["pooling"]),
    ("sigmoid", &[]),
    ("softmax", &[]),
    ("threshold", &["threshold"]),
    (
        "tokenize",
        &["tokenizer", "max_tokens", "padding", "pad_to_multiple_of"],
    ),
];

/// The most tokens that a text may be cut to or filled up to.
pub const TOKENS: usize = 1 << 20;

/// The step that these settings describe, of a model in this folder.
pub fn read(settings: &Settings, folder: &Path) -> Result<Step, String> {
    let asked = settings.get(STEP).map_or("", String::as_str);
    let Some((name, known)) = STEPS.iter().find(|(name, _)| *name == asked) else {
        let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        return Err(format!("step: \"{asked}\"; expected one of {names}"));
    };
    let strange = |key: &&String| *key != STEP && !known.contains(&key.as_str());
    if let Some(key) = settings.keys().find(strange) {
        let takes = match known {
            [] => "no settings".to_owned(),
            known => known.join(", "),
        };
        return Err(format!("{key}: the step {name} takes {takes}"));
    }
    Ok(match *name {
        "tokenize" => Step::Tokenize {
            tokenizer: tokenizer(settings, folder)?,
            max_tokens: tokens(settings, "max_tokens")?,
            padding: padding(settings)?,
        },
        "detokenize" => Step::Detokenize {
            tokenizer: tokenizer(settings, folder)?,
            skip_special_tokens: value(settings, "skip_special_tokens", "true or false")?
                .unwrap_or(true),
        },
        "pool" => Step::Pool(pooling(settings)?),
        "normalize" => Step::Normalize,
        "softmax" => Step::Activate(Activation::Softmax),
        "sigmoid" => Step::Activate(Activation::Sigmoid),
        "label" => Step::Label(labels(settings, folder)?),
        "threshold" => Step::Threshold(threshold(settings)?),
        _ => Step::Argmax,
    })
}

/// A setting's value, if it is given.
fn value<T: FromStr>(settings: &Settings, key: &str, expected: &str) -> Result<Option<T>, String> {
    let read = |text: &String| {
        let wrong = |_| format!("{key}: \"{text}\"; expected {expected}");
        text.parse().map_err(wrong)
    };
    settings.get(key).map(read).transpose()
}

fn tokens(settings: &Settings, key: &str) -> Result<Option<usize>, String> {
    let expected = format!("a whole number from 1 to {TOKENS}");
    match value(settings, key, &expected)? {
        Some(number) if !(1..=TOKENS).contains(&number) => {
            Err(format!("{key}: \"{number}\"; expected {expected}"))
        }
        given => Ok(given),
    }
}

fn tokenizer(settings: &Settings, folder: &Path) -> Result<PathBuf, String> {
    let named = settings.get("tokenizer").map(String::as_str);
    let path = folder.join(named.unwrap_or("tokenizer.json"));
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("tokenizer: {} does not exist", path.display())),
    }
}

fn padding(settings: &Settings) -> Result<Padding, String> {
    let multiple = tokens(settings, "pad_to_multiple_of")?;
    let how = settings.get("padding").map(String::as_str);
    match (how, multiple) {
        (None | Some("longest"), multiple) => Ok(Padding::Longest(multiple.unwrap_or(1))),
        (Some("max_length"), None) => Ok(Padding::Most),
        (Some("max_length"), Some(_)) => {
            Err("pad_to_multiple_of: it has no meaning beside padding \"max_length\"".into())
        }
        (Some(other), _) => Err(format!(
            "padding: \"{other}\"; expected \"longest\" or \"max_length\""
        )),
    }
}

fn pooling(settings: &Settings) -> Result<Pooling, String> {
    match settings.get("pooling").map(String::as_str) {
        None | Some("mean") => Ok(Pooling::Mean),
        Some("cls") => Ok(Pooling::Cls),
        Some(other) => Err(format!(
            "pooling: \"{other}\"; expected \"mean\" or \"cls\""
        )),
    }
}

fn labels(settings: &Settings, folder: &Path) -> Result<Vec<String>, String> {
    let file = settings.get("label_filename").map(String::as_str);
    let labels = super::lines(folder, file.unwrap_or("labels.txt"))?;
    match labels.is_empty() {
        true => Err("label_filename: the file is empty; expected a label on each line".into()),
        false => Ok(labels),
    }
}

fn threshold(settings: &Settings) -> Result<f32, String> {
    let least: Option<f32> = value(settings, "threshold", "a number")?;
    match least.unwrap_or(0.5) {
        least if least.is_finite() => Ok(least),
        least => Err(format!("threshold: \"{least}\"; expected a number")),
    }
}

/// The settings of a `model.toml` that is a step's: all its keys, as text.
pub fn from_toml(text: &str) -> Result<Option<Settings>, String> {
    let typed: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    if !typed.contains_key(STEP) {
        return Ok(None);
    }
    let plain = |(key, value): (String, toml::Value)| {
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            _ => return Err(format!("{key}: expected a single value")),
        };
        Ok((key, text))
    };
    typed
        .into_iter()
        .map(plain)
        .collect::<Result<_, _>>()
        .map(Some)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        fs::write(folder.path().join("labels.txt"), "cat\ndog\n").unwrap();
        fs::write(folder.path().join("none.txt"), "").unwrap();
        folder
    }

    #[test]
    fn every_step_has_a_meaning_without_settings() {
        let folder = folder();
        let step = |name: &str| {
            let settings = Settings::from([(STEP.to_owned(), name.to_owned())]);
            read(&settings, folder.path()).unwrap()
        };
        let all: Vec<Step> = STEPS.iter().map(|(name, _)| step(name)).collect();
        let tokenizer = folder.path().join("tokenizer.json");
        assert_eq!(
            all,
            [
                Step::Argmax,
                Step::Detokenize {
                    tokenizer: tokenizer.clone(),
                    skip_special_tokens: true
                },
                Step::Label(vec!["cat".into(), "dog".into()]),
                Step::Normalize,
                Step::Pool(Pooling::Mean),
                Step::Activate(Activation::Sigmoid),
                Step::Activate(Activation::Softmax),
                Step::Threshold(0.5),
                Step::Tokenize {
                    tokenizer,
                    max_tokens: None,
                    padding: Padding::Longest(1)
                },
            ]
        );
    }

    #[test]
    fn settings_of_either_file_are_read() {
        let folder = folder();
        let typed = "step = \"tokenize\"\nmax_tokens = 7\npadding = \"max_length\"";
        let settings = from_toml(typed).unwrap().unwrap();
        let Step::Tokenize {
            max_tokens,
            padding,
            ..
        } = read(&settings, folder.path()).unwrap()
        else {
            panic!("not the step tokenize")
        };
        assert_eq!((max_tokens, padding), (Some(7), Padding::Most));
        assert_eq!(from_toml("kind = \"tensor\""), Ok(None));
    }

    #[test]
    fn mistakes_are_named() {
        let folder = folder();
        for (typed, words) in [
            (
                "step = \"tokenise\"",
                "\"tokenise\"; expected one of argmax",
            ),
            (
                "step = \"tokenize\"\nmax_token = 1",
                "max_token: the step tokenize takes tokenizer, max_tokens",
            ),
            (
                "step = \"argmax\"\nthreshold = 1",
                "argmax takes no settings",
            ),
            ("step = \"tokenize\"\nmax_tokens = 0", "max_tokens: \"0\""),
            (
                "step = \"tokenize\"\nmax_tokens = 1048577",
                "max_tokens: \"1048577\"; expected a whole number from 1 to 1048576",
            ),
            (
                "step = \"tokenize\"\npad_to_multiple_of = 1048577",
                "pad_to_multiple_of: \"1048577\"; expected a whole number from 1 to 1048576",
            ),
            ("step = \"tokenize\"\nmax_tokens = -1", "max_tokens: \"-1\""),
            ("step = \"tokenize\"\ntokenizer = \"x\"", "does not exist"),
            (
                "step = \"tokenize\"\npadding = \"left\"",
                "padding: \"left\"",
            ),
            (
                "step = \"tokenize\"\npadding = \"max_length\"\npad_to_multiple_of = 8",
                "pad_to_multiple_of",
            ),
            (
                "step = \"detokenize\"\nskip_special_tokens = \"maybe\"",
                "true or false",
            ),
            ("step = \"pool\"\npooling = \"max\"", "pooling: \"max\""),
            (
                "step = \"label\"\nlabel_filename = \"../x\"",
                "not in the model's folder",
            ),
            (
                "step = \"label\"\nlabel_filename = \"none.txt\"",
                "is empty",
            ),
            (
                "step = \"threshold\"\nthreshold = \"nan\"",
                "threshold: \"NaN\"",
            ),
            (
                "step = \"threshold\"\nthreshold = [1]",
                "threshold: expected a single value",
            ),
        ] {
            let settings = from_toml(typed).map(Option::unwrap);
            let said = settings.and_then(|settings| read(&settings, folder.path()));
            let said = said.unwrap_err();
            assert!(said.contains(words), "{words:?} is missing in {said:?}");
        }
    }
}
