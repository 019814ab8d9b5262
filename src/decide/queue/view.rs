//! The line as people see it.

use std::collections::BTreeMap;

use super::{Ticket, WaitingLine};
use crate::decide::ask::Claim;
use crate::decide::roster::Hold;
use crate::units::{ModelName, Seconds};

/// The line at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LineView {
    /// How many wait.
    pub entries: usize,
    /// The bytes of their bodies.
    pub bytes: u64,
    /// Places that those who wait get in a second, by what was seen of late; `None` when nothing was.
    pub pace: Option<f64>,
    /// The classes of which somebody waits.
    pub classes: BTreeMap<u8, ClassView>,
}

/// Those of a class who wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassView {
    /// How many.
    pub depth: usize,
    /// How long the eldest has waited.
    pub oldest: Seconds,
    /// Whether the newest go first, because the line stands.
    pub overloaded: bool,
}

/// Somebody who waits.
#[derive(Clone, Debug, PartialEq)]
pub struct WaiterView {
    /// Whose it is and of which class.
    pub claim: Claim,
    /// What is asked for.
    pub model: Option<ModelName>,
    /// How long it has waited.
    pub waited: Seconds,
    /// Its place in line.
    pub position: usize,
    /// Why each worker that serves it does not take it.
    pub holds: Vec<Hold>,
}

impl WaitingLine {
    /// As it is now.
    pub(in crate::decide) fn view(&self, now: Seconds) -> LineView {
        let mut classes: BTreeMap<u8, ClassView> = BTreeMap::new();
        for (lane, members) in &self.lanes {
            let eldest = members.eldest();
            let since = eldest.and_then(|eldest| Some(self.waiters.mark(eldest)?.since));
            let class = classes.entry(lane.class).or_default();
            class.depth += members.len();
            class.oldest = since.map_or(class.oldest, |since| class.oldest.max(now - since));
            class.overloaded |= self.stands(lane.class, eldest, now);
        }
        LineView {
            entries: self.len(),
            bytes: self.bytes,
            pace: self.pace(now),
            classes,
        }
    }

    /// The first of them, by class and arrival.
    pub(in crate::decide) fn first(&self, most: usize) -> Vec<Ticket> {
        if most == 0 {
            return Vec::new();
        }
        let waiters = self.waiters.iter();
        let mut order: Vec<_> = waiters
            .map(|(ticket, waiter)| (waiter.claim().class, ticket))
            .collect();
        order.sort_unstable();
        order.truncate(most);
        order.into_iter().map(|(_, ticket)| ticket).collect()
    }
}
