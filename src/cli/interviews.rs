//! Asking all workers of a plan at once, each as `fleet/interview.rs` does.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::check::counted;
use super::control::failed;
use super::terminal::complain;
use crate::clock::Clock;
use crate::config::Plan;
use crate::fleet::{Interview, interview};

/// What one worker said, or why nobody answers.
pub type Told = Result<Interview, String>;

/// What each worker of a plan says, in the plan's order.
pub fn all(plan: &Plan) -> Result<Vec<Told>, ExitCode> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(format_args!("No runtime: {error}")))?;
    if io::stderr().is_terminal() {
        let engines = counted(plan.workers.len(), "engine");
        complain(format_args!("asking {engines} …"));
    }
    let clock = Clock::start();
    let mut told = runtime.block_on(async {
        let mut asking = JoinSet::new();
        for (place, worker) in plan.workers.iter().cloned().enumerate() {
            let servers = plan.dns.clone();
            asking.spawn(async move { (place, interview(&worker, &servers, clock).await) });
        }
        asking.join_all().await
    });
    told.sort_by_key(|(place, _)| *place);
    Ok(told.into_iter().map(|(_, told)| told).collect())
}
