//! `[probe]`, and a worker's own keys laid over it.

use crate::config::plan::{Engine, ProbePlan};
use crate::config::typed::{Section, Value};

/// How this worker's liveness is asked: its own keys, else the fleet's, else the engine's path.
pub fn probe(fleet: &Section<'_>, own: &Section<'_>, engine: Option<Engine>) -> Option<ProbePlan> {
    let value = |key: &str| own.given(key).or_else(|| fleet.value(key));
    let interval = value("interval").and_then(|value| value.duration());
    let timeout = value("timeout").and_then(|value| value.duration());
    let rise = value("rise").and_then(|value| value.count());
    let fall = value("fall").and_then(|value| value.count());
    let path = match own.given("path").or_else(|| fleet.given("path")) {
        Some(typed) => Some(path(&typed)?),
        None => engine?.liveness_path().map(str::to_owned),
    };
    Some(ProbePlan {
        path,
        interval: interval?,
        timeout: timeout?,
        rise: rise?,
        fall: fall?,
    })
}

fn path(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let sound = text.starts_with('/')
        && !text.contains('#')
        && text.parse::<http::uri::PathAndQuery>().is_ok();
    if !sound {
        value.refuse("this is not a path on the worker");
    }
    sound.then_some(text)
}
