//! A request of a model whose answers are kept: found, waited for, or computed and kept.
//!
//! Who waits for another's computation waits no longer than they would have waited in line, and no more wait so than may
//! wait there.

use std::sync::Arc;

use crate::batch::Urgency;
use crate::cache::{Cache, Flight, Key, Look, Outputs, key};
use crate::fault::Fault;
use crate::line::{Model, Task};
use crate::observe::{Count, Looked};
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

/// Looks until the answer is there or is this request's to compute.
async fn find<'a>(
    model: &Model,
    keeping: &'a Keeping,
    key: &Key,
    urgency: Urgency,
) -> Result<Found<'a>, Fault> {
    let line = model.work.line();
    let patience = line.and_then(|line| Some((line, line.patience(urgency)?)));
    let looking = async {
        let mut waits = None;
        loop {
            let mut coming = match keeping.cache.look(key) {
                Look::Kept(outputs) => return Ok(Found::Outputs(outputs)),
                Look::Mine(flight) => return Ok(Found::Nothing(flight)),
                Look::Coming(coming) => coming,
            };
            if waits.is_none() {
                waits = line.map(|line| line.stand_by(urgency)).transpose()?;
            }
            // An error means that the other's request came to nothing.
            if let Ok(news) = coming.wait_for(Option::is_some).await
                && let Some(outputs) = news.as_ref()
            {
                return Ok(Found::Outputs(Arc::clone(outputs)));
            }
        }
    };
    let Some((line, patience)) = patience else {
        return looking.await;
    };
    let found = tokio::time::timeout(patience.to_duration(), looking).await;
    found.unwrap_or_else(|_| Err(line.overdue()))
}
