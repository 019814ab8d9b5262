//! `[[worker]]`: one machine each.

use std::sync::Arc;

use super::{headers, models, origin, probe, timeouts};
use crate::config::plan::{Engine, ProbePlan, WorkerPlan};
use crate::config::typed::{Section, Value};

const LONGEST_NAME: usize = 64;

/// The name of each worker, in their order; `None` where it is missing or wrong.
pub fn names(sections: &[Section<'_>]) -> Vec<Option<Arc<str>>> {
    let mut names: Vec<Option<Arc<str>>> = Vec::new();
    for section in sections {
        let typed = section.value("name");
        let name = typed.as_ref().and_then(name);
        let twin = names
            .iter()
            .position(|known| name.is_some() && *known == name);
        if let (Some(value), Some(twin)) = (typed, twin) {
            let line = sections.get(twin).map_or(0, Section::line);
            let message = format!("the worker at line {line} has this name");
            value.refuse_for(message, "give each worker a name of its own");
        }
        names.push(name);
    }
    names
}

fn name(value: &Value<'_>) -> Option<Arc<str>> {
    let text = value.text()?;
    let sound = (1..=LONGEST_NAME).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !sound {
        value.refuse("this is not a name for a worker");
    }
    sound.then(|| Arc::from(text))
}

/// The workers in their order.
pub fn workers(
    sections: &[Section<'_>],
    names: &[Option<Arc<str>>],
    fleet_probe: Option<&ProbePlan>,
) -> Option<Vec<WorkerPlan>> {
    let read: Vec<Option<WorkerPlan>> = sections
        .iter()
        .zip(names)
        .map(|(section, name)| worker(section, name.clone(), fleet_probe))
        .collect();
    read.into_iter().collect()
}

fn worker(
    section: &Section<'_>,
    name: Option<Arc<str>>,
    fleet_probe: Option<&ProbePlan>,
) -> Option<WorkerPlan> {
    let key = section.given("key");
    let has_key = key.is_some();
    let origin = section.value("url").and_then(origin::origin);
    let engine: Option<Engine> = section.choice("engine");
    let models = section
        .value("models")
        .and_then(|value| models::models(&value));
    let max_inflight = section.count("max_inflight");
    let speed = section.given("speed").and_then(|value| value.number());
    let key = key.and_then(|value| value.secret());
    let headers = section
        .given("headers")
        .and_then(|value| headers::headers(value, has_key));
    let probe = probe::probe(&section.section("probe"), fleet_probe, engine);
    let timeouts = timeouts::overrides(&section.section("timeouts"));
    Some(WorkerPlan {
        name: name?,
        origin: origin?,
        engine: engine?,
        models: models?,
        max_inflight: max_inflight?,
        speed,
        key,
        headers: headers.unwrap_or_default(),
        probe: probe?,
        timeouts,
    })
}
