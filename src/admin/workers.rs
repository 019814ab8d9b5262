//! The fleet as the admin side shows it.
//!
//! A picture, taken when somebody looks: it holds copies and no locks, and what is unknown is absent rather than zero,
//! so that "not learned yet" can't be read as "infinitely slow". The JSON keys are the fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::ClassRow;
use crate::clock;
use crate::decide::Ejections;
use crate::observe::{Metrics, ToldGauges, WorkerGauges};
use crate::units::Seconds;

/// The fleet at one moment.
#[derive(Clone, Debug)]
pub struct FleetView {
    /// In the order of the configuration, and behind them those that are in it no more and still hold requests.
    pub workers: Vec<WorkerRow>,
    /// The requests of each class that wait because every fitting worker is at its limit or down.
    pub queued: Vec<ClassRow>,
    /// Whether a request could be answered now; if not, why.
    pub ready: Result<(), String>,
}

/// One worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerRow {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is, without credentials.
    pub url: String,
    /// One of [`crate::observe::names::WORKER_STATES`].
    pub state: &'static str,
    /// Why it is in this state, for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when, as wall time.
    #[serde(serialize_with = "as_date")]
    pub since: Seconds,
    /// Until when, as wall time, where that is known.
    #[serde(
        serialize_with = "as_date_if_known",
        skip_serializing_if = "Option::is_none"
    )]
    pub until: Option<Seconds>,
    /// What an operator changed by hand and holds until somebody resumes it, or the proxy ends.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<Overridden>,
    /// The machine that it shares with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Arc<str>>,
    /// The region that this machine is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    /// The zone that this region lies in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
    /// Who is asked first: the lowest tier that somebody is up in.
    pub tier: u8,
    /// What it carries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Arc<str>>,
    /// Whether it comes and goes, so that its absence is no reason to worry.
    pub optional: bool,
    /// How much longer it asked to be left alone.
    #[serde(
        rename = "held_s",
        serialize_with = "as_number_if_known",
        skip_serializing_if = "Option::is_none"
    )]
    pub held: Option<Seconds>,
    /// What it is given at a time while it proves itself after a recovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<u32>,
    /// The busy time that it is expected to infer before it fails.
    #[serde(rename = "fail_timeout_s", serialize_with = "as_number")]
    pub fail_timeout: Seconds,
    /// How often it was ejected since the start.
    #[serde(serialize_with = "by_cause")]
    pub ejections: Ejections,
    /// What it is, by the word of the configuration; absent until it is found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<&'static str>,
    /// The names by which clients may ask for its models.
    pub models: Vec<String>,
    /// Its LoRA adapters, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<Lora>,
    /// Requests it holds.
    pub inflight: u32,
    /// The most it is given; absent as long as nobody says so and nothing has waited in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_inflight: Option<u32>,
    /// Who says so: `configuration`, `engine`, or `learned` from what it has shown, which changes with what it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_inflight_from: Option<&'static str>,
    /// Tokens of the longest prompt that it takes, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_prompt_tokens: Option<u64>,
    /// Of those it holds, the ones without a first byte yet.
    pub queue: u32,
    /// Of those it holds, the ones whose answer is being written.
    pub decoding: u32,
    /// What its engine says of its load, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<ToldRow>,
    /// Those of its models that are in its memory, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<Vec<String>>,
    /// What is believed of its memory, where not all of its models may be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// How it reads prompts, once learned from traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<Prefill>,
    /// How it writes answers, once learned from traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<Decode>,
    /// Smoothed round trip.
    #[serde(
        rename = "rtt_s",
        serialize_with = "as_number_if_known",
        skip_serializing_if = "Option::is_none"
    )]
    pub rtt: Option<Seconds>,
    /// Speed relative to the slowest worker, which is 1; above zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// The same by the kinds of work that it has shown: `generate`, `embed` for texts, `infer` for tensors.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub speeds: BTreeMap<&'static str, f64>,
    /// Requests that it is expected to finish within the horizon before it fails; above zero.
    pub weight: f64,
    /// Its share of the requests of late, 0…1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Attempts sent to it since the start.
    pub requests: u64,
    /// Of those, the ones that failed.
    pub failures: u64,
}

/// What an operator changed by hand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Overridden {
    /// `draining` or `ejected`, also while it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// How many times as fast as others it was said to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

/// What an engine says of its load, whoever gave it that; absent what it does not say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ToldRow {
    /// Requests that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<f64>,
    /// Requests that wait in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
    /// The share of its KV memory in use, 0…1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_use: Option<f64>,
    /// Requests that are believed to be others', sent past this proxy.
    pub foreign: f64,
    /// How long ago it said so.
    #[serde(rename = "age_s", serialize_with = "as_number")]
    pub age: Seconds,
    /// Whether it still counts: what is old fades.
    pub fresh: bool,
}

/// The LoRA adapters of a worker, by the names that its engine has for them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lora {
    /// How many its card holds at a time, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Those believed to be there, the latest used last.
    pub loaded: Vec<String>,
    /// Those that requests wait for.
    pub waiting: Vec<String>,
    /// Those that could not be loaded a short while ago.
    pub refused: Vec<String>,
    /// What a load takes, once learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_s: Option<f64>,
}

/// The models in a worker's memory, by the names that its engine has for them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// How many fit, where that is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Those believed to be there, the latest used last.
    pub loaded: Vec<String>,
    /// The one that another has to leave for, because it was waited for too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaited: Option<String>,
    /// What bringing one in takes, in seconds, once learned.
    pub swap_s: BTreeMap<String, f64>,
}

/// The prefill line: a request of x uncached prompt tokens takes `request_s + token_s · x` to its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prefill {
    /// Seconds per request.
    pub request_s: f64,
    /// Seconds per token.
    pub token_s: f64,
}

/// The decode line: with n streams at a time, a token of each takes `step_s + stream_s · n`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decode {
    /// Seconds per step.
    pub step_s: f64,
    /// Seconds more per stream.
    pub stream_s: f64,
}

impl Prefill {
    /// Tokens per second while reading; unknown when a token costs nothing that could be measured.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        rate(self.token_s)
    }
}

impl Decode {
    /// Tokens per second of one stream alone.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        rate(self.step_s + self.stream_s)
    }
}

fn rate(seconds: f64) -> Option<f64> {
    Some(1.0 / seconds).filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// What `/api/workers` answers.
#[derive(Serialize)]
pub(super) struct Picture<'a> {
    /// So that a page can tell ages whatever its own clock says.
    #[serde(serialize_with = "as_date")]
    now: Seconds,
    queued: usize,
    workers: &'a [WorkerRow],
}

impl<'a> Picture<'a> {
    /// Of this fleet, dated with the wall time `now`.
    pub(super) fn of(fleet: &'a FleetView, now: Seconds) -> Self {
        Picture {
            now,
            queued: fleet.queued.iter().map(|class| class.depth).sum(),
            workers: &fleet.workers,
        }
    }
}

impl FleetView {
    /// Sets the gauges that are only set when somebody reads them, and takes away what was counted of those of these
    /// `names` that are there no more.
    pub(super) fn show_in(&self, metrics: &Metrics, names: &[Arc<str>]) {
        let present: BTreeSet<_> = self.workers.iter().map(|worker| &worker.name).collect();
        let gone: BTreeSet<_> = names
            .iter()
            .filter(|name| !present.contains(name))
            .collect();
        if !gone.is_empty() {
            metrics.forget_workers(|name| gone.iter().any(|one| ***one == *name));
        }
        for class in &self.queued {
            metrics.show_queue(&class.class, class.depth, class.overloaded);
        }
        for worker in &self.workers {
            metrics.show_worker(&WorkerGauges {
                name: &worker.name,
                state: worker.state,
                inflight: worker.inflight,
                weight: worker.weight,
                prefill: worker.prefill.and_then(|line| line.tokens_per_second()),
                decode: worker.decode.and_then(|line| line.tokens_per_second()),
                fail_timeout: worker.fail_timeout,
                ejections: worker.ejections.by_cause(),
                told: worker.told.filter(|told| told.fresh).map_or_else(
                    ToldGauges::default,
                    |told| ToldGauges {
                        running: told.running,
                        waiting: told.waiting,
                        kv_use: told.kv_use,
                    },
                ),
            });
        }
    }
}

fn as_number<S: Serializer>(span: &Seconds, to: S) -> Result<S::Ok, S::Error> {
    span.0.serialize(to)
}

fn by_cause<S: Serializer>(ejections: &Ejections, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(ejections.by_cause())
}

fn as_date<S: Serializer>(wall: &Seconds, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&clock::rfc3339(*wall))
}

fn as_date_if_known<S: Serializer>(wall: &Option<Seconds>, to: S) -> Result<S::Ok, S::Error> {
    match wall {
        Some(wall) => as_date(wall, to),
        None => to.serialize_none(),
    }
}

fn as_number_if_known<S: Serializer>(span: &Option<Seconds>, to: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.0).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_that_cannot_be_measured_is_unknown_and_not_infinite() {
        let reads = |token_s| {
            let line = Prefill {
                request_s: 0.01,
                token_s,
            };
            line.tokens_per_second()
        };
        assert_eq!(reads(0.001), Some(1000.0));
        assert_eq!(reads(0.0), None);
        assert_eq!(reads(f64::NAN), None);
        let writes = Decode {
            step_s: 0.015,
            stream_s: 0.005,
        };
        assert_eq!(writes.tokens_per_second(), Some(50.0));
    }
}
