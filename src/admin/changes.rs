//! `POST /api/workers/NAME/…`: what an operator changes of a worker while the proxy runs.
//!
//! | verb | body | what |
//! |---|---|---|
//! | `drain` | `{"within": "10m"}`, or none | no new requests; those it holds end by themselves, and `until` shows when they should have |
//! | `eject` | `{"within": "30s"}`, or none | no requests for so long, by default for `eject.max`; then it comes back slowly |
//! | `resume` | none | both are over, and so is being out for errors |
//! | `speed` | `{"speed": 4.0}` | a guess as `worker.speed` is one; what was learned of its speed is forgotten |
//!
//! The answer is the worker's row of `/api/workers`, whose `override` shows what is held by hand. Changes outlive no restart.
//! Each is a line in the log, at every level but `error`: who asked, by the token or from a browser, and what for.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;

use super::answer::Answer;
use super::door::Shown;
use crate::config::quantity;
use crate::decide::ByHand;
use crate::facts::name_in_path;
use crate::units::Seconds;

/// No change takes more words, in bytes.
const LONGEST: usize = 4 << 10;
/// The longest that anybody takes to say it.
const PATIENCE: Duration = Duration::from_secs(10);
/// A longer time is no time but a mistake.
const LONGEST_TIME: Seconds = Seconds(30.0 * 86_400.0);
/// The speeds that may be typed; those of `worker.speed`.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1_000.0;

/// What is to be done to whom.
pub(super) struct Order {
    pub worker: String,
    verb: Verb,
}

#[derive(Clone, Copy)]
enum Verb {
    Drain,
    Eject,
    Resume,
    Speed,
}

/// The body of a change that may be bounded in time.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounded {
    within: Option<String>,
}

/// The body of one that says nothing.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Faster {
    speed: f64,
}

impl Order {
    /// What a path orders.
    pub(super) fn in_path(path: &str) -> Option<Self> {
        let (name, verb) = path.strip_prefix("/api/workers/")?.rsplit_once('/')?;
        let verb = match verb {
            "drain" => Verb::Drain,
            "eject" => Verb::Eject,
            "resume" => Verb::Resume,
            "speed" => Verb::Speed,
            _ => return None,
        };
        Some(Order {
            worker: name_in_path(name).into_owned(),
            verb,
        })
    }

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
                let wanted = r#"{"speed": 4.0}"#;
                let Faster { speed } = sonic_rs::from_slice(body).map_err(|_| expected(wanted))?;
                if !SPEEDS.contains(&speed) {
                    return Err("a speed is from 0.001 to 1000".to_owned());
                }
                Ok(ByHand::Speed(speed))
            }
        }
    }
}

/// Reads what is to be changed.
pub(super) async fn read<B>(body: B) -> Result<Bytes, Answer>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = Limited::new(body, LONGEST).collect();
    match tokio::time::timeout(PATIENCE, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(_)) => Err(Answer::refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "no change takes more than 4 KiB to say",
        )),
        Err(_) => Err(Answer::refusal(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the body did not come within 10 s",
        )),
    }
}

/// Takes a change down.
pub(super) fn log(shown: Shown, order: &Order, change: ByHand) {
    let (by, worker) = (shown.label(), &*order.worker);
    match change {
        ByHand::Drain {
            within: Some(within),
        } => {
            tracing::warn!(by, worker, %within, "drained by hand");
        }
        ByHand::Drain { within: None } => tracing::warn!(by, worker, "drained by hand"),
        ByHand::Eject {
            within: Some(within),
        } => {
            tracing::warn!(by, worker, %within, "ejected by hand");
        }
        ByHand::Eject { within: None } => tracing::warn!(by, worker, "ejected by hand"),
        ByHand::Resume => tracing::warn!(by, worker, "resumed by hand"),
        ByHand::Speed(speed) => tracing::warn!(by, worker, speed, "speed set by hand"),
    }
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
    sonic_rs::from_slice(body).map_err(|_| expected(form))
}

fn expected(form: &str) -> String {
    format!("the body is not what this takes: {form}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, body: &str) -> Option<Result<ByHand, String>> {
        Some(Order::in_path(path)?.change(body.as_bytes()))
    }

    #[test]
    fn an_order_names_a_worker_and_says_what() {
        let drained = |within| Some(Ok(ByHand::Drain { within }));
        assert_eq!(change("/api/workers/a/drain", ""), drained(None));
        let ten = r#"{"within": "10m"}"#;
        assert_eq!(
            change("/api/workers/a/drain", ten),
            drained(Some(Seconds(600.0)))
        );
        assert_eq!(
            change("/api/workers/a/speed", r#"{"speed": 4}"#),
            Some(Ok(ByHand::Speed(4.0)))
        );
        assert_eq!(
            change("/api/workers/a/resume", "{}"),
            Some(Ok(ByHand::Resume))
        );
        let order = Order::in_path("/api/workers/a%2Fb/eject").unwrap();
        assert_eq!(order.worker, "a/b");
        for path in ["/api/workers/a", "/api/workers/a/", "/api/workers/a/stop"] {
            assert!(Order::in_path(path).is_none(), "{path}");
        }
    }

    #[test]
    fn what_can_not_be_meant_is_refused() {
        for (verb, body) in [
            ("drain", "10m"),
            ("drain", r#"{"for": "10m"}"#),
            ("drain", r#"{"within": 10}"#),
            ("drain", r#"{"within": "10"}"#),
            ("eject", r#"{"within": "0s"}"#),
            ("eject", r#"{"within": "31d"}"#),
            ("resume", r#"{"within": "1s"}"#),
            ("speed", ""),
            ("speed", r#"{"speed": 0}"#),
            ("speed", r#"{"speed": 1e9}"#),
            ("speed", r#"{"speed": "4"}"#),
        ] {
            let refused = change(&format!("/api/workers/a/{verb}"), body).unwrap();
            assert!(refused.is_err(), "{verb} {body}");
        }
    }
}
