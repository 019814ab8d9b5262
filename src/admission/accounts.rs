//! What tenants have used of their budgets: kept for the next process, and shown to the operator.
//!
//! `budgets.json` in the state folder is written at the end, and within a second of what has changed, so a process that
//! is killed forgets at most a second of spending, and what its open requests would have cost. It is not forced to the
//! disk: a machine that loses power forgets more. Entries are known again by tenant, period and what is counted; a
//! budget that was raised or lowered goes on from what is used. One of a period that is over says nothing. A file that
//! can't be read is said and counts as empty: a proxy that refused to start for it would cost more than a day's budget.
//!
//! A process that hands over (`serve/upgrade.rs`) writes the file a last time and goes on spending while it drains.
//! What that comes to it leaves at its end in a file of its own, `budgets.PID.json`, and whoever runs then adds it to
//! its own accounts within a second. A file that is added is gone first: killed just then, a process forgets it, and
//! charges nobody twice.

use std::fs;
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
/// What the file of a process that has handed over is called, around its number.
const REST: (&str, &str) = ("budgets.", ".json");
/// The shape of the file that is understood here.
const VERSION: u32 = 1;
/// Time between two looks whether something has changed.
const PAUSE: Duration = Duration::from_secs(1);
/// What is counted where that is no money.
const BUSY: &str = "busy";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    budgets: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// The file of accounts, as this process wrote it last.
#[derive(Default)]
pub(super) struct Book {
    written: Vec<Entry>,
    /// It is written here no more: by another process, or by none.
    is_closed: bool,
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

    /// Adds what others have left, and writes what is used, unless that is what was written last. What can't be written
    /// is said and no more.
    fn keep(&self, state: &Path) {
        let mut book = self.book.lock();
        if !book.is_closed && self.has_budgets() {
            self.collect(state);
            self.write(state, &mut book);
        }
    }

    /// Writes it for the last time: this process ends, or another takes over.
    pub fn close(&self, state: &Path) {
        self.keep(state);
        self.book.lock().is_closed = true;
    }

    fn has_budgets(&self) -> bool {
        let door = self.door();
        door.tenants.iter().any(|one| !one.plan.budgets.is_empty())
    }

    /// No other process has taken over.
    pub fn take_back(&self) {
        self.book.lock().is_closed = false;
    }

    /// Leaves to whoever has taken over what was used since.
    pub fn settle_up(&self, state: &Path) {
        let book = self.book.lock();
        let mut rest = self.entries();
        for entry in &mut rest {
            let mut before = book.written.iter();
            if let Some(before) = before.find(|before| before.is_as(entry)) {
                entry.used = entry.used.saturating_sub(before.used);
            }
        }
        rest.retain(|entry| entry.used > 0);
        if !rest.is_empty() {
            let (begin, end) = REST;
            put(state, &format!("{begin}{}{end}", std::process::id()), rest);
        }
    }

    fn write(&self, state: &Path, book: &mut Book) {
        let entries = self.entries();
        if entries != book.written && put(state, FILE, entries.clone()) {
            book.written = entries;
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let wall = clock::wall();
        let mut entries = Vec::new();
        for tenant in &self.door().tenants {
            for budget in tenant.purse.lock().at(wall) {
                entries.push(entry(&tenant.plan.name, budget));
            }
        }
        entries
    }

    /// Takes over what an earlier process has written.
    pub fn recall(&self, state: &Path) {
        if !self.has_budgets() {
            return;
        }
        self.take(state, FILE, Budget::recall);
        self.collect(state);
    }

    /// Adds what processes have left that have handed over.
    fn collect(&self, state: &Path) {
        for name in left_behind(state) {
            self.take(state, &name, Budget::carry);
        }
    }

    /// Takes over what a file says.
    fn take(&self, state: &Path, name: &str, how: fn(&mut Budget, u64, Seconds, Seconds)) {
        let read = kept::read::<Document>(state, name);
        if name != FILE && fs::remove_file(state.join(name)).is_err() {
            // It would be added again and again.
            return;
        }
        let entries = match read {
            Ok(None) => return,
            Ok(Some(document)) if document.version == VERSION => document.budgets,
            Ok(Some(Document { version, .. })) => {
                tracing::warn!(
                    "{name} is ignored, budgets go on without: it is of version {version}"
                );
                return;
            }
            Err(error) => {
                tracing::warn!("{name} is ignored, budgets go on without: {error}");
                return;
            }
        };
        let wall = clock::wall();
        for tenant in &self.door().tenants {
            for budget in tenant.purse.lock().at(wall) {
                let name = &tenant.plan.name;
                if let Some(entry) = entries.iter().find(|entry| entry.is_of(name, budget)) {
                    how(budget, entry.used, Seconds(entry.begins), wall);
                }
            }
        }
    }
}

/// Writes these, and says whether it could.
fn put(state: &Path, name: &str, budgets: Vec<Entry>) -> bool {
    let version = VERSION;
    let written = kept::write(state, name, &Document { version, budgets });
    if let Err(error) = &written {
        tracing::warn!("{name} can't be written: {error}");
    }
    written.is_ok()
}

/// The files of processes that have handed over and ended.
fn left_behind(state: &Path) -> Vec<String> {
    let names = |folder: fs::ReadDir| {
        let entries = folder.filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_left = |name: &String| {
            let number = name
                .strip_prefix(REST.0)
                .and_then(|rest| rest.strip_suffix(REST.1));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        names.filter(is_left).collect()
    };
    fs::read_dir(state).map(names).unwrap_or_default()
}

impl Entry {
    /// Whether another stands for the same budget in the same period.
    fn is_as(&self, other: &Entry) -> bool {
        Entry {
            used: 0,
            ..self.clone()
        } == Entry {
            used: 0,
            ..other.clone()
        }
    }

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
        let written = tokio::task::spawn_blocking(move || admission.keep(&state));
        drop(written.await);
    }
}
