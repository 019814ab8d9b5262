//! Requests of a sequence: one after the other, each with the state that the one before it left.
//!
//! What a sequence carries stays here and not in an engine, so its requests join batches with those of others, on any
//! instance. A request that is not answered leaves the state as it was: whoever failed or left may be asked again. A
//! first request that is not answered has begun nothing, and those behind it are told so. A model that is loaded anew
//! knows no sequences of the old one.
//!
//! Who waits for a turn, or to begin, waits as long as in the model's line and in as great a number: the next one is
//! told Busy.

mod table;

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard};

pub use table::Id;

use crate::batch::Urgency;
use crate::clock::Clock;
use crate::fault::{Fault, Kind};
use crate::line::{Model, Task};
use crate::observe::Count;
use crate::repository::{Control, SequencePlan, Signal, Switch};
use crate::tensor::{Datatype, Elements, Signature, Tensor, TensorSpec};
use table::Table;

/// Where a request stands in its sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Which one.
    pub id: Id,
    /// Whether it is the first.
    pub start: bool,
    /// Whether it is the last.
    pub end: bool,
}

/// The states of a sequence, absent until its first request was answered and again once its last one was. Its requests
/// take turns by the lock, in order of arrival.
type Carried = Arc<tokio::sync::Mutex<Option<Vec<Tensor>>>>;

/// A model's sequences.
pub struct Sequencer {
    /// What each input of the engine is made of.
    inputs: Vec<Source>,
    /// Where in the engine's outputs those stand that clients see.
    outputs: Vec<usize>,
    /// Where those stand that are carried on.
    states: Vec<usize>,
    /// What a sequence begins with.
    first: Vec<Tensor>,
    /// Whether a request is a row.
    rows: bool,
    clock: Clock,
    table: Mutex<Table<Carried>>,
    changed: Notify,
}

enum Source {
    Client,
    Control(Control),
    State(usize),
}

impl Sequencer {
    /// Fits a plan to an engine, or says why it does not fit; and what clients see of the engine then.
    pub fn fit(
        plan: &SequencePlan,
        engine: &Signature,
        rows: bool,
        first: Vec<Tensor>,
        clock: Clock,
    ) -> Result<(Sequencer, Signature), String> {
        let mut inputs: Vec<Source> = engine.inputs.iter().map(|_| Source::Client).collect();
        for control in &plan.controls {
            let place = named(&engine.inputs, &control.input, control.datatype)?;
            inputs[place] = Source::Control(control.clone());
        }
        let mut states = Vec::with_capacity(plan.states.len());
        for (index, state) in plan.states.iter().enumerate() {
            let place = named(&engine.inputs, &state.input, state.datatype)?;
            inputs[place] = Source::State(index);
            states.push(named(&engine.outputs, &state.output, state.datatype)?);
        }
        let seen = engine.inputs.iter().zip(&inputs);
        let seen = seen.filter(|(_, source)| matches!(source, Source::Client));
        let outputs: Vec<usize> = (0..engine.outputs.len())
            .filter(|place| !states.contains(place))
            .collect();
        let signature = Signature {
            inputs: seen.map(|(spec, _)| spec.clone()).collect(),
            outputs: outputs
                .iter()
                .map(|&place| engine.outputs[place].clone())
                .collect(),
        };
        let sequencer = Sequencer {
            inputs,
            outputs,
            states,
            first,
            rows,
            clock,
            table: Mutex::new(Table::new(plan.most, plan.idle)),
            changed: Notify::new(),
        };
        Ok((sequencer, signature))
    }

    /// A request's inputs to its outputs, in its turn.
    pub async fn run(
        &self,
        model: &Model,
        sequence: Option<Sequence>,
        task: Task,
        count: &mut Count,
    ) -> Result<Vec<Tensor>, Fault> {
        let Some(sequence) = sequence else {
            let problem = "this model keeps sequences: a request needs a `sequence_id`, which is neither 0 nor empty";
            return Err(Fault::bad(problem));
        };
        if self.rows && task.inputs.first().is_some_and(|input| input.rows() != 1) {
            return Err(Fault::bad("a request of a sequence has one row"));
        }
        let controls = self.controls(&sequence)?;
        let mut turn = self.turn(model, &sequence, task.urgency).await?;
        let before = match turn.states.as_ref() {
            _ if sequence.start => &self.first,
            Some(states) => states,
            None => return Err(unknown()),
        };
        let visible = task.wanted.len();
        let wanted = task.wanted.iter().map(|&output| self.outputs[output]);
        let task = Task {
            wanted: wanted.chain(self.states.iter().copied()).collect(),
            inputs: self.feed(task.inputs, controls, before),
            urgency: task.urgency,
        };
        let mut outputs = model.compute(task, count).await?;
        let after = outputs.split_off(visible);
        *turn.states = (!sequence.end).then_some(after);
        turn.member.over = sequence.end;
        Ok(outputs)
    }

    /// The control inputs, in the engine's order.
    fn controls(&self, sequence: &Sequence) -> Result<Vec<Tensor>, Fault> {
        let shape = if self.rows { vec![1, 1] } else { vec![1] };
        let controls = self.inputs.iter().filter_map(|source| match source {
            Source::Control(control) => Some(control),
            Source::Client | Source::State(_) => None,
        });
        let fill = |control: &Control| {
            let elements = match control.signal {
                Signal::Start(switch) => switched(control.datatype, switch, sequence.start),
                Signal::End(switch) => switched(control.datatype, switch, sequence.end),
                Signal::Ready(switch) => switched(control.datatype, switch, true),
                Signal::Correlation => identified(control.datatype, &sequence.id)?,
            };
            let misfit = || Fault::new(Kind::EngineFailed, "a control input has another shape");
            Tensor::new(shape.clone(), elements).ok_or_else(misfit)
        };
        controls.map(fill).collect()
    }

    /// The engine's inputs.
    fn feed(&self, inputs: Vec<Tensor>, controls: Vec<Tensor>, states: &[Tensor]) -> Vec<Tensor> {
        let (mut inputs, mut controls) = (inputs.into_iter(), controls.into_iter());
        let next = |source: &Source| match source {
            Source::Client => inputs.next(),
            Source::Control(_) => controls.next(),
            Source::State(index) => states.get(*index).cloned(),
        };
        self.inputs.iter().filter_map(next).collect()
    }

    /// Waits for the request's turn, for as long as its model's line lets it.
    async fn turn(
        &self,
        model: &Model,
        sequence: &Sequence,
        urgency: Urgency,
    ) -> Result<Turn<'_>, Fault> {
        let mut turn = pin!(self.join(sequence));
        if let Some(turn) = turn.as_mut().now_or_never() {
            return turn;
        }
        let _counted = model.runner.stand_by(urgency)?;
        let Some(patience) = model.runner.patience(urgency) else {
            return turn.await;
        };
        let turn = tokio::time::timeout(patience.to_duration(), turn).await;
        turn.map_err(|_| model.runner.overdue())?
    }

    /// Gets in line in the sequence, behind its first request also while that one waits to begin.
    async fn join(&self, sequence: &Sequence) -> Result<Turn<'_>, Fault> {
        let member = |number| Member {
            sequencer: self,
            id: sequence.id.clone(),
            number,
            over: sequence.start,
        };
        if !sequence.start {
            let found = self.table.lock().go_on(&sequence.id, self.clock.now());
            let (carried, number) = found.ok_or_else(unknown)?;
            let member = member(number);
            let states = carried.lock_owned().await;
            return Ok(Turn { member, states });
        }
        let carried = Carried::default();
        // Nobody else knows it yet, so it is free, and whoever finds it waits behind this request.
        let first = Arc::clone(&carried).try_lock_owned();
        let states = first.map_err(|_| unknown())?;
        let now = self.clock.now();
        let member = member(self.table.lock().begin(&sequence.id, carried, now));
        self.changed.notify_waiters();
        self.placed(&member).await;
        Ok(Turn { member, states })
    }

    /// Waits for a place, which is free now or when a sequence has ended or was idle for too long.
    async fn placed(&self, member: &Member<'_>) {
        loop {
            let changed = self.changed.notified();
            let now = self.clock.now();
            let expiry = {
                let mut table = self.table.lock();
                if table.place(&member.id, member.number, now) {
                    return;
                }
                table.next_expiry()
            };
            match expiry {
                None => changed.await,
                Some(then) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep((then - now).to_duration()) => {}
                },
            }
        }
    }
}

/// What a request is told whose sequence has not begun or is over.
fn unknown() -> Fault {
    Fault::bad(
        "no such sequence is alive: its first request says `sequence_start`, and it ends with `sequence_end` or when \
         it has been idle for too long",
    )
}

/// Where a tensor that the plan names stands in the graph.
fn named(specs: &[TensorSpec], name: &str, datatype: Datatype) -> Result<usize, String> {
    let place = specs.iter().position(|spec| spec.name == name);
    let place = place.ok_or_else(|| format!("sequence_batching: the graph has no `{name}`"))?;
    match specs[place].datatype {
        same if same == datatype => Ok(place),
        other => Err(format!(
            "sequence_batching: `{name}` is {other} in the graph, not {datatype}"
        )),
    }
}

/// A request whose turn it is.
struct Turn<'a> {
    member: Member<'a>,
    states: OwnedMutexGuard<Option<Vec<Tensor>>>,
}

/// A request that belongs to a sequence, until it is dropped.
struct Member<'a> {
    sequencer: &'a Sequencer,
    id: Id,
    number: u64,
    /// Whether the sequence ends with it: a first request that is never answered has begun none.
    over: bool,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let Sequencer { table, clock, .. } = self.sequencer;
        table
            .lock()
            .done(&self.id, self.number, self.over, clock.now());
        self.sequencer.changed.notify_waiters();
    }
}

/// One element that says yes or no.
fn switched(datatype: Datatype, switch: Switch, yes: bool) -> Elements {
    let value = if yes { switch.on } else { switch.off };
    match datatype {
        Datatype::Int32 => Elements::Int32(vec![value as i32]),
        Datatype::Bool => Elements::Bool(vec![value != 0.0]),
        _ => Elements::Fp32(vec![value as f32]),
    }
}

/// One element that names the sequence.
fn identified(datatype: Datatype, id: &Id) -> Result<Elements, Fault> {
    let number = match (datatype, id) {
        (Datatype::Bytes, Id::Text(text)) => return Ok(Elements::Bytes(vec![text.clone()])),
        (Datatype::Bytes, Id::Number(number)) => {
            return Ok(Elements::Bytes(vec![number.to_string()]));
        }
        (_, Id::Text(_)) => return Err(Fault::bad("this model takes a number as `sequence_id`")),
        (_, Id::Number(number)) => *number,
    };
    let beyond = |_| {
        Fault::bad(format!(
            "`sequence_id` is {number}, which is beyond {datatype}"
        ))
    };
    Ok(match datatype {
        Datatype::Int64 => Elements::Int64(vec![number.try_into().map_err(beyond)?]),
        Datatype::Uint32 => Elements::Uint32(vec![number.try_into().map_err(beyond)?]),
        Datatype::Int32 => Elements::Int32(vec![number.try_into().map_err(beyond)?]),
        _ => Elements::Uint64(vec![number]),
    })
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;
    use crate::batch::{Limits, Overdue, Policy};
    use crate::engine::Engine;
    use crate::engine::echo::Echo;
    use crate::observe::Tally;
    use crate::runner::Runner;
    use crate::units::{ModelName, Seconds};

    /// An echo with room for one sequence, for two that wait, and for these for so long.
    fn model(patience: Seconds) -> Model {
        let clock = Clock::start();
        let tally = Arc::new(Tally::new(clock));
        let policy = Policy {
            waiting: 2,
            timeout: Some(patience),
            may_shorten: true,
            overdue: Overdue::Refuse,
        };
        let limits = Limits {
            rows: 1,
            preferred: vec![],
            delay: Seconds(0.0),
            levels: vec![policy],
            default_level: 0,
            ordered: false,
        };
        let plan = SequencePlan {
            idle: Seconds(3600.0),
            most: 1,
            controls: vec![],
            states: vec![],
        };
        let echo: Box<dyn Engine> = Box::new(Echo::new());
        let fit = Sequencer::fit(&plan, echo.signature(), true, vec![], clock);
        let (sequencer, signature) = fit.unwrap();
        Model {
            name: ModelName::new("echo"),
            version: 1,
            created: 0,
            platform: "echo",
            signature,
            most_rows: None,
            labels: Default::default(),
            document: serde_json::Value::Null,
            placements: vec![],
            load: Seconds(0.0),
            tally: Arc::clone(&tally),
            sequencer: Some(sequencer),
            keeping: None,
            runner: Runner::start(vec![echo], limits, clock, tally).unwrap(),
            embedder: None,
            classifier: None,
        }
    }

    async fn ask(
        model: &Model,
        id: u64,
        start: bool,
        timeout: Option<Seconds>,
    ) -> Result<(), Fault> {
        let elements = Elements::Fp32(vec![1.0]);
        let task = Task {
            inputs: vec![Tensor::new(vec![1, 1], elements).unwrap()],
            wanted: vec![0],
            urgency: Urgency {
                level: None,
                timeout,
            },
        };
        let sequence = Sequence {
            id: Id::Number(id),
            start,
            end: false,
        };
        let sequencer = model.sequencer.as_ref().unwrap();
        let mut count = model.tally.begin();
        let outcome = sequencer.run(model, Some(sequence), task, &mut count).await;
        outcome.map(|_| ())
    }

    #[tokio::test]
    async fn a_turn_is_waited_for_as_long_and_by_as_many_as_the_line_says() {
        let model = model(Seconds(3600.0));
        let soon = Some(Seconds(0.01));
        assert_eq!(ask(&model, 1, true, None).await, Ok(()));
        let mut start: Pin<Box<dyn Future<Output = _>>> = Box::pin(ask(&model, 2, true, None));
        assert!(start.as_mut().now_or_never().is_none());
        let late = ask(&model, 2, false, soon).await.unwrap_err();
        assert_eq!(late.kind, Kind::QueueTimeout);
        let mut behind = Box::pin(ask(&model, 2, false, None));
        assert!(behind.as_mut().now_or_never().is_none());
        assert_eq!(model.runner.pending(), 2);
        for (id, start) in [(2, false), (3, true)] {
            let full = ask(&model, id, start, soon).await.unwrap_err();
            assert_eq!(full.kind, Kind::Busy);
            assert!(full.retry_after.is_some());
        }
        drop(start);
        assert_eq!(behind.await.unwrap_err().kind, Kind::BadRequest);
        assert_eq!(model.runner.pending(), 0);
    }
}
