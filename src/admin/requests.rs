//! `GET /api/requests/ID`: why a request went where it went.
//!
//! `ID` is what the answer's `x-request-id` said; of several requests with one id the newest is shown. The keys:
//!
//! | key | what |
//! |---|---|
//! | `id`, `time` | the request, and when it came |
//! | `tenant` | whose it was, `-` where nobody is known |
//! | `route`, `model` | what it was matched to, what it asked for |
//! | `worker`, `status`, `reason`, `attempts` | how it ended, as the access log says it |
//! | `queue_s`, `route_s` | the wait in line and the choosing before the first attempt |
//! | `first_byte_s`, `total_s` | when the first byte came from a worker, and when it ended |
//! | `culprit` | where most of its time went: `part`, `seconds`, `share`, all of it in a `sentence`, and `parts_s` with every part (`culprit.rs`) |
//! | `choices` | every choice: the first attempt's, each retry's, also one that found nobody |
//!
//! and of each choice:
//!
//! | key | what |
//! |---|---|
//! | `chosen_s` | when |
//! | `worker`, `sent_s`, `outcome`, `ended_s` | the attempt that it led to; none when nobody was picked |
//! | `prompt_tokens` | the length of the prompt, where its beginning was looked up |
//! | `candidates` | who serves the model and is on the route: the picked one, then the cheapest |
//! | `left_out` | how many more of them are not shown |
//!
//! and of each candidate its `worker`, its `fate` (`picked`, `candidate`, or the reason why it was left out), and,
//! unless a large fleet was sampled and it was not drawn, its price: `total_s` and in `terms_s` what that consists of
//! (`net`, `lora`, `swap`, `wait`, `own`, `decode`, `external`, `failure`, `price`), with `cached_tokens`, what it was
//! believed to have of the prompt, where that was looked up. All in seconds, the moments counted from when the head had
//! been read. What is not known is missing.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::culprit::Culprit;
use crate::clock;
use crate::decide::{Entry, Fate, Terms};
use crate::observe::Observe;
use crate::observe::decisions::{ChoiceMade, Decision};
use crate::observe::names::RouteName;
use crate::units::{ModelName, Seconds};

/// As JSON, its workers by name.
pub(super) fn to_json(decision: &Decision, observe: &Observe) -> sonic_rs::Result<String> {
    let choices = decision.choices.iter();
    sonic_rs::to_string(&Explained {
        summary: Summary::of(decision, observe),
        culprit: Culprit::of(decision, observe),
        choices: choices.map(|choice| Choice::of(choice, observe)).collect(),
    })
}

/// Several, as JSON, without their choices.
pub(super) fn list_to_json(
    decisions: &[Arc<Decision>],
    observe: &Observe,
) -> sonic_rs::Result<String> {
    let summaries = decisions.iter();
    sonic_rs::to_string(&List {
        requests: summaries
            .map(|decision| Summary::of(decision, observe))
            .collect(),
    })
}

#[derive(Serialize)]
struct List<'a> {
    requests: Vec<Summary<'a>>,
}

#[derive(Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    summary: Summary<'a>,
    culprit: Culprit,
    choices: Vec<Choice>,
}

/// One of the last, for the status page.
#[derive(Serialize)]
pub(super) struct Recent<'a> {
    #[serde(flatten)]
    summary: Summary<'a>,
    culprit: Culprit,
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<Price>,
}

#[derive(Serialize)]
struct Summary<'a> {
    id: &'a str,
    time: String,
    tenant: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<Arc<str>>,
    status: u16,
    reason: &'static str,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_s: Option<f64>,
    total_s: f64,
}

#[derive(Serialize)]
struct Choice {
    chosen_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<f32>,
    candidates: Vec<Candidate>,
    left_out: usize,
}

/// One who was considered.
#[derive(Serialize)]
pub(super) struct Candidate {
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<Arc<str>>,
    fate: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    price: Option<Price>,
}

#[derive(Serialize)]
struct Price {
    total_s: f32,
    #[serde(serialize_with = "by_name")]
    terms_s: [f32; Terms::PARTS],
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<f32>,
}

impl<'a> Recent<'a> {
    /// With the price of the worker that had it last.
    pub(super) fn of(decision: &'a Decision, observe: &Observe) -> Self {
        let mut choices = decision.choices.iter().rev();
        let last = choices.find(|made| made.worker.is_some());
        let price = last.and_then(|made| {
            let mut entries = made.considered.entries.iter();
            let picked = entries.find(|entry| entry.fate == Fate::Picked)?;
            Price::of(picked, made.considered.prompt > 0.0)
        });
        Recent {
            summary: Summary::of(decision, observe),
            culprit: Culprit::of(decision, observe),
            price,
        }
    }
}

impl<'a> Summary<'a> {
    fn of(decision: &'a Decision, observe: &Observe) -> Self {
        let seconds = |span: Option<Seconds>| span.map(|span| span.0);
        Summary {
            id: &decision.id,
            time: clock::rfc3339(decision.arrived),
            tenant: &decision.tenant,
            route: decision.route.as_ref().map(RouteName::as_str),
            model: decision.model.as_ref().map(ModelName::as_str),
            worker: decision.worker.and_then(|id| observe.worker_name(id)),
            status: decision.status.as_u16(),
            reason: decision.reason,
            attempts: decision.attempts,
            queue_s: seconds(decision.queue),
            route_s: seconds(decision.choosing),
            first_byte_s: seconds(decision.first_byte),
            total_s: decision.total.0,
        }
    }
}

impl Choice {
    fn of(made: &ChoiceMade, observe: &Observe) -> Self {
        let prompt = Some(made.considered.prompt).filter(|tokens| *tokens > 0.0);
        Choice {
            chosen_s: made.at.0,
            worker: made.worker.and_then(|id| observe.worker_name(id)),
            sent_s: made.sent.map(|at| at.0),
            outcome: made.ended.map(|(outcome, _)| outcome),
            ended_s: made.ended.map(|(_, at)| at.0),
            prompt_tokens: prompt,
            candidates: made
                .considered
                .entries
                .iter()
                .map(|entry| Candidate::of(entry, prompt.is_some(), observe))
                .collect(),
            left_out: made.considered.left_out,
        }
    }
}

impl Candidate {
    pub(super) fn of(entry: &Entry, looked_up: bool, observe: &Observe) -> Self {
        Candidate {
            worker: observe.worker_name(entry.worker),
            fate: entry.fate.label(),
            price: Price::of(entry, looked_up),
        }
    }
}

impl Price {
    /// Unless it was not drawn to be compared.
    fn of(entry: &Entry, looked_up: bool) -> Option<Self> {
        entry.is_priced().then(|| Price {
            total_s: entry.total(),
            terms_s: entry.seconds,
            cached_tokens: looked_up.then_some(entry.cached),
        })
    }
}

fn by_name<S: Serializer>(seconds: &[f32; Terms::PARTS], to: S) -> Result<S::Ok, S::Error> {
    let names = Terms::default().parts().map(|(name, _)| name);
    to.collect_map(names.iter().zip(seconds))
}
