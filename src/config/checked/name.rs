//! Names of workers, machines, tenants, regions, zones and tags: given once, then referred to.

use std::sync::Arc;

use crate::config::suggest::nearest;
use crate::config::typed::{Section, Value};

const LONGEST: usize = 64;

/// The name of each table of a list, in their order; `None` where it is missing or wrong. `what` is a table's word in
/// messages.
pub fn names(sections: &[Section<'_>], what: &str) -> Vec<Option<Arc<str>>> {
    let mut names: Vec<Option<Arc<str>>> = Vec::new();
    for section in sections {
        let typed = section.value("name");
        let name = typed.as_ref().and_then(|value| name(value, what));
        let twin = names
            .iter()
            .position(|known| name.is_some() && *known == name);
        if let (Some(value), Some(twin)) = (typed, twin) {
            let line = sections.get(twin).map_or(0, Section::line);
            let message = format!("the {what} at line {line} has this name");
            value.refuse_for(message, format!("give each {what} a name of its own"));
        }
        names.push(name);
    }
    names
}

/// A sound name, for a table or a word of the operator's own.
pub fn name(value: &Value<'_>, what: &str) -> Option<Arc<str>> {
    let text = value.text()?;
    let sound = (1..=LONGEST).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !sound {
        value.refuse(format!("this is not a name for a {what}"));
    }
    sound.then(|| Arc::from(text))
}

/// The place of the table that a value names; when there is none, that is noted with the nearest that there is.
pub fn position(
    value: &Value<'_>,
    wanted: &str,
    what: &str,
    names: &[Option<Arc<str>>],
) -> Option<usize> {
    let found = names
        .iter()
        .position(|name| name.as_deref() == Some(wanted));
    if found.is_none() {
        let known: Vec<&str> = names.iter().flatten().map(AsRef::as_ref).collect();
        let way_out = instead(wanted, &known, || format!("give a [[{what}]] this name"));
        value.refuse_for(format!("there is no {what} of this name"), way_out);
    }
    found
}

/// The way out of a name that nothing has: the nearest that is known, else all of them, else what `none` says.
pub fn instead(wanted: &str, known: &[&str], none: impl FnOnce() -> String) -> String {
    match nearest(wanted, known.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => none(),
        None => format!("write one of: {}", known.join(", ")),
    }
}
