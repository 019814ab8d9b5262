//! `GET /api/requests?…`: which of the requests that are remembered.
//!
//! | wish | which |
//! |---|---|
//! | `slow` | those that took longest, the slowest first |
//! | `failed` | those whose answer was an error or broke off |
//! | `tenant=T` | those of this tenant |
//! | `since=1h` | those that came within this time |
//! | `limit=20` | so many at the most, up to 1,000 |
//!
//! Wishes add up. Without `slow` the newest come first. The answer is `{"requests": […]}` with the keys of
//! `/api/requests/ID` but without its `choices`.

use std::sync::Arc;

use super::changes::time;
use crate::facts::name_in_path;
use crate::observe::decisions::Decision;
use crate::units::Seconds;

/// How many are shown, if nobody says,
const USUAL: usize = 20;
/// and the most.
const MOST: usize = 1_000;

/// Which are wanted.
#[derive(Debug, PartialEq)]
pub(super) struct Wanted {
    slow: bool,
    failed: bool,
    tenant: Option<String>,
    since: Option<Seconds>,
    limit: usize,
}

/// What a query wishes; or what is wrong with it.
pub(super) fn wanted(query: &str) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        slow: false,
        failed: false,
        tenant: None,
        since: None,
        limit: USUAL,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = name_in_path(value);
        match (key, &*value) {
            ("slow", "") => wanted.slow = true,
            ("failed", "") => wanted.failed = true,
            ("tenant", tenant) => wanted.tenant = Some(tenant.to_owned()),
            ("since", span) => wanted.since = Some(time(span)?),
            ("limit", count) => {
                let count = count
                    .parse()
                    .ok()
                    .filter(|count| (1..=MOST).contains(count));
                wanted.limit = count.ok_or("limit is a number from 1 to 1000")?;
            }
            _ => {
                let all = "slow, failed, tenant=T, since=1h and limit=20";
                return Err(format!("a query here is made of {all}"));
            }
        }
    }
    Ok(wanted)
}

impl Wanted {
    /// Those wanted among these, which come newest first, at the wall time `now`.
    pub(super) fn among(&self, all: Vec<Arc<Decision>>, now: Seconds) -> Vec<Arc<Decision>> {
        let mut found = all;
        found.retain(|decision| self.wants(decision, now));
        if self.slow {
            found.sort_by(|one, other| other.total.0.total_cmp(&one.total.0));
        }
        found.truncate(self.limit);
        found
    }

    fn wants(&self, decision: &Decision, now: Seconds) -> bool {
        let failed = decision.status.as_u16() >= 400 || decision.reason != "ok";
        let tenant = self.tenant.as_deref();
        (failed || !self.failed)
            && tenant.is_none_or(|tenant| tenant == &*decision.tenant)
            && self.since.is_none_or(|span| decision.arrived >= now - span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    /// Came at this second, and took so long.
    fn decision(id: &str, arrived: f64, total: f64, status: u16) -> Arc<Decision> {
        Arc::new(Decision {
            id: id.into(),
            arrived: Seconds(arrived),
            route: None,
            tenant: Arc::from(if arrived > 150.0 { "app" } else { "-" }),
            model: None,
            worker: None,
            status: StatusCode::from_u16(status).unwrap(),
            reason: "ok",
            attempts: 0,
            queue: None,
            choosing: None,
            body: Seconds::ZERO,
            first_byte: None,
            total: Seconds(total),
            choices: Vec::new(),
        })
    }

    fn found(query: &str) -> String {
        let all = vec![
            decision("c", 200.0, 1.0, 503),
            decision("b", 190.0, 3.0, 200),
            decision("a", 100.0, 2.0, 502),
        ];
        let found = wanted(query).unwrap().among(all, Seconds(260.0));
        found.iter().map(|decision| &*decision.id).collect()
    }

    #[test]
    fn wishes_add_up() {
        for (query, ids) in [
            ("", "cba"),
            ("slow", "bac"),
            ("slow&limit=1", "b"),
            ("failed", "ca"),
            ("slow&failed=", "ac"),
            ("tenant=app", "cb"),
            ("tenant=%61pp&failed", "c"),
            ("since=65s", "c"),
            ("since=1h", "cba"),
        ] {
            assert_eq!(found(query), ids, "{query}");
        }
    }

    #[test]
    fn what_is_no_wish_is_refused() {
        for query in [
            "fast",
            "slow=1",
            "limit=0",
            "limit=1001",
            "since=1",
            "since=0s",
        ] {
            assert!(wanted(query).is_err(), "{query}");
        }
    }
}
