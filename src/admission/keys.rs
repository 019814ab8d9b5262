//! Keys: where a request brings one, and whose it is.
//!
//! A key is read from where clients put it: `Authorization: Bearer` (OpenAI's and most), `x-api-key` (Anthropic's),
//! `api-key` (Azure's). Two different keys in one request have two readings and are refused. Keys are compared by their
//! hashes alone; the key itself goes no further than this room.
//!
//! When a key expires is a date, so it is asked of the wall clock.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

use super::refusal;
use super::tenants::Tenant;
use crate::clock;
use crate::config::plan::{KeyHash, KeyPlan};
use crate::fault::Fault;
use crate::units::Seconds;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
/// The fields that a key may come in.
const KEY_FIELDS: [HeaderName; 3] = [AUTHORIZATION, X_API_KEY, API_KEY];
/// The scheme of a key in `Authorization` (RFC 6750), in any case (RFC 9110 §11.1).
const SCHEME: &[u8] = b"bearer ";

/// Every key that opens something.
#[derive(Default)]
pub(super) struct Ring {
    keys: BTreeMap<KeyHash, Key>,
    /// What is wrong with a tenant's keys, by its number.
    clashes: BTreeMap<u32, String>,
}

/// What a key opens.
struct Key {
    until: Option<Seconds>,
    tenant: Arc<Tenant>,
}

impl Ring {
    /// Whether another tenant has this key.
    pub(super) fn is_of_another(&self, key: &KeyPlan, tenant: &Tenant) -> bool {
        let key = self.keys.get(&key.hash);
        key.is_some_and(|key| key.tenant.number != tenant.number)
    }

    /// One more key of a tenant, unless somebody has it already, whose it then stays.
    pub(super) fn add(&mut self, key: &KeyPlan, tenant: &Arc<Tenant>) {
        match self.keys.entry(key.hash) {
            Entry::Occupied(taken) => {
                let (hash, owner) = (key.hash.beginning(), &taken.get().tenant.plan.name);
                let clash = format!("{hash} is a key of {owner} already, and opens nothing else");
                tracing::warn!(tenant = &*tenant.plan.name, "{clash}");
                self.clashes.insert(tenant.number, clash);
            }
            Entry::Vacant(place) => {
                place.insert(Key {
                    until: key.until,
                    tenant: Arc::clone(tenant),
                });
            }
        }
    }

    /// What is wrong with the keys of the tenant with this number.
    pub(super) fn clash(&self, tenant: u32) -> Option<&str> {
        self.clashes.get(&tenant).map(String::as_str)
    }

    /// Whose key this is; `None` when it is nobody's.
    ///
    /// # Errors
    /// `unauthorized` when it has expired.
    pub(super) fn owner(&self, key: &[u8]) -> Result<Option<Arc<Tenant>>, Fault> {
        match self.keys.get(&KeyHash::of(key)) {
            None => Ok(None),
            Some(Key {
                until: Some(until), ..
            }) if clock::wall() >= *until => Err(refusal::expired_key(*until)),
            Some(Key { tenant, .. }) => Ok(Some(Arc::clone(tenant))),
        }
    }
}

/// Whether a client's field may hold a key.
#[must_use]
pub fn may_hold_key(name: &HeaderName) -> bool {
    KEY_FIELDS.contains(name)
}

/// The key that a request brings.
///
/// # Errors
/// `bad_request` for two of them.
pub(super) fn brought(headers: &HeaderMap) -> Result<Option<&[u8]>, Fault> {
    let mut found: Option<&[u8]> = None;
    for field in &KEY_FIELDS {
        for value in headers.get_all(field) {
            let Some(key) = key_in(field, value.as_bytes()) else {
                continue;
            };
            if found.is_some_and(|other| other != key) {
                return Err(refusal::two_keys());
            }
            found = Some(key);
        }
    }
    Ok(found)
}

/// The key in a field; `Authorization` may hold something else.
fn key_in<'a>(field: &HeaderName, value: &'a [u8]) -> Option<&'a [u8]> {
    let key = if field == AUTHORIZATION {
        let (scheme, key) = value.split_at_checked(SCHEME.len())?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        key
    } else {
        value
    };
    Some(key.trim_ascii()).filter(|key| !key.is_empty())
}
