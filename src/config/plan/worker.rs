//! One worker as it is used: what it is, what it serves, how it is watched.

use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use super::{LoraPlan, Origin, Secret, TimeoutOverrides};
use crate::decide::EjectRule;
use crate::units::{ModelName, Seconds, WorkerId};

/// One worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerPlan {
    /// Its number: its place in the file, until [`super::Plan::seat`] gives it the one that it has in a running process.
    pub id: WorkerId,
    /// Its name in logs, metrics and headers; `[A-Za-z0-9._-]+`.
    pub name: Arc<str>,
    /// Where it is.
    pub origin: Origin,
    /// The name of the [`super::MachinePlan`] that it runs on; without one it is its own machine.
    pub machine: Option<Arc<str>>,
    /// What it is; `None` is to be detected.
    pub engine: Option<Engine>,
    /// What it serves.
    pub models: Models,
    /// Its LoRA adapters.
    pub lora: LoraPlan,
    /// How many of its models are in its memory at a time, at least 1; `None` is not known.
    pub resident: Option<u32>,
    /// The most requests it is given at a time, at least 1; `None` is as many as its engine reports slots,
    /// else as it has shown to keep it busy.
    pub max_inflight: Option<u32>,
    /// The longest prompt that it is given, in tokens, at least 1; `None` is as long as its engine takes.
    pub max_prompt_tokens: Option<u32>,
    /// The typed prior of its speed relative to the others, above zero.
    pub speed: Option<f64>,
    /// Its API key, sent as the engine expects.
    pub key: Option<Secret>,
    /// Headers added to each request to it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How its liveness is asked.
    pub probe: ProbePlan,
    /// When failing requests take it out.
    pub eject: EjectRule,
    /// What measures it while clients are silent.
    pub test: TestPlan,
    /// Where it speaks gRPC, on the same host; `None` is under its URL, if HTTP/2 is spoken there.
    pub grpc: Option<Origin>,
    /// Where its metrics are, the path as the origin's base; `None` is `/metrics` under its URL, for engines that have it.
    pub metrics: Option<Origin>,
    /// Who is asked first: the lowest tier that somebody is up in, 0 to 9.
    pub tier: u8,
    /// What it carries, for routes to ask for.
    pub tags: Vec<Arc<str>>,
    /// Whether it comes and goes.
    pub optional: bool,
    /// Its own timeouts, laid over the route's.
    pub timeouts: TimeoutOverrides,
}

/// What kind of engine a worker is: decides its liveness path and how its key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Our own worker.
    Forebay,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    Llamacpp,
    /// Ollama.
    Ollama,
    /// Text Generation Inference.
    Tgi,
    /// Text Embeddings Inference.
    Tei,
    /// Triton Inference Server.
    Triton,
    /// A hosted OpenAI-compatible service.
    Openai,
    /// Anything else that speaks HTTP.
    Generic,
}

impl Engine {
    /// Whether it can be told to load and unload LoRA adapters while it runs.
    #[must_use]
    pub const fn loads_adapters(self) -> bool {
        matches!(self, Engine::Vllm | Engine::Sglang)
    }

    /// Where liveness is asked unless the operator says otherwise; `None` is a bare TCP connect.
    #[must_use]
    pub const fn liveness_path(self) -> Option<&'static str> {
        match self {
            Engine::Forebay
            | Engine::Vllm
            | Engine::Sglang
            | Engine::Llamacpp
            | Engine::Tgi
            | Engine::Tei => Some("/health"),
            Engine::Ollama => Some("/api/version"),
            Engine::Triton => Some("/v2/health/ready"),
            Engine::Openai => Some("/v1/models"),
            Engine::Generic => None,
        }
    }
}

/// What a worker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Models {
    /// All that it reports, under its own names.
    Reported,
    /// These and no others; at least one, client names unique.
    Named(Vec<ModelAlias>),
}

impl Models {
    /// The models that the operator named; none when the worker is to be asked.
    #[must_use]
    pub fn named(&self) -> &[ModelAlias] {
        match self {
            Models::Reported => &[],
            Models::Named(aliases) => aliases,
        }
    }
}

/// One model of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAlias {
    /// What clients say.
    pub client: ModelName,
    /// What the worker gets; `None`, typed `"*"`, is the only model that it reports, whatever its name.
    pub worker: Option<ModelName>,
}

/// How liveness is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbePlan {
    /// What is asked: a path with its leading slash. `None` is the engine's own: a bare TCP connect for `generic` and
    /// for an engine that is not known yet.
    pub path: Option<String>,
    /// Time between two probes.
    pub interval: Seconds,
    /// The longest one may take.
    pub timeout: Seconds,
    /// Passes in a row that bring a worker back; at least 1.
    pub rise: u32,
    /// Failures in a row that take it out; at least 1.
    pub fall: u32,
}

/// What measures a worker while clients are silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestPlan {
    /// Requests made up for its engine, where they cost nobody money.
    Auto,
    /// Nothing.
    Off,
    /// A request of the operator's.
    File {
        /// Where its body was read.
        path: PathBuf,
        /// The body, a JSON object.
        body: Arc<str>,
    },
}
