//! The box that workers run on.

use std::sync::Arc;

use crate::decide::RegionId;
use crate::units::Money;

/// One machine. At least one worker names it.
#[derive(Clone, Debug, PartialEq)]
pub struct MachinePlan {
    /// Its name, unique among machines; `[A-Za-z0-9._-]+`.
    pub name: Arc<str>,
    /// Where it is.
    pub region: Option<RegionId>,
    /// Its power when it works.
    pub watts: Option<f64>,
    /// Its power when it is idle; not above `watts`.
    pub idle_watts: Option<f64>,
    /// What an hour of it costs.
    pub price_per_hour: Option<Money>,
}
