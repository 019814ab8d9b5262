//! One tenant: who sends requests, by which keys, and how many.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{KeyHash, ZonesPlan};
use crate::decide::Quotas;
use crate::units::{ModelName, Seconds};

/// One tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantPlan {
    /// Its name in logs and metrics, unique; `[A-Za-z0-9._-]+`, and not `-`, which stands for nobody.
    pub name: Arc<str>,
    /// Its keys, at least one. No other tenant has one of them.
    pub keys: Vec<KeyPlan>,
    /// The models it may use, at least one; `None` is all.
    pub models: Option<BTreeSet<ModelName>>,
    /// The class of its requests, by its place in the queue's; 0 is the highest.
    pub class: u8,
    /// Where its requests may go; anywhere when absent.
    pub zones: Option<ZonesPlan>,
    /// How much it may use.
    pub quotas: Quotas,
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
