//! The text of a configuration for engines that have been asked.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use super::alike::{Alike, Listed, alike};
use crate::cli::interviews::Told;
use crate::cli::names::{LONGEST, host_name, unique};
use crate::config::plan::{Engine, Origin};
use crate::config::{Choice as _, quoted};
use crate::decide;
use crate::fleet::Interview;
use crate::units::ModelName;

const HEAD: &str = "\
# Written by `forebay init`. Names are yours to change; `forebay reference KEY` tells what a key means.
# Next: save this as forebay.toml, then `forebay check --live`, then `forebay serve`.

[listen]
http = [\"127.0.0.1:7070\"]      # clients; an address of your network needs a [[tenant]] with a key, or open = true
admin = \"127.0.0.1:7071\"       # status page, metrics, admin API
";

/// Where comments of a line begin.
const MARGIN: usize = 30;
/// The most models that a comment names.
const NAMED: usize = 6;

/// What was asked where, and what was said.
pub struct Draft<'a> {
    /// As they were typed.
    pub urls: &'a [String],
    /// The same, read.
    pub origins: Vec<&'a Origin>,
    /// What each said.
    pub told: &'a [Told],
}

impl fmt::Display for Draft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        let alike = alike(&self.listed());
        let alike = without_clashes(alike, self.told);
        let names = self.names();
        for (place, told) in self.told.iter().enumerate() {
            let (name, url) = (&names[place], &self.urls[place]);
            match told {
                Ok(said) => {
                    worker(f, said, name, url)?;
                    models(f, said, place, &alike)?;
                }
                Err(why) => {
                    let (name, url) = (quoted(name), quoted(url));
                    write!(
                        f,
                        "\n# It does not answer: {why}.\n# [[worker]]\n# name = {name}\n# url = {url}\n"
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl Draft<'_> {
    /// A name for each worker: what tells most of it, and where that is another's, its address behind it.
    fn names(&self) -> Vec<String> {
        let mut taken = BTreeSet::new();
        let mut names = Vec::new();
        for (told, origin) in self.told.iter().zip(&self.origins) {
            names.push(unique(&base_name(told, origin), origin, &mut taken));
        }
        names
    }

    fn listed(&self) -> Vec<Listed<'_>> {
        let mut listed = Vec::new();
        for (worker, told) in self.told.iter().enumerate() {
            let Ok(Interview {
                models: Ok(models),
                engine,
                ..
            }) = told
            else {
                continue;
            };
            let is_tag = *engine == Ok(Engine::Ollama);
            listed.extend(models.iter().map(|name| Listed {
                worker,
                name: name.as_str(),
                is_tag,
            }));
        }
        listed
    }
}

/// Its host's name where that has one, else its engine's. Our own worker's engine tells nothing, so it is its model's.
fn base_name(told: &Told, origin: &Origin) -> String {
    if let Some(host) = host_name(&origin.host) {
        return host.to_owned();
    }
    let said = told.as_ref().ok();
    match said.map(|said| (&said.engine, said.models.as_deref())) {
        Some((Ok(Engine::Forebay), Ok([model]))) => model_name(model.as_str()),
        Some((Ok(Engine::Forebay), _)) => "onnx".to_owned(),
        Some((Ok(engine), _)) => engine.word().to_owned(),
        _ => "worker".to_owned(),
    }
}

/// A model's name as a worker's may be written.
fn model_name(model: &str) -> String {
    let last = model.rsplit('/').next().unwrap_or_default();
    let sound = |letter: char| {
        let is_sound = letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if is_sound { letter } else { '-' }
    };
    let name: String = last.chars().take(LONGEST).map(sound).collect();
    if name.is_empty() {
        return "onnx".to_owned();
    }
    name
}

/// A shared name that one of the workers has for something else would hide that.
fn without_clashes<'a>(alike: Vec<Alike<'a>>, told: &[Told]) -> Vec<Alike<'a>> {
    let clashes = |one: &Alike<'_>| {
        one.members.iter().any(|(worker, own)| {
            let models = told[*worker]
                .as_ref()
                .ok()
                .and_then(|said| said.models.as_ref().ok());
            let mut names = models.into_iter().flatten().map(|name| name.as_str());
            one.shared != *own && names.any(|name| name == one.shared)
        })
    };
    alike.into_iter().filter(|one| !clashes(one)).collect()
}

fn worker(f: &mut fmt::Formatter<'_>, said: &Interview, name: &str, url: &str) -> fmt::Result {
    let troubles = troubles(said);
    comments(f, said)?;
    for trouble in &troubles {
        writeln!(f, "# Trouble: {trouble}.")?;
    }
    let (name, url) = (quoted(name), quoted(url));
    writeln!(f, "[[worker]]\nname = {name}\nurl = {url}")?;
    match said.engine {
        Ok(engine) => writeln!(f, "engine = \"{}\"", engine.word())?,
        Err(_) => aside(f, "# engine = \"vllm\"", "asked again while it is served")?,
    }
    if let Some(grpc) = &said.grpc {
        writeln!(f, "grpc_url = \"h2c://{}\"", grpc.authority)?;
    }
    if troubles
        .iter()
        .any(|trouble| trouble.contains("the key is"))
    {
        aside(
            f,
            "# key = { env = \"KEY\" }",
            "the variable that holds its key",
        )?;
    }
    if said.bounds.slots.is_none() {
        aside(
            f,
            "# max_inflight = 8",
            "learned from traffic unless you say so",
        )?;
    }
    if said.engine == Ok(Engine::Generic) {
        aside(
            f,
            "# models = [\"NAME\"]",
            "it can't be asked; or write a [[route]] to it",
        )?;
    }
    Ok(())
}

/// What it said that decides nothing.
fn comments(f: &mut fmt::Formatter<'_>, said: &Interview) -> fmt::Result {
    let engine = match &said.engine {
        Ok(engine) => engine.word(),
        Err(_) => "an engine that can't be told yet",
    };
    let version = said.version.iter().map(|version| format!(" {version}"));
    let version: String = version.collect();
    let millis = said.round_trip.0 * 1e3;
    let bounds = bounds(&said.bounds);
    writeln!(
        f,
        "\n# {engine}{version}, a connection takes {millis:.1} ms. {bounds}"
    )?;
    if let Ok(models) = &said.models {
        writeln!(f, "# Models: {}.", listed(models))?;
    }
    if !said.adapters.is_empty() {
        writeln!(f, "# LoRA adapters: {}.", listed(&said.adapters))?;
    }
    Ok(())
}

/// The first of these names.
fn listed(names: &[ModelName]) -> String {
    let shown = names.iter().take(NAMED).map(ModelName::as_str);
    let shown: Vec<_> = shown.collect();
    match names.len().saturating_sub(NAMED) {
        _ if names.is_empty() => "none that it lists".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// What kept it from saying more, each once.
fn troubles(said: &Interview) -> BTreeSet<&String> {
    let engine = said.engine.as_ref().err();
    let (alive, models) = (said.alive.as_ref().err(), said.models.as_ref().err());
    [engine, alive, models].into_iter().flatten().collect()
}

/// A line that may become a key, with why.
fn aside(f: &mut fmt::Formatter<'_>, key: &str, why: &str) -> fmt::Result {
    writeln!(f, "{key:MARGIN$} # {why}")
}

/// What bounds its work, in a sentence for what it says and one for what it does not.
fn bounds(told: &decide::Told) -> String {
    let tokens = |what: &str, tokens: Option<f64>| Some(format!("{what} {:.0} tokens", tokens?));
    let said = [
        tokens("context", told.context),
        tokens("prompts up to", told.longest_prompt),
        tokens("KV memory", told.kv_tokens),
        told.slots.map(|slots| format!("{slots} slots")),
    ];
    let said: Vec<_> = said.into_iter().flatten().collect();
    let mut text = String::new();
    if !said.is_empty() {
        let _ = write!(text, "It says: {}. ", said.join(", "));
    }
    let context = told
        .context
        .or(told.longest_prompt)
        .is_none()
        .then_some("context");
    let silent: Vec<_> = context
        .into_iter()
        .chain(told.slots.is_none().then_some("slots"))
        .collect();
    if !silent.is_empty() {
        let _ = write!(text, "It does not say: {}.", silent.join(", "));
    }
    text.trim_end().to_owned()
}

/// All names of a worker that shares a model with others under another name.
fn models(
    f: &mut fmt::Formatter<'_>,
    said: &Interview,
    place: usize,
    alike: &[Alike<'_>],
) -> fmt::Result {
    let own = |one: &Alike<'_>| {
        let member = one.members.iter().find(|(worker, _)| *worker == place);
        member.map(|(_, own)| (*own).to_owned())
    };
    let shared: Vec<_> = alike
        .iter()
        .filter_map(|one| Some((one, own(one)?)))
        .collect();
    let (false, Ok(models)) = (shared.is_empty(), &said.models) else {
        return Ok(());
    };
    f.write_str(
        "\n# Left: what clients say. Right: what this engine calls it. Only these are served; without this table all that\n\
         # it lists are, under its own names.\n[worker.models]\n",
    )?;
    for (one, own) in &shared {
        let others = { one.members.iter() }.filter(|(worker, _)| *worker != place);
        let others: Vec<_> = others.map(|(_, name)| *name).collect();
        writeln!(
            f,
            "# The same model, by its name, as {}:",
            others.join(", ")
        )?;
        writeln!(f, "{} = {}", quoted(&one.shared), quoted(own))?;
    }
    let mut names: BTreeSet<_> = models
        .iter()
        .chain(&said.adapters)
        .map(|name| name.as_str())
        .collect();
    shared.iter().for_each(|(one, _)| {
        names.remove(one.shared.as_str());
    });
    names
        .iter()
        .try_for_each(|name| writeln!(f, "{0} = {0}", quoted(name)))
}
