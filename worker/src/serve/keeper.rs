//! When models are loaded and taken out of service: at the start, by request, or as the folder changes.
//!
//! One thread does it all, one model after the other: loading takes a core and memory, and two loads of one model at a
//! time would make "the newest" a matter of luck.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::fault::{Fault, Kind};
use crate::line::{App, Order};
use crate::repository::{Change, Found, Watch, fingerprints};
use crate::serve::load::Loader;
use crate::serve::stock::Stock;
use crate::units::Seconds;

/// The thread's belongings.
pub struct Keeper {
    app: Arc<App>,
    stock: Arc<Stock>,
    /// The folder as it was before the models were first looked for: what changes while they load is a change.
    watch: Watch,
}

impl Keeper {
    /// A keeper of this app's models.
    pub fn new(app: Arc<App>, loader: Loader, watch: Watch) -> Keeper {
        let stock = Arc::new(Stock::new(Arc::clone(&app), loader));
        Keeper { app, stock, watch }
    }

    /// Loads what was found at the start; the models that failed, each with its reason.
    pub fn first(&self, found: Found) -> Vec<String> {
        self.stock.fill(found)
    }

    /// Carries out orders until nobody can give any more.
    pub async fn obey(self, mut orders: UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            let (reply, outcome) = match order {
                Order::Load(name, reply) => {
                    let load = move |stock: &Stock| stock.load(&name, true);
                    (reply, self.aside(load).await)
                }
                Order::Unload {
                    name,
                    members,
                    reply,
                } => {
                    let unload = move |stock: &Stock| stock.unload(&name, members);
                    (reply, self.aside(unload).await)
                }
            };
            answer(reply, outcome);
        }
    }

    /// Follows the folder for ever, looking at it this often.
    pub async fn follow(mut self, interval: Seconds) {
        loop {
            tokio::time::sleep(interval.to_duration()).await;
            let there = match fingerprints(&self.app.folder) {
                Ok(there) => there,
                Err(error) => {
                    // What is served stays: a folder that is away for a moment is no wish to serve nothing.
                    tracing::warn!("--models {}: {error}", self.app.folder.display());
                    continue;
                }
            };
            for change in self.watch.look(there) {
                // A failure was logged, and is in the index.
                let _ = self.aside(move |stock| follow_one(stock, change)).await;
            }
        }
    }

    /// Does something slow off the reactor.
    async fn aside(
        &self,
        work: impl FnOnce(&Stock) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let stock = Arc::clone(&self.stock);
        let done = tokio::task::spawn_blocking(move || work(&stock)).await;
        done.unwrap_or_else(|_| Err(Fault::new(Kind::EngineFailed, "loading crashed")))
    }
}

/// Under a folder that is followed, each model is loaded for its own sake, so an ensemble brings none.
fn follow_one(stock: &Stock, change: Change) -> Result<(), Fault> {
    match change {
        Change::Load(name) => stock.load(&name, false),
        Change::Unload(name) => {
            stock.forget(&name);
            Ok(())
        }
    }
}

/// Whoever asked may have left.
fn answer(reply: oneshot::Sender<Result<(), Fault>>, outcome: Result<(), Fault>) {
    let _ = reply.send(outcome);
}
