//! `[routing]`: the rule of choice and the number of tries.

use crate::config::plan::{Retries, RetryOn, Routing};
use crate::config::typed::Section;
use crate::decide::Policy;

/// The rule and the tries.
pub fn routing(section: &Section<'_>) -> Option<Routing> {
    let policy = policy(section);
    let horizon = section.duration("horizon");
    let all_down = section.choice("all_down");
    let retries = retries(&section.section("retries"));
    let sample_above = section.count("sample_above");
    Some(Routing {
        policy: policy?,
        horizon: horizon?,
        all_down: all_down?,
        retries: retries?,
        sample_above: sample_above?,
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

/// `weighted` is the contract's word for a policy that is still to come.
fn policy(section: &Section<'_>) -> Option<Policy> {
    let value = section.value("policy")?;
    if value.is_word("weighted") {
        value.refuse_for(
            "this policy is not supported by this version yet",
            "write: policy = \"least_time\"",
        );
        return None;
    }
    value.choice()
}
