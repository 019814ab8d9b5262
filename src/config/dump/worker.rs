//! A worker of the plan as JSON.

use super::tls::show_trust;
use super::{HIDDEN, list, object, or_null, secret, show_overrides, text};
use crate::config::plan::{
    AdapterPlan, LoraPlan, ModelAlias, Models, Origin, ProbePlan, TestPlan, WorkerPlan,
};
use crate::config::words::Choice;
use crate::decide::EjectRule;

pub(super) fn show_worker(worker: &WorkerPlan) -> String {
    let WorkerPlan {
        id: _,
        name,
        origin,
        machine,
        engine,
        models,
        lora,
        resident,
        max_inflight,
        max_prompt_tokens,
        speed,
        key,
        headers,
        probe,
        eject,
        test,
        grpc,
        metrics,
        tier,
        tags,
        optional,
        timeouts,
    } = worker;
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, _)| (name.as_str(), text(HIDDEN)))
        .collect();
    let origins = [Some(origin), metrics.as_ref(), grpc.as_ref()].into_iter();
    let mut trust = origins.flatten().filter_map(|origin| origin.tls.as_ref());
    object(&[
        ("name", text(name)),
        ("url", show_origin(origin)),
        ("machine", or_null(machine.as_ref().map(text))),
        ("engine", or_null(engine.map(|engine| text(engine.word())))),
        ("models", show_models(models)),
        ("lora", show_lora(lora)),
        ("resident", or_null(resident.map(|most| most.to_string()))),
        (
            "max_inflight",
            or_null(max_inflight.map(|most| most.to_string())),
        ),
        (
            "max_prompt_tokens",
            or_null(max_prompt_tokens.map(|most| most.to_string())),
        ),
        ("speed", or_null(speed.map(|speed| speed.to_string()))),
        ("key", secret(key.as_ref())),
        ("headers", object(&headers)),
        ("probe", show_probe(probe)),
        ("eject", show_eject(eject)),
        ("test", show_test(test)),
        ("grpc_url", or_null(grpc.as_ref().map(show_origin))),
        ("metrics_url", or_null(metrics.as_ref().map(show_origin))),
        ("tier", tier.to_string()),
        ("tags", list(tags.iter().map(text))),
        ("tls", or_null(trust.next().map(|tls| show_trust(tls)))),
        ("optional", optional.to_string()),
        ("timeouts", show_overrides(timeouts)),
    ])
}

fn show_origin(origin: &Origin) -> String {
    let Origin {
        protocol,
        host: _,
        port: _,
        base,
        authority,
        tls: _,
    } = origin;
    text(format_args!("{}://{authority}{base}", protocol.word()))
}

/// `null` is all that the worker reports.
fn show_models(models: &Models) -> String {
    match models {
        Models::Reported => or_null(None),
        Models::Named(aliases) => object(&aliases.iter().map(show_model).collect::<Vec<_>>()),
    }
}

fn show_model(alias: &ModelAlias) -> (&str, String) {
    let ModelAlias { client, worker } = alias;
    let worker = worker.as_ref().map_or("*", |name| name.as_str());
    (client.as_str(), text(worker))
}

fn show_lora(lora: &LoraPlan) -> String {
    let LoraPlan {
        slots,
        load,
        adapters,
    } = lora;
    let show = |AdapterPlan { name, path }: &AdapterPlan| (name.to_string(), text(path));
    let adapters: Vec<_> = adapters.iter().map(show).collect();
    let adapters = adapters
        .iter()
        .map(|(name, path)| (name.as_str(), path.clone()));
    object(&[
        ("slots", or_null(slots.map(|most| most.to_string()))),
        ("load", load.to_string()),
        ("adapters", object(&adapters.collect::<Vec<_>>())),
    ])
}

fn show_probe(probe: &ProbePlan) -> String {
    let ProbePlan {
        path,
        interval,
        timeout,
        rise,
        fall,
    } = probe;
    object(&[
        ("path", or_null(path.as_ref().map(text))),
        ("interval", text(interval)),
        ("timeout", text(timeout)),
        ("rise", rise.to_string()),
        ("fall", fall.to_string()),
    ])
}

fn show_eject(eject: &EjectRule) -> String {
    let EjectRule {
        errors,
        window,
        first,
        max,
    } = eject;
    object(&[
        ("errors", errors.to_string()),
        ("window", text(window)),
        ("first", text(first)),
        ("max", text(max)),
    ])
}

fn show_test(test: &TestPlan) -> String {
    match test {
        TestPlan::Auto => text("auto"),
        TestPlan::Off => text("off"),
        TestPlan::File { path, body: _ } => object(&[("file", text(path.display()))]),
    }
}
