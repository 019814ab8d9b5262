//! How many may wait, and who makes room for whom.
//!
//! A line that is full of a low class must not refuse a higher one: then a flood of batch work would keep out those for
//! whom the classes were made. So a newcomer for whom there is no room takes it from those of lower classes: from the
//! lowest first, and of a class from those who came last, who have the longest wait before them and have lost the least.
//! Those are told that the line is full, as if they came now. Nobody has to leave when that would not make enough room.

use super::{LineFull, LineRules, Ticket, WaitingLine};
use crate::decide::ask::Claim;
use crate::units::Seconds;

impl WaitingLine {
    /// Other bounds from here on. What waits beyond them waits on, and nobody joins it until there is room again.
    pub(in crate::decide) fn replan(&mut self, rules: LineRules) {
        self.rules = rules;
        self.lent = self.beyond();
    }

    /// Bytes that wait beyond the bound.
    pub(super) fn beyond(&self) -> u64 {
        self.bytes.saturating_sub(self.rules.bytes)
    }

    /// Whether this one may wait, if need be instead of others.
    pub(in crate::decide) fn has_room(&self, newcomer: Claim) -> bool {
        if self.holds_beside(newcomer, 0, 0) {
            return true;
        }
        let lower = self.lanes.iter();
        let lower = lower.filter(|(lane, _)| lane.class > newcomer.class);
        let (entries, bytes) = lower.fold((0, 0), |(entries, bytes), (_, members)| {
            (entries + members.len(), bytes + members.bytes())
        });
        self.holds_beside(newcomer, entries, bytes)
    }

    /// Whether this one fits in beside those who wait, less so many with so many bytes.
    fn holds_beside(&self, newcomer: Claim, entries: usize, bytes: u64) -> bool {
        let bytes = (self.bytes - bytes).saturating_add(newcomer.bytes);
        self.len() - entries < self.rules.entries && bytes <= self.rules.bytes
    }

    /// Lets others leave until this one fits in.
    pub(super) fn make_room(&mut self, newcomer: Claim, now: Seconds) -> Result<(), LineFull> {
        if !self.has_room(newcomer) {
            return Err(LineFull);
        }
        while !self.holds_beside(newcomer, 0, 0) {
            let last = self.last_below(newcomer.class).ok_or(LineFull)?;
            self.leave(last, now);
            self.displaced.push(last);
        }
        Ok(())
    }

    /// Who came last, of the lowest class below this one.
    fn last_below(&self, class: u8) -> Option<Ticket> {
        let lowest = self.lanes.keys().map(|lane| lane.class).max()?;
        let lanes = self.lanes.iter().filter(|(lane, _)| lane.class == lowest);
        let newest = lanes.filter_map(|(_, members)| members.newest()).max();
        newest.filter(|_| lowest > class)
    }

    /// Who had to leave since this was last asked.
    pub(in crate::decide) fn displaced(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.displaced)
    }
}
