//! `sequence_batching`: requests that belong together, in order, with a state that goes from one to the next.
//!
//! An ONNX graph keeps nothing between runs, so every state is an input and an output of the graph that the worker
//! carries (Triton's implicit state). That makes the two strategies one: as no instance holds a sequence, a batch is
//! made of whichever sequences have a request. They differ in how many sequences may be alive. Without an
//! `initial_state` a state begins as zeros, where Triton leaves it to chance.

use serde::Deserialize;

use super::Declared;
use super::queue::TypedBatching;
use super::typed::datatype;
use crate::tensor::{Datatype, volume};
use crate::units::Seconds;

/// How long a sequence may be idle when nothing else is said, as in Triton.
const IDLE: Seconds = Seconds(1.0);

/// How a model's requests form sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct SequencePlan {
    /// How long a sequence may be idle before it is forgotten.
    pub idle: Seconds,
    /// How many may be alive.
    pub most: usize,
    /// Inputs that say where in its sequence a request stands.
    pub controls: Vec<Control>,
    /// What goes from one request to the next.
    pub states: Vec<State>,
}

/// An input that the worker fills, of one element.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// Its name.
    pub input: String,
    /// Its type.
    pub datatype: Datatype,
    /// What it says.
    pub signal: Signal,
}

/// What a control input says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Signal {
    /// Whether the request is the first.
    Start(Switch),
    /// Whether it is the last.
    End(Switch),
    /// Whether there is a request: always, here.
    Ready(Switch),
    /// Whose request it is.
    Correlation,
}

/// The two values of a yes or no.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switch {
    /// No.
    pub off: f64,
    /// Yes.
    pub on: f64,
}

/// What goes from one request of a sequence to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Where it goes in.
    pub input: String,
    /// Where it comes out.
    pub output: String,
    /// Its type.
    pub datatype: Datatype,
    /// Its axes after the batch; -1 = any size.
    pub dims: Vec<i64>,
    /// Its sizes when a sequence begins.
    pub first: Vec<usize>,
    /// Its bytes then, from this file in the model's folder `initial_state`; zeros without.
    pub file: Option<String>,
}

impl SequencePlan {
    /// The tensors that only the worker sees, as if they had been declared.
    pub fn inputs(&self) -> Vec<Declared> {
        let controls = self.controls.iter();
        let controls = controls.map(|one| declared(&one.input, one.datatype, vec![1]));
        let states = self.states.iter();
        let states = states.map(|one| declared(&one.input, one.datatype, one.dims.clone()));
        controls.chain(states).collect()
    }

    /// The outputs that only the worker sees.
    pub fn outputs(&self) -> Vec<Declared> {
        let states = self.states.iter();
        let states = states.map(|one| declared(&one.output, one.datatype, one.dims.clone()));
        states.collect()
    }
}

fn declared(name: &str, datatype: Datatype, dims: Vec<i64>) -> Declared {
    Declared {
        name: name.to_owned(),
        datatype: Some(datatype),
        dims,
        reshape: None,
        labels: None,
    }
}

/// `sequence_batching` as typed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TypedSequence {
    max_sequence_idle_microseconds: u64,
    control_input: Vec<TypedInput>,
    state: Vec<TypedState>,
    direct: Option<TypedDirect>,
    oldest: Option<TypedOldest>,
    iterative_sequence: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedInput {
    name: String,
    control: Vec<TypedControl>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedControl {
    kind: Option<String>,
    int32_false_true: Vec<i32>,
    fp32_false_true: Vec<f32>,
    bool_false_true: Vec<bool>,
    data_type: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedState {
    input_name: String,
    output_name: String,
    data_type: Option<String>,
    dims: Vec<i64>,
    initial_state: Vec<TypedInitial>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedInitial {
    dims: Vec<i64>,
    data_file: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedDirect {
    max_queue_delay_microseconds: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedOldest {
    max_candidate_sequences: usize,
    preferred_batch_size: Vec<i64>,
    max_queue_delay_microseconds: u64,
    preserve_ordering: bool,
}

impl TypedSequence {
    /// How the requests of all sequences gather.
    pub fn batching(&self) -> TypedBatching {
        match (&self.oldest, &self.direct) {
            (Some(oldest), _) => TypedBatching::plain(
                oldest.preferred_batch_size.clone(),
                oldest.max_queue_delay_microseconds,
                oldest.preserve_ordering,
            ),
            (None, Some(direct)) => {
                TypedBatching::plain(vec![], direct.max_queue_delay_microseconds, false)
            }
            (None, None) => TypedBatching::default(),
        }
    }

    /// What it means for so many instances of batches of so many rows.
    pub fn check(self, instances: usize, rows: usize) -> Result<SequencePlan, String> {
        if self.iterative_sequence {
            return Err("iterative_sequence: such models are not served".into());
        }
        let candidates = self
            .oldest
            .map_or(0, |oldest| oldest.max_candidate_sequences);
        let each = if candidates > 0 { candidates } else { rows };
        let idle = self.max_sequence_idle_microseconds;
        let controls = self.control_input.into_iter().map(TypedInput::check);
        let states = self.state.into_iter().map(TypedState::check);
        Ok(SequencePlan {
            idle: if idle > 0 {
                Seconds(idle as f64 / 1e6)
            } else {
                IDLE
            },
            most: instances.saturating_mul(each),
            controls: controls.collect::<Result<_, _>>()?,
            states: states.collect::<Result<_, _>>()?,
        })
    }
}

impl TypedInput {
    fn check(self) -> Result<Control, String> {
        let name = self.name;
        let problem = |what: &str| format!("control_input \"{name}\": {what}");
        let [control] = &self.control[..] else {
            return Err(problem("expected one control"));
        };
        let (datatype, signal) = match control.kind.as_deref() {
            Some("CONTROL_SEQUENCE_CORRID") => {
                let datatype = datatype(control.data_type.as_deref());
                let known = [
                    Datatype::Uint64,
                    Datatype::Int64,
                    Datatype::Uint32,
                    Datatype::Int32,
                    Datatype::Bytes,
                ];
                let fits = datatype.filter(|datatype| known.contains(datatype));
                let expected = "data_type: expected TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 or TYPE_STRING";
                (fits.ok_or_else(|| problem(expected))?, Signal::Correlation)
            }
            kind => {
                let expected = "expected one of int32_false_true, fp32_false_true and bool_false_true, of two values";
                let (datatype, switch) = control.switch().ok_or_else(|| problem(expected))?;
                let signal = match kind {
                    Some("CONTROL_SEQUENCE_END") => Signal::End(switch),
                    Some("CONTROL_SEQUENCE_READY") => Signal::Ready(switch),
                    // The kind of number 0, which is left out when it is written as JSON.
                    _ => Signal::Start(switch),
                };
                (datatype, signal)
            }
        };
        Ok(Control {
            input: name,
            datatype,
            signal,
        })
    }
}

impl TypedControl {
    /// The two values, and their type.
    fn switch(&self) -> Option<(Datatype, Switch)> {
        let switch = |off: f64, on: f64| Switch { off, on };
        let (whole, float, boolean) = (
            &self.int32_false_true[..],
            &self.fp32_false_true[..],
            &self.bool_false_true[..],
        );
        match (whole, float, boolean) {
            (&[off, on], [], []) => Some((Datatype::Int32, switch(off.into(), on.into()))),
            ([], &[off, on], []) => Some((Datatype::Fp32, switch(off.into(), on.into()))),
            ([], [], &[off, on]) => {
                let number = |value: bool| f64::from(u8::from(value));
                Some((Datatype::Bool, switch(number(off), number(on))))
            }
            _ => None,
        }
    }
}

impl TypedState {
    fn check(self) -> Result<State, String> {
        let name = self.input_name;
        let problem = |what: String| format!("state \"{name}\": {what}");
        let Some(datatype) = datatype(self.data_type.as_deref()) else {
            return Err(problem("has no data_type".into()));
        };
        if self.initial_state.len() > 1 {
            return Err(problem("expected at most one initial_state".into()));
        }
        let initial = self.initial_state.into_iter().next();
        let (sizes, file) = match initial {
            Some(initial) => (initial.dims, initial.data_file),
            None => (self.dims.clone(), String::new()),
        };
        let size = |size: &i64| usize::try_from(*size).ok();
        let first: Option<Vec<usize>> = sizes.iter().map(size).collect();
        let first = first.filter(|first| volume(first).is_some());
        let Some(first) = first else {
            let what = format!("{sizes:?} is no shape to begin with; say one in initial_state");
            return Err(problem(what));
        };
        if file.contains('/') {
            return Err(problem(format!(
                "data_file \"{file}\" is no plain file name"
            )));
        }
        Ok(State {
            output: self.output_name,
            datatype,
            dims: self.dims,
            first,
            file: (!file.is_empty()).then_some(file),
            input: name,
        })
    }
}
