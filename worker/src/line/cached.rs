//! A request of a model whose answers are kept: found, waited for, or computed and kept.
//!
//! Who waits for another's computation waits no longer than they would have waited in line, and no more wait so than
//! may wait there.

use std::sync::Arc;

use crate::batch::Urgency;
use crate::cache::{Cache, Coming, Flight, Key, Look, Outputs, key};
use crate::fault::Fault;
use crate::line::{Model, Task};
use crate::observe::{Count, Looked};
use crate::runner;
use crate::tensor::Tensor;

/// Where a model's answers are kept.
pub struct Keeping {
    /// With those of all others.
    pub cache: Arc<Cache>,
    /// Under this number.
    pub load: u64,
}

/// Inputs that fit, through the cache or else the engine.
pub async fn run(
    model: &Model,
    keeping: &Keeping,
    task: Task,
    count: &mut Count,
) -> Result<Vec<Tensor>, Fault> {
    let began = count.now();
    let key = key(keeping.load, &task.inputs, &task.wanted);
    match find(model, keeping, &key, task.urgency).await? {
        Found::Outputs(outputs) => {
            count.looked(Looked::Hit, count.now() - began);
            Ok(Vec::clone(&outputs))
        }
        Found::Nothing(flight) => {
            let looked = count.now() - began;
            let outputs = model.compute(task, count).await?;
            let computed = count.now();
            flight.land(Arc::new(outputs.clone()));
            count.looked(Looked::Miss, looked + (count.now() - computed));
            Ok(outputs)
        }
    }
}

enum Found<'a> {
    Outputs(Outputs),
    Nothing(Flight<'a>),
}

/// The answer, or that it is this request's to compute.
async fn find<'a>(
    model: &Model,
    keeping: &'a Keeping,
    key: &Key,
    urgency: Urgency,
) -> Result<Found<'a>, Fault> {
    let coming = match keeping.cache.look(key) {
        Look::Kept(outputs) => return Ok(Found::Outputs(outputs)),
        Look::Mine(flight) => return Ok(Found::Nothing(flight)),
        Look::Coming(coming) => coming,
    };
    let (work, lobby) = (&model.work, model.work.lobby());
    let guest = lobby.enter(urgency);
    let _counted = guest.ok_or_else(|| runner::full(work.comeback()))?;
    let told = wait(&keeping.cache, key, coming);
    let Some(patience) = lobby.patience(urgency) else {
        return Ok(told.await);
    };
    let told = tokio::time::timeout(patience.to_duration(), told).await;
    told.map_err(|_| runner::waited_out(work.comeback()))
}

/// Waits for another's answer; where it comes to nothing, looks anew.
async fn wait<'a>(cache: &'a Cache, key: &Key, mut coming: Coming) -> Found<'a> {
    loop {
        // An error means that the other's request came to nothing.
        if let Ok(news) = coming.wait_for(Option::is_some).await
            && let Some(outputs) = news.as_ref()
        {
            return Found::Outputs(Arc::clone(outputs));
        }
        coming = match cache.look(key) {
            Look::Kept(outputs) => return Found::Outputs(outputs),
            Look::Mine(flight) => return Found::Nothing(flight),
            Look::Coming(coming) => coming,
        };
    }
}
