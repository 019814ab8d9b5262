//! The path of a request, whichever front door it came through: look the model up, validate, tokenise where there is
//! text, submit to the model's thread, post-process. The front doors only parse and render.

mod cached;
mod classes;
mod classify;
mod embed;
mod ensemble;
mod registry;
mod sequence;
mod told;
mod validate;
mod work;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

pub use cached::Keeping;
pub use classify::Classifier;
pub use embed::{Embedded, Embedder, Inputs};
pub use ensemble::{Ensemble, sequences};
pub use registry::{Registry, Standing};
pub use sequence::{Id, Sequence, Sequencer};
pub use validate::{Form, Named, Wanted, tensor};
pub use work::{Platform, Work};

use crate::batch::Urgency;
use crate::clock::Clock;
use crate::engine::Placement;
use crate::fault::{Fault, Kind};
use crate::log::Log;
use crate::observe::{Count, Host, Ledger, Spans, Tally};
use crate::repository::Labels;
use crate::runner::Runner;
use crate::tensor::{Signature, Tensor};
use crate::units::{ModelName, Seconds};

/// A model that is loaded and answers.
pub struct Model {
    /// What clients call it.
    pub name: ModelName,
    /// The version that is served.
    pub version: u64,
    /// When its graph was written, in seconds since 1970.
    pub created: u64,
    /// What kind of model it is, to KServe's clients.
    pub platform: Platform,
    /// What it takes and gives.
    pub signature: Signature,
    /// The most rows of a request, where the configuration says so; 0 = it has no rows.
    pub most_rows: Option<usize>,
    /// What the values of its outputs stand for.
    pub labels: Labels,
    /// The configuration, as KServe's `/config` shows it.
    pub document: Value,
    /// Where its instances are.
    pub placements: Vec<Placement>,
    /// How long loading took.
    pub load: Seconds,
    /// What is counted of it.
    pub tally: Arc<Tally>,
    /// Where its answers are kept, if they are.
    pub keeping: Option<Keeping>,
    /// What answers.
    pub work: Work,
    /// Present when it reads texts.
    pub embedder: Option<Arc<Embedder>>,
    /// Present when what it gives for a text are scores of classes.
    pub classifier: Option<Classifier>,
}

/// Tensors to run through a model.
#[derive(Debug, PartialEq)]
pub struct InferRequest {
    /// In any order.
    pub inputs: Vec<Named>,
    /// Empty = all.
    pub outputs: Vec<Wanted>,
    /// How outputs are wanted where none is named.
    pub form: Form,
    /// How soon.
    pub urgency: Urgency,
    /// Which sequence it belongs to; heeded by models that keep sequences.
    pub sequence: Option<Sequence>,
}

/// Inputs that fit a model, in its order, and the places of the outputs that are wanted.
pub struct Task {
    inputs: Vec<Tensor>,
    wanted: Vec<usize>,
    urgency: Urgency,
    sequence: Option<Sequence>,
}

impl Task {
    /// Through an engine.
    async fn run(self, runner: &Runner, count: &mut Count) -> Result<Vec<Tensor>, Fault> {
        let ran = runner.run(self.inputs, self.wanted, self.urgency).await?;
        count.ran(ran.rows, ran.spans);
        Ok(ran.outputs)
    }
}

/// What a step of another model's request gives, and what it took.
type Step<'a> = Pin<Box<dyn Future<Output = Result<(Vec<Output>, Spans), Fault>> + Send + 'a>>;

/// An output as it is given.
#[derive(Debug, PartialEq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its values, or its classes where those were wanted.
    pub tensor: Tensor,
    /// Whether bytes were wanted.
    pub binary: bool,
}

/// A change to the models that a client or a signal asks for; `serve.rs` carries it out, one after the other.
pub enum Order {
    /// Load it, or load it anew.
    Load(ModelName, oneshot::Sender<Result<(), Fault>>),
    /// Take it out of service.
    Unload {
        /// The model.
        name: ModelName,
        /// Whether to take those along that it is made of.
        members: bool,
        /// Who wants to know how it went.
        reply: oneshot::Sender<Result<(), Fault>>,
    },
}

/// Everything a request needs, filled by `serve.rs`: without models while they load.
pub struct App {
    /// The models that answer.
    pub registry: Registry,
    /// Where models come from.
    pub folder: PathBuf,
    /// What is counted of the models.
    pub ledger: Ledger,
    /// The machine that they run on.
    pub host: Host,
    /// What is written of the worker's own log.
    pub log: Log,
    /// Where orders go; absent where the models are not the clients' to change.
    orders: Option<mpsc::UnboundedSender<Order>>,
    loaded: AtomicBool,
    stopping: AtomicBool,
    live: watch::Sender<usize>,
}

/// A request that is being answered; counts as live until dropped, also when its client leaves.
pub struct Live<'a>(&'a App);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.0.live.send_modify(|live| *live -= 1);
    }
}

impl App {
    /// An app without models yet.
    pub fn new(
        folder: PathBuf,
        orders: Option<mpsc::UnboundedSender<Order>>,
        clock: Clock,
        log: Log,
    ) -> App {
        App {
            registry: Registry::default(),
            folder,
            ledger: Ledger::new(clock),
            host: Host::new(),
            log,
            orders,
            loaded: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            live: watch::Sender::new(0),
        }
    }

    /// Opens for business.
    pub fn loaded(&self) {
        self.loaded.store(true, Ordering::Relaxed);
    }

    /// Counts a request for as long as the guard lives.
    pub fn enter(&self) -> Live<'_> {
        self.live.send_modify(|live| *live += 1);
        Live(self)
    }

    /// Waits until no request is live.
    pub async fn quiet(&self) {
        // An error means that nobody counts any more, which is as quiet as it gets.
        let _ = self.live.subscribe().wait_for(|live| *live == 0).await;
    }

    /// From now on not ready; requests that came in are still answered.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the worker is to be sent requests, and if not, why: it is from when its models were first loaded until
    /// it stops. Models that come, go or fail change their own readiness and not this, so that a proxy does not take a
    /// worker away from all its models for one.
    pub fn ready(&self) -> Result<(), Fault> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Fault::new(Kind::Stopping, "the worker is stopping"));
        }
        self.answering()
    }

    /// Whether models are there to be asked; also while the worker stops, since what came in is still answered.
    fn answering(&self) -> Result<(), Fault> {
        if !self.loaded.load(Ordering::Relaxed) {
            let loading = Fault::new(Kind::Loading, "the models are still loading");
            return Err(loading.retry_after(Seconds(1.0)));
        }
        Ok(())
    }

    /// All models that answer, each in its highest version, by name.
    pub fn models(&self) -> Result<Vec<Arc<Model>>, Fault> {
        self.answering()?;
        Ok(self.registry.served())
    }

    /// The model of this name, and of this version where one is asked for.
    pub fn model(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, Fault> {
        self.answering()?;
        self.registry.find(name, version)
    }

    /// Carries an order out and says how it went.
    pub async fn order(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<(), Fault>>) -> Order,
    ) -> Result<(), Fault> {
        self.answering()?;
        let Some(orders) = &self.orders else {
            let problem =
                "models are loaded and unloaded by request only under --model-control explicit";
            return Err(Fault::bad(problem));
        };
        let (reply, outcome) = oneshot::channel();
        let stopping = || Fault::new(Kind::Stopping, "the worker is stopping");
        orders.send(order(reply)).map_err(|_| stopping())?;
        outcome.await.unwrap_or_else(|_| Err(stopping()))
    }
}

impl Model {
    /// Tensors through the model: the wanted outputs in the order they were asked for.
    pub async fn infer(&self, request: InferRequest) -> Result<Vec<Output>, Fault> {
        let mut count = self.tally.begin();
        let outcome = self.infer_counted(request, &mut count).await;
        count.close(&outcome);
        outcome
    }

    /// The same as a step of another model's request. An ensemble may be a step itself, hence the box.
    fn infer_as_step(&self, request: InferRequest) -> Step<'_> {
        Box::pin(async move {
            let mut count = self.tally.begin();
            let outcome = self.infer_counted(request, &mut count).await;
            let spans = count.spans();
            count.close(&outcome);
            outcome.map(|outputs| (outputs, spans))
        })
    }

    async fn infer_counted(
        &self,
        request: InferRequest,
        count: &mut Count,
    ) -> Result<Vec<Output>, Fault> {
        let may_be_empty = |axis| self.may_be_empty(axis);
        let inputs = validate::inputs(&self.signature, request.inputs, may_be_empty)?;
        let wanted = validate::outputs(&self.signature, request.outputs, request.form)?;
        validate::rows(self.most_rows, &inputs)?;
        let task = Task {
            inputs,
            wanted: wanted.iter().map(|(place, _)| *place).collect(),
            urgency: request.urgency,
            sequence: request.sequence,
        };
        let outputs = match &self.work {
            Work::Sequences(sequencer, runner) => sequencer.run(runner, task, count).await?,
            Work::Engine(_) | Work::Ensemble(_) => self.run(task, count).await?,
        };
        let given = wanted.into_iter().zip(outputs);
        given
            .map(|((place, form), tensor)| self.give(place, form, tensor))
            .collect()
    }

    /// Inputs that fit, to their outputs.
    async fn run(&self, task: Task, count: &mut Count) -> Result<Vec<Tensor>, Fault> {
        match &self.keeping {
            Some(keeping) => cached::run(self, keeping, task, count).await,
            None => self.compute(task, count).await,
        }
    }

    /// Inputs that fit, through the engine or the steps.
    async fn compute(&self, task: Task, count: &mut Count) -> Result<Vec<Tensor>, Fault> {
        match &self.work {
            Work::Engine(runner) | Work::Sequences(_, runner) => task.run(runner, count).await,
            Work::Ensemble(ensemble) => {
                let ran = ensemble.run(task).await?;
                self.tally.executed(ran.rows, ran.spans);
                count.ran(ran.rows, ran.spans);
                Ok(ran.outputs)
            }
        }
    }

    /// An output in the form it is wanted in.
    fn give(&self, place: usize, form: Form, tensor: Tensor) -> Result<Output, Fault> {
        let name = self.signature.outputs[place].name.clone();
        let tensor = match form.classes {
            None => tensor,
            Some(count) => {
                let labels = self.labels.get(&name).map_or(&[][..], Vec::as_slice);
                let given = classes::highest(&tensor, self.has_rows(), count, labels);
                let failed = || {
                    Fault::new(
                        Kind::EngineFailed,
                        format!("output `{name}` has no classes"),
                    )
                };
                given.ok_or_else(failed)?
            }
        };
        let binary = form.binary;
        Ok(Output {
            name,
            tensor,
            binary,
        })
    }

    /// Whether an axis may have no elements. A decoder's cache has none before the first token, and what a graph makes of
    /// that is its own to tell; built-in steps need some, and so does everything that counts rows.
    fn may_be_empty(&self, axis: usize) -> bool {
        self.platform.backend == "onnxruntime" && (axis > 0 || !self.has_rows())
    }

    /// Whether the first axis of its tensors counts rows that have nothing to do with each other.
    pub fn has_rows(&self) -> bool {
        self.signature.batches() && self.most_rows != Some(0)
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::log::Levels;

    #[test]
    fn ready_is_from_loaded_to_stopped() {
        let log = Log::new(Levels::up_to(Level::INFO), |_| ());
        let app = App::new(PathBuf::new(), None, Clock::start(), log);
        let refused = app.ready().unwrap_err();
        assert_eq!(refused.kind, Kind::Loading);
        assert!(refused.retry_after.is_some());
        assert!(
            app.model("any", None)
                .is_err_and(|fault| fault.kind == Kind::Loading)
        );
        app.loaded();
        assert_eq!(app.ready(), Ok(()));
        app.stop();
        assert_eq!(app.ready().unwrap_err().kind, Kind::Stopping);
    }
}
