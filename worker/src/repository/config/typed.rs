//! The fields of a `config.pbtxt` that are heeded, as typed, and what is wrong with them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::group::{TypedGroup, TypedOptimization, accelerator, instances};
use super::queue::{TypedBatching, limits};
use super::sequence::TypedSequence;
use super::warmup::TypedWarmup;
use super::{Config, Declared, VersionPolicy, at_least};
use crate::tensor::Datatype;

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
    /// What it means for the model of this folder.
    pub fn check(self, folder: &str) -> Result<Config, String> {
        self.check_who(folder)?;
        let mut warnings = Vec::new();
        let max_batch_size = self
            .max_batch_size
            .map(|size| usize::try_from(size).map_err(|_| at_least("max_batch_size", size, 0)))
            .transpose()?;
        let instances = instances(&self.instance_group, &mut warnings)?;
        let accelerator = accelerator(self.optimization, &mut warnings)?;
        let threads = threads(&self.parameters, &mut warnings)?;
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
        let file = match self.default_model_filename.as_str() {
            "" => "model.onnx".to_owned(),
            name if name.contains('/') => {
                return Err(format!(
                    "default_model_filename: \"{name}\" is no plain file name"
                ));
            }
            name => name.to_owned(),
        };
        let mut inputs = declare(self.input, &mut warnings)?;
        let mut outputs = declare(self.output, &mut warnings)?;
        if let Some(plan) = &sequence {
            let declares = !inputs.is_empty();
            inputs.extend(plan.inputs().into_iter().filter(|_| declares));
            let declares = !outputs.is_empty();
            outputs.extend(plan.outputs().into_iter().filter(|_| declares));
        }
        Ok(Config {
            max_batch_size,
            inputs,
            outputs,
            sequence,
            versions: self.version_policy.check()?,
            instances,
            accelerator,
            threads,
            file,
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
        let expected = [
            ("platform", &self.platform, "onnxruntime_onnx"),
            ("backend", &self.backend, "onnxruntime"),
        ];
        for (field, value, ours) in expected {
            if !value.is_empty() && value != ours {
                return Err(format!("{field}: \"{value}\"; expected \"{ours}\""));
            }
        }
        if self.model_transaction_policy.decoupled {
            return Err("model_transaction_policy: decoupled models are not served".into());
        }
        Ok(())
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

fn threads(
    parameters: &BTreeMap<String, TypedParameter>,
    warnings: &mut Vec<String>,
) -> Result<Option<usize>, String> {
    const THREADS: &str = "intra_op_thread_count";
    let others = parameters.keys().filter(|name| *name != THREADS);
    warnings.extend(others.map(|name| format!("parameter {name} is ignored")));
    let Some(TypedParameter { string_value }) = parameters.get(THREADS) else {
        return Ok(None);
    };
    match string_value.parse() {
        Ok(0) => Ok(None),
        Ok(count) if count <= 1024 => Ok(Some(count)),
        _ => Err(format!("{THREADS}: \"{string_value}\"; expected 0 to 1024")),
    }
}
