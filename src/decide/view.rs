//! What people see of a worker: a copy taken under the lock, rendered outside it.

use std::sync::Arc;

use super::ask::ByWork;
use super::by_hand::Override;
use super::eject::Ejections;
use super::health::State;
use super::line_fit::Line;
use super::lora::LoraView;
use super::residents::ResidentsView;
use super::room;
use super::roster::Roster;
use super::told_load::Said;
use super::worker::Worker;
use crate::units::{Seconds, WorkerId};

/// A worker at one moment.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// Which.
    pub id: WorkerId,
    /// Its name.
    pub name: Arc<str>,
    /// The box that it shares with others of this machine.
    pub machine: Option<Arc<str>>,
    /// What its probes and requests say.
    pub state: State,
    /// Why it gets no requests.
    pub reason: Option<String>,
    /// How long it has been in this state.
    pub state_age: Seconds,
    /// How long it will be, where that is known; of one that is drained, how long its requests should take to end.
    pub until: Option<Seconds>,
    /// What its operator changed by hand and holds.
    pub overridden: Override,
    /// How often it was ejected.
    pub ejections: Ejections,
    /// How much longer it asked to be left alone.
    pub held: Option<Seconds>,
    /// What it is given at a time while it proves itself after a recovery.
    pub allowed: Option<u32>,
    /// κ: everything on it takes 1 + κ times as long beside a busy neighbour on its machine.
    pub coupling: f64,
    /// The most requests it is given at a time.
    pub cap: Bound,
    /// Tokens of the longest prompt that it takes, where that is known.
    pub longest_prompt: Option<u64>,
    /// Requests it holds.
    pub inflight: u32,
    /// Those of them without a first byte yet.
    pub queued: u32,
    /// Those of them whose tokens are streaming.
    pub decoding: u32,
    /// Seconds to the first token, or to an answer of one piece, against input tokens; of each kind of work.
    pub prefill: ByWork<Learned>,
    /// Seconds per output token against streams.
    pub decode: Learned,
    /// What its engine said of its load, if it does.
    pub said: Option<Said>,
    /// Its LoRA adapters, if it has any.
    pub lora: Option<LoraView>,
    /// The models in its memory, where not all of them may be.
    pub residents: Option<ResidentsView>,
    /// The smoothed round trip.
    pub round_trip: Seconds,
    /// Requests a second it serves by these lines if all are of one kind.
    pub rates: ByWork<f64>,
    /// Requests a second it serves by these lines, of the mix that the fleet sees. The ratio of two workers' rates is
    /// what one is worth in terms of the other.
    pub rate: f64,
    /// Requests that it is expected to finish within the horizon before it fails.
    pub weight: f64,
    /// 1/λ: the busy time it is expected to infer before it fails.
    pub fail_timeout: Seconds,
    /// Its share of all requests placed, 0 to 1.
    pub share: f64,
    /// Requests it was given.
    pub picks: u64,
    /// Requests it answered.
    pub answered: u64,
    /// Requests it failed.
    pub failed: u64,
}

/// The most requests that a worker is given at a time, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The operator.
    Configuration(u32),
    /// Its engine: so many slots.
    Engine(u32),
    /// What it has shown; it changes with what is sent there.
    Learned(u32),
    /// Nobody, and nothing has waited in it yet.
    Unknown,
}

impl Bound {
    /// The number, where there is one.
    #[must_use]
    pub const fn most(self) -> Option<u32> {
        match self {
            Bound::Configuration(most) | Bound::Engine(most) | Bound::Learned(most) => Some(most),
            Bound::Unknown => None,
        }
    }

    /// Who says so, in one word.
    #[must_use]
    pub const fn source(self) -> Option<&'static str> {
        match self {
            Bound::Configuration(_) => Some("configuration"),
            Bound::Engine(_) => Some("engine"),
            Bound::Learned(_) => Some("learned"),
            Bound::Unknown => None,
        }
    }
}

/// A line and how many samples it was learned from; with none it is the prior.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// The line.
    pub line: Line,
    /// The samples.
    pub samples: u64,
}

impl WorkerView {
    /// Copies what is known of a worker; `picks` are those of the whole fleet.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share is for people; counts stay far below 2^53"
    )]
    pub(super) fn of(worker: &Worker, roster: &Roster, picks: u64, now: Seconds) -> Self {
        let (spec, speeds) = (worker.spec(), worker.speeds());
        let machine = roster.machine(worker);
        let left = |until: Seconds| (until - now).max(Seconds::ZERO);
        let prefill = |work| Learned {
            line: speeds.prefill(work),
            samples: speeds.prefill_samples(work),
        };
        let record = worker.record();
        WorkerView {
            id: worker.id(),
            name: spec.name.clone(),
            machine: spec.machine.clone(),
            state: worker.condition().state(),
            reason: worker.condition().reason(),
            state_age: now - worker.condition().since(),
            until: worker.condition().until().map(left),
            overridden: worker.overridden(),
            ejections: worker.condition().breaker().ejections(),
            held: worker.condition().held().map(left),
            allowed: worker.condition().allowed(),
            coupling: machine.coupling(),
            cap: worker.bound(),
            longest_prompt: room::known(worker),
            inflight: worker.inflight(),
            queued: worker.queued(),
            decoding: worker.decoding(),
            prefill: ByWork::of(prefill),
            decode: Learned {
                line: speeds.decode(),
                samples: speeds.decode_samples(),
            },
            said: worker.said(now),
            lora: worker.loras.view(),
            residents: worker.residents.view(),
            round_trip: worker.net(),
            rates: ByWork::of(|work| roster.rate_of(work, worker)),
            rate: roster.rate(worker),
            weight: roster.weight(worker, now),
            fail_timeout: Seconds(1.0 / machine.hazard(now)),
            share: record.picks as f64 / picks.max(1) as f64,
            picks: record.picks,
            answered: record.answered,
            failed: record.failed,
        }
    }
}
