//! `[[route]]`: the operator's own paths.

use std::sync::Arc;

use crate::config::plan::{Pattern, RoutePlan, Timeouts, Zone};
use crate::config::typed::{Section, Value};
use crate::units::WorkerId;

use super::{name, region, tags, timeouts};

/// What routes refer to.
pub struct Fleet<'a> {
    /// The names of the workers.
    pub names: &'a [Option<Arc<str>>],
    /// What each of them carries.
    pub tags: &'a [Vec<Arc<str>>],
    /// The zones that there are.
    pub zones: &'a [Zone],
    /// The timeouts that hold everywhere.
    pub timeouts: Option<&'a Timeouts>,
}

/// The routes in their order; every pattern can match, every worker exists.
pub fn routes(sections: &[Section<'_>], fleet: &Fleet<'_>) -> Option<Vec<RoutePlan>> {
    let mut known: Vec<(Pattern, usize)> = Vec::new();
    let mut read: Vec<Option<RoutePlan>> = Vec::new();
    for section in sections {
        let pattern = pattern(section, &known);
        known.extend(pattern.clone().map(|pattern| (pattern, section.line())));
        read.push(route(section, pattern, fleet));
    }
    read.into_iter().collect()
}

fn route(section: &Section<'_>, pattern: Option<Pattern>, fleet: &Fleet<'_>) -> Option<RoutePlan> {
    let workers = match section.given("workers") {
        Some(typed) => workers(&typed, fleet.names),
        None => Some((0..fleet.names.len()).filter_map(id).collect()),
    };
    let tags = tags::tags(section);
    let workers = workers.map(|workers| carrying(section, workers, &tags, fleet.tags));
    let zones = section.given("zones");
    let zones = zones.map(|list| region::of_list(&list, fleet.zones));
    let repeat = section.choice("repeat");
    let own = timeouts::overrides(&section.section("timeouts"));
    Some(RoutePlan {
        pattern: pattern?,
        workers: workers?,
        tags,
        zones: zones.flatten(),
        repeat: repeat?,
        timeouts: fleet.timeouts?.under(&own),
    })
}

fn pattern(section: &Section<'_>, known: &[(Pattern, usize)]) -> Option<Pattern> {
    let value = section.value("path")?;
    let text = value.text()?;
    let prefix = text.ends_with("/*");
    let plain = if prefix {
        &text[..text.len() - 1]
    } else {
        text.as_str()
    };
    if !plain.starts_with('/') {
        value.refuse("a path starts with /");
        return None;
    }
    if plain.contains('*') {
        value.refuse("* stands only at the end, after a /");
        return None;
    }
    if plain.contains(['?', '#']) || plain.parse::<http::uri::PathAndQuery>().is_err() {
        value.refuse("this holds characters that no path has");
        return None;
    }
    let text: Arc<str> = Arc::from(text);
    let pattern = Pattern { text, prefix };
    if let Some((earlier, line)) = known.iter().find(|(earlier, _)| covers(earlier, &pattern)) {
        let message = format!(
            "the route at line {line}, {}, takes all of this before",
            earlier.text
        );
        value.refuse_for(message, "put the narrower route first, or leave it out");
    }
    Some(pattern)
}

/// Whether nothing is left for the later of two patterns.
fn covers(earlier: &Pattern, later: &Pattern) -> bool {
    let narrowest = later.text.trim_end_matches('*');
    let all_below = earlier.prefix || !later.prefix;
    all_below && earlier.matches(narrowest)
}

fn workers(list: &Value<'_>, names: &[Option<Arc<str>>]) -> Option<Arc<[WorkerId]>> {
    if list.is_empty() {
        let way_out = "name a worker, or leave the key out for all";
        list.refuse_for("nobody could answer on this route", way_out);
    }
    let mut ids: Vec<WorkerId> = Vec::new();
    for item in list.items()? {
        let found = worker(&item, names);
        if found.is_some_and(|id| ids.contains(&id)) {
            item.refuse_for("this worker is listed twice", "write it once");
        }
        ids.extend(found);
    }
    Some(ids.into())
}

/// Those of the workers that carry all tags.
fn carrying(
    section: &Section<'_>,
    workers: Arc<[WorkerId]>,
    tags: &[Arc<str>],
    carried: &[Vec<Arc<str>>],
) -> Arc<[WorkerId]> {
    let Some(typed) = section.given("tags") else {
        return workers;
    };
    if typed.is_empty() {
        typed.refuse_for("there is no tag in this list", "leave the key out");
    }
    let has_all = |id: &WorkerId| {
        let own = carried.get(id.index());
        own.is_some_and(|own| tags.iter().all(|tag| own.contains(tag)))
    };
    let left: Arc<[WorkerId]> = workers.iter().copied().filter(has_all).collect();
    if tags::are_carried(&typed, carried) && left.is_empty() {
        let way_out = "ask for fewer, or let a worker of this route carry them";
        typed.refuse_for("no worker of this route carries all of these", way_out);
    }
    left
}

fn worker(value: &Value<'_>, names: &[Option<Arc<str>>]) -> Option<WorkerId> {
    let wanted = value.text()?;
    name::position(value, &wanted, "worker", names).and_then(id)
}

fn id(position: usize) -> Option<WorkerId> {
    u32::try_from(position).ok().map(WorkerId)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Pattern {
        Pattern {
            text: Arc::from(text),
            prefix: text.ends_with("/*"),
        }
    }

    #[test]
    fn a_pattern_covers_what_it_leaves_nothing_of() {
        assert!(covers(&typed("/raw/*"), &typed("/raw/a")));
        assert!(covers(&typed("/raw/*"), &typed("/raw/a/*")));
        assert!(covers(&typed("/raw"), &typed("/raw")));
        assert!(!covers(&typed("/raw/*"), &typed("/raw")));
        assert!(!covers(&typed("/raw/"), &typed("/raw/*")));
        assert!(!covers(&typed("/raw/a/*"), &typed("/raw/*")));
    }
}
