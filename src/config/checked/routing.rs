//! `[routing]`: the rule of choice and the number of tries.

use super::cost;
use super::money::OneCurrency;
use crate::config::plan::{MachinePlan, Retries, RetryOn, Routing};
use crate::config::typed::Section;

/// The rule and the tries.
pub fn routing(
    section: &Section<'_>,
    currency: &OneCurrency,
    machines: Option<&[MachinePlan]>,
) -> Option<Routing> {
    let policy = section.choice("policy");
    let horizon = section.duration("horizon");
    let all_down = section.choice("all_down");
    let retries = retries(&section.section("retries"));
    let sample_above = section.count("sample_above");
    let cost = section.given("cost");
    let cost = cost.and_then(|value| cost::cost(&value, currency, machines));
    Some(Routing {
        policy: policy?,
        horizon: horizon?,
        all_down: all_down?,
        retries: retries?,
        sample_above: sample_above?,
        cost,
    })
}

fn retries(section: &Section<'_>) -> Option<Retries> {
    let extra = section.count("extra");
    let mut on: Vec<RetryOn> = Vec::new();
    for item in section.value("on")?.items()? {
        let Some(kind) = item.choice() else { continue };
        if on.contains(&kind) {
            item.refuse_for("this word is listed twice", "write it once");
        }
        on.push(kind);
    }
    Some(Retries { extra: extra?, on })
}
