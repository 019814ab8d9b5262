//! How requests wait and gather, as a `config.pbtxt` says: `dynamic_batching` and its queue policies.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ROWS;
use crate::batch::{Limits, Overdue, Policy};
use crate::units::Seconds;

/// The most requests that may wait at one level when nothing else is said.
const WAITING: usize = 256;

/// The most levels of priority.
const LEVELS: u64 = 64;

/// `dynamic_batching` as typed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TypedBatching {
    preferred_batch_size: Vec<i64>,
    max_queue_delay_microseconds: u64,
    preserve_ordering: bool,
    priority_levels: u64,
    default_priority_level: u64,
    default_queue_policy: TypedPolicy,
    priority_queue_policy: BTreeMap<String, TypedPolicy>,
}

impl TypedBatching {
    /// Batches that are gathered so, in a queue without rules.
    pub fn plain(preferred_batch_size: Vec<i64>, delay_microseconds: u64, ordered: bool) -> Self {
        TypedBatching {
            preferred_batch_size,
            max_queue_delay_microseconds: delay_microseconds,
            preserve_ordering: ordered,
            ..TypedBatching::default()
        }
    }
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct TypedPolicy {
    timeout_action: Option<String>,
    default_timeout_microseconds: u64,
    allow_timeout_override: bool,
    max_queue_size: usize,
}

/// How requests wait. Without `dynamic_batching` a model whose batch size was typed runs each request by itself, as in
/// Triton; a model that leaves both to the graph is batched.
pub fn limits(
    batching: Option<TypedBatching>,
    max_batch_size: Option<usize>,
) -> Result<Limits, String> {
    let alone = batching.is_none() && max_batch_size.is_some();
    let batching = batching.unwrap_or_default();
    let most = max_batch_size.unwrap_or(ROWS).max(1);
    let size = |size: i64| match usize::try_from(size) {
        Ok(size) if (1..=most).contains(&size) => Ok(size),
        _ => Err(format!(
            "preferred_batch_size: {size}; expected 1 to {most}"
        )),
    };
    let preferred = batching
        .preferred_batch_size
        .iter()
        .map(|&typed| size(typed));
    let (levels, default_level) = levels(&batching)?;
    Ok(Limits {
        rows: if alone { 1 } else { most },
        preferred: preferred.collect::<Result<_, _>>()?,
        delay: microseconds(batching.max_queue_delay_microseconds),
        levels,
        default_level,
        ordered: batching.preserve_ordering,
    })
}

fn levels(batching: &TypedBatching) -> Result<(Vec<Policy>, usize), String> {
    let (count, default) = (batching.priority_levels, batching.default_priority_level);
    if count > LEVELS {
        return Err(format!(
            "priority_levels: {count}; at most {LEVELS} are kept apart"
        ));
    }
    if count > 0 && !(1..=count).contains(&default) {
        return Err(format!(
            "default_priority_level: {default}; expected 1 to {count}"
        ));
    }
    let own = &batching.priority_queue_policy;
    let known = |name: &&String| name.parse().is_ok_and(|level| (1..=count).contains(&level));
    if let Some(level) = own.keys().find(|name| !known(name)) {
        return Err(format!(
            "priority_queue_policy: {level} is no level; expected 1 to {count}"
        ));
    }
    let level = |level: u64| {
        own.get(&level.to_string())
            .unwrap_or(&batching.default_queue_policy)
    };
    let levels = (1..=count.max(1)).map(|number| level(number).check());
    let default = usize::try_from(default.saturating_sub(1)).unwrap_or(0);
    Ok((levels.collect(), default))
}

impl TypedPolicy {
    fn check(&self) -> Policy {
        let timeout = self.default_timeout_microseconds;
        Policy {
            waiting: if self.max_queue_size == 0 {
                WAITING
            } else {
                self.max_queue_size
            },
            timeout: (timeout > 0).then(|| microseconds(timeout)),
            may_shorten: self.allow_timeout_override,
            overdue: match self.timeout_action.as_deref() {
                Some("DELAY") => Overdue::Postpone,
                _ => Overdue::Refuse,
            },
        }
    }
}

fn microseconds(count: u64) -> Seconds {
    Seconds(count as f64 / 1e6)
}
