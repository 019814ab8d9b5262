//! `tags`: what workers carry and routes ask for.

use std::sync::Arc;

use super::name;
use crate::config::typed::{Section, Value};

/// The tags of a worker or of a route, none twice.
pub fn tags(section: &Section<'_>) -> Vec<Arc<str>> {
    let Some(list) = section.given("tags") else {
        return Vec::new();
    };
    let mut known: Vec<Arc<str>> = Vec::new();
    for item in list.items().unwrap_or_default() {
        let Some(tag) = name::name(&item, "tag") else {
            continue;
        };
        if known.contains(&tag) {
            item.refuse_for("this tag is listed twice", "write it once");
        }
        known.push(tag);
    }
    known
}

/// Notes the tags of a list that nobody of these carries; false when there is one.
pub fn are_carried(list: &Value<'_>, carried: &[Vec<Arc<str>>]) -> bool {
    let known: Vec<&str> = carried.iter().flatten().map(AsRef::as_ref).collect();
    let mut all = true;
    for item in list.items().unwrap_or_default() {
        let Some(wanted) = item.text() else { continue };
        if !known.contains(&wanted.as_str()) {
            let none = || format!("write tags = [\"{wanted}\"] into a [[worker]]");
            let way_out = name::instead(&wanted, &known, none);
            item.refuse_for("no [[worker]] carries this tag", way_out);
            all = false;
        }
    }
    all
}
