//! `models`: what clients say and what the worker gets.

use std::collections::BTreeSet;

use crate::config::plan::{ModelAlias, Models};
use crate::config::typed::Value;
use crate::units::ModelName;

/// Stands for the only model that a worker reports.
const ONLY: &str = "*";

/// The models of a worker, at least one, each client name once.
pub fn models(value: &Value<'_>) -> Option<Models> {
    let aliases = if value.is_table() {
        renamed(value)
    } else {
        kept(value)
    };
    aliases.map(Models::Named)
}

/// A list of names, at least one, none twice.
pub fn names(value: &Value<'_>) -> Option<Vec<ModelName>> {
    if value.is_empty() {
        value.refuse("there is no model here");
    }
    let mut known = BTreeSet::new();
    let mut names = Vec::new();
    for item in value.items()? {
        let Some(name) = name(&item) else { continue };
        if !known.insert(name.clone()) {
            item.refuse_for("this model is listed twice", "write it once");
        }
        names.push(name);
    }
    Some(names)
}

fn kept(value: &Value<'_>) -> Option<Vec<ModelAlias>> {
    let alias = |name: ModelName| ModelAlias {
        client: name.clone(),
        worker: Some(name),
    };
    Some(names(value)?.into_iter().map(alias).collect())
}

fn renamed(value: &Value<'_>) -> Option<Vec<ModelAlias>> {
    if value.is_empty() {
        value.refuse("there is no model here");
    }
    let mut models = Vec::new();
    for (client, item) in value.entries()? {
        let Some(client) = ModelName::sound(&client) else {
            item.refuse("the client's name for this model is empty, too long, or \"*\"");
            continue;
        };
        let worker = if item.is_word(ONLY) {
            None
        } else {
            let Some(named) = name(&item) else { continue };
            Some(named)
        };
        models.push(ModelAlias { client, worker });
    }
    Some(models)
}

fn name(value: &Value<'_>) -> Option<ModelName> {
    let text = value.text()?;
    let name = ModelName::sound(&text);
    if name.is_none() {
        value.refuse("this name is empty, too long, \"*\", or holds control characters");
    }
    name
}
