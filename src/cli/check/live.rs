//! `forebay check --live`: whether the workers are what the configuration takes them for.
//!
//! Each is asked what it is even where that is typed, for a typed engine is believed by the proxy and a wrong one shows
//! late: as a probe that fails, or a load that is never told. A trouble keeps requests from being answered, or answered
//! as configured; a note only says that something may not be as meant. A worker that is `optional` may be away.

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::control::failed;
use crate::cli::interviews::{self, Told};
use crate::cli::table::{Cell, Column, known, line, paragraph, time, titles};
use crate::cli::terminal::{Colour, say};
use crate::config::plan::{Engine, ModelAlias, WorkerPlan};
use crate::config::{Choice as _, Plan};
use crate::fleet::Interview;
use crate::units::ModelName;

const COLUMNS: [Column; 8] = [
    Column::words("worker", 18),
    Column::words("state", 6),
    Column::words("engine", 9),
    Column::words("version", 12),
    Column::number("answers", 8),
    Column::number("context", 8),
    Column::number("slots", 5),
    Column::number("models", 6),
];
/// The most names that a line lists.
const NAMED: usize = 8;

/// What was found out of one worker.
#[derive(Serialize)]
struct Found<'a> {
    name: &'a str,
    /// `good`, `wrong`, `silent`, or `away` of one that may be.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answers_in_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Vec<&'a str>>,
    loras: Vec<&'a str>,
    troubles: Vec<String>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct All<'a> {
    workers: Vec<Found<'a>>,
}

/// Asks all workers and prints what they say; a failure when one is not as configured.
pub fn check(plan: &Plan, json: bool) -> Result<ExitCode, ExitCode> {
    let told = interviews::all(plan)?;
    let found = plan.workers.iter().zip(&told);
    let workers: Vec<_> = found.map(|(plan, told)| Found::of(plan, told)).collect();
    let bad = workers
        .iter()
        .filter(|found| matches!(found.state, "wrong" | "silent"))
        .count();
    if json {
        let text = sonic_rs::to_string(&All { workers });
        say(text.map_err(|error| failed(format_args!("This can't be shown: {error}")))?);
    } else {
        say("");
        say(titles(&COLUMNS));
        workers.iter().for_each(Found::tell);
    }
    Ok(if bad == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl<'a> Found<'a> {
    fn of(plan: &'a WorkerPlan, told: &'a Told) -> Self {
        let said = match told {
            Ok(said) => said,
            Err(why) => return Found::silent(plan, why),
        };
        let troubles = troubles(plan, said);
        let names = |models: &'a [ModelName]| models.iter().map(ModelName::as_str).collect();
        Found {
            name: &plan.name,
            state: if troubles.is_empty() { "good" } else { "wrong" },
            engine: said.engine.as_ref().ok().map(|engine| engine.word()),
            version: said.version.as_deref(),
            answers_in_s: Some(said.round_trip.0),
            context: said.bounds.context.or(said.bounds.longest_prompt),
            slots: said.bounds.slots,
            models: said.models.as_ref().ok().map(|models| names(models)),
            loras: names(&said.adapters),
            troubles,
            notes: notes(plan, said),
        }
    }

    fn silent(plan: &'a WorkerPlan, why: &str) -> Self {
        Found {
            name: &plan.name,
            state: if plan.optional { "away" } else { "silent" },
            engine: None,
            version: None,
            answers_in_s: None,
            context: None,
            slots: None,
            models: None,
            loras: Vec::new(),
            troubles: vec![format!("it does not answer: {why}")],
            notes: Vec::new(),
        }
    }

    fn tell(&self) {
        let colour = match self.state {
            "good" => Colour::Green,
            "away" => Colour::Yellow,
            _ => Colour::Red,
        };
        let cells = [
            self.name.into(),
            Cell::coloured(self.state, colour),
            self.engine.unwrap_or("-").into(),
            self.version.unwrap_or("-").into(),
            time(self.answers_in_s).into(),
            known(self.context.map(|tokens| format!("{tokens:.0}"))).into(),
            known(self.slots.map(|slots| slots.to_string())).into(),
            known(self.models.as_ref().map(|models| models.len().to_string())).into(),
        ];
        say(line(&COLUMNS, cells));
        let models = self.models.as_deref().unwrap_or_default();
        for (what, names) in [("models", models), ("LoRAs", &self.loras)] {
            if !names.is_empty() {
                say(paragraph(&format!("{what}: {}", listed(names))));
            }
        }
        for sentence in self.troubles.iter().chain(&self.notes) {
            say(paragraph(sentence));
        }
    }
}

fn listed(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What keeps it from serving as configured.
fn troubles(plan: &WorkerPlan, said: &Interview) -> Vec<String> {
    let mut found = Vec::new();
    match (plan.engine, &said.engine) {
        (None, Err(why)) => found.push(format!("what it is can't be told: {why}")),
        (Some(typed), Ok(engine)) if is_another(typed, *engine) => {
            found.push(format!(
                "engine = \"{}\", and by its answers it is {}",
                typed.word(),
                engine.word()
            ));
        }
        _ => {}
    }
    found.extend(
        said.alive
            .as_ref()
            .err()
            .map(|why| format!("it would be taken for down: {why}")),
    );
    match &said.models {
        Ok(listed) => found.extend(missing(plan, said, listed)),
        Err(why) => found.push(why.clone()),
    }
    found
}

/// Whether an engine is something else than was typed. Nobody is wrong who calls one that has OpenAI's paths `openai`,
/// or anything `generic`.
fn is_another(typed: Engine, found: Engine) -> bool {
    typed != found && !matches!(typed, Engine::Openai | Engine::Generic)
}

/// The models and adapters that are typed and that it does not have.
fn missing(plan: &WorkerPlan, said: &Interview, listed: &[ModelName]) -> Vec<String> {
    if said
        .engine
        .as_ref()
        .is_ok_and(|engine| *engine == Engine::Generic)
    {
        // It can't be asked.
        return Vec::new();
    }
    let has = |name: &ModelName| {
        listed
            .iter()
            .chain(&said.adapters)
            .any(|there| there == name)
    };
    let lacks = |alias: &ModelAlias| match &alias.worker {
        Some(name) => (!has(name)).then(|| format!("it does not list the model {name}")),
        None => (listed.len() != 1).then(|| {
            format!(
                "\"{}\" = \"*\" means its only model, and it lists {}",
                alias.client,
                listed.len()
            )
        }),
    };
    let models = plan.models.named().iter().filter_map(lacks);
    let there = |name: &ModelName| said.adapters.contains(name) || plan.lora.load;
    let adapters = plan
        .lora
        .adapters
        .iter()
        .filter(|adapter| !there(&adapter.name));
    let adapters = adapters.map(|adapter| {
        format!(
            "it does not list the adapter {}, and lora.load is not true",
            adapter.name
        )
    });
    models.chain(adapters).collect()
}

/// What may not be as meant.
fn notes(plan: &WorkerPlan, said: &Interview) -> Vec<String> {
    let bounds = &said.bounds;
    let mut found = Vec::new();
    if let (Some(typed), Some(slots)) = (plan.max_inflight, bounds.slots)
        && typed > slots
    {
        found.push(format!(
            "max_inflight = {typed}, and it says {slots} slots: the others wait inside it"
        ));
    }
    let most = bounds.longest_prompt.or(bounds.context);
    if let (Some(typed), Some(most)) = (plan.max_prompt_tokens, most)
        && f64::from(typed) > most
    {
        found.push(format!(
            "max_prompt_tokens = {typed}, and it takes {most:.0}"
        ));
    }
    match (&plan.grpc, &said.grpc) {
        (Some(typed), None) => found.push(format!(
            "grpc_url names {}, and no gRPC of KServe answers there",
            typed.authority
        )),
        (None, Some(there)) => found.push(format!(
            "it speaks gRPC at {0}: with grpc_url = \"h2c://{0}\" it is sent calls",
            there.authority
        )),
        _ => {}
    }
    if said.models.as_ref().is_ok_and(Vec::is_empty) && plan.models.named().is_empty() {
        found.push("it lists no model: only a [[route]] leads there".to_owned());
    }
    found
}
