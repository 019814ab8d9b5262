//! The plan as JSON, for `/api/config`: what is in force, every default filled in, in the words and the order of a file.
//!
//! Each struct is taken apart by name, so that a new field can't be forgotten here. Secrets show as `***`, and so do the
//! values of headers, which may be secrets too. The text is put together by hand because a JSON tree would lose the
//! order; every string in it is escaped by the JSON library.

use std::fmt::Display;

use super::plan::{
    AccessTarget, KeyPlan, Limits, Listen, LogPlan, MachinePlan, ModelAlias, Models, Origin, Plan,
    ProbePlan, Retries, RoutePlan, Routing, Secret, TenantPlan, TestPlan, TimeoutOverrides,
    Timeouts, WorkerPlan,
};
use super::words::Choice;
use crate::clock;
use crate::decide::{EjectRule, Quotas};
use crate::units::Seconds;

const HIDDEN: &str = "***";

/// The plan as a JSON object.
#[must_use]
pub fn json(plan: &Plan) -> String {
    let Plan {
        state,
        drain,
        listen,
        admin_token,
        limits,
        dns,
        routing,
        machines,
        workers,
        routes,
        tenants,
        timeouts,
        log,
    } = plan;
    let route = |route| show_route(route, workers);
    object(&[
        ("state", text(state.display())),
        ("drain", text(drain)),
        ("listen", show_listen(listen)),
        ("admin", object(&[("token", secret(admin_token.as_ref()))])),
        ("limits", show_limits(limits)),
        ("timeouts", show_timeouts(timeouts)),
        ("dns", object(&[("servers", list(dns.iter().map(text)))])),
        ("routing", show_routing(routing)),
        ("machine", list(machines.iter().map(show_machine))),
        ("worker", list(workers.iter().map(show_worker))),
        ("route", list(routes.iter().map(route))),
        ("tenant", list(tenants.iter().map(show_tenant))),
        ("log", show_log(log)),
    ])
}

fn show_listen(listen: &Listen) -> String {
    let Listen { http, admin } = listen;
    object(&[
        ("http", list(http.iter().map(text))),
        ("admin", text(admin)),
    ])
}

fn show_limits(limits: &Limits) -> String {
    let Limits {
        body,
        buffered,
        header,
        header_timeout,
        idle,
    } = limits;
    object(&[
        ("body", text(body)),
        ("buffered", text(buffered)),
        ("header", text(header)),
        ("header_timeout", text(header_timeout)),
        ("idle", text(idle)),
    ])
}

fn show_timeouts(timeouts: &Timeouts) -> String {
    let Timeouts {
        connect,
        first_byte,
        answer,
        between_bytes,
        total,
    } = timeouts;
    object(&[
        ("connect", text(connect)),
        ("first_byte", timer(*first_byte)),
        ("answer", timer(*answer)),
        ("between_bytes", timer(*between_bytes)),
        ("total", timer(*total)),
    ])
}

/// `null` falls through to the next layer.
fn show_overrides(timeouts: &TimeoutOverrides) -> String {
    let TimeoutOverrides {
        connect,
        first_byte,
        answer,
        between_bytes,
        total,
    } = timeouts;
    object(&[
        ("connect", or_null(connect.map(text))),
        ("first_byte", or_null(first_byte.map(timer))),
        ("answer", or_null(answer.map(timer))),
        ("between_bytes", or_null(between_bytes.map(timer))),
        ("total", or_null(total.map(timer))),
    ])
}

fn show_routing(routing: &Routing) -> String {
    let Routing {
        policy,
        horizon,
        all_down,
        retries,
        sample_above,
    } = routing;
    let Retries { extra, on } = retries;
    let retries = object(&[
        ("extra", extra.to_string()),
        ("on", list(on.iter().map(|kind| text(kind.word())))),
    ]);
    object(&[
        ("policy", text(policy.word())),
        ("horizon", text(horizon)),
        ("all_down", text(all_down.word())),
        ("retries", retries),
        ("sample_above", sample_above.to_string()),
    ])
}

fn show_machine(machine: &MachinePlan) -> String {
    let MachinePlan {
        name,
        watts,
        idle_watts,
        price_per_hour,
    } = machine;
    let number = |number: Option<f64>| or_null(number.map(|number| number.to_string()));
    object(&[
        ("name", text(name)),
        ("watts", number(*watts)),
        ("idle_watts", number(*idle_watts)),
        ("price_per_hour", or_null(price_per_hour.map(text))),
    ])
}

fn show_worker(worker: &WorkerPlan) -> String {
    let WorkerPlan {
        name,
        origin,
        machine,
        engine,
        models,
        max_inflight,
        max_prompt_tokens,
        speed,
        key,
        headers,
        probe,
        eject,
        test,
        metrics,
        timeouts,
    } = worker;
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, _)| (name.as_str(), text(HIDDEN)))
        .collect();
    object(&[
        ("name", text(name)),
        ("url", show_origin(origin)),
        ("machine", or_null(machine.as_ref().map(text))),
        ("engine", or_null(engine.map(|engine| text(engine.word())))),
        ("models", show_models(models)),
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
        ("metrics_url", or_null(metrics.as_ref().map(show_origin))),
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

fn show_route(route: &RoutePlan, fleet: &[WorkerPlan]) -> String {
    let RoutePlan {
        pattern,
        workers,
        repeat,
        timeouts,
    } = route;
    let named = workers.iter().filter_map(|id| fleet.get(id.index()));
    object(&[
        ("path", text(&pattern.text)),
        ("workers", list(named.map(|worker| text(&worker.name)))),
        ("repeat", text(repeat.word())),
        ("timeouts", show_timeouts(timeouts)),
    ])
}

fn show_tenant(tenant: &TenantPlan) -> String {
    let TenantPlan {
        name,
        keys,
        models,
        quotas,
        private_prefix,
    } = tenant;
    let Quotas {
        concurrent,
        requests,
        tokens,
    } = quotas;
    let most = |count: &Option<u32>| or_null(count.map(|count| count.to_string()));
    let models = models.as_ref().map(|names| list(names.iter().map(text)));
    object(&[
        ("name", text(name)),
        ("key_hash", list(keys.iter().map(show_key))),
        ("models", or_null(models)),
        ("max_concurrent", most(concurrent)),
        ("requests_per_minute", most(requests)),
        ("tokens_per_minute", most(tokens)),
        ("private_prefix", private_prefix.to_string()),
    ])
}

/// A hash is told by its beginning.
fn show_key(key: &KeyPlan) -> String {
    let KeyPlan { hash, until } = key;
    object(&[
        ("hash", text(hash.beginning())),
        (
            "until",
            or_null(until.map(|until| text(clock::rfc3339(until)))),
        ),
    ])
}

fn show_log(log: &LogPlan) -> String {
    let LogPlan {
        level,
        access,
        replay,
    } = log;
    let access = match access {
        AccessTarget::Stdout => text("stdout"),
        AccessTarget::Off => text("off"),
        AccessTarget::File(path) => text(path.display()),
    };
    object(&[
        ("level", text(level.word())),
        ("access", access),
        ("replay", replay.to_string()),
    ])
}

fn secret(secret: Option<&Secret>) -> String {
    or_null(secret.map(|_| text(HIDDEN)))
}

fn timer(timer: Option<Seconds>) -> String {
    timer.map_or_else(|| text("off"), text)
}

/// A JSON string.
fn text(value: impl Display) -> String {
    sonic_rs::to_string(&value.to_string()).unwrap_or_else(|_| or_null(None))
}

fn or_null(json: Option<String>) -> String {
    json.unwrap_or_else(|| "null".to_owned())
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A JSON object out of names and JSON values.
fn object(members: &[(&str, String)]) -> String {
    let member = |(name, json): &(&str, String)| format!("{}:{json}", text(name));
    format!(
        "{{{}}}",
        members.iter().map(member).collect::<Vec<_>>().join(",")
    )
}
