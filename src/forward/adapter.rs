//! The LoRA adapter of a request, loaded where it is not yet: before the request is sent, and on its own time.
//!
//! A load that fails, or takes longer than the request may, means that nothing was sent: another worker is asked, at no
//! cost, and this one is not held to have failed.

use std::sync::Arc;

use super::attempt::Failure;
use super::deadlines::Deadlines;
use super::{Errand, Forward};
use crate::config::plan::WorkerPlan;
use crate::fault::Kind;
use crate::fleet::NotLoaded;
use crate::units::WorkerId;
use crate::upstream::Upstream;

impl Forward {
    /// Comes back once the adapter that a request asks for, if it does, is on the worker.
    pub(super) async fn ready_adapter(
        &self,
        worker: WorkerId,
        (plan, upstream): (&WorkerPlan, &Arc<Upstream>),
        errand: &Errand<'_>,
        deadlines: &mut Deadlines,
    ) -> Result<(), Failure> {
        let model = errand.facts.model.as_ref();
        let Some(adapter) = model.and_then(|model| self.fleet.to_load(worker, model)) else {
            return Ok(());
        };
        let loading = async { Ok(self.fleet.load(worker, &adapter, plan, upstream).await) };
        // Boxed, so that the many requests without an adapter need no room for it.
        let loading = Box::pin(loading);
        match self.in_time(deadlines, None, None, loading).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(NotLoaded::Lost(loss))) => Err(Failure::from(loss)),
            Ok(Err(NotLoaded::Refused(why))) => Err(Failure::Unloaded(why)),
            Err(Failure::TimedOut(fault)) if fault.kind != Kind::Deadline => {
                self.fleet.loads_too_slowly(worker, &adapter);
                let why = format!(
                    "while the adapter `{adapter}` was loaded: {}",
                    fault.message
                );
                Err(Failure::Unloaded(why))
            }
            Err(failure) => Err(failure),
        }
    }
}
