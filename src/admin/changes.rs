//! `POST /api/workers/NAME/…`: what an operator changes of a worker while the proxy runs.
//!
//! | verb | body | what |
//! |---|---|---|
//! | `drain` | `{"within": "10m"}`, or none | no new requests; those it holds end by themselves, and `until` shows when they should have |
//! | `eject` | `{"within": "30s"}`, or none | no requests for so long, by default for `eject.max`; then it comes back slowly |
//! | `resume` | none | both are over, and so is being out for errors |
//! | `speed` | `{"speed": 4.0}` | a guess as `worker.speed` is one; what was learned of its speed is forgotten |
//!
//! The answer is the worker's row of `/api/workers`, whose `override` shows what is held by hand. Changes outlive no
//! restart. A worker that is drained stays so when it is ejected: the ejection would end, and with it what its operator
//! wanted. Each is a line in the log, whatever its level: who asked, by the token or from a browser, and what for.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use serde::{Deserialize, Deserializer};

use super::answer::Answer;
use super::door::Shown;
use crate::config::quantity;
use crate::decide::ByHand;
use crate::units::Seconds;

/// The longest that anybody takes to say what is wanted.
const PATIENCE: Duration = Duration::from_secs(10);
/// A longer time is no time but a mistake.
const LONGEST_TIME: Seconds = Seconds(30.0 * 86_400.0);
/// The speeds that may be typed; those of `worker.speed`.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1_000.0;

/// Whose lines in the log are told at every level: they say who changed what by hand.
pub const AUDIT: &str = "audit";

/// What is to be done to whom.
pub(super) struct Order<'a> {
    pub worker: &'a str,
    pub verb: Verb,
}

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Drain,
    Eject,
    Resume,
    Speed,
}

/// The body of a change that may be bounded in time.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounded {
    #[serde(default, deserialize_with = "text")]
    within: Option<String>,
}

/// The body of one that says nothing.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Faster {
    speed: f64,
}

impl Order<'_> {
    /// The change that it comes to with this body; or what is wrong with the body.
    pub(super) fn change(&self, body: &[u8]) -> Result<ByHand, String> {
        match self.verb {
            Verb::Drain => Ok(ByHand::Drain {
                within: within(body)?,
            }),
            Verb::Eject => Ok(ByHand::Eject {
                within: within(body)?,
            }),
            Verb::Resume => {
                let Nothing {} = parsed(body, "{}")?;
                Ok(ByHand::Resume)
            }
            Verb::Speed => {
                let Faster { speed } = object(body, r#"{"speed": 4.0}"#)?;
                if !SPEEDS.contains(&speed) {
                    return Err("a speed is from 0.001 to 1000".to_owned());
                }
                Ok(ByHand::Speed(speed))
            }
        }
    }
}

/// Reads a body of so many bytes at the most.
pub(super) async fn read<B>(body: B, most: usize) -> Result<Bytes, Answer>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = Limited::new(body, most).collect();
    match tokio::time::timeout(PATIENCE, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(_)) => Err(Answer::refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            &format!("this path takes a body of up to {} KiB", most >> 10),
        )),
        Err(_) => Err(Answer::refusal(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the body did not come within 10 s",
        )),
    }
}

/// Takes a change down.
pub(super) fn log(shown: Shown, worker: &str, change: ByHand) {
    let by = shown.label();
    match change {
        ByHand::Drain {
            within: Some(within),
        } => {
            tracing::warn!(target: AUDIT, by, worker, %within, "drained by hand");
        }
        ByHand::Drain { within: None } => {
            tracing::warn!(target: AUDIT, by, worker, "drained by hand");
        }
        ByHand::Eject {
            within: Some(within),
        } => {
            tracing::warn!(target: AUDIT, by, worker, %within, "ejected by hand");
        }
        ByHand::Eject { within: None } => {
            tracing::warn!(target: AUDIT, by, worker, "ejected by hand");
        }
        ByHand::Resume => tracing::warn!(target: AUDIT, by, worker, "resumed by hand"),
        ByHand::Speed(speed) => {
            tracing::warn!(target: AUDIT, by, worker, speed, "speed set by hand");
        }
    }
}

/// A text where there is one: `null` is none.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}

fn within(body: &[u8]) -> Result<Option<Seconds>, String> {
    let Bounded { within } = parsed(body, r#"{"within": "30s"}"#)?;
    within.map(|text| time(&text)).transpose()
}

/// A time as it is typed in the configuration.
pub(super) fn time(text: &str) -> Result<Seconds, String> {
    let time = quantity::duration(text).map_err(|flaw| flaw.words().to_owned())?;
    if time > Seconds::ZERO && time <= LONGEST_TIME {
        Ok(time)
    } else {
        Err("this time is not above 0s and up to 30d".to_owned())
    }
}

/// A body of this form, or none.
pub(super) fn parsed<'a, T: Default + Deserialize<'a>>(
    body: &'a [u8],
    form: &str,
) -> Result<T, String> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    object(body, form)
}

/// A body of this form. An array would do as well for serde, and is not what anybody means.
pub(super) fn object<'a, T: Deserialize<'a>>(body: &'a [u8], form: &str) -> Result<T, String> {
    let object = Some(body).filter(|body| body.trim_ascii().starts_with(b"{"));
    let read = object.and_then(|body| sonic_rs::from_slice(body).ok());
    read.ok_or_else(|| format!("the body is not what this takes: {form}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(verb: Verb, body: &str) -> Result<ByHand, String> {
        Order { worker: "a", verb }.change(body.as_bytes())
    }

    #[test]
    fn an_order_says_what() {
        let drained = |within| Ok(ByHand::Drain { within });
        assert_eq!(change(Verb::Drain, ""), drained(None));
        let ten = r#"{"within": "10m"}"#;
        assert_eq!(change(Verb::Drain, ten), drained(Some(Seconds(600.0))));
        let four = change(Verb::Speed, r#"{"speed": 4}"#);
        assert_eq!(four, Ok(ByHand::Speed(4.0)));
        assert_eq!(change(Verb::Resume, "{}"), Ok(ByHand::Resume));
    }

    #[test]
    fn what_can_not_be_meant_is_refused() {
        for (verb, body) in [
            (Verb::Drain, "10m"),
            (Verb::Drain, r#"{"for": "10m"}"#),
            (Verb::Drain, r#"{"within": 10}"#),
            (Verb::Drain, r#"{"within": null}"#),
            (Verb::Drain, "null"),
            (Verb::Drain, "[]"),
            (Verb::Drain, r#"{"within": "10"}"#),
            (Verb::Eject, r#"{"within": "0s"}"#),
            (Verb::Eject, r#"{"within": "31d"}"#),
            (Verb::Resume, r#"{"within": "1s"}"#),
            (Verb::Speed, ""),
            (Verb::Speed, r#"{"speed": 0}"#),
            (Verb::Speed, r#"{"speed": 1e9}"#),
            (Verb::Speed, r#"{"speed": NaN}"#),
            (Verb::Speed, r#"{"speed": 1e999}"#),
            (Verb::Speed, r#"{"speed": -4}"#),
            (Verb::Speed, r#"{"speed": "4"}"#),
            (Verb::Speed, "[4.0]"),
        ] {
            assert!(change(verb, body).is_err(), "{verb:?} {body}");
        }
    }
}
