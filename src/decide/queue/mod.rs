//! The waiting line: requests for which every fitting worker is at its cap, or down and waited for.
//!
//! Whoever waits for a busy worker must not hold up one behind it whose worker is free, so the line has lanes: all
//! requests of a lane can be served by the same workers, also by the length of their prompts, and are of one class. Only
//! the head of each lane can be next, and looking at the heads is as good as looking at everybody: with 10,000 waiting a
//! free slot costs as many looks as there are lanes.
//!
//! Of two heads that could use the same slot goes first
//!
//! 1. who has waited for `age_up`, the longest first, for one place in four: no class starves then;
//! 2. the higher class;
//! 3. the tenant that has had the fewest worker-seconds in this class of late (`fairness.rs`);
//! 4. whose client leaves first, of those that say when;
//! 5. who came first; or last, where the line stands.
//!
//! A line stands when more come than are served. First come, first served then gives everybody the longest wait that there
//! is, and the places to those whose clients give up just then; newest first serves some well and lets the others fail
//! (B. Maurer, "Fail at Scale", ACM Queue 2015, calls it adaptive LIFO). What tells a standing line from a burst is that it
//! has not been empty for a while (K. Nichols, V. Jacobson, "Controlling Queue Delay", ACM Queue 2012). Here that is a
//! fact about one waiter: the eldest of a tenant's in a lane has waited for `newest_first`, by default for half of what
//! its class may wait. So there is no mode to be in or to leave: when the load falls the newest are soon served, then the
//! older ones, and who is left is young. Only the order within one tenant's requests of one lane changes, and of those
//! only without a deadline: no class and no tenant gets more for it.
//!
//! `age_up` lifts a class and not a request: one place in [`LIFTED_OF`] goes to a class in which somebody is old, before all
//! others, to its eldest, or where the line stands to whoever is next; the other places are given by class as ever. Else a
//! flood of a low class, all of it old, would hold up the classes above for as long as it lasts.
//!
//! One of those right behind it may be served before it when the place suits that one better (`fleet/ahead.rs`).
//!
//! The line is bounded in entries and in the bytes of the bodies that wait in it (`bounds.rs`). Tickets are numbers given in
//! order of arrival; leaving twice does nothing.

mod ahead;
mod bounds;
mod drain;
mod fairness;
mod lane;
mod ranked;
mod view;
mod waiters;

use std::collections::{BTreeMap, BTreeSet};

use super::ask::{Ask, Claim, MOST_CLASSES};
use super::roster::Outlook;
use crate::units::{Seconds, WorkerId};
use drain::Drain;
use fairness::{Accounts, Had};
pub(super) use lane::Group;
use lane::{Lane, Members, Own};
pub use view::{ClassView, LineView, WaiterView};
use waiters::Waiters;

/// Of so many places one goes to a class in which somebody is old, before all others.
const LIFTED_OF: u32 = 4;

/// A place in the line; they are in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    number: u64,
    /// Where its waiter is kept.
    slot: u32,
}

impl Ticket {
    /// None is before this one.
    const FIRST: Ticket = Ticket { number: 0, slot: 0 };
}

/// As much waits as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFull;

/// The bounds of the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineRules {
    /// The most requests that wait at a time,
    pub entries: usize,
    /// and the most bytes that their bodies have together.
    pub bytes: u64,
    /// Once somebody has waited so long, one place in four goes to its class first.
    pub age_up: Seconds,
    /// Whether a request may wait while no worker is up.
    pub holds: bool,
    /// By class: how long the eldest of a tenant's has waited when the newest go first; never where absent.
    pub newest_first: [Option<Seconds>; MOST_CLASSES],
    /// A model waits so long for another to leave a worker's memory.
    pub swap_after: Seconds,
    /// So many behind a head of the line are looked at, for one whom a place suits better …
    pub ahead: usize,
    /// … and so often a request may be passed by such a one.
    pub passes: u32,
}

impl Default for LineRules {
    fn default() -> Self {
        LineRules {
            entries: 10_000,
            bytes: 512 << 20,
            age_up: Seconds(60.0),
            holds: false,
            newest_first: [None; MOST_CLASSES],
            swap_after: Seconds(10.0),
            ahead: 16,
            passes: 8,
        }
    }
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    /// What it asks for.
    pub ask: Ask,
    /// Workers that it must not get.
    pub tried: Vec<WorkerId>,
    /// Workers that its prompt is too long for.
    pub barred: Vec<WorkerId>,
    /// Since when.
    pub since: Seconds,
}

impl Waiter {
    fn claim(&self) -> Claim {
        self.ask.claim
    }
}

/// How soon a head is served: the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    /// 0 for who has waited long enough to go first, else the class counted from 1.
    rank: u8,
    /// What its tenant has had.
    had: Had,
    /// When its client leaves, in microseconds.
    due: u64,
    pub(super) ticket: Ticket,
}

/// Everybody who waits.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    rules: LineRules,
    waiters: Waiters,
    lanes: BTreeMap<Lane, Members>,
    /// By class.
    accounts: BTreeMap<u8, Accounts>,
    bytes: u64,
    /// Those beyond the bound that wait since it was lowered.
    lent: u64,
    /// Who had to leave for a newcomer of a higher class, and was not told yet.
    displaced: Vec<Ticket>,
    /// How fast those move who ask for the same.
    drains: BTreeMap<Group, Drain>,
    /// Places to be given before an old class may have one again.
    until_lift: u32,
}

impl WaitingLine {
    /// Nobody waits yet.
    pub(super) fn new(rules: LineRules) -> Self {
        WaitingLine {
            rules,
            ..WaitingLine::default()
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Takes a place, if need be that of somebody of a lower class.
    pub(super) fn join(&mut self, waiter: Waiter) -> Result<Ticket, LineFull> {
        let claim = waiter.claim();
        self.make_room(claim, waiter.since)?;
        let (lane, since, due) = (Lane::of(&waiter), waiter.since, lane::due(&waiter));
        let ticket = self.waiters.add(waiter).ok_or(LineFull)?;
        self.bytes += claim.bytes;
        let drain = self.drains.entry(lane.group()).or_default();
        drain.joins(since);
        let had = had(&self.accounts, claim);
        let members = self.lanes.entry(lane).or_default();
        members.add(claim, (due, ticket), had);
        Ok(ticket)
    }

    /// Gives the place up. Returns who is now next in its lane.
    pub(super) fn leave(&mut self, ticket: Ticket, now: Seconds) -> Option<Turn> {
        let waiter = self.waiters.remove(ticket)?;
        self.bytes -= waiter.claim().bytes;
        self.lent = self.lent.min(self.beyond());
        let lane = Lane::of(&waiter);
        self.drained(&lane.group(), now);
        let members = self.lanes.get_mut(&lane)?;
        members.remove(waiter.claim(), (lane::due(&waiter), ticket));
        if members.is_empty() {
            self.lanes.remove(&lane);
            return None;
        }
        let members = self.lanes.get(&lane)?;
        self.head(&lane, members, now)
    }

    /// Somebody who asks for this waits no more. A pace that nobody was served at is none.
    fn drained(&mut self, group: &Group, now: Seconds) {
        if let Some(drain) = self.drains.get_mut(group) {
            drain.leaves(now);
            if drain.tells_nothing(now) {
                self.drains.remove(group);
            }
        }
    }

    /// A tenant of a class gets a worker for so long.
    pub(super) fn charge(&mut self, claim: Claim, seconds: Seconds, now: Seconds) {
        let accounts = self.accounts.entry(claim.class).or_default();
        let had = accounts.charge(claim.tenant, seconds, now);
        for (lane, members) in &mut self.lanes {
            if lane.class == claim.class {
                members.charged(claim.tenant, had);
            }
        }
    }

    /// Whether a request may wait while no worker is up.
    pub(super) fn holds(&self) -> bool {
        self.rules.holds
    }

    /// Somebody got a place, in this turn.
    pub(super) fn served(&mut self, turn: Turn, group: &Group, now: Seconds) {
        self.until_lift = match turn.rank {
            0 => LIFTED_OF - 1,
            _ => self.until_lift.saturating_sub(1),
        };
        if let Some(drain) = self.drains.get_mut(group) {
            drain.served(now);
        }
    }

    /// When those of this class and of higher ones will have been served, by how fast the line moved of late.
    pub(super) fn clears_in(&self, class: u8, now: Seconds) -> Option<Seconds> {
        let moves = |lane: &Lane| Some(self.drains.get(&lane.group())?.pace(now).is_some());
        let before = self.lanes.iter();
        let before = before.filter(|(lane, _)| lane.class <= class && moves(lane) == Some(true));
        let before: usize = before.map(|(_, members)| members.len()).sum();
        #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
        self.pace(now).map(|pace| Seconds(before as f64 / pace))
    }

    /// Places that those who wait get in a second, by what was seen of late; `None` when nothing was.
    fn pace(&self, now: Seconds) -> Option<f64> {
        let paces = self.drains.values().filter_map(|drain| drain.pace(now));
        paces.reduce(|one, other| one + other)
    }

    /// How many get their place before this one and it, if no more come and tenants take turns: those of higher classes
    /// that ask for the same, of each other tenant of its class as many as go before it of its own, and these. Who asks
    /// for another model, on another route or within other zones does not count.
    pub(super) fn position(&self, ticket: Ticket, now: Seconds) -> Option<usize> {
        let waiter = self.waiters.get(ticket)?;
        let (lane, tenant) = (Lane::of(waiter), waiter.claim().tenant);
        let own = (lane::due(waiter), ticket);
        let stands = |one: &Own| self.stands(lane.class, one.eldest(), now);
        let beside = |(other, _): &(&Lane, &Members)| lane.competes(other);
        let mine = self.lanes.get(&lane)?.tenants();
        let mine = mine.filter(|(name, _)| *name == tenant);
        let rank: usize = mine.map(|(_, one)| one.before(own, stands(one)) + 1).sum();
        let ahead = self.lanes.iter().filter(beside).map(|(other, members)| {
            if other.class != lane.class {
                let is_higher = other.class < lane.class;
                return if is_higher { members.len() } else { 0 };
            }
            let is_other = |name: u32| name != tenant || *other != lane;
            let others = members.tenants().filter(|(name, _)| is_other(*name));
            others.map(|(_, one)| one.len().min(rank)).sum()
        });
        Some(ahead.sum::<usize>() + rank)
    }

    /// The wait of this one, by how fast the line moved of late.
    pub(super) fn wait_of(&self, ticket: Ticket, now: Seconds) -> Option<Outlook> {
        let position = self.position(ticket, now)?;
        let group = Lane::of(self.waiters.get(ticket)?).group();
        Some(self.drains.get(&group)?.wait_for(position, now))
    }

    /// A worker's bounds have changed: whom a prompt is too long for is found out anew.
    pub(super) fn rearrange(&mut self, barred: impl Fn(&Ask) -> Vec<WorkerId>) {
        self.lanes.clear();
        for (ticket, waiter) in self.waiters.iter_mut() {
            waiter.barred = barred(&waiter.ask);
            let members = self.lanes.entry(Lane::of(waiter)).or_default();
            let (claim, due) = (waiter.claim(), lane::due(waiter));
            members.add(claim, (due, ticket), had(&self.accounts, claim));
        }
    }

    /// One of each lane: what holds for it holds for the whole lane.
    pub(super) fn samples(&self) -> impl Iterator<Item = Ticket> {
        self.lanes.values().filter_map(Members::eldest)
    }

    /// The request behind a ticket.
    pub(super) fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.waiters.get(ticket)
    }

    /// The next of each lane, in the order in which they are to be served.
    pub(super) fn heads(&self, now: Seconds) -> BTreeSet<Turn> {
        let lanes = self.lanes.iter();
        lanes
            .filter_map(|(lane, members)| self.head(lane, members, now))
            .collect()
    }

    /// What the turn of this request's lane is by now: others may have been served since it was first looked at.
    pub(super) fn turn_beside(&self, ticket: Ticket, now: Seconds) -> Option<Turn> {
        let lane = Lane::of(self.waiters.get(ticket)?);
        self.head(&lane, self.lanes.get(&lane)?, now)
    }

    fn head(&self, lane: &Lane, members: &Members, now: Seconds) -> Option<Turn> {
        let eldest = members.eldest()?;
        let aged = self.has_waited(eldest, self.rules.age_up, now);
        let is_lifted = aged && self.until_lift == 0;
        if is_lifted && !self.stands(lane.class, Some(eldest), now) {
            return Some(Turn {
                rank: 0,
                had: Had::NOTHING,
                due: 0,
                ticket: eldest,
            });
        }
        let rank = if is_lifted {
            0
        } else {
            lane.class.saturating_add(1)
        };
        let next = members.poorest().filter_map(|(had, own)| {
            let (due, ticket) = own.next(self.stands(lane.class, own.eldest(), now))?;
            Some(Turn {
                rank,
                had,
                due,
                ticket,
            })
        });
        next.min()
    }

    /// Whether the eldest of some of a class has waited so long that the newest of them go first.
    fn stands(&self, class: u8, eldest: Option<Ticket>, now: Seconds) -> bool {
        let rules = self.rules.newest_first.get(usize::from(class));
        let longest = rules.copied().flatten();
        longest
            .zip(eldest)
            .is_some_and(|(longest, eldest)| self.has_waited(eldest, longest, now))
    }

    fn has_waited(&self, ticket: Ticket, long: Seconds, now: Seconds) -> bool {
        let mark = self.waiters.mark(ticket);
        mark.is_some_and(|mark| now - mark.since >= long)
    }

    /// Whether lanes, waiters and bytes agree.
    pub(super) fn check(&self) -> Result<(), String> {
        let in_lanes: usize = self.lanes.values().map(Members::len).sum();
        if in_lanes != self.waiters.len() || self.lanes.values().any(Members::is_empty) {
            let waiting = self.waiters.len();
            return Err(format!("{waiting} waiting, {in_lanes} in lanes"));
        }
        let bytes: u64 = self.waiters.iter().map(|(_, one)| one.claim().bytes).sum();
        if bytes != self.bytes || self.beyond() > self.lent {
            return Err(format!("{bytes} bytes wait, {} counted", self.bytes));
        }
        let is_astray = |(ticket, waiter): &(Ticket, &Waiter)| {
            let members = self.lanes.get(&Lane::of(waiter));
            let due = (lane::due(waiter), *ticket);
            !members.is_some_and(|members| members.has(waiter.claim(), due))
        };
        match self.waiters.iter().find(is_astray) {
            Some((ticket, _)) => Err(format!("{ticket:?} is in no lane")),
            None => Ok(()),
        }
    }
}

/// What the tenant of a claim has had in its class.
fn had(accounts: &BTreeMap<u8, Accounts>, claim: Claim) -> Had {
    let accounts = accounts.get(&claim.class);
    accounts.map_or(Had::NOTHING, |accounts| accounts.had(claim.tenant))
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
