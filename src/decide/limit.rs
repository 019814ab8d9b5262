//! How much a tenant may use: requests at a time, requests a minute, tokens a minute.
//!
//! What is counted by the minute follows the generic cell rate algorithm in its form of virtual scheduling (ITU-T
//! I.371, annex A): one number says until when what was used so far will be paid for at the allowed rate, and a request
//! passes if that is at most a minute away when its own share is added. This is a token bucket as large as one minute's
//! allowance, in one number and without a timer. Guaranteed for any span of `t` seconds, however many ask at once: no
//! more than N + N·t/60 requests pass. A window that begins anew each minute would let 2N pass within a second, and a log
//! of moments would need memory by N.
//!
//! Tokens are not known before the end. They are reserved as the estimated prompt and the most that may be written, and
//! settled at the end by what was reported: what was reserved too much comes back, what was reserved too little is owed.
//! Of what is really used the law above holds since nothing was reserved, but for what single requests owe. It does not
//! hold of shorter spans: a reservation that comes back late, after its share had come back by time, lets another burst
//! through. To take its age off instead would charge long answers in full whenever the allowance is short, and that is
//! when giving back matters.
//!
//! A request that is larger than a whole minute's allowance could never pass, and is told so: no wait would help it.

use super::density::Density;
use super::traffic::{MOST_TOKENS, OUTPUT_PRIOR};
use crate::fault::Quota;
use crate::units::{Length, Seconds};

/// The time in which an allowance comes back.
const MINUTE: Seconds = Seconds(60.0);
/// Rounding of sums of shares; far below a share unless there are a million a second.
const ROUNDING: Seconds = Seconds(1e-6);
/// When a place may be free again: nobody knows, as it depends on how long other answers are.
const PLACE_WAIT: Seconds = Seconds(1.0);

/// What a tenant may use; `None` is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Requests that are open at a time.
    pub concurrent: Option<u32>,
    /// Requests a minute.
    pub requests: Option<u32>,
    /// Tokens a minute.
    pub tokens: Option<u32>,
}

/// Which of them stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Requests at a time.
    Concurrent,
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
}

/// Why a request does not pass now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused {
    /// The limit in its way.
    pub by: Limited,
    /// Its quota.
    pub most: u32,
    /// What is left of that.
    pub left: u32,
    /// When all of it is there again, if nobody uses any.
    pub whole_in: Seconds,
    /// When the request would pass; `None` if no wait makes it small enough.
    pub wait: Option<Seconds>,
}

/// Tokens put aside for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reserved {
    /// For its prompt.
    pub prompt: f64,
    /// For its answer.
    pub output: f64,
}

impl Reserved {
    /// What a request may use: its prompt by the prior of tokens a byte, and the most that it lets be written, or as much
    /// as is expected where it does not say.
    #[must_use]
    pub fn for_request(prompt: Length, generates: bool, max_tokens: Option<u32>) -> Self {
        let output = max_tokens.map_or(OUTPUT_PRIOR, f64::from);
        Reserved {
            prompt: Density::default().tokens(prompt).ceil(),
            output: if generates { output } else { 0.0 },
        }
    }

    /// Both together.
    #[must_use]
    pub fn sum(self) -> f64 {
        self.prompt + self.output
    }

    /// What it came to: as reported, and as reserved where nothing was or the report is beyond belief.
    #[must_use]
    pub fn settled(self, prompt: Option<u64>, output: Option<u64>) -> Self {
        let or = |reported: Option<u64>, reserved| {
            #[expect(clippy::cast_precision_loss, reason = "what is believed fits a double")]
            let count = reported.map(|count| count as f64);
            count
                .filter(|count| *count <= MOST_TOKENS)
                .unwrap_or(reserved)
        };
        Reserved {
            prompt: or(prompt, self.prompt),
            output: or(output, self.output),
        }
    }
}

/// What a tenant has left.
#[derive(Clone, Debug)]
pub struct Allowance {
    most_open: Option<u32>,
    open: u32,
    requests: Option<Rate>,
    tokens: Option<Rate>,
}

impl Allowance {
    /// All of it.
    #[must_use]
    pub fn whole(quotas: Quotas) -> Self {
        Allowance {
            most_open: quotas.concurrent,
            open: 0,
            requests: quotas.requests.map(Rate::unused),
            tokens: quotas.tokens.map(Rate::unused),
        }
    }

    /// Other quotas from here on; what was taken of a rate that stays one is still owed.
    pub fn replan(&mut self, quotas: Quotas) {
        let rate = |old: Option<Rate>, most: Option<u32>| {
            let paid = old.map(|old| old.paid).unwrap_or_default();
            most.map(|most| Rate { most, paid })
        };
        self.most_open = quotas.concurrent;
        self.requests = rate(self.requests.take(), quotas.requests);
        self.tokens = rate(self.tokens.take(), quotas.tokens);
    }

    /// A request begins. If it may, [`Allowance::end`] must follow once; a refused one uses nothing.
    ///
    /// # Errors
    /// The limit in its way.
    pub fn begin(&mut self, now: Seconds) -> Result<(), Refused> {
        if let Some(most) = self.most_open
            && self.open >= most
        {
            return Err(Refused {
                by: Limited::Concurrent,
                most,
                left: 0,
                whole_in: PLACE_WAIT,
                wait: Some(PLACE_WAIT),
            });
        }
        if let Some(rate) = &mut self.requests {
            rate.take(1.0, now)
                .map_err(|wait| rate.refused(Limited::Requests, wait, now))?;
        }
        self.open += 1;
        Ok(())
    }

    /// A request that has begun puts tokens aside.
    ///
    /// # Errors
    /// They are not there; nothing is put aside then.
    pub fn reserve(&mut self, reserved: Reserved, now: Seconds) -> Result<(), Refused> {
        let Some(rate) = &mut self.tokens else {
            return Ok(());
        };
        rate.take(reserved.sum(), now)
            .map_err(|wait| rate.refused(Limited::Tokens, wait, now))
    }

    /// A request that had begun ends: it had put so much aside, and used so much.
    pub fn end(&mut self, reserved: Reserved, used: Reserved) {
        self.open = self.open.saturating_sub(1);
        if let Some(rate) = &mut self.tokens {
            rate.settle(used.sum() - reserved.sum());
        }
    }

    /// The limit by the minute of which the smallest share is left.
    #[must_use]
    pub fn tightest(&self, now: Seconds) -> Option<Quota> {
        let rates = [&self.requests, &self.tokens];
        let tighter = |one: &&Rate, other: &&Rate| one.owed(now).0.total_cmp(&other.owed(now).0);
        let rate = rates.into_iter().flatten().max_by(tighter)?;
        Some(Quota {
            limit: rate.most,
            remaining: rate.left(now),
            reset: rate.owed(now),
        })
    }

    /// Requests that are open.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Tokens that could be put aside now; `None` without a limit.
    #[must_use]
    pub fn tokens_left(&self, now: Seconds) -> Option<u32> {
        self.tokens.as_ref().map(|rate| rate.left(now))
    }
}

/// So much a minute.
#[derive(Clone, Debug)]
struct Rate {
    most: u32,
    /// When all that was taken is paid for; what lies back means that all is there.
    paid: Seconds,
}

impl Rate {
    fn unused(most: u32) -> Self {
        Rate {
            most,
            paid: Seconds::ZERO,
        }
    }

    /// The time in which so much comes back.
    fn share(&self, amount: f64) -> Seconds {
        MINUTE * (amount / f64::from(self.most))
    }

    /// How far away the time is at which all is paid for.
    fn owed(&self, now: Seconds) -> Seconds {
        (self.paid - now).max(Seconds::ZERO)
    }

    /// Takes so much, or says how long until that is possible; `None` is never.
    fn take(&mut self, amount: f64, now: Seconds) -> Result<(), Option<Seconds>> {
        let share = self.share(amount);
        if share > MINUTE {
            return Err(None);
        }
        let beyond = self.owed(now) + share - MINUTE;
        if beyond > ROUNDING {
            return Err(Some(beyond));
        }
        self.paid = self.paid.max(now) + share;
        Ok(())
    }

    /// Takes so much more after all, or gives back what is below zero.
    fn settle(&mut self, amount: f64) {
        self.paid += self.share(amount);
    }

    /// What could be taken now.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between zero and a `u32`"
    )]
    fn left(&self, now: Seconds) -> u32 {
        let free = (MINUTE - self.owed(now) + ROUNDING).max(Seconds::ZERO);
        (free.0 / MINUTE.0 * f64::from(self.most)).min(f64::from(self.most)) as u32
    }

    fn refused(&self, by: Limited, wait: Option<Seconds>, now: Seconds) -> Refused {
        Refused {
            by,
            most: self.most,
            left: self.left(now),
            whole_in: self.owed(now),
            wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(count: f64) -> Reserved {
        Reserved {
            prompt: count,
            output: 0.0,
        }
    }

    fn per_minute(requests: Option<u32>, tokens: Option<u32>) -> Allowance {
        Allowance::whole(Quotas {
            concurrent: None,
            requests,
            tokens,
        })
    }

    #[test]
    fn another_quota_forgets_nothing_that_was_taken() {
        let mut allowance = per_minute(Some(10), None);
        let now = Seconds(1_000.0);
        let passed = |allowance: &mut Allowance| {
            let passed = (0..50).filter(|_| allowance.begin(now).is_ok());
            passed.count()
        };
        assert_eq!(passed(&mut allowance), 10);
        let quotas = |requests| Quotas {
            requests: Some(requests),
            ..Quotas::default()
        };
        allowance.replan(quotas(20));
        assert_eq!((allowance.open(), passed(&mut allowance)), (10, 0));
        allowance.replan(Quotas::default());
        assert_eq!(passed(&mut allowance), 50);
    }

    #[test]
    fn of_fifty_at_once_as_many_pass_as_a_minute_has_and_the_rest_is_told_when() {
        for most in [1, 7, 10, 49] {
            let mut allowance = per_minute(Some(most), None);
            let now = Seconds(1_000.0);
            let passed = (0..50).filter(|_| allowance.begin(now).is_ok()).count();
            assert_eq!(passed, most as usize);
            let refused = allowance.begin(now).unwrap_err();
            let wait = refused.wait.unwrap();
            assert_eq!(
                (refused.by, refused.most, refused.left),
                (Limited::Requests, most, 0)
            );
            assert!((wait.0 - 60.0 / f64::from(most)).abs() < 1e-6, "{wait}");
            assert!((refused.whole_in.0 - 60.0).abs() < 1e-6);
            assert!(allowance.begin(now + wait * 0.9).is_err());
            assert!(allowance.begin(now + wait).is_ok());
            assert!(allowance.begin(now + wait).is_err());
        }
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing_away() {
        let mut allowance = per_minute(Some(1), None);
        assert!(allowance.begin(Seconds(100.0)).is_ok());
        assert!(allowance.begin(Seconds(50.0)).is_err());
        assert!(allowance.begin(Seconds(160.0)).is_ok());
    }

    #[test]
    fn places_are_free_again_when_requests_end() {
        let mut allowance = Allowance::whole(Quotas {
            concurrent: Some(2),
            ..Quotas::default()
        });
        let none = Reserved::default();
        assert!(allowance.begin(Seconds::ZERO).is_ok());
        assert!(allowance.begin(Seconds::ZERO).is_ok());
        let refused = allowance.begin(Seconds::ZERO).unwrap_err();
        assert_eq!(
            (refused.by, refused.wait),
            (Limited::Concurrent, Some(PLACE_WAIT))
        );
        allowance.end(none, none);
        assert_eq!(allowance.open(), 1);
        assert!(allowance.begin(Seconds::ZERO).is_ok());
    }

    #[test]
    fn what_was_reserved_too_much_comes_back_and_too_little_is_owed() {
        let mut allowance = per_minute(None, Some(1_000));
        let now = Seconds(5.0);
        allowance.reserve(tokens(900.0), now).unwrap();
        let refused = allowance.reserve(tokens(200.0), now).unwrap_err();
        assert_eq!((refused.by, refused.left), (Limited::Tokens, 100));
        assert!((refused.wait.unwrap().0 - 6.0).abs() < 1e-6, "{refused:?}");
        allowance.end(tokens(900.0), tokens(100.0));
        assert_eq!(allowance.tokens_left(now), Some(900));
        allowance.reserve(tokens(100.0), now).unwrap();
        allowance.end(tokens(100.0), tokens(1_900.0));
        assert_eq!(allowance.tokens_left(now), Some(0));
        let owing = allowance.reserve(tokens(1.0), now).unwrap_err();
        assert!((owing.wait.unwrap().0 - 60.06).abs() < 1e-6, "{owing:?}");
    }

    #[test]
    fn what_is_larger_than_a_minute_s_allowance_is_not_told_to_wait() {
        let mut allowance = per_minute(None, Some(1_000));
        let refused = allowance.reserve(tokens(1_001.0), Seconds::ZERO);
        assert_eq!(refused.unwrap_err().wait, None);
        assert!(allowance.reserve(tokens(1_000.0), Seconds::ZERO).is_ok());
    }

    #[test]
    fn the_tightest_limit_is_the_one_that_was_used_most() {
        let mut allowance = per_minute(Some(10), Some(1_000));
        let now = Seconds(5.0);
        allowance.begin(now).unwrap();
        let told = |allowance: &Allowance| {
            let quota = allowance.tightest(now).unwrap();
            (quota.limit, quota.remaining)
        };
        assert_eq!(told(&allowance), (10, 9));
        allowance.reserve(tokens(500.0), now).unwrap();
        assert_eq!(told(&allowance), (1_000, 500));
        assert_eq!(per_minute(None, None).tightest(now), None);
    }

    #[test]
    fn a_reservation_is_settled_by_reports_that_can_be_true() {
        let reserved = Reserved::for_request(Length::Bytes(401.0), true, None);
        assert_eq!((reserved.prompt, reserved.output), (101.0, 200.0));
        let ids = Reserved::for_request(Length::Tokens(7.0), true, Some(16));
        assert_eq!(ids.sum(), 23.0);
        assert_eq!(
            Reserved::for_request(Length::Tokens(7.0), false, Some(16)).sum(),
            7.0
        );
        assert_eq!(reserved.settled(Some(90), Some(3)).sum(), 93.0);
        assert_eq!(reserved.settled(None, Some(3)).sum(), 104.0);
        assert_eq!(reserved.settled(Some(u64::MAX), None), reserved);
    }
}
