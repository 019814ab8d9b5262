//! `[[route]]`: the operator's own paths.

use std::sync::Arc;

use crate::config::plan::{Pattern, RoutePlan, Timeouts};
use crate::config::typed::{Section, Value};
use crate::units::WorkerId;

use super::{name, timeouts};

/// The routes in their order; every pattern can match, every worker exists.
pub fn routes(
    sections: &[Section<'_>],
    names: &[Option<Arc<str>>],
    fleet: Option<&Timeouts>,
) -> Option<Vec<RoutePlan>> {
    let mut known: Vec<(Pattern, usize)> = Vec::new();
    let mut read: Vec<Option<RoutePlan>> = Vec::new();
    for section in sections {
        let pattern = pattern(section, &known);
        known.extend(pattern.clone().map(|pattern| (pattern, section.line())));
        read.push(route(section, pattern, names, fleet));
    }
    read.into_iter().collect()
}

fn route(
    section: &Section<'_>,
    pattern: Option<Pattern>,
    names: &[Option<Arc<str>>],
    fleet: Option<&Timeouts>,
) -> Option<RoutePlan> {
    let workers = match section.given("workers") {
        Some(typed) => workers(&typed, names),
        None => Some((0..names.len()).filter_map(id).collect()),
    };
    let repeat = section.choice("repeat");
    let own = timeouts::overrides(&section.section("timeouts"));
    Some(RoutePlan {
        pattern: pattern?,
        workers: workers?,
        repeat: repeat?,
        timeouts: fleet?.under(&own),
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
