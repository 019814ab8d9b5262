//! The line's order as its header tells it, by looking at everybody each time: what the line must agree with.

use std::collections::{BTreeMap, BTreeSet};

use super::ahead::Behind;
use super::fairness::{Accounts, Had};
use super::lane::{Lane, due};
use super::waiters::Waiters;
use super::*;
use crate::decide::Work;
use crate::facts::Prefix;
use crate::rng::Rng;
use crate::units::{Length, ModelName};

/// Everybody who waits, in no order.
struct Plain {
    rules: LineRules,
    waiting: BTreeMap<Ticket, (Waiter, u32)>,
    accounts: BTreeMap<u8, Accounts>,
    until_lift: u32,
}

/// Who goes first, and who may go before it, at a moment.
type Order = (Vec<Ticket>, Vec<Behind>);

impl Plain {
    fn of(rules: LineRules) -> Self {
        Plain {
            rules,
            waiting: BTreeMap::new(),
            accounts: BTreeMap::new(),
            until_lift: 0,
        }
    }

    fn stands(&self, class: u8, eldest: &Waiter, now: Seconds) -> bool {
        let longest = self.rules.newest_first[usize::from(class)];
        longest.is_some_and(|longest| now - eldest.since >= longest)
    }

    /// Who of a tenant in a lane is next.
    fn next(&self, own: &[(Ticket, &Waiter)], now: Seconds) -> (u64, Ticket) {
        let eldest = own[0].1;
        let by_deadline = own.iter().map(|(ticket, one)| (due(one), *ticket)).min();
        let is_hurried = own.iter().any(|(_, one)| one.ask.deadline.is_some());
        if self.stands(eldest.claim().class, eldest, now) && !is_hurried {
            return (u64::MAX, own[own.len() - 1].0);
        }
        by_deadline.unwrap()
    }

    fn head(&self, lane: &[(Ticket, &Waiter)], now: Seconds) -> (u8, Had, u64, Ticket) {
        let (ticket, eldest) = lane[0];
        let class = eldest.claim().class;
        let is_lifted = now - eldest.since >= self.rules.age_up && self.until_lift == 0;
        if is_lifted && !self.stands(class, eldest, now) {
            return (0, Had::NOTHING, 0, ticket);
        }
        let rank = if is_lifted { 0 } else { class + 1 };
        let mut tenants: BTreeMap<u32, Vec<(Ticket, &Waiter)>> = BTreeMap::new();
        for one in lane {
            tenants.entry(one.1.claim().tenant).or_default().push(*one);
        }
        let next = tenants.values().map(|own| {
            let (due, ticket) = self.next(own, now);
            (rank, had(&self.accounts, own[0].1.claim()), due, ticket)
        });
        next.min().unwrap()
    }

    fn heads(&self, now: Seconds) -> Vec<Ticket> {
        let mut lanes: BTreeMap<Lane, Vec<(Ticket, &Waiter)>> = BTreeMap::new();
        for (ticket, (waiter, _)) in &self.waiting {
            let lane = lanes.entry(Lane::of(waiter)).or_default();
            lane.push((*ticket, waiter));
        }
        let heads: BTreeSet<_> = lanes.values().map(|lane| self.head(lane, now)).collect();
        heads.into_iter().map(|(.., ticket)| ticket).collect()
    }

    fn behind(&self, head: Ticket, now: Seconds) -> Vec<Behind> {
        let yields = |ticket: &Ticket| {
            let (one, passed) = &self.waiting[ticket];
            let is_young = now - one.since < self.rules.age_up;
            *passed < self.rules.passes && one.ask.deadline.is_none() && is_young
        };
        let (first, _) = &self.waiting[&head];
        let is_next = |one: &Waiter| {
            let (own, other) = (one.claim(), first.claim());
            (own.class, own.tenant) == (other.class, other.tenant)
        };
        let others = self.waiting.iter().filter(|(_, (one, _))| is_next(one));
        let order: BTreeSet<_> = others
            .map(|(ticket, (one, _))| (due(one), *ticket))
            .collect();
        let behind = order.into_iter().filter(|one| *one > (due(first), head));
        let mut found = Vec::new();
        let mut open = yields(&head);
        for (_, ticket) in behind.take(self.rules.ahead) {
            if open {
                let one = &self.waiting[&ticket].0;
                found.push(Behind {
                    ticket,
                    is_alike: Lane::of(one) == Lane::of(first),
                    has_prefix: !one.ask.prefix.blocks.is_empty(),
                });
                open = yields(&ticket);
            }
        }
        found
    }

    fn order(&self, now: Seconds) -> Order {
        let heads = self.heads(now);
        let behind = heads.first().map(|head| self.behind(*head, now));
        (heads, behind.unwrap_or_default())
    }
}

fn order(line: &WaitingLine, now: Seconds) -> Order {
    let heads: Vec<_> = line
        .heads(now)
        .into_iter()
        .map(|turn| turn.ticket)
        .collect();
    let behind = heads.first().map(|head| line.behind(*head, now));
    (heads, behind.unwrap_or_default())
}

fn any_waiter(rng: &mut Rng, now: Seconds) -> Waiter {
    let deadline = (rng.below(6) == 0).then(|| now + Seconds(rng.below(20) as f64));
    let blocks = if rng.below(2) == 0 {
        vec![7]
    } else {
        Vec::new()
    };
    let ask = Ask {
        model: Some(ModelName::new(["m", "n"][rng.below(2)])),
        only: None,
        zones: None,
        from: None,
        path: None,
        work: Work::Generate,
        prompt: Length::Tokens(100.0),
        fills: None,
        prefix: Prefix {
            blocks: blocks.into(),
            each: Length::Tokens(256.0),
        },
        max_tokens: None,
        deadline,
        streamed: true,
        claim: Claim {
            class: rng.below(3) as u8,
            tenant: rng.below(3) as u32,
            bytes: 10,
        },
    };
    let tried = if rng.below(8) == 0 {
        vec![WorkerId(1)]
    } else {
        Vec::new()
    };
    Waiter {
        ask,
        tried,
        barred: Vec::new(),
        since: now,
    }
}

/// A line and the reference, to which the same happens.
struct Pair {
    line: WaitingLine,
    plain: Plain,
    rng: Rng,
    now: Seconds,
}

impl Pair {
    fn join(&mut self) {
        let waiter = any_waiter(&mut self.rng, self.now);
        let ticket = self.line.join(waiter.clone()).unwrap();
        self.plain.waiting.insert(ticket, (waiter, 0));
    }

    fn leave(&mut self, ticket: Ticket) {
        self.line.leave(ticket, self.now);
        self.plain.waiting.remove(&ticket);
    }

    /// Somebody gives up.
    fn give_up(&mut self) {
        let place = self.rng.below(self.plain.waiting.len().max(1));
        if let Some(ticket) = self.plain.waiting.keys().nth(place).copied() {
            self.leave(ticket);
            assert!(
                self.line.get(ticket).is_none(),
                "its place is not another's"
            );
        }
    }

    /// The first is served, or one behind it.
    fn serve(&mut self) {
        let Some(turn) = self.line.heads(self.now).pop_first() else {
            return;
        };
        let behind = self.line.behind(turn.ticket, self.now);
        let mut ticket = turn.ticket;
        if !behind.is_empty() && self.rng.below(2) == 0 {
            let at = self.rng.below(behind.len());
            ticket = behind[at].ticket;
            let passed = behind[..at].iter().map(|one| one.ticket);
            for passed in passed.chain([turn.ticket]) {
                self.line.pass(passed);
                self.plain.waiting.get_mut(&passed).unwrap().1 += 1;
            }
        }
        let ask = self.line.get(ticket).unwrap().ask.clone();
        let took = Seconds(0.1 + self.rng.below(50) as f64 / 10.0);
        self.line.charge(ask.claim, took, self.now);
        self.line.served(turn, &Group::of(&ask), self.now);
        let accounts = self.plain.accounts.entry(ask.claim.class).or_default();
        accounts.charge(ask.claim.tenant, took, self.now);
        let until_lift = self.plain.until_lift;
        self.plain.until_lift = match turn.rank {
            0 => LIFTED_OF - 1,
            _ => until_lift.saturating_sub(1),
        };
        self.leave(ticket);
    }
}

const RULES: LineRules = LineRules {
    entries: 10_000,
    bytes: 1 << 30,
    age_up: Seconds(12.0),
    holds: false,
    newest_first: {
        let mut waits = [None; MOST_CLASSES];
        waits[1] = Some(Seconds(6.0));
        waits[2] = Some(Seconds(20.0));
        waits
    },
    swap_after: Seconds(10.0),
    ahead: 3,
    passes: 2,
};

/// Whether the line agrees all the way with a reference of these rules.
fn agrees(seed: u64, rules: LineRules) -> Result<(), String> {
    let mut pair = Pair {
        line: WaitingLine::new(RULES),
        plain: Plain::of(rules),
        rng: Rng::seeded(seed),
        now: Seconds(1.0),
    };
    for step in 0..150 {
        pair.now += Seconds(pair.rng.below(10) as f64 / 10.0);
        // It grows at first, and then shrinks.
        match pair.rng.below(10) {
            0 => pair.give_up(),
            1..=7 if step < 90 => pair.join(),
            1 => pair.join(),
            _ => pair.serve(),
        }
        pair.line.check()?;
        let (seen, wanted) = (order(&pair.line, pair.now), pair.plain.order(pair.now));
        if seen != wanted {
            return Err(format!(
                "seed {seed}, step {step}: {seen:?}, not {wanted:?}"
            ));
        }
    }
    Ok(())
}

#[test]
fn whatever_happens_the_line_is_served_in_the_order_of_its_rules() {
    for seed in 0..256 {
        agrees(seed, RULES).unwrap();
    }
}

/// Negative control: by rules that differ in one thing the order is another.
#[test]
fn another_order_is_told_apart() {
    let others = [
        LineRules {
            age_up: Seconds(13.0),
            ..RULES
        },
        LineRules {
            newest_first: [None; MOST_CLASSES],
            ..RULES
        },
        LineRules { ahead: 1, ..RULES },
        LineRules { passes: 1, ..RULES },
    ];
    for rules in others {
        let caught = (0..64).any(|seed| agrees(seed, rules).is_err());
        assert!(caught, "{rules:?}");
    }
}

#[test]
fn a_place_that_is_given_again_is_not_found_by_the_old_ticket() {
    let mut waiters = Waiters::default();
    let mut rng = Rng::seeded(1);
    let mut add = |waiters: &mut Waiters| waiters.add(any_waiter(&mut rng, Seconds(1.0))).unwrap();
    let (old, beside) = (add(&mut waiters), add(&mut waiters));
    assert!(waiters.remove(old).is_some());
    let new = add(&mut waiters);
    assert_eq!(new.slot, old.slot);
    assert!(
        old < beside && beside < new,
        "in the order in which they came"
    );
    assert!(waiters.get(old).is_none() && waiters.mark(old).is_none());
    assert!(waiters.remove(old).is_none());
    assert_eq!(waiters.len(), 2);
    assert!(waiters.remove(new).is_some() && waiters.remove(new).is_none());
}
