//! Stage two: each section checked by itself, then against the others.
//!
//! One file per section. Each reads all of its keys before it gives up, so that the operator hears of every mistake.

mod budget;
mod cost;
mod eject;
mod headers;
mod jwt;
mod limits;
mod listen;
mod log;
mod lora;
mod machine;
mod models;
mod money;
mod name;
mod network;
mod origin;
mod probe;
mod queue;
mod region;
mod remarks;
mod route;
mod routing;
mod state;
mod tags;
mod tenant;
mod test_request;
mod timeouts;
mod tls;
mod worker;
mod workers_dir;

use std::sync::Arc;

pub use origin::named as origin;
pub use state::by_environment as usual_state;
pub use workers_dir::worker_files;

use super::Glance;
use super::plan::{Listen, Plan, RegionPlan, Zone};
use super::typed::Section;

/// The plan, if nothing is wrong; what is wrong has been noted with the section's reader. `alone` are workers that have a
/// file of their own.
pub fn plan<'a>(root: &Section<'a>, alone: Vec<Section<'a>>) -> Option<Plan> {
    let state = state::state(root);
    let drain = root.duration("drain");
    let currency = money::OneCurrency::of(root);
    let tenants = root.sections("tenant");
    let jwt = jwt::given(root);
    let admin_token = root.section("admin").given("token");
    let admin_token = admin_token.and_then(|value| value.secret());
    let limits = limits::limits(&root.section("limits"));
    let timeouts = timeouts::timeouts(&root.section("timeouts"));
    let dns = root.section("dns").given("servers");
    let dns = dns.map_or_else(Vec::new, |servers| listen::servers(&servers));
    let queue = queue::queue(&root.section("queue"));
    let probe = probe::fleet(&root.section("probe"));
    let eject = eject::fleet(&root.section("eject"));
    let log = log::log(&root.section("log"));

    let Places {
        regions,
        region_names,
        zones,
        listen,
    } = places(root, !tenants.is_empty());

    let workers = all_workers(root, alone);
    let names = name::names(&workers, "worker");
    let machines = root.sections("machine");
    let machine_names = name::names(&machines, "machine");
    let known = machine::Known {
        regions: &region_names,
        workers: &workers,
        currency: &currency,
    };
    let machines = machine::machines(&machines, &machine_names, &known);
    let routing = routing::routing(&root.section("routing"), &currency, machines.as_deref());
    let tags: Vec<_> = workers.iter().map(tags::tags).collect();
    let fleet = worker::Fleet {
        probe,
        eject,
        machines: machine_names,
    };
    let workers = worker::workers(&workers, &names, &fleet);
    let allowed = route::Fleet {
        names: &names,
        tags: &tags,
        zones: &zones,
        timeouts: timeouts.as_ref(),
    };
    let routes = route::routes(&root.sections("route"), &allowed);
    let offered = tenant::Offered {
        classes: queue.as_ref().map(|queue| queue.classes.as_slice()),
        zones: &zones,
        currency: &currency,
        machines: machines.as_deref(),
        has_tokens: jwt.is_some(),
    };
    let tenants = tenant::tenants(&tenants, &offered);

    let mut plan = Plan {
        state: state?,
        drain: drain?,
        workers_dir: workers_dir::folder(root),
        currency: currency.get(),
        listen: listen?,
        admin_token,
        limits: limits?,
        dns,
        routing: routing?,
        queue: queue?,
        regions: regions?,
        machines: machines?,
        workers: workers?,
        routes: routes?,
        tenants: tenants?,
        jwt: jwt.map_or(Some(None), |jwt| jwt.map(Some))?,
        timeouts: timeouts?,
        log: log?,
        files: Vec::new(),
        remarks: Vec::new(),
    };
    plan.remarks = remarks::remarks(root, &plan);
    Some(plan)
}

fn all_workers<'a>(root: &Section<'a>, alone: Vec<Section<'a>>) -> Vec<Section<'a>> {
    let mut workers = root.sections("worker");
    workers.extend(alone);
    if workers.is_empty() {
        root.missing("worker");
    }
    workers
}

/// What leads to a running process, as far as it can be read.
pub fn glance(root: &Section<'_>) -> Glance {
    let token = root.section("admin").given("token");
    Glance {
        state: state::state(root),
        admin_token: token.and_then(|value| value.secret()),
    }
}

/// Where machines, clients and the proxy itself are.
struct Places {
    regions: Option<Vec<RegionPlan>>,
    region_names: Vec<Option<Arc<str>>>,
    zones: Vec<Zone>,
    listen: Option<Listen>,
}

fn places(root: &Section<'_>, has_tenants: bool) -> Places {
    let sections = root.sections("region");
    let names = name::names(&sections, "region");
    let zones = region::zones(&sections);
    let listen = root.section("listen");
    let has_database = listen.given("geoip").is_some();
    let regions = region::regions(&sections, &names, &zones, has_database);
    let has_countries = |region: &Section<'_>| region.given("countries").is_some();
    let known = listen::Known {
        regions: &names,
        has_countries: sections.iter().any(has_countries),
        has_tenants,
    };
    Places {
        listen: listen::listen(&listen, &known),
        regions,
        region_names: names,
        zones,
    }
}
