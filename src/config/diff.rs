//! What differs between two plans, key by key, for people: what is printed at a reload.
//!
//! Both are shown as `/api/config` shows them and compared there, so a key can't be forgotten here that is remembered
//! there. What that hides is compared apart, and stays hidden: that a secret is another one is told, and nothing of it.
//! What has a name is found again by it, wherever it stands; only for routes does the order mean something.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use sonic_rs::{JsonContainerTrait as _, JsonValueTrait as _, Value};

use super::dump;
use super::plan::{Plan, TenantPlan, TestPlan, WorkerPlan};

/// What stands where nothing does.
const UNSET: &str = "unset";

/// One key that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its path: `worker.desk.max_inflight`.
    pub key: String,
    /// What it was; absent where there was nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it is; absent where there is nothing any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { key, from, to } = self;
        match (from, to) {
            (None, Some(to)) => write!(f, "+ {key}: {to}"),
            (Some(from), None) => write!(f, "- {key}: {from}"),
            (from, to) => {
                let [from, to] = [from, to].map(|one| one.as_deref().unwrap_or(UNSET));
                write!(f, "~ {key}: {from} -> {to}")
            }
        }
    }
}

/// Everything that differs, by key.
#[must_use]
pub fn changes(before: &Plan, after: &Plan) -> Vec<Change> {
    let [old, new] = [before, after].map(flat);
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let differs = |key: &&String| old.get(*key) != new.get(*key);
    let change = |key: &String| Change {
        key: key.clone(),
        from: old.get(key).cloned(),
        to: new.get(key).cloned(),
    };
    let mut changes: Vec<_> = keys.into_iter().filter(differs).map(change).collect();
    summarise(&mut changes);
    changes.extend(hidden(before, after));
    changes.sort_by(|one, other| one.key.cmp(&other.key));
    changes
}

/// A plan as keys and values.
fn flat(plan: &Plan) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // What we have written ourselves can be read.
    let tree: Value = sonic_rs::from_str(&dump::json(plan)).unwrap_or_default();
    flatten("", &tree, &mut found);
    let order = plan.routes.iter().map(|route| &*route.pattern.text);
    found.insert("route.order".into(), order.collect::<Vec<_>>().join(", "));
    found
}

fn flatten(key: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    let under = |name: &str| match key {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    if let Some(members) = value.as_object() {
        for (name, member) in members {
            flatten(&under(name), member, found);
        }
    } else if let Some(items) = value.as_array().filter(|items| has_names(items)) {
        for item in items {
            let name = name_of(item).unwrap_or_default();
            flatten(&under(name), item, found);
        }
    } else if let Some(text) = value.as_str() {
        found.insert(key.to_owned(), text.to_owned());
    } else if !value.is_null() {
        found.insert(key.to_owned(), value.to_string());
    }
}

fn has_names(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|item| name_of(item).is_some())
}

fn name_of(item: &Value) -> Option<&str> {
    let name = item.get("name").or_else(|| item.get("path"))?;
    name.as_str()
}

/// What came or went whole is one line, with what tells it from others.
fn summarise(changes: &mut Vec<Change>) {
    let names: Vec<_> = changes
        .iter()
        .filter_map(|change| {
            let whole = change.from.is_none() || change.to.is_none();
            let (item, last) = change.key.rsplit_once('.')?;
            let is_name = matches!(last, "name" | "path") && item.contains('.');
            (whole && is_name).then(|| (item.to_owned(), change.clone()))
        })
        .collect();
    for (item, name) in names {
        let inside = |key: &str| {
            let rest = key.strip_prefix(item.as_str());
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        let url = format!("{item}.url");
        let told = changes.iter().find(|change| change.key == url);
        let told = told.cloned().unwrap_or(name);
        changes.retain(|change| !inside(&change.key));
        changes.push(Change { key: item, ..told });
    }
}

/// What differs and is not shown.
fn hidden(before: &Plan, after: &Plan) -> Vec<Change> {
    let mut keys = Vec::new();
    if before.admin_token != after.admin_token {
        keys.push("admin.token".to_owned());
    }
    let geoip = before
        .listen
        .geoip
        .as_ref()
        .zip(after.listen.geoip.as_ref());
    if geoip.is_some_and(|(old, new)| !old.is_as(new)) {
        keys.push("listen.geoip".to_owned());
    }
    let workers = after.workers.iter().filter_map(|new| {
        let mut old = before.workers.iter();
        Some((old.find(|old| old.name == new.name)?, new))
    });
    keys.extend(workers.flat_map(|(old, new)| secrets_of_worker(old, new)));
    let tenants = after.tenants.iter().filter_map(|new| {
        let mut old = before.tenants.iter();
        Some((old.find(|old| old.name == new.name)?, new))
    });
    let other_keys = |(old, new): &(&TenantPlan, &TenantPlan)| {
        old.keys
            .iter()
            .map(|key| key.hash)
            .ne(new.keys.iter().map(|key| key.hash))
    };
    let tenants = tenants.filter(other_keys);
    keys.extend(tenants.map(|(_, new)| format!("tenant.{}.key_hash", new.name)));
    let change = |key| Change {
        key,
        from: Some("***".to_owned()),
        to: Some("*** (another)".to_owned()),
    };
    keys.into_iter().map(change).collect()
}

fn secrets_of_worker(old: &WorkerPlan, new: &WorkerPlan) -> Vec<String> {
    let key = |what: &str| format!("worker.{}.{what}", new.name);
    let mut keys = Vec::new();
    if old.key != new.key {
        keys.push(key("key"));
    }
    if old.headers != new.headers {
        keys.push(key("headers"));
    }
    if let (TestPlan::File { body: old, .. }, TestPlan::File { body: new, .. }) =
        (&old.test, &new.test)
        && old != new
    {
        keys.push(key("test"));
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    const BEFORE: &str = r#"
        state = "unused"
        [[route]]
        path = "/a"
        workers = ["desk"]
        [[route]]
        path = "/b"
        workers = ["desk"]
        [[worker]]
        name = "desk"
        url = "http://127.0.0.1:1"
        key = { env = "KEY" }
        [[worker]]
        name = "old"
        url = "http://127.0.0.1:2"
    "#;

    fn plan(text: &str, key: &str) -> Plan {
        let env = |_: &str| Some(key.to_owned());
        config::parse(text, Path::new("test.toml"), &env).unwrap()
    }

    fn told(text: &str, key: &str) -> Vec<String> {
        let changes = changes(&plan(BEFORE, "one"), &plan(text, key));
        changes.iter().map(Change::to_string).collect()
    }

    #[test]
    fn the_same_text_differs_in_nothing() {
        assert_eq!(told(BEFORE, "one"), [""; 0]);
    }

    #[test]
    fn what_came_went_and_changed_is_told_by_its_key() {
        let after = BEFORE
            .replace("name = \"old\"", "name = \"new\"")
            .replace("127.0.0.1:1\"", "127.0.0.1:1\"\nmax_inflight = 4")
            + "[limits]\nbody = \"1MiB\"\n";
        assert_eq!(
            told(&after, "one"),
            [
                "~ limits.body: 32MiB -> 1MiB",
                "+ worker.desk.max_inflight: 4",
                "+ worker.new: http://127.0.0.1:2",
                "- worker.old: http://127.0.0.1:2",
            ]
        );
    }

    #[test]
    fn another_secret_is_told_and_not_shown() {
        let told = told(BEFORE, "two").join("\n");
        assert_eq!(told, "~ worker.desk.key: *** -> *** (another)");
    }

    #[test]
    fn the_order_of_routes_counts() {
        let after = BEFORE
            .replace("\"/a\"", "\"/c\"")
            .replace("\"/b\"", "\"/a\"");
        let after = after.replace("\"/c\"", "\"/b\"");
        assert_eq!(told(&after, "one"), ["~ route.order: /a, /b -> /b, /a"]);
    }
}
