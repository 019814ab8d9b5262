//! Who asks, and whether they may: keys, models, limits.
//!
//! A key is read from where clients put it: `Authorization: Bearer` (OpenAI's and most), `x-api-key` (Anthropic's),
//! `api-key` (Azure's). Two different keys in one request have two readings and are refused. Keys are compared by their
//! hashes alone; the key itself goes no further than this room.
//!
//! A request that passes is a [`Pass`]. What it takes (a place, tokens put aside) comes back once, however it ends,
//! because the exchange and the pass hold one [`Stay`] together and its end gives all back: the exchange says at its own
//! end what was used, and whoever is dropped last ends the stay.
//!
//! Without tenants nobody needs a key and nothing is read. When a key expires is a date, so it is the one thing here that
//! asks the wall clock; limits go by the monotonic one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;

use super::refusal;
use crate::clock::{self, Clock};
use crate::config::plan::{KeyHash, TenantPlan};
use crate::decide::{Allowance, Refused, Reserved, Zones};
use crate::fault::Fault;
use crate::observe::{Exchange, Metrics, Models, Spent};
use crate::units::{ModelName, Seconds};

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
/// The fields that a key may come in.
const KEY_FIELDS: [HeaderName; 3] = [AUTHORIZATION, X_API_KEY, API_KEY];
/// The scheme of a key in `Authorization` (RFC 6750), in any case (RFC 9110 §11.1).
const SCHEME: &[u8] = b"bearer ";

/// The door.
pub struct Admission {
    clock: Clock,
    /// Empty where nobody needs a key.
    keys: BTreeMap<KeyHash, Key>,
}

/// What a key opens.
struct Key {
    until: Option<Seconds>,
    tenant: Arc<Tenant>,
}

struct Tenant {
    /// Counted from 1.
    number: u32,
    plan: TenantPlan,
    series: Arc<Models>,
    allowance: Mutex<Allowance>,
}

/// A request that was let in.
pub struct Pass(Option<Guest>);

struct Guest {
    clock: Clock,
    stay: Arc<Stay>,
}

/// What a request holds of its tenant's allowance.
struct Stay {
    tenant: Arc<Tenant>,
    bill: Mutex<Bill>,
}

/// What was put aside, and what was used as soon as that is known.
#[derive(Default)]
struct Bill {
    reserved: Reserved,
    used: Option<Reserved>,
}

/// Whether a client's field may hold a key.
#[must_use]
pub fn may_hold_key(name: &HeaderName) -> bool {
    KEY_FIELDS.contains(name)
}

impl Admission {
    /// A door for these tenants; open to everybody when there are none.
    ///
    /// # Errors
    /// When a tenant's metrics can't be made.
    pub fn new(tenants: &[TenantPlan], clock: Clock, metrics: &Metrics) -> io::Result<Self> {
        let mut keys = BTreeMap::new();
        for (number, plan) in (1..).zip(tenants) {
            let tenant = Arc::new(Tenant {
                number,
                series: metrics.of_tenant(&plan.name)?,
                allowance: Mutex::new(Allowance::whole(plan.quotas)),
                plan: plan.clone(),
            });
            for key in &plan.keys {
                let tenant = Arc::clone(&tenant);
                let until = key.until;
                keys.insert(key.hash, Key { until, tenant });
            }
        }
        Ok(Admission { clock, keys })
    }

    /// Lets a request in, under its tenant's name from here on; `public` ones need no key.
    ///
    /// # Errors
    /// `bad_request` for two keys, `unauthorized`, and `rate_limited` by requests.
    pub fn enter(
        &self,
        headers: &HeaderMap,
        public: bool,
        exchange: &mut Exchange,
    ) -> Result<Pass, Fault> {
        if self.keys.is_empty() || public {
            return Ok(Pass(None));
        }
        let tenant = self.tenant(headers)?;
        exchange.set_tenant(&tenant.series);
        let begun = tenant.allowance.lock().begin(self.clock.now());
        begun.map_err(|refused| refusal::limited(refused, Reserved::default()))?;
        let stay = Arc::new(Stay {
            tenant: Arc::clone(tenant),
            bill: Mutex::default(),
        });
        let told = Arc::clone(&stay);
        exchange.at_end(Box::new(move |spent| told.settle(spent)));
        let clock = self.clock;
        Ok(Pass(Some(Guest { clock, stay })))
    }

    fn tenant(&self, headers: &HeaderMap) -> Result<&Arc<Tenant>, Fault> {
        let key = key(headers)?.ok_or_else(refusal::no_key)?;
        let known = self.keys.get(&KeyHash::of(key));
        let Key { until, tenant } = known.ok_or_else(refusal::unknown_key)?;
        match until {
            Some(until) if clock::wall() >= *until => Err(refusal::expired_key(*until)),
            _ => Ok(tenant),
        }
    }
}

impl Pass {
    /// The models that it may use; `None` is all.
    #[must_use]
    pub fn models(&self) -> Option<&BTreeSet<ModelName>> {
        self.plan()?.models.as_ref()
    }

    /// Whether it may use a model.
    #[must_use]
    pub fn may_use(&self, model: &ModelName) -> bool {
        self.models().is_none_or(|models| models.contains(model))
    }

    /// The class of its requests, unless they ask for a lower one; 0 is the highest.
    #[must_use]
    pub fn class(&self) -> u8 {
        self.plan().map_or(0, |plan| plan.class)
    }

    /// Where its requests may go; anywhere when absent.
    #[must_use]
    pub fn zones(&self) -> Option<Zones> {
        self.plan()?.zones.as_ref().map(|zones| zones.set)
    }

    /// The tenant's number, counted from 1; 0 without tenants.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.as_ref().map_or(0, |guest| guest.stay.tenant.number)
    }

    /// Whose prompts are kept apart from others', if they are.
    #[must_use]
    pub fn apart(&self) -> Option<&str> {
        let plan = self.plan().filter(|plan| plan.private_prefix)?;
        Some(&plan.name)
    }

    /// Asks for a model, and for so many tokens beforehand.
    ///
    /// # Errors
    /// `forbidden`, and `rate_limited` by tokens.
    pub fn ask(&self, model: Option<&ModelName>, tokens: Reserved) -> Result<(), Fault> {
        let Some(Guest { clock, stay }) = &self.0 else {
            return Ok(());
        };
        if model.is_some_and(|model| !self.may_use(model)) {
            return Err(refusal::not_its_model(self.models().into_iter().flatten()));
        }
        stay.reserve(tokens, clock.now())
            .map_err(|refused| refusal::limited(refused, tokens))
    }

    fn plan(&self) -> Option<&TenantPlan> {
        self.0.as_ref().map(|guest| &guest.stay.tenant.plan)
    }
}

impl Stay {
    fn reserve(&self, tokens: Reserved, now: Seconds) -> Result<(), Refused> {
        self.tenant.allowance.lock().reserve(tokens, now)?;
        self.bill.lock().reserved = tokens;
        Ok(())
    }

    /// Takes note of what was used: nothing, if no worker did anything for it.
    fn settle(&self, spent: Spent) {
        let mut bill = self.bill.lock();
        bill.used = Some(if spent.served {
            bill.reserved.settled(spent.prompt, spent.output)
        } else {
            Reserved::default()
        });
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let Bill { reserved, used } = *self.bill.get_mut();
        let used = used.unwrap_or(reserved);
        self.tenant.allowance.lock().end(reserved, used);
    }
}

/// The key that a request brings.
fn key(headers: &HeaderMap) -> Result<Option<&[u8]>, Fault> {
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
