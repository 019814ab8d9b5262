//! `[probe]`, and a worker's own keys laid over it.

use crate::config::plan::{Engine, ProbePlan};
use crate::config::typed::{Section, Value};

/// How liveness is asked unless a worker says otherwise. No path means the engine's own.
pub fn fleet(section: &Section<'_>) -> Option<ProbePlan> {
    let path = section.given("path").and_then(|value| path(&value));
    let interval = section.duration("interval");
    let timeout = section.duration("timeout");
    let rise = section.count("rise");
    let fall = section.count("fall");
    Some(ProbePlan {
        path,
        interval: interval?,
        timeout: timeout?,
        rise: rise?,
        fall: fall?,
    })
}

/// How this worker's liveness is asked: by its own keys, else the fleet's, else the engine's path.
pub fn probe(
    own: &Section<'_>,
    fleet: Option<&ProbePlan>,
    engine: Option<Engine>,
) -> Option<ProbePlan> {
    let path = own.given("path").and_then(|value| path(&value));
    let interval = own.given("interval").and_then(|value| value.duration());
    let timeout = own.given("timeout").and_then(|value| value.duration());
    let rise = own.given("rise").and_then(|value| value.count());
    let fall = own.given("fall").and_then(|value| value.count());
    let fleet = fleet?;
    let of_the_engine = || engine?.liveness_path().map(str::to_owned);
    Some(ProbePlan {
        path: path.or_else(|| fleet.path.clone()).or_else(of_the_engine),
        interval: interval.unwrap_or(fleet.interval),
        timeout: timeout.unwrap_or(fleet.timeout),
        rise: rise.unwrap_or(fleet.rise),
        fall: fall.unwrap_or(fleet.fall),
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
