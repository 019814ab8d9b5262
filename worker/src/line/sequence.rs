//! Requests of a sequence: one after the other, each with the state that the one before it left.
//!
//! What a sequence carries stays here and not in an engine, so its requests join batches with those of others, on any
//! instance. A request that is not answered leaves the state as it was: whoever failed or left may be asked again. A
//! first request that is not answered has begun nothing. A model that is loaded anew knows no sequences of the old one.

mod table;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

pub use table::Id;

use crate::batch::Urgency;
use crate::clock::Clock;
use crate::fault::{Fault, Kind};
use crate::line::{Model, Task};
use crate::observe::Count;
use crate::repository::{Control, SequencePlan, Signal, Switch};
use crate::tensor::{Datatype, Elements, Signature, Tensor, TensorSpec};
use crate::units::Seconds;
use table::Table;

/// The most sequences that may wait to begin.
const WAITING: usize = 256;

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

/// The states of a sequence; its requests take turns by the lock, in order of arrival.
type Carried = Arc<tokio::sync::Mutex<Vec<Tensor>>>;

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
    waiting: Semaphore,
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
            waiting: Semaphore::new(WAITING),
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
        let mut turn = self.enter(model, &sequence, task.urgency).await?;
        let carried = Arc::clone(&turn.carried);
        let mut states = carried.lock().await;
        let visible = task.wanted.len();
        let wanted = task.wanted.iter().map(|&output| self.outputs[output]);
        let task = Task {
            wanted: wanted.chain(self.states.iter().copied()).collect(),
            inputs: self.feed(task.inputs, controls, &states),
            urgency: task.urgency,
        };
        let mut outputs = model.compute(task, count).await?;
        *states = outputs.split_off(visible);
        turn.over = sequence.end;
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

    /// Joins the sequence, or begins it once there is room for one more.
    async fn enter(
        &self,
        model: &Model,
        sequence: &Sequence,
        urgency: Urgency,
    ) -> Result<Turn<'_>, Fault> {
        let turn = |(carried, number)| Turn {
            sequencer: self,
            id: sequence.id.clone(),
            number,
            carried,
            over: sequence.start,
        };
        if !sequence.start {
            let found = self.table.lock().go_on(&sequence.id, self.clock.now());
            return found.map(turn).ok_or_else(|| {
                Fault::bad(
                    "no such sequence is alive: its first request says `sequence_start`, and it ends with \
                     `sequence_end` or when it has been idle for too long",
                )
            });
        }
        let full = |_| {
            let full = "as many sequences wait to begin as may";
            Fault::new(Kind::Busy, full).retry_after(Seconds(1.0))
        };
        let _place = self.waiting.try_acquire().map_err(full)?;
        let begin = self.begin(&sequence.id);
        let begun = match model.runner.patience(urgency) {
            None => begin.await,
            Some(patience) => tokio::time::timeout(patience.to_duration(), begin)
                .await
                .map_err(|_| model.runner.overdue())?,
        };
        Ok(turn(begun))
    }

    /// Begins a sequence, now or when another has ended or was idle for too long.
    async fn begin(&self, id: &Id) -> (Carried, u64) {
        let carried: Carried = Arc::new(tokio::sync::Mutex::new(self.first.clone()));
        loop {
            let changed = self.changed.notified();
            let now = self.clock.now();
            let expiry = {
                let mut table = self.table.lock();
                if let Some(number) = table.begin(id, Arc::clone(&carried), now) {
                    return (carried, number);
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

/// A request's place in its sequence, given up when it is dropped.
struct Turn<'a> {
    sequencer: &'a Sequencer,
    id: Id,
    number: u64,
    carried: Carried,
    /// Whether the sequence ends with it: a first request that is never answered has begun none.
    over: bool,
}

impl Drop for Turn<'_> {
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
