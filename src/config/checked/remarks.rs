//! What is no mistake, and yet does not do what it seems to: said by `forebay check` and at the start.

use super::super::plan::{Plan, TenantPlan, WorkerPlan};
use crate::config::typed::Section;

/// Everything of that kind, a sentence each.
pub fn remarks(root: &Section<'_>, plan: &Plan) -> Vec<String> {
    let mut remarks = Vec::new();
    for tenant in &plan.tenants {
        unreachable_models(tenant, plan, &mut remarks);
        unreachable_zones(tenant, plan, &mut remarks);
    }
    if plan.jwt.is_some() && plan.tenants.is_empty() {
        let remark =
            "jwt: without a [[tenant]] nobody is asked for a key or a token, and all may in";
        remarks.push(remark.to_owned());
    }
    if root.section("queue").given("age_up").is_some() {
        futile_age_up(plan, &mut remarks);
    }
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
