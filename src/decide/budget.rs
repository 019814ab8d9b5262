//! What a tenant may spend in a day or a month: money, or the busy time of machines.
//!
//! A request costs the busy time of its machine that falls to it (`machine.rs` says which that is), times what an hour of
//! that machine costs. So all requests together cost what the machines cost while they worked; hours in which nobody
//! asked for anything are nobody's. Attempts that failed are not the tenant's either: whoever owns the machine pays for
//! its failing.
//!
//! What a request will cost is not known before its end. As with tokens (`limit.rs`), what it is expected to cost is put
//! aside and settled at the end, so that fifty at once don't all pass on what is left for ten. It is forecast as if it
//! went alone to the dearest machine that may serve it: company makes it cheaper, and a budget errs on its owner's side.
//! A forecast may be far off, above all before the first answer, and must never lock a tenant out that has something
//! left. Therefore one request always passes while anything is left and nothing is put aside. Guaranteed: no request
//! passes once a budget is used up; and of requests that cost what was forecast, no more than one passes beyond it.
//!
//! A budget begins anew with each day or month of the calendar in UTC, whole. That lets twice as much pass around
//! midnight, which a bucket that fills evenly would not; but a budget is what people write on invoices, and those know
//! months. A request is charged to the period in which it ends. Wall time decides, and clocks jump: one that goes back
//! into the period before gives nothing away. One that goes back further was wrong before, and the period that it shows
//! begins anew.
//!
//! Amounts are whole billionths, of the currency or of a second, so that sums are exact.

use std::fmt;
use std::ops::Range;

use crate::clock;
use crate::units::{Currency, Money, Seconds};

/// Billionths in one.
const NANOS: u64 = Money::NANOS;
/// The longest that anybody is told to stay away: a budget may be raised, and who sleeps for weeks would not see it.
const LONGEST_WAIT: Seconds = Seconds(86_400.0);
/// When what is put aside for others may be back: nobody knows, as it depends on how long their answers are.
const SETTLING: Seconds = Seconds(1.0);

/// How often a budget begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// With each day.
    Day,
    /// With each month.
    Month,
}

/// So much to spend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Money.
    Money(Money),
    /// Busy time of machines.
    Busy(Seconds),
}

/// What may be spent in each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetRule {
    /// So much, above zero.
    pub most: Amount,
    /// In each of these.
    pub every: Every,
}

/// What a request took of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expense {
    /// The busy time that fell to it.
    pub busy: Seconds,
    /// What that cost, where machines have prices.
    pub money: Option<Money>,
}

/// How a budget stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Stand {
    /// Which one.
    pub rule: BudgetRule,
    /// What of it is used.
    pub used: Amount,
    /// What of it is put aside for requests under way.
    pub reserved: Amount,
    /// From 0; above 1 when requests cost more than was forecast.
    pub used_ratio: f64,
    /// The period, in wall time.
    pub period: Range<Seconds>,
}

/// Why a request does not pass now.
#[derive(Clone, Debug, PartialEq)]
pub struct Overdrawn {
    /// The budget in its way.
    pub stand: Stand,
    /// Whether nothing is left, and not only put aside.
    pub is_used_up: bool,
    /// When to come back.
    pub wait: Seconds,
}

/// One budget.
#[derive(Clone, Debug)]
pub struct Budget {
    rule: BudgetRule,
    period: Range<Seconds>,
    used: u64,
    reserved: u64,
}

/// All budgets of a tenant: a request must fit each.
#[derive(Clone, Debug, Default)]
pub struct Purse(Vec<Budget>);

impl Every {
    /// As it is typed.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Every::Day => "day",
            Every::Month => "month",
        }
    }

    fn period(self, wall: Seconds) -> Range<Seconds> {
        match self {
            Every::Day => clock::day_of(wall),
            Every::Month => clock::month_of(wall),
        }
    }
}

impl Amount {
    /// The currency, unless it is time.
    #[must_use]
    pub fn currency(self) -> Option<Currency> {
        match self {
            Amount::Money(money) => Some(money.currency),
            Amount::Busy(_) => None,
        }
    }

    fn nanos(self) -> u64 {
        match self {
            Amount::Money(money) => money.nanos,
            Amount::Busy(time) => nanos(time),
        }
    }

    /// So many billionths of the same kind.
    #[expect(clippy::cast_precision_loss, reason = "busy time for people")]
    fn with(self, nanos: u64) -> Self {
        match self {
            Amount::Money(money) => Amount::Money(Money { nanos, ..money }),
            Amount::Busy(_) => Amount::Busy(Seconds(nanos as f64 / NANOS as f64)),
        }
    }
}

/// As an operator types it.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Money(money) => money.fmt(f),
            Amount::Busy(time) => time.fmt(f),
        }
    }
}

/// As an operator types it: `3.00 EUR/day`, `2h/month`.
impl fmt::Display for BudgetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.most, self.every.word())
    }
}

impl Expense {
    /// So much time of a machine that costs so much an hour.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a double is finer than a price; the cast saturates"
    )]
    pub fn of(busy: Seconds, price_per_hour: Option<Money>) -> Self {
        let money = price_per_hour.map(|hour| Money {
            nanos: (hour.nanos as f64 * busy.0.max(0.0) / 3_600.0).round() as u64,
            ..hour
        });
        Expense { busy, money }
    }

    /// This and that.
    #[must_use]
    pub fn and(self, other: Expense) -> Self {
        self.joined(other, u64::saturating_add, |one, other| one + other)
    }

    /// The larger of each.
    #[must_use]
    pub fn or_more(self, other: Expense) -> Self {
        self.joined(other, u64::max, Seconds::max)
    }

    fn joined(
        self,
        other: Expense,
        money: impl Fn(u64, u64) -> u64,
        busy: impl Fn(Seconds, Seconds) -> Seconds,
    ) -> Self {
        let both = self.money.zip(other.money).map(|(one, other)| Money {
            nanos: money(one.nanos, other.nanos),
            ..one
        });
        Expense {
            busy: busy(self.busy, other.busy),
            money: both.or(self.money).or(other.money),
        }
    }

    /// What of it counts toward a budget of this kind.
    fn toward(self, kind: Amount) -> u64 {
        match kind {
            Amount::Money(_) => self.money.map_or(0, |money| money.nanos),
            Amount::Busy(_) => nanos(self.busy),
        }
    }
}

impl Budget {
    /// One of which nothing is used.
    #[must_use]
    pub fn unused(rule: BudgetRule) -> Self {
        Budget {
            rule,
            period: Seconds::ZERO..Seconds::ZERO,
            used: 0,
            reserved: 0,
        }
    }

    /// Takes over what was used of it in a period, if that is the one of now.
    pub fn recall(&mut self, used: u64, begins: Seconds, wall: Seconds) {
        self.advance(wall);
        if self.period.start == begins {
            self.used = self.used.max(used);
        }
    }

    /// Adds what somebody else has used of it in a period, if that is the one of now.
    pub fn carry(&mut self, used: u64, begins: Seconds, wall: Seconds) {
        self.advance(wall);
        if self.period.start == begins {
            self.used = self.used.saturating_add(used);
        }
    }

    /// What is used of it, in billionths, and when its period began.
    #[must_use]
    pub fn used(&self) -> (u64, Seconds) {
        (self.used, self.period.start)
    }

    /// Its rule.
    #[must_use]
    pub fn rule(&self) -> BudgetRule {
        self.rule
    }

    /// How it stands.
    #[must_use]
    pub fn stand(&self) -> Stand {
        let most = self.rule.most;
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let used_ratio = self.used as f64 / most.nanos() as f64;
        Stand {
            rule: self.rule,
            used: most.with(self.used),
            reserved: most.with(self.reserved),
            used_ratio,
            period: self.period.clone(),
        }
    }

    fn check(&self, expected: Expense, wall: Seconds) -> Result<(), Overdrawn> {
        let most = self.rule.most.nanos();
        let with_it = expected
            .toward(self.rule.most)
            .saturating_add(self.reserved);
        let is_used_up = self.used >= most;
        if !is_used_up && (self.reserved == 0 || self.used.saturating_add(with_it) <= most) {
            return Ok(());
        }
        let to_the_end = (self.period.end - wall).min(LONGEST_WAIT);
        Err(Overdrawn {
            stand: self.stand(),
            is_used_up,
            wait: if is_used_up { to_the_end } else { SETTLING },
        })
    }

    fn settle(&mut self, expected: Expense, spent: Expense) {
        let kind = self.rule.most;
        self.reserved = self.reserved.saturating_sub(expected.toward(kind));
        self.used = self.used.saturating_add(spent.toward(kind));
    }

    /// Begins anew when another period has begun.
    fn advance(&mut self, wall: Seconds) {
        if self.period.contains(&wall) {
            return;
        }
        let period = self.rule.every.period(wall);
        if period.end == self.period.start {
            return;
        }
        self.period = period;
        self.used = 0;
    }
}

impl Purse {
    /// Nothing is used of any of these.
    #[must_use]
    pub fn full(rules: &[BudgetRule]) -> Self {
        Purse(rules.iter().copied().map(Budget::unused).collect())
    }

    /// Other budgets from here on; what was used and put aside of one that counts the same in the same time stays so.
    pub fn replan(&mut self, rules: &[BudgetRule]) {
        let old = std::mem::take(&mut self.0);
        let is_as = |one: &Budget, rule: &BudgetRule| {
            let counts = one.rule.most.currency() == rule.most.currency();
            counts && one.rule.every == rule.every
        };
        let budget = |rule: &BudgetRule| match old.iter().find(|one| is_as(one, rule)) {
            Some(one) => Budget {
                rule: *rule,
                ..one.clone()
            },
            None => Budget::unused(*rule),
        };
        self.0 = rules.iter().map(budget).collect();
    }

    /// Whether there is no budget, so that everything passes.
    #[must_use]
    pub fn is_boundless(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts aside what a request is expected to cost. If it passes, [`Purse::settle`] must follow once.
    ///
    /// # Errors
    /// The first budget in its way; nothing is put aside then.
    pub fn reserve(&mut self, expected: Expense, wall: Seconds) -> Result<(), Overdrawn> {
        for budget in &mut self.0 {
            budget.advance(wall);
            budget.check(expected, wall)?;
        }
        for budget in &mut self.0 {
            let more = expected.toward(budget.rule.most);
            budget.reserved = budget.reserved.saturating_add(more);
        }
        Ok(())
    }

    /// A request for which so much was put aside has come to so much.
    pub fn settle(&mut self, expected: Expense, spent: Expense, wall: Seconds) {
        for budget in self.at(wall) {
            budget.settle(expected, spent);
        }
    }

    /// The budgets as they are now.
    pub fn at(&mut self, wall: Seconds) -> &mut [Budget] {
        for budget in &mut self.0 {
            budget.advance(wall);
        }
        &mut self.0
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn nanos(time: Seconds) -> u64 {
    (time.0 * NANOS as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Seconds = Seconds(1_796_040_000.0);
    const HOUR: f64 = 3_600.0;

    fn eur(nanos: u64) -> Money {
        let currency = Currency::named("EUR").unwrap();
        Money { nanos, currency }
    }

    fn rule(most: Amount, every: Every) -> BudgetRule {
        BudgetRule { most, every }
    }

    /// A budget of so many seconds a day.
    fn daily(seconds: f64) -> Purse {
        Purse::full(&[rule(Amount::Busy(Seconds(seconds)), Every::Day)])
    }

    fn busy(seconds: f64) -> Expense {
        Expense::of(Seconds(seconds), None)
    }

    fn used(purse: &mut Purse, wall: Seconds) -> f64 {
        purse.at(wall)[0].stand().used_ratio
    }

    #[test]
    fn another_budget_forgets_nothing_that_counts_the_same_in_the_same_time() {
        let mut purse = daily(10.0);
        purse.reserve(busy(1.0), NOON).unwrap();
        purse.reserve(busy(1.0), NOON).unwrap();
        purse.settle(busy(1.0), busy(4.0), NOON);
        let day = rule(Amount::Busy(Seconds(20.0)), Every::Day);
        let month = rule(Amount::Busy(Seconds(20.0)), Every::Month);
        purse.replan(&[month, day]);
        let stands: Vec<_> = purse.at(NOON).iter().map(Budget::stand).collect();
        assert_eq!(stands[1].used_ratio, 0.2);
        assert_eq!(stands[1].reserved, Amount::Busy(Seconds(1.0)));
        assert_eq!(stands[0].used_ratio, 0.0);
    }

    #[test]
    fn of_fifty_at_once_as_many_pass_as_were_forecast_to_fit() {
        let mut purse = daily(10.0);
        let passed = (0..50).filter(|_| purse.reserve(busy(1.0), NOON).is_ok());
        assert_eq!(passed.count(), 10);
        let refused = purse.reserve(busy(1.0), NOON).unwrap_err();
        assert_eq!((refused.is_used_up, refused.wait), (false, SETTLING));
        // They shared a machine, and each came to a tenth.
        (0..10).for_each(|_| purse.settle(busy(1.0), busy(0.1), NOON));
        assert_eq!(used(&mut purse, NOON), 0.1);
        let passed = (0..50).filter(|_| purse.reserve(busy(1.0), NOON).is_ok());
        assert_eq!(passed.count(), 9);
    }

    #[test]
    fn who_has_something_left_is_let_in_whatever_was_forecast_and_nobody_once_it_is_used() {
        let mut purse = daily(1.0);
        assert!(purse.reserve(busy(100.0), NOON).is_ok());
        assert!(purse.reserve(busy(100.0), NOON).is_err());
        purse.settle(busy(100.0), busy(0.9), NOON);
        assert!(purse.reserve(busy(100.0), NOON).is_ok());
        purse.settle(busy(100.0), busy(0.5), NOON);
        let refused = purse.reserve(busy(0.0), NOON).unwrap_err();
        assert!(refused.is_used_up);
        assert_eq!(refused.wait, Seconds(12.0 * HOUR));
        assert_eq!(refused.stand.used, Amount::Busy(Seconds(1.4)));
        assert!(
            purse
                .reserve(busy(100.0), NOON + Seconds(12.0 * HOUR))
                .is_ok()
        );
    }

    #[test]
    fn nobody_is_told_to_stay_away_for_weeks() {
        let mut purse = Purse::full(&[rule(Amount::Busy(Seconds(1.0)), Every::Month)]);
        let tenth = NOON - Seconds(20.0 * 24.0 * HOUR);
        purse.settle(Expense::default(), busy(1.0), tenth);
        let refused = purse.reserve(busy(0.1), tenth).unwrap_err();
        assert_eq!(refused.wait, LONGEST_WAIT);
    }

    #[test]
    fn a_clock_that_goes_back_a_little_gives_nothing_away() {
        let midnight = NOON + Seconds(12.0 * HOUR);
        let mut purse = daily(1.0);
        purse.settle(Expense::default(), busy(1.0), midnight);
        assert_eq!(used(&mut purse, midnight - Seconds(HOUR)), 1.0);
        assert_eq!(used(&mut purse, midnight + Seconds(23.0 * HOUR)), 1.0);
        assert_eq!(used(&mut purse, midnight + Seconds(24.0 * HOUR)), 0.0);
        purse.settle(Expense::default(), busy(1.0), NOON + Seconds(1e8));
        assert_eq!(used(&mut purse, NOON), 0.0, "it was wrong by years");
    }

    #[test]
    fn each_budget_counts_its_own_kind_and_all_must_have_something_left() {
        let rules = [
            rule(Amount::Money(eur(2_000_000_000)), Every::Day),
            rule(Amount::Busy(Seconds(HOUR)), Every::Month),
        ];
        assert_eq!(
            rules.map(|rule| rule.to_string()),
            ["2.00 EUR/day", "1h/month"]
        );
        let mut purse = Purse::full(&rules);
        let quarter = Expense::of(Seconds(HOUR / 4.0), Some(eur(4_000_000_000)));
        assert_eq!(quarter.money, Some(eur(1_000_000_000)));
        purse.reserve(quarter, NOON).unwrap();
        purse.settle(quarter, quarter.and(quarter), NOON);
        let stands: Vec<_> = purse
            .at(NOON)
            .iter()
            .map(|b| b.stand().used_ratio)
            .collect();
        assert_eq!(stands, [1.0, 0.5]);
        assert_eq!(
            purse.reserve(quarter, NOON).unwrap_err().stand.rule,
            rules[0]
        );
        let tomorrow = NOON + Seconds(24.0 * HOUR);
        assert!(purse.reserve(quarter, tomorrow).is_ok());
        purse.settle(quarter, busy(HOUR), tomorrow);
        assert_eq!(
            purse.reserve(quarter, tomorrow).unwrap_err().stand.rule,
            rules[1]
        );
    }

    #[test]
    fn what_was_used_is_taken_over_within_its_own_period() {
        let day = clock::day_of(NOON).start;
        let mut budget = Budget::unused(rule(Amount::Busy(Seconds(2.0)), Every::Day));
        budget.recall(NANOS, day - Seconds(86_400.0), NOON);
        assert_eq!(budget.used(), (0, day));
        budget.recall(NANOS, day, NOON);
        assert_eq!(budget.stand().used_ratio, 0.5);
        budget.carry(NANOS, day - Seconds(86_400.0), NOON);
        budget.carry(NANOS / 2, day, NOON);
        assert_eq!(budget.stand().used_ratio, 0.75);
    }
}
