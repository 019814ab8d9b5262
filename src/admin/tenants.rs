//! `GET /api/tenants`: what tenants use, and what is left to them.
//!
//! | key | what |
//! |---|---|
//! | `name` | of the configuration |
//! | `open` | requests that are open |
//! | `tokens_left` | tokens that it could ask for now, where there is a limit |
//! | `budgets` | each of them, as below |
//! | `key_file` | its `path`, how many `keys` of it are in force, and the `trouble` with it, if there is any |
//!
//! A budget says its `budget` as typed, what of it is `used` and `reserved` for requests under way, the `used_ratio`,
//! and when its period `began` and `ends`.
//!
//! Beside the `tenants` stands `jwks`, the same of the file with the keys of the issuer of tokens.

use serde::Serialize;

use crate::admission::{Account, Accounts, FileState};
use crate::clock;
use crate::decide::Stand;
use crate::observe::Metrics;

#[derive(Serialize)]
pub(super) struct Shown<'a> {
    tenants: Vec<Row<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwks: Option<FileRow<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    open: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_left: Option<u32>,
    budgets: Vec<BudgetRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<FileRow<'a>>,
}

#[derive(Serialize)]
struct BudgetRow {
    budget: String,
    used: String,
    reserved: String,
    used_ratio: f64,
    began: String,
    ends: String,
}

#[derive(Serialize)]
struct FileRow<'a> {
    path: &'a str,
    keys: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<&'a str>,
}

impl<'a> Shown<'a> {
    pub(super) fn of(accounts: &'a Accounts) -> Self {
        Shown {
            tenants: accounts.tenants.iter().map(row).collect(),
            jwks: accounts.jwks.as_ref().map(file),
        }
    }
}

/// Sets the gauges that are only set when somebody reads them.
pub(super) fn show_in(accounts: &Accounts, metrics: &Metrics) {
    for account in &accounts.tenants {
        for stand in &account.budgets {
            let budget = stand.rule.to_string();
            metrics.show_budget(&account.tenant, &budget, stand.used_ratio);
        }
    }
}

fn row(account: &Account) -> Row<'_> {
    Row {
        name: &account.tenant,
        open: account.open,
        tokens_left: account.tokens_left,
        budgets: account.budgets.iter().map(budget).collect(),
        key_file: account.key_file.as_ref().map(file),
    }
}

fn budget(stand: &Stand) -> BudgetRow {
    BudgetRow {
        budget: stand.rule.to_string(),
        used: stand.used.to_string(),
        reserved: stand.reserved.to_string(),
        used_ratio: stand.used_ratio,
        began: clock::rfc3339(stand.period.start),
        ends: clock::rfc3339(stand.period.end),
    }
}

fn file(state: &FileState) -> FileRow<'_> {
    FileRow {
        path: &state.path,
        keys: state.keys,
        trouble: state.trouble.as_deref(),
    }
}
