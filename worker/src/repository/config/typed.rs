//! The fields of a `config.pbtxt` that are heeded, as typed, and what is wrong with them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::ensemble::TypedEnsemble;
use super::group::{TypedGroup, TypedOptimization, accelerator, instances};
use super::queue::{TypedBatching, limits};
use super::sequence::TypedSequence;
use super::warmup::TypedWarmup;
use super::{Config, Declared, Runs, VersionPolicy, at_least};
use crate::repository::step::Settings;
use crate::tensor::Datatype;

/// The backend of what needs no graph.
const BUILT_IN: &str = "forebay";

/// The parameter that says on how many threads an instance computes.
const THREADS: &str = "intra_op_thread_count";

/// The file.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Typed {
    name: String,
    platform: String,
    backend: String,
    max_batch_size: Option<i64>,
    input: Vec<TypedTensor>,
    output: Vec<TypedTensor>,
    version_policy: TypedVersions,
    instance_group: Vec<TypedGroup>,
    optimization: TypedOptimization,
    dynamic_batching: Option<TypedBatching>,
    sequence_batching: Option<TypedSequence>,
    ensemble_scheduling: Option<TypedEnsemble>,
    default_model_filename: String,
    parameters: BTreeMap<String, TypedParameter>,
    model_transaction_policy: TypedTransaction,
    model_warmup: Vec<TypedWarmup>,
    response_cache: TypedCache,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedTensor {
    name: String,
    data_type: Option<String>,
    dims: Vec<i64>,
    reshape: Option<TypedReshape>,
    optional: bool,
    allow_ragged_batch: bool,
    is_shape_tensor: bool,
    label_filename: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedReshape {
    shape: Vec<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedVersions {
    latest: Option<TypedLatest>,
    all: Option<TypedAll>,
    specific: Option<TypedSpecific>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedLatest {
    num_versions: usize,
}

#[derive(Default, Deserialize)]
struct TypedAll {}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedSpecific {
    versions: Vec<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedParameter {
    string_value: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedTransaction {
    decoupled: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedCache {
    enable: bool,
}

impl Typed {
    /// What it means, in a file of this text, for the model of this folder.
    pub fn check(self, text: &str, folder: &str) -> Result<Config, String> {
        self.check_who(folder)?;
        let mut warnings = Vec::new();
        let max_batch_size = self
            .max_batch_size
            .map(|size| usize::try_from(size).map_err(|_| at_least("max_batch_size", size, 0)))
            .transpose()?;
        let instances = instances(&self.instance_group, &mut warnings)?;
        let accelerator = accelerator(self.optimization, text, &mut warnings)?;
        let threads = threads(&self.parameters)?;
        let batching = self.sequence_batching.as_ref().map(TypedSequence::batching);
        let limits = limits(self.dynamic_batching.or(batching), max_batch_size)?;
        let sequence = self.sequence_batching;
        let sequence = sequence.map(|typed| typed.check(instances.len(), limits.rows));
        let sequence = sequence.transpose()?;
        if sequence.is_some() && self.response_cache.enable {
            return Err(
                "response_cache: what a sequence answers depends on what came before".into(),
            );
        }
        let warmups = self.model_warmup.into_iter().map(TypedWarmup::check);
        let declare = |tensors: Vec<TypedTensor>, warnings: &mut Vec<String>| {
            let declared = tensors.into_iter().map(|tensor| tensor.check(warnings));
            declared.collect::<Result<Vec<_>, _>>()
        };
        let mut inputs = declare(self.input, &mut warnings)?;
        let mut outputs = declare(self.output, &mut warnings)?;
        if let Some(plan) = &sequence {
            let declares = !inputs.is_empty();
            inputs.extend(plan.inputs().into_iter().filter(|_| declares));
            let declares = !outputs.is_empty();
            outputs.extend(plan.outputs().into_iter().filter(|_| declares));
        }
        let settings = settings(&self.parameters);
        let runs = match self.ensemble_scheduling {
            Some(typed) => {
                warnings.extend(typed.ignored());
                let most_rows = max_batch_size.unwrap_or(0);
                Runs::Ensemble(typed.check(text, &inputs, &outputs, most_rows))
            }
            None if self.backend == BUILT_IN => Runs::Step(settings.clone()),
            None => Runs::Graph,
        };
        if !matches!(runs, Runs::Step(_)) {
            let ignored = settings.keys();
            warnings.extend(ignored.map(|name| format!("parameter {name} is ignored")));
        }
        Ok(Config {
            runs,
            max_batch_size,
            inputs,
            outputs,
            sequence,
            versions: self.version_policy.check()?,
            instances,
            accelerator,
            threads,
            file: graph_file(self.default_model_filename)?,
            limits,
            warmups: warmups.collect::<Result<_, _>>()?,
            cached: self.response_cache.enable,
            document: Value::Null,
            warnings,
        })
    }

    /// Whether the file is meant for this model and this engine.
    fn check_who(&self, folder: &str) -> Result<(), String> {
        let name = &self.name;
        if !name.is_empty() && name != folder {
            return Err(format!(
                "name: \"{name}\" is not the folder's, \"{folder}\""
            ));
        }
        if let Some(problem) = self.misfit() {
            return Err(problem);
        }
        if self.model_transaction_policy.decoupled {
            return Err("model_transaction_policy: decoupled models are not served".into());
        }
        Ok(())
    }

    /// What in it does not go with what runs the model: a graph, a built-in step or other models.
    fn misfit(&self) -> Option<String> {
        let (platform, backend) = (self.platform.as_str(), self.backend.as_str());
        let ensemble = self.ensemble_scheduling.is_some();
        match (ensemble, platform, backend) {
            (true, "" | "ensemble", "") if !self.instance_group.is_empty() => Some(
                "instance_group: an ensemble runs nothing itself; its members have instances"
                    .into(),
            ),
            (true, "" | "ensemble", "") if !self.model_warmup.is_empty() => {
                Some("model_warmup: an ensemble runs nothing itself; warm its members up".into())
            }
            (true, "" | "ensemble", "") => None,
            (true, "" | "ensemble", backend) => {
                Some(format!("backend: \"{backend}\"; an ensemble has none"))
            }
            (true, platform, _) => Some(format!("platform: \"{platform}\"; expected \"ensemble\"")),
            (false, "ensemble", _) => Some(
                "platform: \"ensemble\" goes with ensemble_scheduling, which is missing".into(),
            ),
            (false, "", BUILT_IN) if self.sequence_batching.is_some() => {
                Some("sequence_batching: a built-in step has no state to keep".into())
            }
            (false, "", BUILT_IN) | (false, "" | "onnxruntime_onnx", "" | "onnxruntime") => None,
            (false, "" | "onnxruntime_onnx", backend) => Some(format!(
                "backend: \"{backend}\"; expected \"onnxruntime\", or \"{BUILT_IN}\" for a built-in step"
            )),
            (false, platform, _) => Some(format!(
                "platform: \"{platform}\"; expected \"onnxruntime_onnx\""
            )),
        }
    }
}

impl TypedTensor {
    fn check(self, warnings: &mut Vec<String>) -> Result<Declared, String> {
        let name = self.name;
        if name.is_empty() {
            return Err("an input or output has no name".into());
        }
        let ignored = [
            ("optional", self.optional),
            ("allow_ragged_batch", self.allow_ragged_batch),
            ("is_shape_tensor", self.is_shape_tensor),
        ];
        let given = ignored.iter().filter(|(_, given)| *given);
        warnings.extend(given.map(|(field, _)| format!("{field} of `{name}` is ignored")));
        let datatype = datatype(self.data_type.as_deref());
        let reshape = self.reshape.map(|reshape| reshape.shape);
        for size in self.dims.iter().chain(reshape.iter().flatten()) {
            if *size < -1 || *size == 0 {
                return Err(format!(
                    "`{name}`: a size of {size}; expected -1 or more than 0"
                ));
            }
        }
        Ok(Declared {
            name,
            datatype,
            dims: self.dims,
            reshape,
            labels: (!self.label_filename.is_empty()).then_some(self.label_filename),
        })
    }
}

impl TypedVersions {
    fn check(self) -> Result<VersionPolicy, String> {
        if let Some(TypedSpecific { versions }) = self.specific {
            let number =
                |version: i64| u64::try_from(version).map_err(|_| at_least("versions", version, 0));
            let versions: Result<Vec<u64>, String> = versions.into_iter().map(number).collect();
            return Ok(VersionPolicy::Specific(versions?));
        }
        Ok(match (self.all, self.latest) {
            (Some(TypedAll {}), _) => VersionPolicy::All,
            (None, Some(latest)) => VersionPolicy::Latest(latest.num_versions.max(1)),
            (None, None) => VersionPolicy::Latest(1),
        })
    }
}

/// The type that goes by this name in a `config.pbtxt`; its parser knows no others.
pub fn datatype(name: Option<&str>) -> Option<Datatype> {
    match name? {
        "TYPE_STRING" => Some(Datatype::Bytes),
        other => Datatype::from_name(other.trim_start_matches("TYPE_")),
    }
}

/// The name of the graph's file.
fn graph_file(typed: String) -> Result<String, String> {
    match typed.as_str() {
        "" => Ok("model.onnx".to_owned()),
        name if name.contains('/') => Err(format!(
            "default_model_filename: \"{name}\" is no plain file name"
        )),
        _ => Ok(typed),
    }
}

/// The parameters that are not ours to heed, but may be a step's.
fn settings(parameters: &BTreeMap<String, TypedParameter>) -> Settings {
    let others = parameters.iter().filter(|(name, _)| *name != THREADS);
    let plain =
        |(name, value): (&String, &TypedParameter)| (name.clone(), value.string_value.clone());
    others.map(plain).collect()
}

fn threads(parameters: &BTreeMap<String, TypedParameter>) -> Result<Option<usize>, String> {
    let Some(TypedParameter { string_value }) = parameters.get(THREADS) else {
        return Ok(None);
    };
    match string_value.parse() {
        Ok(0) => Ok(None),
        Ok(count) if count <= 1024 => Ok(Some(count)),
        _ => Err(format!("{THREADS}: \"{string_value}\"; expected 0 to 1024")),
    }
}
