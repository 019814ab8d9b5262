//! LoRA adapters as vLLM and SGLang have them: a card with slots, an interface to load and unload, a place in the list
//! of models and in the metrics.

use std::time::Duration;

use serde_json::{Value, json};

use super::answer::Answer;
use super::knobs::Dialect;
use super::{Seen, Shared};

/// Where adapters are loaded and unloaded.
const ORDERS: [&str; 4] = [
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/unload_lora_adapter",
];

/// The adapters of a worker.
#[derive(Clone, Debug)]
pub struct Loras {
    /// How many its card holds; none, and it has no adapters and no way to load any.
    pub slots: usize,
    /// How many it has at a time before it says that it is full.
    pub room: usize,
    /// Those that it has, as pairs of name and path.
    pub there: Vec<(String, String)>,
    /// Those on its card, the latest used last.
    pub on_card: Vec<String>,
    /// What bringing one onto the card takes, or finding out that it can't be.
    pub load: Duration,
    /// Paths that it can't load, with the status that it answers; 0 is silence for ever.
    pub broken: Vec<(String, u16)>,
    /// Those that its metrics say are in its batch.
    pub running: Vec<String>,
}

impl Default for Loras {
    fn default() -> Self {
        Loras {
            slots: 0,
            room: 64,
            there: Vec::new(),
            on_card: Vec::new(),
            load: Duration::ZERO,
            broken: Vec::new(),
            running: Vec::new(),
        }
    }
}

impl Loras {
    /// Has this one, which is on no card yet.
    pub fn has(mut self, name: &str) -> Self {
        self.there.push((name.to_owned(), format!("/srv/{name}")));
        self
    }

    /// Whether it has one of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.there.iter().any(|(there, _)| there == name)
    }

    /// Brings one onto the card; how long that takes.
    fn bring(&mut self, name: &str) -> Duration {
        let there = self.on_card.iter().position(|one| one == name);
        let took = if there.is_some() {
            Duration::ZERO
        } else {
            self.load
        };
        self.on_card.retain(|one| one != name);
        self.on_card.push(name.to_owned());
        let over = self.on_card.len().saturating_sub(self.slots);
        self.on_card.drain(..over);
        took
    }
}

/// Whether an adapter is to be loaded or unloaded here.
pub fn is_order(target: &str) -> bool {
    ORDERS.contains(&target)
}

/// The adapter that a model's name means; `None` is the base.
pub fn meant(dialect: Dialect, loras: &Loras, model: &str) -> Option<String> {
    let name = match dialect {
        Dialect::Sglang => model.split_once(':')?.1,
        _ => model,
    };
    loras.knows(name).then(|| name.to_owned())
}

/// Comes back when an adapter is on the card.
pub async fn ready(shared: &Shared, name: &str) {
    let took = shared.knobs.lock().lora.bring(name);
    tokio::time::sleep(took).await;
}

/// The rows of adapters in the list of models.
pub fn rows(loras: &Loras, base: &str) -> Vec<Value> {
    let row = |(name, path): &(String, String)| json!({"id": name, "object": "model", "root": path, "parent": base, "max_model_len": null});
    loras.there.iter().map(row).collect()
}

/// vLLM's metric of them, with an older state of affairs before it.
pub fn metric(loras: &Loras) -> String {
    if loras.slots == 0 {
        return String::new();
    }
    let series = |running: &str, seen| {
        format!(
            "vllm:lora_requests_info{{max_lora=\"{}\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"\"}} {seen}\n",
            loras.slots
        )
    };
    "# TYPE vllm:lora_requests_info gauge\n".to_owned()
        + &series("long-gone", "1.7e+09")
        + &series(&loras.running.join(","), "1.8e+09")
}

/// An order is carried out, or not.
pub async fn obey(shared: &Shared, request: &Seen) -> Answer {
    let order: Value = serde_json::from_slice(&request.body).unwrap();
    let name = order["lora_name"].as_str().unwrap().to_owned();
    let (dialect, loras) = {
        let knobs = shared.knobs.lock();
        (knobs.dialect, knobs.lora.clone())
    };
    let ours = request.target.starts_with("/v1/") == (dialect == Dialect::Vllm);
    if loras.slots == 0 || !ours {
        return Answer::json(404, &json!({"detail": "Not Found"}));
    }
    if request.target.contains("unload") {
        shared
            .knobs
            .lock()
            .lora
            .there
            .retain(|(there, _)| *there != name);
        return Answer::whole(200, "text/plain", "removed");
    }
    let path = order["lora_path"].as_str().unwrap().to_owned();
    match loras.broken.iter().find(|(broken, _)| *broken == path) {
        Some((_, 0)) => return std::future::pending().await,
        Some((_, status)) => {
            tokio::time::sleep(loras.load).await;
            return Answer::error(
                *status,
                "NotFoundError",
                &format!("No adapter found for {path}"),
            );
        }
        None => {}
    }
    if loras.knows(&name) {
        let message = format!("The lora adapter '{name}' has already been loaded.");
        return Answer::error(400, "InvalidUserInput", &message);
    }
    if loras.there.len() >= loras.room {
        return Answer::error(500, "InternalServerError", "No free lora slots");
    }
    ready(shared, &name).await;
    shared.knobs.lock().lora.there.push((name, path));
    Answer::whole(200, "text/plain", "loaded")
}
