//! `POST /api/log`: how much of the diagnostics is written from now on, until the configuration says something else or
//! the process ends.
//!
//! The body is `{"level": "debug"}`, which is for all rooms, or `{"level": "debug", "room": "fleet"}` for one; the
//! answer says the same again. Rooms are the folders and files of the source, which `trace` of all would drown in each
//! other.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::answer::Answer;
use super::changes::{AUDIT, object, text};
use super::door::Shown;
use crate::config::Choice as _;
use crate::config::plan::LogLevel;

/// Sets the level of all rooms, or of one; the rooms that there are, when there is none of this name.
pub type SetLevel =
    dyn Fn(LogLevel, Option<&str>) -> Result<(), &'static [&'static str]> + Send + Sync;

/// The body, and the answer.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    level: String,
    #[serde(
        default,
        deserialize_with = "text",
        skip_serializing_if = "Option::is_none"
    )]
    room: Option<String>,
}

impl Admin {
    /// Changes what is written.
    pub(super) fn set_level(&self, shown: Shown, body: &[u8]) -> Answer {
        let wrong = |flaw: &str| Answer::refusal(StatusCode::BAD_REQUEST, "bad_request", flaw);
        let wish: Wish = match object(body, r#"{"level": "debug", "room": "fleet"}"#) {
            Ok(wish) => wish,
            Err(flaw) => return wrong(&flaw),
        };
        let mut levels = LogLevel::WORDS.iter();
        let Some((_, level)) = levels.find(|(word, _)| *word == wish.level) else {
            let words: Vec<_> = LogLevel::WORDS.iter().map(|(word, _)| *word).collect();
            return wrong(&format!("a level is one of {}", words.join(", ")));
        };
        if let Err(rooms) = (self.sights.set_level)(*level, wish.room.as_deref()) {
            return wrong(&format!("a room is one of {}", rooms.join(", ")));
        }
        let (by, level, room) = (shown.label(), &*wish.level, wish.room.as_deref());
        tracing::warn!(target: AUDIT, by, level, room, "log level set by hand");
        Answer::json(sonic_rs::to_string(&wish))
    }
}
