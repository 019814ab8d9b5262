//! Where most of a request's time went, in one sentence.
//!
//! Some of a request's time is measured: the wait in line, the moments when it was sent, when a first byte came and
//! when it ended, and the way to its worker. What passed inside a worker before its first byte is not; it is divided as
//! the price of that worker had expected it to be, in proportion. So the parts always sum up to the whole, and a
//! sentence that says "prefill" means: that is what this worker was believed to be at.
//!
//! | part | what |
//! |---|---|
//! | `queue` | the wait in line, and inside the worker behind others |
//! | `swap` | bringing in a model or an adapter |
//! | `prefill` | reading the prompt, or all of the work where nothing is generated |
//! | `decode` | writing the answer |
//! | `network` | the way to the worker and back |
//! | `proxy` | taking the request in, and choosing |
//! | `retry` | attempts that came to nothing |

use std::collections::BTreeMap;

use serde::Serialize;

use crate::decide::{Entry, Fate, Terms};
use crate::observe::Observe;
use crate::observe::decisions::{ChoiceMade, Decision};
use crate::units::Seconds;

/// An answer whose last byte came so soon after its first, as a share of the time until then, came in one piece.
const AT_ONCE: f64 = 0.05;

/// Where the most of it went.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Culprit {
    /// The part.
    part: &'static str,
    /// The time that it took.
    seconds: f64,
    /// Its share of the whole, 0 to 1.
    share: f64,
    /// All of that, and why, in a sentence.
    sentence: String,
    /// What every part took.
    parts_s: BTreeMap<&'static str, f64>,
}

impl Culprit {
    /// That of a request that has ended.
    pub(super) fn of(decision: &Decision, observe: &Observe) -> Self {
        let parts = Parts::of(decision);
        let (part, seconds) = parts.largest();
        let total = decision.total.0;
        let share = (seconds / total).clamp(0.0, 1.0);
        let cause = parts.cause(part, decision, observe);
        let sentence = format!(
            "{part}: {} of {} ({:.0} %): {cause}",
            in_words(seconds),
            in_words(total),
            share * 100.0
        );
        let parts_s = { parts.seconds }
            .into_iter()
            .filter(|(_, span)| *span > 0.0);
        Culprit {
            part,
            seconds,
            share,
            sentence,
            parts_s: parts_s.collect(),
        }
    }
}

/// The whole, divided.
struct Parts<'a> {
    seconds: BTreeMap<&'static str, f64>,
    /// Of the wait, that inside the worker.
    inside: f64,
    /// The attempt that was made last.
    last: Option<&'a ChoiceMade>,
}

impl<'a> Parts<'a> {
    fn of(decision: &'a Decision) -> Self {
        let total = decision.total;
        let queue = decision.queue.unwrap_or_default().min(total);
        let mut sent = decision.choices.iter().filter_map(|made| made.sent);
        let first = sent.next();
        let last = decision
            .choices
            .iter()
            .rev()
            .find(|made| made.sent.is_some());
        let mut parts = Parts {
            seconds: BTreeMap::from([("queue", queue.0)]),
            inside: 0.0,
            last,
        };
        let (Some(first), Some(Some(last))) = (first, last.map(|made| made.sent)) else {
            parts.add("proxy", total - queue);
            return parts;
        };
        parts.add("proxy", first - queue);
        parts.add("retry", last - first);
        match decision.first_byte.filter(|byte| *byte >= last) {
            None => parts.add("retry", total - last),
            Some(byte) => parts.divide(byte - last, total - byte),
        }
        parts
    }

    fn add(&mut self, part: &'static str, span: Seconds) {
        *self.seconds.entry(part).or_default() += span.0.max(0.0);
    }

    /// The time before the first byte: the way, and the rest in proportion to what was expected; and that after it.
    fn divide(&mut self, before: Seconds, after: Seconds) {
        let term = self.expected();
        let decode = term("decode");
        let whole = after.0 <= before.0 * AT_ONCE;
        let way = Seconds(term("net")).min(before);
        let inside = before - way;
        self.add("network", way);
        let expected = [
            ("swap", term("lora") + term("swap")),
            ("queue", term("wait")),
            ("prefill", term("own")),
            ("decode", if whole { decode } else { 0.0 }),
        ];
        let sum: f64 = expected.iter().map(|(_, span)| span).sum();
        if sum > 0.0 {
            for (part, span) in expected {
                self.add(part, inside * (span / sum));
            }
            self.inside = inside.0 * term("wait") / sum;
        } else {
            self.add("prefill", inside);
        }
        self.add(if decode > 0.0 { "decode" } else { "network" }, after);
    }

    /// What was expected of the worker that had it, by the term's name.
    fn expected(&self) -> impl Fn(&str) -> f64 + use<> {
        let names = Terms::default().parts().map(|(name, _)| name);
        let seconds = self
            .picked()
            .map_or([0.0; Terms::PARTS], |entry| entry.seconds);
        move |name| {
            let place = names.iter().position(|term| *term == name);
            place.map_or(0.0, |place| f64::from(seconds[place]))
        }
    }

    fn picked(&self) -> Option<&'a Entry> {
        let entries = &self.last?.considered.entries;
        entries.iter().find(|entry| entry.fate == Fate::Picked)
    }

    /// The part that took longest; of several, the first by its name.
    fn largest(&self) -> (&'static str, f64) {
        let parts = self.seconds.iter().map(|(part, span)| (*part, *span));
        parts.fold(
            ("proxy", 0.0),
            |most, part| if part.1 > most.1 { part } else { most },
        )
    }

    fn cause(&self, part: &str, decision: &Decision, observe: &Observe) -> String {
        let asked = self.last.and_then(|made| made.worker);
        let worker = asked.and_then(|id| observe.worker_name(id));
        let worker = worker.as_deref().unwrap_or("a worker");
        let status = decision.status.as_u16();
        match part {
            "queue" if self.inside > self.seconds["queue"] / 2.0 => {
                format!("it waited inside {worker} behind others")
            }
            "queue" if asked.is_none() => {
                format!("it waited in line in vain: {status} {}", decision.reason)
            }
            "queue" => format!("it waited in line for a place on {worker}"),
            "swap" => format!("{worker} had to bring in the model or its adapter"),
            "prefill" => format!("{worker} read {}", self.prompt()),
            "decode" => format!("{worker} wrote the answer"),
            "network" => format!("the way to {worker} and back"),
            "retry" => self.failures(decision, observe),
            _ if asked.is_none() => format!(
                "it was answered without a worker: {status} {}",
                decision.reason
            ),
            _ if decision.body.0 > self.seconds["proxy"] / 2.0 => {
                format!("its client took {} to send it", in_words(decision.body.0))
            }
            _ => "the proxy took it in and chose".to_owned(),
        }
    }

    /// What had to be read.
    fn prompt(&self) -> String {
        let tokens = self.last.map_or(0.0, |made| made.considered.prompt);
        match self.picked() {
            Some(entry) if tokens > 0.0 => {
                format!(
                    "a prompt of {tokens:.0} tokens, {:.0} of them from its cache",
                    entry.cached
                )
            }
            _ => "the request".to_owned(),
        }
    }

    /// Which attempts came to nothing.
    fn failures(&self, decision: &Decision, observe: &Observe) -> String {
        let failed = decision.choices.iter().filter_map(|made| {
            let (outcome, _) = made.ended?;
            let name = observe.worker_name(made.worker?)?;
            (outcome != "ok").then(|| format!("{name} ({outcome})"))
        });
        let failed: Vec<_> = failed.collect();
        match &failed[..] {
            [] => "no attempt came to an answer".to_owned(),
            failed => format!("attempts came to nothing: {}", failed.join(", ")),
        }
    }
}

/// A span with three digits that count.
fn in_words(seconds: f64) -> String {
    match seconds {
        s if s < 0.000_999_5 => format!("{:.0} µs", s * 1e6),
        s if s < 0.999_5 => format!("{:.1} ms", s * 1e3),
        s if s < 9.995 => format!("{s:.2} s"),
        s if s < 99.95 => format!("{s:.1} s"),
        s => format!("{s:.0} s"),
    }
}
