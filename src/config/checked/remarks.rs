//! What is no mistake, and yet does not do what it seems to: said by `forebay check` and at the start.

use super::super::plan::{Plan, TenantPlan, Timeouts, WorkerPlan};
use crate::config::typed::Section;
use crate::decide::{Amount, BudgetRule};
use crate::units::Seconds;

/// Everything of that kind, a sentence each.
pub fn remarks(root: &Section<'_>, plan: &Plan) -> Vec<String> {
    let mut remarks = Vec::new();
    for tenant in &plan.tenants {
        unreachable_models(tenant, plan, &mut remarks);
        unreachable_zones(tenant, plan, &mut remarks);
        free_of_charge(tenant, plan, &mut remarks);
    }
    if plan.jwt.is_some() && plan.tenants.is_empty() {
        let remark =
            "jwt: without a [[tenant]] nobody is asked for a key or a token, and all may in";
        remarks.push(remark.to_owned());
    }
    if plan.jwt.as_ref().is_some_and(|jwt| jwt.keys.count() == 0) {
        remarks.push("jwt: jwks holds no key, so every token is refused".to_owned());
    }
    let queue = root.section("queue");
    if queue.given("age_up").is_some() {
        futile_age_up(plan, &mut remarks);
    }
    if queue.given("newest_first").is_some() {
        futile_newest_first(plan, &mut remarks);
    }
    futile_ping(plan, &mut remarks);
    futile_swap_after(plan, &mut remarks);
    futile_heartbeat(plan, &mut remarks);
    futile_reserve(plan, &mut remarks);
    remarks
}

/// Models that no worker is configured to have, where all say what they have.
fn unreachable_models(tenant: &TenantPlan, plan: &Plan, remarks: &mut Vec<String>) {
    let named = |worker: &WorkerPlan| !worker.models.named().is_empty();
    if !plan.workers.iter().all(named) {
        return;
    }
    for model in tenant.models.iter().flatten() {
        let has = |worker: &WorkerPlan| {
            let mut aliases = worker.models.named().iter();
            let mut adapters = worker.lora.adapters.iter();
            aliases.any(|alias| alias.client == *model)
                || adapters.any(|adapter| adapter.name == *model)
        };
        if !plan.workers.iter().any(has) {
            let name = &tenant.name;
            remarks.push(format!(
                "tenant {name}: no worker is configured to have the model {model}"
            ));
        }
    }
}

fn unreachable_zones(tenant: &TenantPlan, plan: &Plan, remarks: &mut Vec<String>) {
    let zones = tenant.zones.as_ref();
    for zone in zones.into_iter().flat_map(|zones| zones.names.iter()) {
        let is_there = |worker: &WorkerPlan| {
            let region = plan.region_of(worker);
            region.is_some_and(|region| region.zone.as_ref().is_some_and(|own| own.name == *zone))
        };
        if !plan.workers.iter().any(is_there) {
            let name = &tenant.name;
            remarks.push(format!("tenant {name}: no worker is in the zone {zone}"));
        }
    }
}

/// Nobody of these classes waits until age would help; the highest needs no help.
fn futile_age_up(plan: &Plan, remarks: &mut Vec<String>) {
    let age_up = plan.queue.age_up;
    for class in plan.queue.classes.iter().skip(1) {
        let (name, wait) = (&class.name, class.wait);
        if wait < age_up {
            remarks.push(format!(
                "queue: age_up = {age_up} never helps the class {name}, which waits no longer than {wait}"
            ));
        }
    }
}

/// Who has waited so long is gone.
fn futile_newest_first(plan: &Plan, remarks: &mut Vec<String>) {
    for class in &plan.queue.classes {
        let (name, wait) = (&class.name, class.wait);
        if let Some(mark) = class.newest_first.filter(|mark| *mark >= wait) {
            remarks.push(format!(
                "queue: newest_first = {mark} never comes for the class {name}, which waits no longer than {wait}"
            ));
        }
    }
}

/// The others of the model that is out have gone before it may come in.
fn futile_swap_after(plan: &Plan, remarks: &mut Vec<String>) {
    let after = plan.queue.swap_after;
    let swaps = |worker: &WorkerPlan| worker.resident.is_some();
    if !plan.workers.iter().any(swaps) {
        return;
    }
    for class in plan
        .queue
        .classes
        .iter()
        .filter(|class| class.wait <= after)
    {
        let (name, wait) = (&class.name, class.wait);
        remarks.push(format!(
            "queue: swap_after = {after} swaps no model in for the class {name}, which waits no longer than {wait}, while another model is in demand"
        ));
    }
}

/// Nobody waits until the first of them.
fn futile_heartbeat(plan: &Plan, remarks: &mut Vec<String>) {
    let waits = plan.queue.classes.iter().map(|class| class.wait);
    let longest = waits.fold(plan.queue.wait_no_worker, Seconds::max);
    if let Some(heartbeat) = plan.queue.heartbeat.filter(|beat| *beat >= longest) {
        remarks.push(format!(
            "queue: heartbeat = {heartbeat} never comes: nobody waits longer than {longest}"
        ));
    }
}

/// A WebSocket is closed before either of its ends is asked whether it lives.
fn futile_ping(plan: &Plan, remarks: &mut Vec<String>) {
    let Timeouts {
        ping: Some(ping),
        between_bytes: Some(silence),
        ..
    } = plan.timeouts
    else {
        return;
    };
    if ping >= silence {
        remarks.push(format!(
            "timeouts: ping = {ping} never comes: between_bytes = {silence} closes a silent WebSocket before"
        ));
    }
}

/// Nobody is below the lowest class.
fn futile_reserve(plan: &Plan, remarks: &mut Vec<String>) {
    let lowest = plan.queue.classes.last();
    if let Some(class) = lowest.filter(|class| class.reserve > 0.0) {
        let name = &class.name;
        remarks.push(format!(
            "queue: reserve for {name} keeps nothing free: no class is lower"
        ));
    }
}

/// A budget in money, and machines that cost none.
fn free_of_charge(tenant: &TenantPlan, plan: &Plan, remarks: &mut Vec<String>) {
    let in_money = |rule: &BudgetRule| matches!(rule.most, Amount::Money(_));
    if !tenant.budgets.iter().any(in_money) {
        return;
    }
    let has_price = |worker: &&WorkerPlan| {
        let machine = plan.machine_of(worker);
        machine.is_some_and(|machine| machine.price_per_hour.is_some())
    };
    let name = &tenant.name;
    for worker in plan.workers.iter().filter(|worker| !has_price(worker)) {
        let worker = &worker.name;
        remarks.push(format!(
            "tenant {name}: what worker {worker} does costs nothing of its budget, as no [[machine]] of it has a price_per_hour"
        ));
    }
}
