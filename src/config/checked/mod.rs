//! Stage two: each section checked by itself, then against the others.
//!
//! One file per section. Each reads all of its keys before it gives up, so that the operator hears of every mistake.

mod eject;
mod headers;
mod limits;
mod listen;
mod log;
mod machine;
mod models;
mod name;
mod origin;
mod probe;
mod route;
mod routing;
mod state;
mod tenant;
mod test_request;
mod timeouts;
mod worker;

use super::plan::Plan;
use super::typed::Section;

/// The plan, if nothing is wrong; what is wrong has been noted with the section's reader.
pub fn plan(root: &Section<'_>) -> Option<Plan> {
    let state = state::state(root);
    let drain = root.duration("drain");
    let tenants = root.sections("tenant");
    let listen = listen::listen(&root.section("listen"), !tenants.is_empty());
    let admin_token = root.section("admin").given("token");
    let admin_token = admin_token.and_then(|value| value.secret());
    let limits = limits::limits(&root.section("limits"));
    let timeouts = timeouts::timeouts(&root.section("timeouts"));
    let dns = root.section("dns").given("servers");
    let dns = dns.map_or_else(Vec::new, |servers| listen::servers(&servers));
    let routing = routing::routing(&root.section("routing"));
    let probe = probe::fleet(&root.section("probe"));
    let eject = eject::fleet(&root.section("eject"));
    let log = log::log(&root.section("log"));

    let workers = root.sections("worker");
    if workers.is_empty() {
        root.missing("worker");
    }
    let names = name::names(&workers, "worker");
    let machines = root.sections("machine");
    let machine_names = name::names(&machines, "machine");
    let machines = machine::machines(&machines, &machine_names, &workers);
    let fleet = worker::Fleet {
        probe,
        eject,
        machines: machine_names,
    };
    let workers = worker::workers(&workers, &names, &fleet);
    let tenants = tenant::tenants(&tenants);
    let routes = route::routes(&root.sections("route"), &names, timeouts.as_ref());

    Some(Plan {
        state: state?,
        drain: drain?,
        listen: listen?,
        admin_token,
        limits: limits?,
        dns,
        routing: routing?,
        machines: machines?,
        workers: workers?,
        routes: routes?,
        tenants: tenants?,
        timeouts: timeouts?,
        log: log?,
    })
}
