//! `lora`: adapters on top of a worker's base model.

use crate::config::plan::{AdapterPlan, Engine, LoraPlan, Models};
use crate::config::typed::{Section, Value};
use crate::units::ModelName;

/// The adapters of a worker that has these models.
pub fn lora(
    section: &Section<'_>,
    engine: Option<Engine>,
    models: Option<&Models>,
) -> Option<LoraPlan> {
    let slots = section.given("slots").and_then(|value| value.count());
    let adapters = section.given("adapters");
    let adapters = adapters.map_or(Some(Vec::new()), |value| self::adapters(&value, models));
    let load = section.value("load").and_then(|value| value.flag());
    if load == Some(true)
        && let Some(value) = section.given("load")
    {
        if engine.is_some_and(|engine| !engine.loads_adapters()) {
            value.refuse_for(
                "this engine can't be told to load adapters",
                "leave it out; vllm and sglang can be",
            );
        } else if adapters.as_ref().is_some_and(Vec::is_empty) {
            value.refuse("there is no adapter here to load");
        }
    }
    Some(LoraPlan {
        slots,
        load: load?,
        adapters: adapters?,
    })
}

fn adapters(value: &Value<'_>, models: Option<&Models>) -> Option<Vec<AdapterPlan>> {
    let read = value.entries()?.into_iter().map(|(name, path)| {
        let Some(name) = ModelName::sound(&name) else {
            path.refuse("the name of this adapter is empty, too long, or \"*\"");
            return None;
        };
        let named = models.map_or(&[][..], Models::named).iter();
        let mut others =
            named.filter(|alias| alias.client == name && alias.worker.as_ref() != Some(&name));
        if others.next().is_some() {
            path.refuse_for(
                "models gives this name to another model",
                "call one of them otherwise",
            );
        }
        let found_at = path.text()?;
        if found_at.is_empty() {
            path.refuse("this path is empty");
        }
        Some(AdapterPlan {
            name,
            path: found_at,
        })
    });
    read.collect()
}
