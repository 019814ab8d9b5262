//! Models in memory as Ollama and llama.cpp's router have them: a few at a time, each loaded for whoever asks for it. As in
//! that router's early versions, what is unloaded to make room may be in the middle of an answer, which is counted.

use std::time::Duration;

use forebay::units::Seconds;

use super::Shared;

/// The memory of a worker.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// How many models it holds; none, and all of them are always there.
    pub most: usize,
    /// What it takes to bring one in.
    pub swap: Duration,
    /// Those that are there, the latest used last.
    pub loaded: Vec<String>,
    /// How often one was brought in,
    pub swaps: usize,
    /// and how many answers were under way then.
    pub torn: usize,
    /// When the last one was there.
    pub ready: Seconds,
}

/// Comes back when a model is in memory.
pub async fn ready(shared: &Shared, model: &str) {
    let (under_way, _) = shared.pace.load();
    let now = shared.clock.now();
    let left = {
        let memory = &mut shared.knobs.lock().memory;
        if memory.most == 0 {
            return;
        }
        if !memory.loaded.iter().any(|there| there == model) {
            memory.swaps += 1;
            memory.ready = now.max(memory.ready) + Seconds::from(memory.swap);
            let full = memory.loaded.len() >= memory.most;
            memory.torn += if full { under_way } else { 0 };
        }
        memory.loaded.retain(|there| there != model);
        memory.loaded.push(model.to_owned());
        let over = memory.loaded.len().saturating_sub(memory.most);
        memory.loaded.drain(..over);
        memory.ready - now
    };
    tokio::time::sleep(left.to_duration()).await;
}
