//! `[routing]`: the rule of choice and the number of tries.

use crate::config::plan::Routing;
use crate::config::typed::Section;
use crate::decide::Policy;

/// The rule and the tries.
pub fn routing(section: &Section<'_>) -> Option<Routing> {
    let policy = policy(section);
    let extra = section.section("retries").count("extra");
    Some(Routing {
        policy: policy?,
        extra: extra?,
    })
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
