//! The plan as JSON, for `/api/config`: what is in force, every default filled in, in the words and the order of a file.
//!
//! Each struct is taken apart by name, so that a new field can't be forgotten here. Secrets show as `***`, and so do the
//! values of headers, which may be secrets too. The text is put together by hand because a JSON tree would lose the
//! order; every string in it is escaped by the JSON library.

mod limits;
mod tls;
mod worker;

use std::fmt::Display;

use super::plan::{
    AccessTarget, ClassPlan, JwtPlan, KeyPlan, Listen, LogPlan, MachinePlan, Plan, QueuePlan,
    RegionPlan, Retries, RoutePlan, Routing, Secret, TenantPlan, TimeoutOverrides, Timeouts,
    WorkerPlan,
};
use super::words::Choice;
use crate::clock;
use crate::decide::{Quotas, RegionId};
use crate::units::{Seconds, WorkerId};
use limits::show_limits;
use tls::show_tls;
use worker::show_worker;

const HIDDEN: &str = "***";

/// The plan as a JSON object.
#[must_use]
pub fn json(plan: &Plan) -> String {
    let Plan {
        state,
        drain,
        workers_dir,
        currency,
        listen,
        admin_token,
        limits,
        dns,
        routing,
        queue,
        regions,
        machines,
        workers,
        routes,
        tenants,
        jwt,
        timeouts,
        log,
        files: _,
        remarks: _,
    } = plan;
    let route = |route| show_route(route, workers);
    let region = |region| show_region(region, regions);
    let machine = |machine| show_machine(machine, regions);
    object(&[
        ("state", text(state.display())),
        ("drain", text(drain)),
        (
            "workers_dir",
            or_null(workers_dir.as_ref().map(|folder| text(folder.display()))),
        ),
        ("currency", or_null(currency.map(text))),
        ("listen", show_listen(listen, regions)),
        ("admin", object(&[("token", secret(admin_token.as_ref()))])),
        ("limits", show_limits(limits)),
        ("timeouts", show_timeouts(timeouts)),
        ("dns", object(&[("servers", list(dns.iter().map(text)))])),
        ("routing", show_routing(routing)),
        ("queue", show_queue(queue)),
        ("region", list(regions.iter().map(region))),
        ("machine", list(machines.iter().map(machine))),
        ("worker", list(workers.iter().map(show_worker))),
        ("route", list(routes.iter().map(route))),
        (
            "tenant",
            list(tenants.iter().map(|tenant| show_tenant(tenant, queue))),
        ),
        ("jwt", or_null(jwt.as_ref().map(show_jwt))),
        ("log", show_log(log)),
    ])
}

fn show_listen(listen: &Listen, regions: &[RegionPlan]) -> String {
    let Listen {
        http,
        admin,
        trusted_proxies,
        region,
        geoip,
        tls,
    } = listen;
    let geoip = geoip.as_ref().map(|geoip| text(geoip.path().display()));
    object(&[
        ("http", list(http.iter().map(text))),
        ("admin", text(admin)),
        ("trusted_proxies", list(trusted_proxies.iter().map(text))),
        ("region", region_name(*region, regions)),
        ("geoip", or_null(geoip)),
        ("tls", or_null(tls.as_ref().map(|tls| show_tls(tls)))),
    ])
}

fn show_region(region: &RegionPlan, regions: &[RegionPlan]) -> String {
    let RegionPlan {
        name,
        zone,
        round_trips,
        networks,
        countries,
    } = region;
    let named = |(to, span): &(RegionId, Seconds)| {
        let to = regions.get(usize::from(to.0))?;
        Some((&*to.name, text(span)))
    };
    let round_trips: Vec<_> = round_trips.iter().filter_map(named).collect();
    object(&[
        ("name", text(name)),
        ("zone", or_null(zone.as_ref().map(|zone| text(&zone.name)))),
        ("rtt", object(&round_trips)),
        ("networks", list(networks.iter().map(text))),
        ("countries", list(countries.iter().map(text))),
    ])
}

fn region_name(region: Option<RegionId>, regions: &[RegionPlan]) -> String {
    let region = region.and_then(|id| regions.get(usize::from(id.0)));
    or_null(region.map(|region| text(&region.name)))
}

fn show_timeouts(timeouts: &Timeouts) -> String {
    let Timeouts {
        connect,
        first_byte,
        answer,
        between_bytes,
        total,
        ping,
    } = timeouts;
    object(&[
        ("connect", text(connect)),
        ("first_byte", timer(*first_byte)),
        ("answer", timer(*answer)),
        ("between_bytes", timer(*between_bytes)),
        ("total", timer(*total)),
        ("ping", timer(*ping)),
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
        ping,
    } = timeouts;
    object(&[
        ("connect", or_null(connect.map(text))),
        ("first_byte", or_null(first_byte.map(timer))),
        ("answer", or_null(answer.map(timer))),
        ("between_bytes", or_null(between_bytes.map(timer))),
        ("total", or_null(total.map(timer))),
        ("ping", or_null(ping.map(timer))),
    ])
}

fn show_routing(routing: &Routing) -> String {
    let Routing {
        policy,
        horizon,
        all_down,
        retries,
        sample_above,
        cost,
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
        ("cost", or_null(cost.map(text))),
    ])
}

fn show_queue(queue: &QueuePlan) -> String {
    let QueuePlan {
        classes,
        entries,
        bytes,
        wait_no_worker,
        age_up,
        heartbeat,
        swap_after,
    } = queue;
    let by_class = |show: &dyn Fn(&ClassPlan) -> String| {
        let members: Vec<_> = classes
            .iter()
            .map(|class| (&*class.name, show(class)))
            .collect();
        object(&members)
    };
    object(&[
        (
            "classes",
            list(classes.iter().map(|class| text(&class.name))),
        ),
        ("entries", entries.to_string()),
        ("bytes", text(bytes)),
        ("wait", by_class(&|class| text(class.wait))),
        ("wait_no_worker", text(wait_no_worker)),
        ("age_up", text(age_up)),
        ("heartbeat", timer(*heartbeat)),
        ("newest_first", by_class(&|class| timer(class.newest_first))),
        ("swap_after", text(swap_after)),
        ("reserve", by_class(&|class| class.reserve.to_string())),
    ])
}

fn show_machine(machine: &MachinePlan, regions: &[RegionPlan]) -> String {
    let MachinePlan {
        name,
        region,
        watts,
        idle_watts,
        price_per_hour,
    } = machine;
    let number = |number: Option<f64>| or_null(number.map(|number| number.to_string()));
    object(&[
        ("name", text(name)),
        ("region", region_name(*region, regions)),
        ("watts", number(*watts)),
        ("idle_watts", number(*idle_watts)),
        ("price_per_hour", or_null(price_per_hour.map(text))),
    ])
}

fn show_route(route: &RoutePlan, fleet: &[WorkerPlan]) -> String {
    let RoutePlan {
        pattern,
        workers,
        tags,
        zones,
        repeat,
        timeouts,
    } = route;
    let zones = zones
        .as_ref()
        .map(|zones| list(zones.names.iter().map(text)));
    let of_id = |id: &WorkerId| fleet.iter().find(|worker| worker.id == *id);
    let named = workers.iter().filter_map(of_id);
    object(&[
        ("path", text(&pattern.text)),
        ("workers", list(named.map(|worker| text(&worker.name)))),
        ("tags", list(tags.iter().map(text))),
        ("zones", or_null(zones)),
        ("repeat", text(repeat.word())),
        ("timeouts", show_timeouts(timeouts)),
    ])
}

fn show_tenant(tenant: &TenantPlan, queue: &QueuePlan) -> String {
    let TenantPlan {
        name,
        keys,
        key_file,
        models,
        class,
        zones,
        quotas,
        budgets,
        private_prefix,
    } = tenant;
    let Quotas {
        concurrent,
        requests,
        tokens,
    } = quotas;
    let most = |count: &Option<u32>| or_null(count.map(|count| count.to_string()));
    let key_file = key_file.as_ref().map(|file| text(file.path.display()));
    let models = models.as_ref().map(|names| list(names.iter().map(text)));
    let class = queue.classes.get(usize::from(*class));
    let zones = zones
        .as_ref()
        .map(|zones| list(zones.names.iter().map(text)));
    object(&[
        ("name", text(name)),
        ("key_hash", list(keys.iter().map(show_key))),
        ("key_file", or_null(key_file)),
        ("models", or_null(models)),
        ("class", or_null(class.map(|class| text(&class.name)))),
        ("zones", or_null(zones)),
        ("max_concurrent", most(concurrent)),
        ("requests_per_minute", most(requests)),
        ("tokens_per_minute", most(tokens)),
        ("budget", list(budgets.iter().map(text))),
        ("private_prefix", private_prefix.to_string()),
    ])
}

fn show_jwt(jwt: &JwtPlan) -> String {
    let JwtPlan {
        path,
        keys: _,
        issuer,
        audience,
        claim,
    } = jwt;
    object(&[
        ("jwks", object(&[("file", text(path.display()))])),
        ("issuer", text(issuer)),
        ("audience", text(audience)),
        ("claim", text(claim)),
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
