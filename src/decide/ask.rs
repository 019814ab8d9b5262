//! What the room is asked, and what it answers: the vocabulary that the rest of the house shares with it.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::booking::Booking;
use super::calibration::Tests;
use super::cost::Terms;
use super::eject::EjectRule;
use super::pick::Policy;
use super::place::{Place, RegionId, Zones};
use super::queue::LineRules;
use super::standing::AllDown;
use crate::facts::Prefix;
use crate::units::{Length, ModelName, Seconds, WorkerId};

/// The most classes of requests that there may be.
pub const MOST_CLASSES: usize = 16;

/// What kind of work a request is. Each has lines of its own: see the header of `speed.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Answers token by token: chat, completions, responses, messages.
    Generate,
    /// One pass over texts and no output tokens: embeddings, rerank, classify, and routes of which nothing is known.
    Embed,
    /// One pass over tensors: inference by KServe's protocol.
    Infer,
}

impl Work {
    /// All of them.
    pub const ALL: [Work; 3] = [Work::Generate, Work::Embed, Work::Infer];

    /// What it is called.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Work::Generate => "generate",
            Work::Embed => "embed",
            Work::Infer => "infer",
        }
    }
}

/// Something of each kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ByWork<T> {
    generate: T,
    embed: T,
    infer: T,
}

impl<T> ByWork<T> {
    /// What this makes of each.
    pub fn of(mut make: impl FnMut(Work) -> T) -> Self {
        ByWork {
            generate: make(Work::Generate),
            embed: make(Work::Embed),
            infer: make(Work::Infer),
        }
    }
}

impl<T> Index<Work> for ByWork<T> {
    type Output = T;

    fn index(&self, work: Work) -> &T {
        match work {
            Work::Generate => &self.generate,
            Work::Embed => &self.embed,
            Work::Infer => &self.infer,
        }
    }
}

impl<T> IndexMut<Work> for ByWork<T> {
    fn index_mut(&mut self, work: Work) -> &mut T {
        match work {
            Work::Generate => &mut self.generate,
            Work::Embed => &mut self.embed,
            Work::Infer => &mut self.infer,
        }
    }
}

/// A worker, as the plan has it. Its place in the list that [`super::FleetState::new`] takes is its [`WorkerId`].
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// Its name.
    pub name: Arc<str>,
    /// The models it serves, by the names that clients say.
    pub models: Vec<ModelName>,
    /// The most requests it is given at a time, where the operator says so; else what its engine tells or it has shown.
    pub cap: Option<u32>,
    /// The typed prior of its speed relative to the others, above zero.
    pub speed: Option<f64>,
    /// Passed probes in a row until it is up again.
    pub rise: u32,
    /// Failed probes in a row until it is down.
    pub fall: u32,
    /// The box that it shares with others of this machine; its own when absent.
    pub machine: Option<Arc<str>>,
    /// When errors of its requests eject it.
    pub eject: EjectRule,
    /// What it may be tested with while clients are silent.
    pub tests: Tests,
    /// The longest prompt that the operator lets it have, in tokens.
    pub longest_prompt: Option<u32>,
    /// Where it is.
    pub place: Place,
    /// Who is asked first: the lowest tier that somebody is up in.
    pub tier: u8,
    /// Whether it comes and goes, so that nobody should wait for it to come back.
    pub optional: bool,
    /// What a second of its machine is worth, in seconds; zero or more.
    pub price: f64,
    /// LoRA adapters that its card holds at a time, where the operator says so.
    pub lora_slots: Option<u32>,
    /// Models that its memory holds at a time, where the operator says so.
    pub resident: Option<u32>,
}

impl WorkerSpec {
    /// A worker that is given so many requests at a time and of which no more is known: it serves no model by name, is up or down by one probe, and is not tested.
    #[must_use]
    pub fn new(name: &str, cap: u32) -> Self {
        WorkerSpec {
            name: name.into(),
            models: Vec::new(),
            cap: Some(cap),
            speed: None,
            rise: 1,
            fall: 1,
            machine: None,
            eject: EjectRule::default(),
            tests: Tests::Off,
            longest_prompt: None,
            place: Place::default(),
            tier: 0,
            optional: false,
            price: 0.0,
            lora_slots: None,
            resident: None,
        }
    }
}

/// What an engine says of itself that bounds its work; what is `None` it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    /// Requests that run at once.
    pub slots: Option<u32>,
    /// Tokens of a prompt and its answer together, at the most.
    pub context: Option<f64>,
    /// Tokens of a prompt, at the most, however short its answer.
    pub longest_prompt: Option<f64>,
    /// Tokens that its memory holds.
    pub kv_tokens: Option<f64>,
    /// Whether it cuts what is longer, so that no prompt is too long for it.
    pub cuts: bool,
    /// Tokens of prompts that it keeps for later requests, where that is more than fits its memory: in the host's.
    pub kept_tokens: Option<f64>,
}

impl Told {
    /// This, and what else it says.
    #[must_use]
    pub fn and(self, other: Told) -> Self {
        Told {
            slots: self.slots.or(other.slots),
            context: self.context.or(other.context),
            longest_prompt: self.longest_prompt.or(other.longest_prompt),
            kv_tokens: self.kv_tokens.or(other.kv_tokens),
            cuts: self.cuts || other.cuts,
            kept_tokens: self.kept_tokens.or(other.kept_tokens),
        }
    }
}

/// The rules that hold for all workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// How one of several workers is chosen.
    pub policy: Policy,
    /// What happens when nobody who fits is alive.
    pub all_down: AllDown,
    /// The time over which a weight counts what a worker finishes before it fails; above zero.
    pub horizon: Seconds,
    /// With more candidates than this, [`Policy::LeastTime`] compares a few that it draws.
    pub sample_above: usize,
    /// The bounds of the line.
    pub line: LineRules,
    /// The share of places that each class leaves free for higher ones, from 0 to below 1.
    pub reserved: [f64; MOST_CLASSES],
}

impl From<Policy> for Rules {
    fn from(policy: Policy) -> Self {
        Rules {
            policy,
            all_down: AllDown::default(),
            horizon: Seconds(60.0),
            sample_above: 500,
            line: LineRules::default(),
            reserved: [0.0; MOST_CLASSES],
        }
    }
}

/// What a request may claim while it stands in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Its class; 0 is the highest.
    pub class: u8,
    /// Whose it is, so that no tenant takes the turns of another; without tenants all are of one.
    pub tenant: u32,
    /// The bytes of its body, which wait with it.
    pub bytes: u64,
}

/// What must be known of a request to place it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The model it names; without one every worker will do.
    pub model: Option<ModelName>,
    /// The workers its route allows; all when absent.
    pub only: Option<Arc<[WorkerId]>>,
    /// The zones that it may go to; anywhere when absent.
    pub zones: Option<Zones>,
    /// The region that it comes from, where that is known.
    pub from: Option<RegionId>,
    /// The built-in path that it was sent to; workers known not to serve it come last.
    pub path: Option<&'static str>,
    /// What kind of work it is.
    pub work: Work,
    /// How long its prompt is.
    pub prompt: Length,
    /// What of the prompt must fit into a context at once; `None` when that can't be told, or fits everybody. Text in
    /// letters: see `room.rs`.
    pub fills: Option<Length>,
    /// How its prompt begins; what it is the hash of is the caller's affair, if equal hashes mean an equal beginning.
    pub prefix: Prefix,
    /// The most output tokens the client wants.
    pub max_tokens: Option<u32>,
    /// Whether the answer comes token by token.
    pub streamed: bool,
    /// When the client leaves.
    pub deadline: Option<Seconds>,
    /// What it may claim while it stands in line.
    pub claim: Claim,
}

/// A worker was picked, and a place on it booked.
#[derive(Debug)]
pub struct Choice {
    /// Who serves it.
    pub worker: WorkerId,
    /// The place held there. It must come back through [`super::FleetState::finish`].
    pub booking: Booking,
    /// The expected seconds there.
    pub terms: Terms,
    /// How many workers could have served it.
    pub candidates: usize,
}

/// Why nobody was picked.
#[derive(Clone, Debug, PartialEq)]
pub enum NoChoice {
    /// No configured worker that may serve this request has a model of this name.
    UnknownModel {
        /// The most similar name among those that would do.
        nearest: Option<ModelName>,
        /// Whether somebody has not said yet what it serves: stand in line, if that may last.
        awaited: bool,
    },
    /// The model is known, but nobody who serves it is within the zones that this request may go to.
    Residency,
    /// The model is known, but everyone who serves it is down or was tried.
    Down,
    /// Its prompt is too long for everyone who may serve it.
    TooLong {
        /// Tokens of the longest prompt that somebody takes with this bound on output tokens.
        most: u64,
    },
    /// Its adapter could not be loaded by anybody who may serve it, a short while ago.
    Unloadable,
    /// Nobody can answer before its client leaves, not even after a wait.
    Late {
        /// What it would be expected to take where it is quickest, from now on.
        takes: Seconds,
    },
    /// Everyone who could serve it is at its cap: stand in line.
    Busy,
    /// Everyone who could serve it is out for errors and comes back: stand in line, if that may last.
    Away,
    /// It had to leave the full line for a request of a higher class.
    Displaced,
}

/// Whether it is known what a worker serves that says so by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// It is.
    #[default]
    Told,
    /// It has not said it yet.
    Owed,
    /// Nor has it, and while it is away the names that an earlier process heard speak for it.
    Remembered,
}

/// How a request ended. `Failed`, `Lost` and `Refused` speak against the worker; the others don't.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// With a whole answer; the counts are the worker's own, where it reports them.
    Answered {
        /// Tokens of the prompt, all of them.
        prompt_tokens: Option<f64>,
        /// Those of them that the worker had in its cache.
        cached_tokens: Option<f64>,
        /// Tokens of the answer.
        output_tokens: Option<f64>,
    },
    /// The worker had it and failed: a 5xx, a deadline, an answer that is malformed.
    Failed,
    /// The worker had it and answered an error that may be the request's own fault. It says nothing of the worker until
    /// another was asked, and then [`blame`](super::FleetState::blame) may follow.
    Doubted,
    /// The connection ended after the request may have been sent and before its answer was whole.
    Lost,
    /// The worker never got it: no connection could be opened.
    Refused,
    /// The worker never got it, for a reason that is not its own.
    Unsent,
    /// The client left.
    Gone,
    /// The worker can't just now (429, or 503 while it loads or is full): it lives, and says nothing of its speed.
    Busy {
        /// How long it asks to be left alone.
        retry_after: Option<Seconds>,
    },
    /// The worker answered that the request is at fault (4xx): it lives, but says nothing of its speed.
    Rejected,
}
