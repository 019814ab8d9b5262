//! `POST /api/workers/NAME/add` and `…/remove`: workers that come and go without a change of the file.
//!
//! | verb | body | what |
//! |---|---|---|
//! | `add` | `{"url": "http://…", "for": "8h"}`; `for` may be left out | a worker of that name; after that time it leaves again |
//! | `remove` | none | one that was added leaves; what it holds ends by itself |
//!
//! Both are a reload of the configuration with that worker beside it, and are answered like one (`reload.rs`): what is
//! wrong with the worker, or with the file as it stands now, is 422 and changes nothing. A worker that was added
//! outlives reloads and no restart. One that stands in the configuration is not removed here: the next reload would
//! bring it back.

use std::future::Future;
use std::pin::Pin;

use http::StatusCode;
use serde::Deserialize;

use super::Admin;
use super::answer::Answer;
use super::changes::{AUDIT, Nothing, object, parsed, text, time};
use super::door::Shown;
use super::reload::{ReloadResult, Reloaded, show};
use crate::units::Seconds;

/// Adds or removes a worker; what comes of that.
pub type Staff = dyn Fn(Staffing) -> Pin<Box<dyn Future<Output = Reloaded> + Send>> + Send + Sync;

/// Who comes or goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Staffing {
    /// A worker that comes.
    Add {
        /// What it is called.
        name: String,
        /// Where it is.
        url: String,
        /// For how long; until a restart where that is not said.
        within: Option<Seconds>,
    },
    /// One that goes.
    Remove {
        /// What it is called.
        name: String,
    },
}

/// The body of `add`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Newcomer {
    url: String,
    #[serde(default, rename = "for", deserialize_with = "text")]
    within: Option<String>,
}

impl Staffing {
    /// To add this worker, with this body; or what is wrong with that.
    pub(super) fn add(name: &str, body: &[u8]) -> Result<Self, String> {
        let Newcomer { url, within } = object(body, r#"{"url": "http://desk:8000", "for": "8h"}"#)?;
        Ok(Staffing::Add {
            name: name.to_owned(),
            url,
            within: within.map(|text| time(&text)).transpose()?,
        })
    }

    /// To remove this worker.
    pub(super) fn remove(name: &str, body: &[u8]) -> Result<Self, String> {
        let Nothing {} = parsed(body, "{}")?;
        let name = name.to_owned();
        Ok(Staffing::Remove { name })
    }

    fn log(&self, shown: Shown) {
        let by = shown.label();
        match self {
            Staffing::Add { name, within, .. } => {
                let within = within.map(tracing::field::display);
                tracing::warn!(target: AUDIT, by, worker = name, within, "added by hand");
            }
            Staffing::Remove { name } => {
                tracing::warn!(target: AUDIT, by, worker = name, "removed by hand");
            }
        }
    }
}

impl Admin {
    /// Carries out such an order of somebody who may come in.
    pub(super) async fn staff(&self, shown: Shown, order: Result<Staffing, String>) -> Answer {
        let order = match order {
            Ok(order) => order,
            Err(flaw) => return Answer::refusal(StatusCode::BAD_REQUEST, "bad_request", &flaw),
        };
        let reloaded = (self.sights.staff)(order.clone()).await;
        if reloaded.result != ReloadResult::Refused {
            order.log(shown);
        }
        show(&reloaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_says_where_it_is_and_for_how_long() {
        let add = |body: &str| Staffing::add("a", body.as_bytes());
        let newcomer = |within| {
            Ok(Staffing::Add {
                name: "a".into(),
                url: "http://desk".into(),
                within,
            })
        };
        assert_eq!(add(r#"{"url":"http://desk"}"#), newcomer(None));
        let eight = r#"{"url":"http://desk","for":"8h"}"#;
        assert_eq!(add(eight), newcomer(Some(Seconds(28_800.0))));
        for odd in [
            "",
            "{}",
            r#"{"url":1}"#,
            r#"{"url":"http://desk","for":8}"#,
            r#"{"url":"http://desk","for":"0s"}"#,
            r#"{"url":"http://desk","until":"8h"}"#,
        ] {
            assert!(add(odd).is_err(), "{odd}");
        }
        assert!(Staffing::remove("a", b"").is_ok());
        assert!(Staffing::remove("a", b"{\"within\":\"1s\"}").is_err());
    }
}
