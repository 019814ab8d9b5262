//! The door between a simulated request and `decide`: what the proxy would know of it, going in and coming out.
//!
//! This is the one place where the two meet. What `decide` asks of a request, the hashes of its beginning among it, is
//! filled in here, and what an answer tells (cached tokens) is handed back here.

use std::sync::Arc;

use super::card::BLOCK;
use super::engine::Job;
use super::fleet::{Fleet, Member};
use super::request::Request;
use crate::decide::{AdapterName, Ask, Claim, EngineName, Outcome, Tests, Told, Work, WorkerSpec};
use crate::facts::{INFER, Prefix};
use crate::units::{Length, ModelName, WorkerId};

/// How many failed probes take a worker down, and how many passed ones bring it back: the configuration's defaults.
const FALL: u32 = 3;
const RISE: u32 = 2;
/// How many requests a worker gets at a time from a rival unless the fleet's file says so: its engine queues the rest.
const RIVALS_CAP: u32 = 1_000;

/// What all requests of a simulation have in common.
#[derive(Debug)]
pub(super) struct Door {
    /// The models that are asked for, by their numbers.
    models: Vec<ModelName>,
    /// The adapters that are asked for, by their numbers.
    adapters: Vec<ModelName>,
    /// Sizes of KV memory in blocks, each with the workers that have at least that.
    fitting: Vec<(f64, Arc<[WorkerId]>)>,
}

impl Door {
    /// The door of this fleet, for these requests.
    pub(super) fn of(fleet: &Fleet, load: &[Request]) -> Self {
        let adapters = load.iter().filter_map(|request| request.adapter).max();
        let adapters = 0..adapters.map_or(0, |last| last + 1);
        let mut sizes: Vec<u32> = fleet.members.iter().map(|one| one.card.blocks).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let fitting = sizes.into_iter().map(|size| {
            let members = (0..).zip(&fleet.members);
            let fit = members.filter(|(_, member)| member.card.blocks >= size);
            (f64::from(size), fit.map(|(id, _)| WorkerId(id)).collect())
        });
        Door {
            models: (0..fleet.models.max(1))
                .map(|number| ModelName::new(&format!("model-{number}")))
                .collect(),
            adapters: adapters
                .map(|number| ModelName::new(&format!("adapter-{number}")))
                .collect(),
            fitting: fitting.collect(),
        }
    }

    /// The workers with memory enough for a request; `None` when there is none.
    pub(super) fn fitting(&self, request: &Request) -> Option<&Arc<[WorkerId]>> {
        let needed = request.memory();
        let place = self.fitting.partition_point(|(size, _)| *size < needed);
        self.fitting.get(place).map(|(_, workers)| workers)
    }

    /// The request as the proxy sees it. Its prompt is counted and not estimated: a trace has no text.
    pub(super) fn ask(&self, request: &Request) -> Ask {
        Ask {
            model: Some(self.model_of(request).clone()),
            only: self.fitting(request).cloned(),
            zones: None,
            from: None,
            path: Some(match request.work {
                Work::Generate => "/v1/chat/completions",
                Work::Embed => "/v1/embeddings",
                Work::Infer => INFER,
            }),
            work: request.work,
            prompt: Length::Tokens(request.prompt),
            fills: None,
            max_tokens: None,
            deadline: None,
            streamed: request.work == Work::Generate,
            claim: Claim::default(),
            prefix: Prefix {
                blocks: request.blocks.clone(),
                each: Length::Tokens(BLOCK),
            },
        }
    }

    /// The adapter that a name stands for.
    pub(super) fn adapter(&self, model: &ModelName) -> Option<u32> {
        let number = self.adapters.iter().position(|adapter| adapter == model)?;
        u32::try_from(number).ok()
    }

    /// All adapters, which engines call as clients do.
    pub(super) fn adapters(&self) -> Vec<AdapterName> {
        let adapter = |name: &ModelName| AdapterName {
            client: name.clone(),
            engine: name.clone(),
        };
        self.adapters.iter().map(adapter).collect()
    }

    /// The number of the model that a name stands for: an adapter's is the first.
    pub(super) fn model(&self, model: &ModelName) -> u32 {
        let number = self.models.iter().position(|known| known == model);
        number
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or_default()
    }

    /// All models, which engines call as clients do.
    pub(super) fn models(&self) -> Vec<EngineName> {
        let first = &self.models[0];
        let own = self.models.iter().map(|name| (name, name));
        let adapters = self.adapters.iter().map(|name| (name, first));
        let named = own.chain(adapters).map(|(client, engine)| EngineName {
            client: client.clone(),
            engine: engine.clone(),
        });
        named.collect()
    }

    fn model_of(&self, request: &Request) -> &ModelName {
        if let Some(adapter) = request.adapter {
            return &self.adapters[adapter as usize];
        }
        let models = u32::try_from(self.models.len()).unwrap_or(u32::MAX);
        &self.models[request.model(models) as usize]
    }

    /// What a complete answer tells.
    pub(super) fn answered(job: &Job) -> Outcome {
        Outcome::Answered {
            prompt_tokens: Some(job.prompt),
            cached_tokens: Some(job.cached),
            output_tokens: (job.work == Work::Generate).then_some(job.output),
        }
    }

    /// A worker as the proxy's configuration has it, for a policy of ours or for a rival, who neither learns from tests
    /// nor how much a worker takes, and does not know that it swaps.
    pub(super) fn spec(&self, member: &Member, is_ours: bool) -> WorkerSpec {
        let (tests, cap) = if is_ours {
            (Tests::MadeUp, member.max_inflight)
        } else {
            (Tests::Off, Some(member.max_inflight.unwrap_or(RIVALS_CAP)))
        };
        WorkerSpec {
            models: self.models.iter().chain(&self.adapters).cloned().collect(),
            tier: member.tier,
            price: member.price,
            rise: RISE,
            fall: FALL,
            tests,
            lora_slots: Some(member.card.lora_slots),
            resident: member.card.resident.filter(|_| is_ours),
            cap,
            ..WorkerSpec::new(&member.name, RIVALS_CAP)
        }
    }

    /// What its engine says of itself: vLLM and SGLang tell their memory and not their slots. Its cache holds so many
    /// times as much.
    pub(super) fn told(member: &Member, cache: f64) -> Told {
        let kv_tokens = f64::from(member.card.blocks) * BLOCK;
        Told {
            kv_tokens: Some(kv_tokens),
            kept_tokens: Some(kv_tokens * cache),
            ..Told::default()
        }
    }
}
