//! `[[tenant]]`: who may send requests, by which keys, and how many.

use std::sync::Arc;

use super::money::OneCurrency;
use super::{budget, models, name, region};
use crate::clock;
use crate::config::plan::{
    ClassPlan, KeyFile, KeyHash, KeyPlan, MachinePlan, TenantPlan, Zone, read_keys,
};
use crate::config::typed::{Section, Value};
use crate::decide::Quotas;
use crate::units::Seconds;

/// What stands in logs and metrics where there is no tenant.
const NOBODY: &str = "-";

/// A hash that was read, and where: the tenant, its name if it has one, and the line of its table.
struct Known {
    hash: KeyHash,
    tenant: Option<Arc<str>>,
    line: usize,
}

impl Known {
    /// That a tenant has this hash as well.
    fn told(&self, also: Option<&Arc<str>>) -> String {
        let line = self.line;
        match (&self.tenant, also) {
            (Some(first), Some(also)) if first == also => {
                format!("\"{first}\" has this hash already")
            }
            (Some(first), Some(also)) => {
                format!("\"{also}\" and \"{first}\" at line {line} have the same hash")
            }
            _ => format!("the tenant at line {line} has this hash"),
        }
    }
}

/// What tenants may be given.
pub struct Offered<'a> {
    /// The classes; `None` when they can't be read.
    pub classes: Option<&'a [ClassPlan]>,
    /// The zones that there are.
    pub zones: &'a [Zone],
    /// What budgets are in.
    pub currency: &'a OneCurrency,
    /// Whether tokens may name a tenant, so that it needs no key.
    pub has_tokens: bool,
    /// The machines that cost something; `None` when they can't be read.
    pub machines: Option<&'a [MachinePlan]>,
}

/// The tenants in their order; no two share a name or a key.
pub fn tenants(sections: &[Section<'_>], offered: &Offered<'_>) -> Option<Vec<TenantPlan>> {
    let names = name::names(sections, "tenant");
    let mut known: Vec<Known> = Vec::new();
    let read: Vec<Option<TenantPlan>> = sections
        .iter()
        .zip(names)
        .map(|(section, name)| tenant(section, name, offered, &mut known))
        .collect();
    read.into_iter().collect()
}

fn tenant(
    section: &Section<'_>,
    name: Option<Arc<str>>,
    offered: &Offered<'_>,
    known: &mut Vec<Known>,
) -> Option<TenantPlan> {
    if name.as_deref() == Some(NOBODY) {
        let message = "this stands for requests without a tenant";
        section.value("name")?.refuse(message);
    }
    let key_file = section.given("key_file");
    let keys = match section.given("key_hash") {
        Some(value) => keys_of(&value.concealed(), section, name.as_ref(), known),
        None => Some(Vec::new()),
    };
    if key_file.is_none() && !offered.has_tokens && section.given("key_hash").is_none() {
        section.missing("key_hash");
    }
    let key_file = key_file.and_then(|value| key_file_of(&value, section, name.as_ref(), known));
    let models = section.given("models");
    let models = models.and_then(|value| models::names(&value));
    let class = section.given("class");
    let class = class.and_then(|value| class_of(&value, offered.classes));
    let zones = section.given("zones");
    let zones = zones.and_then(|list| region::of_list(&list, offered.zones));
    let count = |key| section.given(key).and_then(|value| value.count());
    let quotas = Quotas {
        concurrent: count("max_concurrent"),
        requests: count("requests_per_minute"),
        tokens: count("tokens_per_minute"),
    };
    let budgets = section.given("budget");
    let budgets = budgets.map_or(Some(Vec::new()), |value| {
        budget::budgets(&value, offered.currency, offered.machines)
    });
    let private_prefix = section.value("private_prefix");
    let private_prefix = private_prefix.and_then(|value| value.flag());
    Some(TenantPlan {
        name: name?,
        keys: keys?,
        key_file,
        models: models.map(|names| names.into_iter().collect()),
        class: class.unwrap_or_default(),
        zones,
        quotas,
        budgets: budgets?,
        private_prefix: private_prefix?,
    })
}

/// The place of a class among them.
fn class_of(value: &Value<'_>, classes: Option<&[ClassPlan]>) -> Option<u8> {
    let wanted = value.text()?;
    let names: Vec<_> = classes?
        .iter()
        .map(|class| Some(class.name.clone()))
        .collect();
    let place = name::position(value, &wanted, "class", &names)?;
    u8::try_from(place).ok()
}

/// One hash, or a list of hashes and of tables with a hash and the day on which it ends. None is repeated in a message:
/// what is typed in the place of a hash may be the key itself.
fn keys_of(
    value: &Value<'_>,
    section: &Section<'_>,
    tenant: Option<&Arc<str>>,
    known: &mut Vec<Known>,
) -> Option<Vec<KeyPlan>> {
    if value.is_empty() {
        value.refuse("there is no key here: nobody could be this tenant");
    }
    let listed = if value.is_text() {
        None
    } else {
        Some(value.items()?)
    };
    let typed = listed.as_deref().unwrap_or(std::slice::from_ref(value));
    let mut keys = Vec::new();
    for item in typed {
        let Some(key) = key(item) else { continue };
        if let Some(twin) = known.iter().find(|twin| twin.hash == key.hash) {
            let message = twin.told(tenant);
            item.refuse_for(message, "make a key for each: forebay key new");
        }
        known.push(Known {
            hash: key.hash,
            tenant: tenant.cloned(),
            line: section.line(),
        });
        keys.push(key);
    }
    Some(keys)
}

/// A file of keys, as it is now.
fn key_file_of(
    value: &Value<'_>,
    section: &Section<'_>,
    tenant: Option<&Arc<str>>,
    known: &mut Vec<Known>,
) -> Option<KeyFile> {
    let path = value.path()?;
    let keys = match read_keys(&path) {
        Ok(keys) => keys,
        Err(error) => {
            let message = format!("this file of keys can't be used: {error}");
            value.refuse_for(
                message,
                "a line is: sha256:… [until=2027-01-01] [# comment]",
            );
            return None;
        }
    };
    for key in &keys {
        if let Some(twin) = known.iter().find(|twin| twin.hash == key.hash) {
            let (hash, message) = (key.hash.beginning(), twin.told(tenant));
            let message = format!("{hash} in this file: {message}");
            value.refuse_for(message, "make a key for each: forebay key new");
        }
        known.push(Known {
            hash: key.hash,
            tenant: tenant.cloned(),
            line: section.line(),
        });
    }
    Some(KeyFile { path, keys })
}

fn key(value: &Value<'_>) -> Option<KeyPlan> {
    if !value.is_table() {
        let hash = hash(value)?;
        return Some(KeyPlan { hash, until: None });
    }
    let (mut found, mut until) = (None, None);
    for (name, typed) in value.entries()? {
        match name.as_str() {
            "hash" => found = Some(hash(&typed)),
            "until" => until = moment(&typed),
            _ => typed.refuse("a key has a hash and an until, and nothing else"),
        }
    }
    let Some(hash) = found else {
        value.refuse("the hash is missing");
        return None;
    };
    Some(KeyPlan { hash: hash?, until })
}

fn hash(value: &Value<'_>) -> Option<KeyHash> {
    let text = value.text()?;
    let hash = KeyHash::typed(&text);
    if hash.is_none() {
        value.refuse_for(
            "this is not the hash of a key",
            "write what `forebay key new` prints: key_hash = \"sha256:…\"",
        );
    }
    hash
}

fn moment(value: &Value<'_>) -> Option<Seconds> {
    let text = value.text()?;
    let moment = clock::from_rfc3339(&text);
    if moment.is_none() {
        value.refuse_for(
            "this is neither a date nor a time in UTC",
            "write: until = \"2027-01-01\", or \"2027-01-01T12:00:00Z\"",
        );
    }
    moment
}
