//! The door: who asks, and whether they may come in.
//!
//! Without tenants nobody needs a key and nothing is read. Otherwise a key's hash is looked up in a ring of all keys.
//! The door is swapped whole, with its ring, when another plan comes or a file of keys changes (`watched.rs`): a
//! request sees the door before or after it, and a key that was taken out is refused from the next request on. A tenant
//! is the same in the next plan by its name, and keeps what it has used.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use parking_lot::Mutex;

use super::accounts::Book;
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
    metrics: Metrics,
    door: ArcSwap<Door>,
    /// Held by whoever makes another door.
    making: Mutex<()>,
    /// Held by whoever writes the file of accounts.
    pub(super) book: Mutex<Book>,
}

/// Who may come in, at one moment.
#[derive(Default)]
pub(super) struct Door {
    pub tenants: Vec<Arc<Tenant>>,
    pub ring: Ring,
    pub issuer: Option<Arc<Issuer>>,
    /// The highest number that a tenant has had.
    last: u32,
}

pub(super) struct Tenant {
    /// Counted from 1; never another's while the process lives.
    pub number: u32,
    pub plan: TenantPlan,
    pub series: Arc<Models>,
    pub allowance: Arc<Mutex<Allowance>>,
    pub purse: Arc<Mutex<Purse>>,
    /// The keys in its file, if it has one.
    pub file: Option<Arc<Watched<Vec<KeyPlan>>>>,
}

impl Tenant {
    /// One that nobody has seen yet.
    fn new(number: u32, plan: &TenantPlan, metrics: &Metrics) -> io::Result<Self> {
        Ok(Tenant {
            number,
            series: metrics.of_tenant(&plan.name)?,
            allowance: Arc::new(Mutex::new(Allowance::whole(plan.quotas))),
            purse: Arc::new(Mutex::new(Purse::full(&plan.budgets))),
            file: watch(plan),
            plan: plan.clone(),
        })
    }

    /// The same by another plan: what it has used stays used.
    fn replanned(&self, plan: &TenantPlan) -> Self {
        self.allowance.lock().replan(plan.quotas);
        self.purse.lock().replan(&plan.budgets);
        let is_kept = |file: &&Arc<Watched<_>>| {
            let path = plan.key_file.as_ref().map(|file| &*file.path);
            path == Some(file.path())
        };
        let file = self.file.as_ref().filter(is_kept);
        Tenant {
            number: self.number,
            series: self.series.clone(),
            allowance: self.allowance.clone(),
            purse: self.purse.clone(),
            file: file.cloned().or_else(|| watch(plan)),
            plan: plan.clone(),
        }
    }
}

fn watch(plan: &TenantPlan) -> Option<Arc<Watched<Vec<KeyPlan>>>> {
    let file = plan.key_file.as_ref()?;
    let watched = Watched::new(&file.path, file.keys.clone(), read_keys);
    Some(Arc::new(watched))
}

impl Admission {
    /// A door for the tenants of a plan; open to everybody when there are none.
    ///
    /// # Errors
    /// When a tenant's metrics can't be made.
    pub fn new(plan: &Plan, clock: Clock, metrics: &Metrics) -> io::Result<Self> {
        let admission = Admission {
            clock,
            metrics: metrics.clone(),
            door: ArcSwap::default(),
            making: Mutex::default(),
            book: Mutex::default(),
        };
        admission.replan(plan)?;
        Ok(admission)
    }

    /// Takes another plan's tenants over. On an error all stays as it was.
    ///
    /// # Errors
    /// When a tenant's metrics can't be made.
    pub fn replan(&self, plan: &Plan) -> io::Result<()> {
        let _alone = self.making.lock();
        let before = self.door();
        let mut last = before.last;
        let mut fresh = Vec::new();
        for plan in &plan.tenants {
            if !before.tenants.iter().any(|one| one.plan.name == plan.name) {
                last += 1;
                fresh.push(Arc::new(Tenant::new(last, plan, &self.metrics)?));
            }
        }
        let tenant = |plan: &TenantPlan| {
            let mut old = before.tenants.iter();
            if let Some(old) = old.find(|one| one.plan.name == plan.name) {
                return Some(Arc::new(old.replanned(plan)));
            }
            let mut fresh = fresh.iter();
            fresh.find(|one| one.plan.name == plan.name).cloned()
        };
        let issuer = plan.jwt.as_ref().map(|jwt| {
            let old = before.issuer.as_ref().filter(|old| old.is_of(jwt));
            old.cloned().unwrap_or_else(|| Arc::new(Issuer::new(jwt)))
        });
        let tenants = plan.tenants.iter().filter_map(tenant).collect();
        self.open(tenants, issuer, last);
        Ok(())
    }

    /// The door as it is now.
    pub(super) fn door(&self) -> Arc<Door> {
        self.door.load_full()
    }

    /// The tenant of this number, while it is in the plan.
    #[must_use]
    pub fn name_of(&self, number: u32) -> Option<Arc<str>> {
        let door = self.door.load();
        let mut tenants = door.tenants.iter();
        let tenant = tenants.find(|tenant| tenant.number == number)?;
        Some(tenant.plan.name.clone())
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
        let door = self.door.load();
        if door.tenants.is_empty() || public {
            return Ok(Pass::OPEN);
        }
        let key = keys::brought(headers)?.ok_or_else(refusal::no_key)?;
        let tenant = match (door.ring.owner(key)?, &door.issuer) {
            (Some(owner), _) => owner,
            (None, Some(issuer)) if jwt::looks_like_one(key) => door.named(issuer, key)?,
            (None, _) => return Err(refusal::unknown_key()),
        };
        Pass::of(tenant, self.clock, exchange)
    }

    /// Looks whether files of keys or of the issuer have changed, and takes over what stands in them now.
    pub(super) fn look_at_files(&self) {
        let _alone = self.making.lock();
        let door = self.door();
        if let Some(issuer) = &door.issuer {
            issuer.look();
        }
        let mut is_news = false;
        for tenant in &door.tenants {
            if let Some(file) = &tenant.file {
                is_news |= file.look();
            }
        }
        if is_news {
            self.open(door.tenants.clone(), door.issuer.clone(), door.last);
        }
    }

    /// Makes the door, with a ring of all keys, those of files last: no file takes a key away from the configuration,
    /// nor one away from another file that has had it and still has.
    fn open(&self, tenants: Vec<Arc<Tenant>>, issuer: Option<Arc<Issuer>>, last: u32) {
        let mut ring = Ring::default();
        for tenant in &tenants {
            let keys = &tenant.plan.keys;
            keys.iter().for_each(|key| ring.add(key, tenant));
        }
        let before = self.door.load();
        for is_new in [false, true] {
            for tenant in &tenants {
                let keys = tenant.file.as_ref().map(|file| file.held());
                let wanted = |key: &&KeyPlan| before.ring.is_of_another(key, tenant) == is_new;
                let keys = keys.iter().flatten().filter(wanted);
                keys.for_each(|key| ring.add(key, tenant));
            }
        }
        self.door.store(Arc::new(Door {
            tenants,
            ring,
            issuer,
            last,
        }));
    }
}

impl Door {
    /// The tenant that a token names.
    fn named(&self, issuer: &Issuer, token: &[u8]) -> Result<Arc<Tenant>, Fault> {
        let named = issuer.tenant(token, clock::wall());
        let named = named.map_err(|flaw| refusal::bad_token(&flaw))?;
        let mut tenants = self.tenants.iter();
        let tenant = tenants.find(|tenant| *tenant.plan.name == *named);
        tenant.cloned().ok_or_else(refusal::no_such_tenant)
    }
}
