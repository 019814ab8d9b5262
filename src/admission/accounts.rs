//! What tenants have used of their budgets: kept for the next process, and shown to the operator.
//!
//! `budgets.json` in the state folder is written every minute and at the end, so a process that is killed forgets at most
//! a minute of spending. Entries are known again by tenant, period and what is counted; a budget that was raised or
//! lowered goes on from what is used. One of a period that is over says nothing. A file that can't be read is said and
//! counts as empty: a proxy that refused to start for it would cost more than a day's budget.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

use super::Admission;
use super::tenants::Tenant;
use super::watched::Watched;
use crate::clock;
use crate::decide::{Budget, BudgetRule, Stand};
use crate::kept;
use crate::units::Seconds;

const FILE: &str = "budgets.json";
/// The shape of the file that is understood here.
const VERSION: u32 = 1;
/// Time between two writings.
const PAUSE: Duration = Duration::from_secs(60);
/// What is counted where that is no money.
const BUSY: &str = "busy";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    budgets: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    tenant: String,
    /// A currency, or [`BUSY`].
    counts: String,
    every: String,
    /// When the period began, in seconds since 1970.
    begins: f64,
    /// In billionths.
    used: u64,
}

/// How everybody stands, for the operator.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// The tenants, in the order of the configuration.
    pub tenants: Vec<Account>,
    /// The keys of the issuer of tokens, if there is one.
    pub jwks: Option<FileState>,
}

/// How a tenant stands.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its name.
    pub tenant: Arc<str>,
    /// Requests that are open.
    pub open: u32,
    /// Tokens that it could put aside now, where there is a limit.
    pub tokens_left: Option<u32>,
    /// Its budgets.
    pub budgets: Vec<Stand>,
    /// Its file of keys, if it has one.
    pub key_file: Option<FileState>,
}

/// How a file of keys stands.
#[derive(Clone, Debug)]
pub struct FileState {
    /// Where it is.
    pub path: String,
    /// How many keys of it are in force.
    pub keys: usize,
    /// What is wrong with it now.
    pub trouble: Option<String>,
}

impl FileState {
    /// Of a file with so many keys, and what else is wrong with them.
    fn of<T: Clone + PartialEq>(file: &Watched<T>, keys: usize, clash: Option<&str>) -> Self {
        FileState {
            path: file.path().display().to_string(),
            keys,
            trouble: file.trouble().or(clash.map(str::to_owned)),
        }
    }
}

impl Admission {
    /// How all tenants stand.
    #[must_use]
    pub fn accounts(&self) -> Accounts {
        let door = self.door();
        let account = |tenant: &Arc<Tenant>| {
            let (open, tokens_left) = {
                let allowance = tenant.allowance.lock();
                (allowance.open(), allowance.tokens_left(self.clock.now()))
            };
            let file = tenant.file.as_ref();
            Account {
                tenant: Arc::clone(&tenant.plan.name),
                open,
                tokens_left,
                budgets: tenant
                    .purse
                    .lock()
                    .at(clock::wall())
                    .iter()
                    .map(Budget::stand)
                    .collect(),
                key_file: file.map(|file| {
                    FileState::of(file, file.held().len(), door.ring.clash(tenant.number))
                }),
            }
        };
        let jwks = door
            .issuer
            .as_ref()
            .map(|issuer| FileState::of(&issuer.file, issuer.file.held().count(), None));
        Accounts {
            tenants: door.tenants.iter().map(account).collect(),
            jwks,
        }
    }

    /// Writes what is used. What can't be written is said and no more.
    pub fn save(&self, state: &Path) {
        let wall = clock::wall();
        let mut budgets = Vec::new();
        for tenant in &self.door().tenants {
            for budget in tenant.purse.lock().at(wall) {
                budgets.push(entry(&tenant.plan.name, budget));
            }
        }
        if budgets.is_empty() {
            return;
        }
        let version = VERSION;
        let _alone = self.saving.lock();
        if let Err(error) = kept::write(state, FILE, &Document { version, budgets }) {
            tracing::warn!("{FILE} can't be written: {error}");
        }
    }

    /// Takes over what an earlier process has written.
    pub fn recall(&self, state: &Path) {
        let door = self.door();
        if door.tenants.iter().all(|t| t.plan.budgets.is_empty()) {
            return;
        }
        match kept::read::<Document>(state, FILE) {
            Ok(None) => {}
            Ok(Some(document)) if document.version == VERSION => self.take_over(&document.budgets),
            Ok(Some(Document { version, .. })) => {
                tracing::warn!("{FILE} is ignored, budgets begin anew: it is of version {version}");
            }
            Err(error) => tracing::warn!("{FILE} is ignored, budgets begin anew: {error}"),
        }
    }

    fn take_over(&self, entries: &[Entry]) {
        let wall = clock::wall();
        for tenant in &self.door().tenants {
            for budget in tenant.purse.lock().at(wall) {
                let name = &tenant.plan.name;
                if let Some(entry) = entries.iter().find(|entry| entry.is_of(name, budget)) {
                    budget.recall(entry.used, Seconds(entry.begins), wall);
                }
            }
        }
    }
}

impl Entry {
    fn is_of(&self, tenant: &str, budget: &Budget) -> bool {
        let rule = budget.rule();
        self.tenant == tenant && self.every == rule.every.word() && self.counts == counted(rule)
    }
}

fn entry(tenant: &str, budget: &Budget) -> Entry {
    let (used, begins) = budget.used();
    Entry {
        tenant: tenant.to_owned(),
        counts: counted(budget.rule()),
        every: budget.rule().every.word().to_owned(),
        begins: begins.0,
        used,
    }
}

fn counted(rule: BudgetRule) -> String {
    let currency = rule.most.currency();
    currency.map_or_else(|| BUSY.to_owned(), |currency| currency.to_string())
}

/// Keeps what tenants have used, for as long as the process lives.
pub async fn keep_accounts(admission: Arc<Admission>, state: Arc<Path>) {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (admission, state) = (Arc::clone(&admission), Arc::clone(&state));
        // A disk may block; who waits for it here is nobody else.
        let written = tokio::task::spawn_blocking(move || admission.save(&state));
        drop(written.await);
    }
}
