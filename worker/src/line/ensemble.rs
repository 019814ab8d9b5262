//! A request through an ensemble: each step is a request of its member, validated, queued, batched, kept and counted
//! like one that a client sent; steps that don't need each other run at once.
//!
//! An ensemble holds its members as they were when it was checked, so that a member that is loaded anew changes no
//! request half-way; `serve/ensembles.rs` makes it anew then. The steps of a request live in its future and end with
//! it: whoever leaves, or whose deadline passes, takes them all along, and the first step that fails ends the others.
//! Priority and sequence go to every step. A request's timeout is for the whole: a step may wait for what is left of
//! it, where Triton gives each the whole again.
//!
//! An ensemble whose answers are kept lets as many wait for another's answer as a model without rules lets wait in
//! line, and each no longer than its timeout, which is for the whole here as well.
//!
//! Counted as in Triton: an ensemble's run is one, its compute times are the sums of its steps', and it has no queue of
//! its own. Steps that nobody wants an output of are not run, unless they keep sequences.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::batch::Limits;
use crate::clock::Clock;
use crate::ensemble::Graph;
use crate::fault::{Fault, Kind};
use crate::line::{Form, InferRequest, Model, Named, Output, Task, Wanted, Work};
use crate::observe::Spans;
use crate::runner::{Lobby, Ran};
use crate::tensor::Tensor;
use crate::units::Seconds;

/// The members' answers go on as they are, whatever JSON could say of them.
const FORM: Form = Form {
    binary: true,
    classes: None,
};

/// The least that a step may wait, so that what is left of a timeout stays one.
const INSTANT: Seconds = Seconds(1e-6);

/// Steps and the models that run them.
pub struct Ensemble {
    graph: Graph,
    /// One for each step.
    members: Vec<Arc<Model>>,
    /// Whether the first axis of its tensors counts rows.
    has_rows: bool,
    /// Those who wait for the answer to another's request.
    lobby: Lobby,
    clock: Clock,
}

impl Ensemble {
    /// Steps that were checked against these members.
    pub fn new(
        graph: Graph,
        members: Vec<Arc<Model>>,
        has_rows: bool,
        mut limits: Limits,
        clock: Clock,
    ) -> Ensemble {
        let levels = limits.levels.iter_mut();
        levels.for_each(|policy| policy.may_shorten = true);
        let steps = members.iter().enumerate();
        let sequences = steps.filter(|(_, member)| !sequences(member).is_empty());
        let always = sequences.map(|(at, _)| at).collect();
        Ensemble {
            graph: graph.always(always),
            members,
            has_rows,
            lobby: Lobby::new(limits),
            clock,
        }
    }

    /// The models that run its steps.
    pub fn members(&self) -> &[Arc<Model>] {
        &self.members
    }

    /// Those who wait for the answer to another's request.
    pub fn lobby(&self) -> &Lobby {
        &self.lobby
    }

    /// Inputs that fit, through the steps.
    pub async fn run(&self, task: Task) -> Result<Ran, Fault> {
        let began = self.clock.now();
        let first = task.inputs.first().filter(|_| self.has_rows);
        let rows = first.map_or(1, Tensor::rows);
        let mut progress = self.graph.begin(task.inputs, &task.wanted);
        let mut running = FuturesUnordered::new();
        let mut spans = Spans::default();
        loop {
            for call in progress.ready() {
                let mut urgency = task.urgency;
                let passed = self.clock.now() - began;
                urgency.timeout = urgency.timeout.map(|whole| left(whole, passed));
                let request = InferRequest {
                    inputs: call.inputs.into_iter().map(given).collect(),
                    outputs: call.outputs.into_iter().map(wanted).collect(),
                    form: FORM,
                    urgency,
                    sequence: task.sequence.clone(),
                };
                running.push(self.step(call.step, request));
            }
            let Some(outcome) = running.next().await else {
                break;
            };
            let (step, outputs, took) = outcome?;
            spans = spans + took;
            progress.done(
                step,
                outputs
                    .into_iter()
                    .map(|output| (output.name, output.tensor)),
            );
        }
        let missing = || Fault::new(Kind::EngineFailed, "a step gave less than it was asked for");
        let queue = Seconds(0.0);
        Ok(Ran {
            outputs: progress.finish().ok_or_else(missing)?,
            rows,
            spans: Spans { queue, ..spans },
        })
    }

    /// One step; what goes wrong says where.
    async fn step(
        &self,
        step: usize,
        request: InferRequest,
    ) -> Result<(usize, Vec<Output>, Spans), Fault> {
        let member = &self.members[step];
        let (outputs, spans) = member.infer_as_step(request).await.map_err(|fault| Fault {
            message: format!("in step {}, `{}`: {}", step + 1, member.name, fault.message),
            param: None,
            ..fault
        })?;
        Ok((step, outputs, spans))
    }
}

/// The models that keep sequences of those that a model runs: itself, or what it is made of.
pub fn sequences(model: &Arc<Model>) -> Vec<&Arc<Model>> {
    match &model.work {
        Work::Engine(_) => vec![],
        Work::Sequences(..) => vec![model],
        Work::Ensemble(ensemble) => ensemble.members.iter().flat_map(sequences).collect(),
    }
}

fn given((name, tensor): (&str, Tensor)) -> Named {
    let name = name.to_owned();
    Named { name, tensor }
}

fn wanted(name: &str) -> Wanted {
    Wanted {
        name: name.to_owned(),
        form: FORM,
    }
}

/// What is left of a span.
fn left(whole: Seconds, passed: Seconds) -> Seconds {
    match whole - passed {
        left if left > INSTANT => left,
        _ => INSTANT,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::batch::{Overdue, Policy, Urgency};
    use crate::engine::Engine;
    use crate::engine::echo::Echo;
    use crate::fault::Reason;
    use crate::line::Platform;
    use crate::observe::Tally;
    use crate::repository;
    use crate::runner::Runner;
    use crate::tensor::{Elements, Signature};
    use crate::units::ModelName;

    /// Long enough for a thread to wake up on any machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// An echo that says when it begins and waits for a nod.
    struct Scripted {
        echo: Echo,
        began: Sender<()>,
        nod: Receiver<()>,
    }

    impl Engine for Scripted {
        fn signature(&self) -> &Signature {
            self.echo.signature()
        }

        fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Result<Vec<Tensor>, Fault> {
            self.began.send(()).unwrap();
            self.nod.recv().unwrap();
            self.echo.run(inputs, wanted)
        }
    }

    /// A model and the script of its engine. How long requests wait is theirs to say for `b` only.
    fn model(name: &str) -> (Arc<Model>, Receiver<()>, Sender<()>) {
        let (began, begins) = channel();
        let (nod, nods) = channel();
        let engine = Scripted {
            echo: Echo::new(),
            began,
            nod: nods,
        };
        let clock = Clock::start();
        let tally = Arc::new(Tally::new(clock));
        let limits = Limits {
            rows: 1,
            preferred: vec![],
            delay: Seconds(0.0),
            levels: vec![Policy {
                waiting: 9,
                timeout: None,
                may_shorten: name == "b",
                overdue: Overdue::Refuse,
            }],
            default_level: 0,
            ordered: false,
        };
        let signature = engine.signature().clone();
        let engines: Vec<Box<dyn Engine>> = vec![Box::new(engine)];
        let runner = Runner::start(engines, limits, clock, Arc::clone(&tally)).unwrap();
        let model = Model {
            name: ModelName::new(name),
            version: 1,
            created: 0,
            platform: Platform {
                name: "echo",
                backend: "forebay",
            },
            signature,
            most_rows: None,
            labels: Default::default(),
            document: serde_json::Value::Null,
            placements: Vec::new(),
            load: Seconds(0.0),
            tally,
            keeping: None,
            work: Work::Engine(runner),
            embedder: None,
            classifier: None,
        };
        (Arc::new(model), begins, nod)
    }

    /// `a` and `b`, which don't need each other.
    fn both(members: Vec<Arc<Model>>) -> Ensemble {
        let step = |model: &str| {
            format!(
                "step {{ model_name: \"{model}\" input_map {{ key: \"input\" value: \"x\" }} \
                 output_map {{ key: \"output\" value: \"{model}\" }} }}"
            )
        };
        let text = format!(
            "input {{ name: \"x\" }} output [ {{ name: \"a\" }}, {{ name: \"b\" }} ] ensemble_scheduling {{ {} {} }}",
            step("a"),
            step("b")
        );
        let models = tempfile::tempdir().unwrap();
        std::fs::create_dir(models.path().join("m")).unwrap();
        std::fs::write(models.path().join("m/config.pbtxt"), text).unwrap();
        let plan = repository::plan(models.path(), &ModelName::new("m")).unwrap();
        let repository::Engine::Ensemble(ensemble) = plan.engine else {
            panic!("no ensemble")
        };
        let (graph, limits) = (Graph::wire(&ensemble).unwrap(), plan.config.limits);
        Ensemble::new(graph, members, false, limits, Clock::start())
    }

    fn task(timeout: Option<Seconds>) -> Task {
        Task {
            inputs: vec![Tensor::new(vec![1, 1], Elements::Fp32(vec![7.0])).unwrap()],
            wanted: vec![0, 1],
            urgency: Urgency {
                level: None,
                timeout,
            },
            sequence: None,
        }
    }

    #[test]
    fn a_step_may_wait_for_what_is_left_and_no_less_than_an_instant() {
        assert_eq!(left(Seconds(1.0), Seconds(0.25)), Seconds(0.75));
        assert_eq!(left(Seconds(1.0), Seconds(2.0)), INSTANT);
    }

    #[tokio::test]
    async fn steps_that_dont_need_each_other_run_at_once() {
        let ((a, a_begins, a_nod), (b, b_begins, b_nod)) = (model("a"), model("b"));
        let ensemble = both(vec![a, b]);
        let mut running = Box::pin(ensemble.run(task(None)));
        assert!(running.as_mut().now_or_never().is_none());
        a_begins.recv_timeout(PATIENCE).unwrap();
        b_begins.recv_timeout(PATIENCE).unwrap();
        a_nod.send(()).unwrap();
        b_nod.send(()).unwrap();
        let ran = running.await.unwrap();
        assert_eq!((ran.outputs.len(), ran.rows), (2, 1));
        assert_eq!(ran.spans.queue, Seconds(0.0));
        assert!(ran.spans.infer.0 > 0.0);
    }

    #[tokio::test]
    async fn who_leaves_takes_all_steps_along() {
        let ((a, a_begins, a_nod), (b, b_begins, b_nod)) = (model("a"), model("b"));
        let ensemble = both(vec![Arc::clone(&a), Arc::clone(&b)]);
        let mut first = Box::pin(ensemble.run(task(None)));
        assert!(first.as_mut().now_or_never().is_none());
        a_begins.recv_timeout(PATIENCE).unwrap();
        b_begins.recv_timeout(PATIENCE).unwrap();
        let mut second = Box::pin(ensemble.run(task(None)));
        assert!(second.as_mut().now_or_never().is_none());
        let pending = |model: &Model| model.work.pending();
        assert_eq!((pending(&a), pending(&b)), (1, 1));
        drop(second);
        assert_eq!((pending(&a), pending(&b)), (0, 0));
        for member in [&a, &b] {
            let numbers = member.tally.numbers();
            assert_eq!(numbers.failures[Reason::Canceled as usize].count, 1);
        }
        a_nod.send(()).unwrap();
        b_nod.send(()).unwrap();
        assert!(first.await.is_ok());
    }

    #[tokio::test]
    async fn the_first_step_that_fails_is_named_and_ends_the_others() {
        let ((a, a_begins, a_nod), (b, b_begins, b_nod)) = (model("a"), model("b"));
        let ensemble = both(vec![Arc::clone(&a), Arc::clone(&b)]);
        let Work::Engine(runner) = &b.work else {
            panic!("no engine")
        };
        let Task { inputs, .. } = task(None);
        let mut busy = Box::pin(runner.run(inputs, vec![0], Urgency::default()));
        assert!(busy.as_mut().now_or_never().is_none());
        b_begins.recv_timeout(PATIENCE).unwrap();
        let mut refused = Box::pin(ensemble.run(task(Some(Seconds(0.01)))));
        assert!(refused.as_mut().now_or_never().is_none());
        a_begins.recv_timeout(PATIENCE).unwrap();
        let refused = refused.await.unwrap_err();
        assert_eq!(refused.kind, Kind::QueueTimeout);
        assert!(refused.message.starts_with("in step 2, `b`: "), "{refused}");
        let canceled = |model: &Model| model.tally.numbers().failures[Reason::Canceled as usize];
        assert_eq!(canceled(&a).count, 1);
        a_nod.send(()).unwrap();
        b_nod.send(()).unwrap();
        assert!(busy.await.is_ok());
    }
}
