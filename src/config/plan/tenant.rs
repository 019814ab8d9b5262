//! One tenant: who sends requests, by which keys, and how many.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{KeyFile, KeyHash, ZonesPlan};
use crate::decide::{BudgetRule, Quotas};
use crate::units::{ModelName, Seconds};

/// One tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantPlan {
    /// Its name in logs and metrics, unique; `[A-Za-z0-9._-]+`, and not `-`, which stands for nobody.
    pub name: Arc<str>,
    /// Its keys. No other tenant has one of them.
    pub keys: Vec<KeyPlan>,
    /// A file with more of them, that may change.
    pub key_file: Option<KeyFile>,
    /// The models it may use, at least one; `None` is all.
    pub models: Option<BTreeSet<ModelName>>,
    /// The class of its requests, by its place in the queue's; 0 is the highest.
    pub class: u8,
    /// Where its requests may go; anywhere when absent.
    pub zones: Option<ZonesPlan>,
    /// How much it may use.
    pub quotas: Quotas,
    /// What it may spend; no two count the same in the same time.
    pub budgets: Vec<BudgetRule>,
    /// Whether its prompts are kept apart from others' in what is believed of caches.
    pub private_prefix: bool,
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyPlan {
    /// Its hash.
    pub hash: KeyHash,
    /// When it stops working, as wall time; `None` is never.
    pub until: Option<Seconds>,
}
