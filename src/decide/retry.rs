//! Whether a request is sent again after an attempt went wrong.
//!
//! Three things must allow it. The *permit*: what this request lets happen twice. The *rules*: the operator's kinds and
//! `extra`, which bounds the sends after the first. And for failures that more load may have caused (5xx, timeouts, and
//! a second lost connection) the *budget*: at most a fifth of the live requests, at least three, repeat at the same
//! time, so that a fleet in trouble is not given its load three times over. What never reached a worker counts toward
//! nothing. The first connection lost counts toward `extra` alone: a worker's death takes many requests along at once,
//! and each of them deserves its second chance.
//!
//! Sources: the budget is Finagle's and Envoy's ("retry budgets"), in concurrent requests as in the latter.

/// The share of live requests that may be repeats.
const SHARE: usize = 5;
/// So many repeats are allowed however few requests live.
const AT_LEAST: usize = 3;

/// How an attempt ended, as far as repeating it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer for the client.
    Answer,
    /// No connection: the worker never got it.
    Refused,
    /// The connection was lost, or what came was no answer.
    Reset,
    /// The worker's own failure, as its answer.
    ServerError,
    /// The worker answered that it can't just now.
    Busy,
    /// The worker answered that it does not know this path.
    Unsupported,
    /// The worker could not load the adapter, and never got the request.
    Unloadable,
    /// One of the worker's timers fired.
    Timeout,
    /// In a way that no other worker can mend.
    Hopeless,
}

impl Ending {
    /// The word for it, in `routing.retries.on` and as a cause in the metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Ending::Answer => "ok",
            Ending::Refused => "refused",
            Ending::Reset => "reset",
            Ending::ServerError => "5xx",
            Ending::Busy => "busy",
            Ending::Unsupported => "unsupported",
            Ending::Unloadable => "lora",
            Ending::Timeout => "timeout",
            Ending::Hopeless => "hopeless",
        }
    }

    /// Whether there is an answer that the client can be given if nobody has a better one.
    #[must_use]
    pub const fn has_answer(self) -> bool {
        matches!(
            self,
            Ending::Answer | Ending::ServerError | Ending::Busy | Ending::Unsupported
        )
    }
}

/// What a request lets happen twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Everything: inference, and what only reads.
    Everything,
    /// What no worker has begun: refused and busy.
    Unbegun,
    /// What no worker has seen: refused.
    Unseen,
}

impl Permit {
    fn covers(self, ending: Ending) -> bool {
        match ending {
            Ending::Answer | Ending::Hopeless => false,
            Ending::Refused | Ending::Unloadable => true,
            Ending::Busy => self != Permit::Unseen,
            Ending::Reset | Ending::ServerError | Ending::Unsupported | Ending::Timeout => {
                self == Permit::Everything
            }
        }
    }
}

/// The operator's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// The most sends after the first.
    pub extra: u32,
    /// Whether to repeat what was refused …
    pub refused: bool,
    /// … what was lost …
    pub reset: bool,
    /// … what failed …
    pub server_error: bool,
    /// … what met a busy worker …
    pub busy: bool,
    /// … and what took too long.
    pub timeout: bool,
}

impl RetryRules {
    /// All kinds, so often.
    #[must_use]
    pub const fn all(extra: u32) -> Self {
        RetryRules {
            extra,
            refused: true,
            reset: true,
            server_error: true,
            busy: true,
            timeout: true,
        }
    }

    fn cover(&self, ending: Ending) -> bool {
        match ending {
            Ending::Answer | Ending::Hopeless => false,
            Ending::Refused => self.refused,
            Ending::Reset => self.reset,
            Ending::ServerError => self.server_error,
            Ending::Busy => self.busy,
            Ending::Unsupported | Ending::Unloadable => true,
            Ending::Timeout => self.timeout,
        }
    }
}

/// What becomes of a request after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client gets this answer.
    Deliver,
    /// Another worker is asked.
    Elsewhere,
    /// The client is told that it failed.
    Fail,
}

/// The repeats under way in the whole proxy.
#[derive(Debug, Default)]
pub struct RetryBudget {
    repeats: usize,
}

impl RetryBudget {
    /// The most repeats at a time beside so many live requests.
    #[must_use]
    pub fn most(live: usize) -> usize {
        (live / SHARE).max(AT_LEAST)
    }

    /// Begins one, if there is room for it. It must come back through [`RetryBudget::end`].
    #[must_use]
    pub fn begin(&mut self, live: usize) -> bool {
        let room = self.repeats < RetryBudget::most(live);
        self.repeats += usize::from(room);
        room
    }

    /// A request that repeated has ended.
    pub fn end(&mut self) {
        self.repeats = self.repeats.saturating_sub(1);
    }

    /// Repeats under way.
    #[must_use]
    pub fn repeats(&self) -> usize {
        self.repeats
    }
}

/// What one request has used up.
#[derive(Clone, Debug)]
pub struct Tally {
    permit: Permit,
    rules: RetryRules,
    repeats: u32,
    lost: bool,
    /// Whether it holds a place in the budget, for as long as it lives.
    budgeted: bool,
}

impl Tally {
    /// Nothing yet.
    #[must_use]
    pub fn new(permit: Permit, rules: RetryRules) -> Self {
        Tally {
            permit,
            rules,
            repeats: 0,
            lost: false,
            budgeted: false,
        }
    }

    /// What becomes of the request after this ending, beside so many live ones.
    pub fn verdict(&mut self, ending: Ending, live: usize, budget: &mut RetryBudget) -> Verdict {
        if self.goes_on(ending, live, budget) {
            Verdict::Elsewhere
        } else if ending.has_answer() {
            Verdict::Deliver
        } else {
            Verdict::Fail
        }
    }

    /// Whether it may be sent once more to the same worker when a kept-alive connection dies under it. That worker may
    /// have read it, so it is a repeat like any other.
    #[must_use]
    pub fn may_resend(&self) -> bool {
        self.permit == Permit::Everything && self.repeats < self.rules.extra
    }

    /// It was.
    pub fn resent(&mut self) {
        self.repeats += 1;
    }

    /// Whether it holds a place in the budget.
    #[must_use]
    pub fn is_budgeted(&self) -> bool {
        self.budgeted
    }

    fn goes_on(&mut self, ending: Ending, live: usize, budget: &mut RetryBudget) -> bool {
        if !self.permit.covers(ending) || !self.rules.cover(ending) {
            return false;
        }
        if matches!(ending, Ending::Refused | Ending::Unloadable) {
            return true;
        }
        if self.repeats >= self.rules.extra || !self.affords(ending, live, budget) {
            return false;
        }
        self.lost |= ending == Ending::Reset;
        self.repeats += 1;
        true
    }

    /// Whether the budget allows it, where it has a say.
    fn affords(&mut self, ending: Ending, live: usize, budget: &mut RetryBudget) -> bool {
        let costs = match ending {
            Ending::ServerError | Ending::Timeout => true,
            Ending::Reset => self.lost,
            _ => false,
        };
        self.budgeted = self.budgeted || (costs && budget.begin(live));
        !costs || self.budgeted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDINGS: [Ending; 9] = [
        Ending::Answer,
        Ending::Refused,
        Ending::Reset,
        Ending::ServerError,
        Ending::Busy,
        Ending::Unsupported,
        Ending::Unloadable,
        Ending::Timeout,
        Ending::Hopeless,
    ];

    /// The verdicts on each ending, in the order above, of a request that has used up nothing: Deliver, Elsewhere, Fail.
    fn verdicts(permit: Permit, rules: RetryRules, budget: &RetryBudget) -> String {
        let verdict = |ending| {
            let mut budget = RetryBudget {
                repeats: budget.repeats,
            };
            match Tally::new(permit, rules).verdict(ending, 0, &mut budget) {
                Verdict::Deliver => 'D',
                Verdict::Elsewhere => 'E',
                Verdict::Fail => 'F',
            }
        };
        ENDINGS.map(verdict).iter().collect()
    }

    #[test]
    fn the_table() {
        let none = RetryRules {
            extra: 2,
            refused: false,
            reset: false,
            server_error: false,
            busy: false,
            timeout: false,
        };
        let free = RetryBudget::default();
        let spent = RetryBudget { repeats: 3 };
        let all = RetryRules::all(2);
        for (permit, rules, budget, expected) in [
            // Answer, Refused, Reset, ServerError, Busy, Unsupported, Unloadable, Timeout, Hopeless
            (Permit::Everything, all, &free, "DEEEEEEEF"),
            (Permit::Unbegun, all, &free, "DEFDEDEFF"),
            (Permit::Unseen, all, &free, "DEFDDDEFF"),
            (Permit::Everything, RetryRules::all(0), &free, "DEFDDDEFF"),
            (Permit::Everything, none, &free, "DFFDDEEFF"),
            (Permit::Everything, all, &spent, "DEEDEEEFF"),
        ] {
            let found = verdicts(permit, rules, budget);
            assert_eq!(found, expected, "{permit:?} {rules:?} {budget:?}");
        }
    }

    #[test]
    fn extra_bounds_the_sends_after_the_first_and_refusals_are_free() {
        let mut budget = RetryBudget::default();
        let mut tally = Tally::new(Permit::Everything, RetryRules::all(2));
        let mut after = |ending| tally.verdict(ending, 0, &mut budget);
        for ending in [Ending::Refused, Ending::Busy, Ending::Refused] {
            assert_eq!(after(ending), Verdict::Elsewhere);
        }
        assert_eq!(after(Ending::Reset), Verdict::Elsewhere);
        assert_eq!(after(Ending::ServerError), Verdict::Deliver);
        assert_eq!(after(Ending::Refused), Verdict::Elsewhere);
    }

    #[test]
    fn sending_again_to_the_same_worker_counts_as_well() {
        let mut budget = RetryBudget::default();
        let mut tally = Tally::new(Permit::Everything, RetryRules::all(1));
        assert!(tally.may_resend());
        tally.resent();
        assert!(!tally.may_resend());
        let verdict = tally.verdict(Ending::Reset, 0, &mut budget);
        assert_eq!(verdict, Verdict::Fail);
        assert!(!Tally::new(Permit::Unbegun, RetryRules::all(1)).may_resend());
    }

    #[test]
    fn a_death_is_free_of_the_budget_once_and_a_place_in_it_is_held() {
        let mut budget = RetryBudget::default();
        let mut tally = Tally::new(Permit::Everything, RetryRules::all(9));
        for (ending, repeats) in [
            (Ending::Reset, 0),
            (Ending::Busy, 0),
            (Ending::Reset, 1),
            (Ending::Timeout, 1),
            (Ending::ServerError, 1),
        ] {
            assert_eq!(tally.verdict(ending, 0, &mut budget), Verdict::Elsewhere);
            assert_eq!(budget.repeats(), repeats, "{ending:?}");
        }
        assert!(tally.is_budgeted());
    }

    #[test]
    fn the_budget_is_a_fifth_and_at_least_three() {
        let most = [0, 1, 15, 19, 20, 50, 1_000].map(RetryBudget::most);
        assert_eq!(most, [3, 3, 3, 3, 4, 10, 200]);
    }
}
