//! `[eject]`, and a worker's own keys laid over it.

use crate::config::plan::EjectPlan;
use crate::config::typed::Section;
use crate::units::Seconds;

/// When failing requests take a worker out unless it says otherwise.
pub fn fleet(section: &Section<'_>) -> Option<EjectPlan> {
    let errors = section.count("errors");
    let window = section.duration("window");
    let first = section.duration("first");
    let max = section.duration("max");
    let plan = EjectPlan {
        errors: errors?,
        window: window?,
        first: first?,
        max: max?,
    };
    in_order(section, plan)
}

/// When failing requests take this worker out: by its own keys, else the fleet's.
pub fn eject(own: &Section<'_>, fleet: Option<&EjectPlan>) -> Option<EjectPlan> {
    let errors = own.given("errors").map(|value| value.count());
    let duration = |key| own.given(key).map(|value| value.duration());
    let (window, first, max) = (duration("window"), duration("first"), duration("max"));
    let fleet = fleet?;
    let plan = EjectPlan {
        errors: errors.unwrap_or(Some(fleet.errors))?,
        window: window.unwrap_or(Some(fleet.window))?,
        first: first.unwrap_or(Some(fleet.first))?,
        max: max.unwrap_or(Some(fleet.max))?,
    };
    in_order(own, plan)
}

/// The first ejection is not longer than the longest.
fn in_order(section: &Section<'_>, plan: EjectPlan) -> Option<EjectPlan> {
    let EjectPlan { first, max, .. } = plan;
    if first <= max {
        return Some(plan);
    }
    let typed = section.given("max").or_else(|| section.given("first"))?;
    typed.refuse_for(
        too_long(first, max),
        format!("write: max = \"{first}\", or first = \"{max}\""),
    );
    None
}

fn too_long(first: Seconds, max: Seconds) -> String {
    format!("the first ejection lasts {first}, and none may last longer than {max}")
}
