//! `POST /api/reload`: the configuration is read again; `GET /api/reload`: what came of it the last time.
//!
//! The body is empty, or `{"dry_run": true}`, which changes nothing. The answer:
//!
//! | key | what |
//! |---|---|
//! | `result` | `ok`: taken over, or what would be; `unchanged`; `refused`: the plan before stays in force |
//! | `by`, `time` | who or what asked, and when |
//! | `changes` | each key that differs: `key`, `from`, `to`; secrets as `***` |
//! | `lost` | names of models that clients may say now and that nobody would serve any more, as far as is known |
//! | `remarks` | what `forebay check` warns of: good, but hardly meant |
//! | `pending` | those of them that need a restart, or `forebay serve --upgrade`; what was in force stays so until then |
//! | `problems` | everything that is wrong with the file, where it was refused |
//!
//! A refusal has the status 422.

use std::future::Future;
use std::pin::Pin;

use http::StatusCode;
use serde::{Deserialize, Serialize, Serializer};

use super::Admin;
use super::answer::{Answer, JSON};
use super::changes::parsed;
use crate::clock;
use crate::config::diff::Change;
use crate::units::Seconds;

/// Reads the configuration again; only to see what would come of it, if so told.
pub type Reload = dyn Fn(bool) -> Pin<Box<dyn Future<Output = Reloaded> + Send>> + Send + Sync;

/// What came of reading the configuration again.
#[derive(Clone, Debug, Serialize)]
pub struct Reloaded {
    /// How it ended.
    pub result: ReloadResult,
    /// Who or what asked.
    pub by: &'static str,
    /// When, as wall time.
    #[serde(serialize_with = "as_date")]
    pub time: Seconds,
    /// What differs.
    pub changes: Vec<Change>,
    /// The models that clients lose.
    pub lost: Vec<String>,
    /// What may not be meant.
    pub remarks: Vec<String>,
    /// The keys of those that need a restart.
    pub pending: Vec<&'static str>,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// How reading the configuration again ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReloadResult {
    /// It is taken over, or would be.
    Ok,
    /// It says what it said before.
    Unchanged,
    /// It is wrong.
    Refused,
}

impl ReloadResult {
    /// In one word.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            ReloadResult::Ok => "ok",
            ReloadResult::Unchanged => "unchanged",
            ReloadResult::Refused => "refused",
        }
    }
}

/// The body.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    #[serde(default)]
    dry_run: bool,
}

impl Admin {
    /// Reads the configuration again for somebody who may come in.
    pub(super) async fn reload(&self, body: &[u8]) -> Answer {
        match parsed::<Wish>(body, r#"{"dry_run": true}"#) {
            Ok(Wish { dry_run }) => show(&(self.sights.reload)(dry_run).await),
            Err(flaw) => Answer::refusal(StatusCode::BAD_REQUEST, "bad_request", &flaw),
        }
    }

    /// What came of the last reload, if there was one.
    pub(super) fn last_reload(&self) -> Answer {
        Answer::json(sonic_rs::to_string(&(self.sights.reloaded)()))
    }
}

/// With 422 where the configuration was refused.
pub(super) fn show(reloaded: &Reloaded) -> Answer {
    match (reloaded.result, sonic_rs::to_string(reloaded)) {
        (ReloadResult::Refused, Ok(text)) => {
            Answer::new(StatusCode::UNPROCESSABLE_ENTITY, JSON, text)
        }
        (_, text) => Answer::json(text),
    }
}

fn as_date<S: Serializer>(time: &Seconds, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&clock::rfc3339(*time))
}
