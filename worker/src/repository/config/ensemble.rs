//! `ensemble_scheduling`: a model that is made of others, step by step. What it means is checked in `ensemble.rs`,
//! which knows the members; the text is kept so that a mistake found there is told with its line as well.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Declared;
use super::place::{self, Message};

/// An ensemble as a `config.pbtxt` describes it.
#[derive(Debug, PartialEq)]
pub struct EnsemblePlan {
    /// Its steps, as they stand in the file; they run as soon as their inputs are there.
    pub steps: Vec<EnsembleStep>,
    /// What clients give it.
    pub inputs: Vec<Declared>,
    /// What they get.
    pub outputs: Vec<Declared>,
    /// The most rows of a request; 0 = its tensors have no rows.
    pub most_rows: usize,
    text: String,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct EnsembleStep {
    /// The model that runs.
    pub model: String,
    /// In this version; absent = in its highest.
    pub version: Option<u64>,
    /// The model's inputs, and the tensors of the ensemble that they are.
    pub inputs: Vec<(String, String)>,
    /// The model's outputs, and the tensors of the ensemble that they become.
    pub outputs: Vec<(String, String)>,
}

impl EnsemblePlan {
    /// A mistake in a field of a step, with its line: at the first of this word there, else where the step begins.
    pub fn in_step(&self, step: usize, (field, word): (&str, &str), problem: &str) -> String {
        let model = self.steps.get(step).map_or("", |step| step.model.as_str());
        let problem = format!("step {}, `{model}`: {problem}", step + 1);
        let message = Message {
            field: "step",
            index: step,
            inner: field,
        };
        place::in_message(&self.text, message, word, &problem)
    }

    /// A mistake in an input, with its line.
    pub fn in_input(&self, input: usize, problem: &str) -> String {
        self.in_tensor("input", input, &self.inputs, problem)
    }

    /// A mistake in an output, with its line.
    pub fn in_output(&self, output: usize, problem: &str) -> String {
        self.in_tensor("output", output, &self.outputs, problem)
    }

    fn in_tensor(&self, side: &str, index: usize, all: &[Declared], problem: &str) -> String {
        let name = all.get(index).map_or("", |tensor| tensor.name.as_str());
        let problem = format!("{side} `{name}`: {problem}");
        let message = Message {
            field: side,
            index,
            inner: side,
        };
        place::in_message(&self.text, message, name, &problem)
    }

    /// A mistake in the whole, at the field that it begins with.
    pub fn in_whole(&self, problem: &str) -> String {
        place::of_field(&self.text, problem)
    }
}

/// `ensemble_scheduling` as typed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TypedEnsemble {
    step: Vec<TypedStep>,
    max_inflight_requests: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedStep {
    model_name: String,
    model_version: i64,
    input_map: BTreeMap<String, String>,
    output_map: BTreeMap<String, String>,
    model_namespace: String,
}

impl TypedEnsemble {
    /// What it means, in the file of this text.
    pub fn check(
        self,
        text: &str,
        inputs: &[Declared],
        outputs: &[Declared],
        most_rows: usize,
    ) -> EnsemblePlan {
        EnsemblePlan {
            steps: self.step.into_iter().map(TypedStep::check).collect(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            most_rows,
            text: text.to_owned(),
        }
    }

    /// What in it changes nothing here. The members' own queues bound what is in flight.
    pub fn ignored(&self) -> impl Iterator<Item = String> {
        let given = [
            ("max_inflight_requests", self.max_inflight_requests > 0),
            (
                "model_namespace",
                self.step
                    .iter()
                    .any(|step| !step.model_namespace.is_empty()),
            ),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        given.map(|(field, _)| format!("{field} of ensemble_scheduling is ignored"))
    }
}

impl TypedStep {
    /// A version of 0 can't be told from none, and -1 is Triton's word for none.
    fn check(self) -> EnsembleStep {
        let version = u64::try_from(self.model_version).ok();
        EnsembleStep {
            model: self.model_name,
            version: version.filter(|version| *version > 0),
            inputs: self.input_map.into_iter().collect(),
            outputs: self.output_map.into_iter().collect(),
        }
    }
}
