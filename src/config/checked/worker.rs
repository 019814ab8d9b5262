//! `[[worker]]`: one engine each.

use std::sync::Arc;

use super::{
    eject, headers, lora, machine, models, origin, probe, tags, test_request, timeouts, tls,
};
use crate::config::plan::{Engine, Models, ProbePlan, WorkerPlan};
use crate::config::typed::Section;
use crate::decide::EjectRule;
use crate::units::WorkerId;

/// What holds for all workers, or is known by all.
pub struct Fleet {
    /// How liveness is asked.
    pub probe: Option<ProbePlan>,
    /// When failing requests take one out.
    pub eject: Option<EjectRule>,
    /// The names of the machines.
    pub machines: Vec<Option<Arc<str>>>,
}

/// The workers in their order.
pub fn workers(
    sections: &[Section<'_>],
    names: &[Option<Arc<str>>],
    fleet: &Fleet,
) -> Option<Vec<WorkerPlan>> {
    let read: Vec<Option<WorkerPlan>> = (0..)
        .map(WorkerId)
        .zip(sections.iter().zip(names))
        .map(|(id, (section, name))| worker(id, section, name.clone(), fleet))
        .collect();
    read.into_iter().collect()
}

fn worker(
    id: WorkerId,
    section: &Section<'_>,
    name: Option<Arc<str>>,
    fleet: &Fleet,
) -> Option<WorkerPlan> {
    let given = |key| section.given(key);
    let mut origin = section.value("url").and_then(origin::origin);
    let machine = given("machine").and_then(|value| machine::of_worker(&value, &fleet.machines));
    let engine: Option<Engine> = given("engine").and_then(|value| value.choice());
    let models = given("models").map_or(Some(Models::Reported), |value| models::models(&value));
    let lora = lora::lora(&section.section("lora"), engine, models.as_ref());
    let resident = given("resident").and_then(|value| value.count());
    let max_inflight = given("max_inflight").and_then(|value| value.count());
    let max_prompt_tokens = given("max_prompt_tokens").and_then(|value| value.count());
    let speed = given("speed").and_then(|value| value.number());
    let key = given("key");
    let has_key = key.is_some();
    let key = key.and_then(|value| value.secret());
    let headers = given("headers").and_then(|value| headers::headers(value, has_key));
    let probe = probe::probe(&section.section("probe"), fleet.probe.as_ref(), engine);
    let eject = eject::eject(&section.section("eject"), fleet.eject.as_ref());
    let test = section
        .value("test")
        .and_then(|value| test_request::test(&value));
    let mut grpc = given("grpc_url").and_then(|value| origin::grpc(value, origin.as_ref()));
    let mut metrics = given("metrics_url").and_then(origin::metrics);
    let trust = tls::trust(section, [origin.as_mut(), metrics.as_mut(), grpc.as_mut()]);
    let tier = section.count("tier");
    let tags = tags::tags(section);
    let optional = section.value("optional").and_then(|value| value.flag());
    let timeouts = timeouts::overrides(&section.section("timeouts"));
    Some(WorkerPlan {
        id,
        name: name?,
        origin: trust.and(origin)?,
        machine,
        engine,
        models: models?,
        lora: lora?,
        resident,
        max_inflight,
        max_prompt_tokens,
        speed,
        key,
        headers: headers.unwrap_or_default(),
        probe: probe?,
        eject: eject?,
        test: test?,
        grpc,
        metrics,
        tier: u8::try_from(tier?).ok()?,
        tags,
        optional: optional?,
        timeouts,
    })
}
