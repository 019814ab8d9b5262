//! The door: who asks, and whether they may come in.
//!
//! Without tenants nobody needs a key and nothing is read. Otherwise a key's hash is looked up in a ring of all keys,
//! which is swapped whole when a file of keys changes (`watched.rs`): a request sees the ring before or after it, and a
//! key that was taken out is refused from the next request on.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use parking_lot::Mutex;

use super::jwt::{self, Issuer};
use super::keys::{self, Ring};
use super::pass::Pass;
use super::refusal;
use super::watched::Watched;
use crate::clock::{self, Clock};
use crate::config::Plan;
use crate::config::plan::{KeyPlan, TenantPlan, read_keys};
use crate::decide::{Allowance, Purse};
use crate::fault::Fault;
use crate::observe::{Exchange, Metrics, Models};

/// The door.
pub struct Admission {
    pub(super) clock: Clock,
    pub(super) tenants: Vec<Arc<Tenant>>,
    pub(super) ring: ArcSwap<Ring>,
    pub(super) issuer: Option<Issuer>,
    /// Held by whoever writes the file of accounts.
    pub(super) saving: Mutex<()>,
}

pub(super) struct Tenant {
    /// Counted from 1.
    pub(super) number: u32,
    pub(super) plan: TenantPlan,
    pub(super) series: Arc<Models>,
    pub(super) allowance: Mutex<Allowance>,
    pub(super) purse: Mutex<Purse>,
    /// The keys in its file, if it has one.
    pub(super) file: Option<Watched<Vec<KeyPlan>>>,
}

impl Admission {
    /// A door for the tenants of a plan; open to everybody when there are none.
    ///
    /// # Errors
    /// When a tenant's metrics can't be made.
    pub fn new(plan: &Plan, clock: Clock, metrics: &Metrics) -> io::Result<Self> {
        let tenant = |(number, plan): (u32, &TenantPlan)| {
            let file = plan.key_file.as_ref();
            io::Result::Ok(Arc::new(Tenant {
                number,
                series: metrics.of_tenant(&plan.name)?,
                allowance: Mutex::new(Allowance::whole(plan.quotas)),
                purse: Mutex::new(Purse::full(&plan.budgets)),
                file: file.map(|file| Watched::new(&file.path, file.keys.clone(), read_keys)),
                plan: plan.clone(),
            }))
        };
        let tenants = (1..).zip(&plan.tenants).map(tenant);
        let admission = Admission {
            clock,
            tenants: tenants.collect::<io::Result<_>>()?,
            ring: ArcSwap::default(),
            issuer: plan.jwt.as_ref().map(Issuer::new),
            saving: Mutex::default(),
        };
        admission.make_ring();
        Ok(admission)
    }

    /// Lets a request in, under its tenant's name from here on; `public` ones need no key.
    ///
    /// # Errors
    /// `bad_request` for two keys, `unauthorized`, `forbidden` for a token that names nobody, and `rate_limited` by
    /// requests.
    pub fn enter(
        &self,
        headers: &HeaderMap,
        public: bool,
        exchange: &mut Exchange,
    ) -> Result<Pass, Fault> {
        if self.tenants.is_empty() || public {
            return Ok(Pass::OPEN);
        }
        let key = keys::brought(headers)?.ok_or_else(refusal::no_key)?;
        let tenant = match (self.ring.load().owner(key)?, &self.issuer) {
            (Some(owner), _) => owner,
            (None, Some(issuer)) if jwt::looks_like_one(key) => self.named(issuer, key)?,
            (None, _) => return Err(refusal::unknown_key()),
        };
        Pass::of(tenant, self.clock, exchange)
    }

    /// The tenant that a token names.
    fn named(&self, issuer: &Issuer, token: &[u8]) -> Result<Arc<Tenant>, Fault> {
        let named = issuer.tenant(token, clock::wall());
        let named = named.map_err(|flaw| refusal::bad_token(&flaw))?;
        let mut tenants = self.tenants.iter();
        let tenant = tenants.find(|tenant| *tenant.plan.name == *named);
        tenant.cloned().ok_or_else(refusal::no_such_tenant)
    }

    /// Looks whether files of keys or of the issuer have changed, and takes over what stands in them now.
    pub(super) fn look_at_files(&self) {
        if let Some(issuer) = &self.issuer {
            issuer.look();
        }
        let mut is_news = false;
        for tenant in &self.tenants {
            if let Some(file) = &tenant.file {
                is_news |= file.look();
            }
        }
        if is_news {
            self.make_ring();
        }
    }

    /// Makes the ring of all keys, those of files last: no file takes a key away from the configuration, nor one away from
    /// another file that has had it and still has.
    fn make_ring(&self) {
        let mut ring = Ring::default();
        for tenant in &self.tenants {
            tenant
                .plan
                .keys
                .iter()
                .for_each(|key| ring.add(key, tenant));
        }
        let before = self.ring.load();
        let files = || {
            let tenants = self.tenants.iter();
            tenants.filter_map(|tenant| Some((tenant, tenant.file.as_ref()?.held())))
        };
        for is_new in [false, true] {
            for (tenant, keys) in files() {
                let wanted = |key: &&KeyPlan| before.is_of_another(key, tenant) == is_new;
                let keys = keys.iter().filter(wanted);
                keys.for_each(|key| ring.add(key, tenant));
            }
        }
        self.ring.store(Arc::new(ring));
    }
}
