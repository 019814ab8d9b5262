//! Where a model's instances run: `instance_group`, and the accelerators of `optimization`.
//!
//! KIND_CPU and KIND_GPU are the model's own wish and hold whatever the worker's `--device` says; KIND_AUTO and
//! KIND_MODEL leave it to the model's `model.toml` and then to the worker. Listed cards make KIND_AUTO a KIND_GPU, as
//! in Triton, and each listed card gets `count` instances. A card that is left out is the first: how many there are is
//! not asked for, where Triton would take them all.
//!
//! An accelerator without an instance on a card is ignored with a warning, as Triton takes it; which instances are on
//! cards is known only when the model is loaded.
//!
//! An accelerator's `parameters` are the options of ONNX Runtime's execution provider, under its own names
//! (`trt_engine_cache_enable`, `gpu_mem_limit`); those that Triton has a name of its own for are translated.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{at_least, place};
use crate::units::Device;

/// The most instances of one model: each is a thread and a session of its own.
const INSTANCES: usize = 64;

/// What is said of an accelerator that nothing is done with.
const UNUSED: &str = "gpu_execution_accelerator is ignored: no instance computes on a card";

/// One thread that runs a model, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Instance {
    /// What computes; absent = as `model.toml` says, else the worker.
    pub device: Option<Device>,
    /// Which card, counted from 0.
    pub card: u32,
}

/// How a card is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accelerator {
    /// Whether through TensorRT.
    pub tensorrt: bool,
    /// Options of the execution provider.
    pub options: Vec<(String, String)>,
    /// What is to be said where no instance is on a card; absent = it does not matter.
    pub unused: Option<String>,
}

/// A group of instances as typed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TypedGroup {
    kind: Option<String>,
    count: i64,
    gpus: Vec<i64>,
    passive: bool,
    rate_limiter: Option<Value>,
}

/// How a model is to be made faster, as typed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TypedOptimization {
    execution_accelerators: TypedAccelerators,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedAccelerators {
    gpu_execution_accelerator: Vec<TypedAccelerator>,
    cpu_execution_accelerator: Vec<TypedAccelerator>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedAccelerator {
    name: String,
    parameters: BTreeMap<String, String>,
}

impl TypedGroup {
    fn check(&self, warnings: &mut Vec<String>) -> Result<Vec<Instance>, String> {
        let count = usize::try_from(self.count).map_err(|_| at_least("count", self.count, 1))?;
        let card = |&card: &i64| u32::try_from(card).map_err(|_| at_least("gpus", card, 0));
        let mut cards = self
            .gpus
            .iter()
            .map(card)
            .collect::<Result<Vec<u32>, _>>()?;
        let device = match self.kind.as_deref() {
            Some("KIND_CPU") => Some(Device::Cpu),
            Some("KIND_GPU") => Some(Device::Cuda),
            _ if !cards.is_empty() => Some(Device::Cuda),
            _ => None,
        };
        let ignored = [
            ("gpus", device == Some(Device::Cpu) && !cards.is_empty()),
            ("passive", self.passive),
            ("rate_limiter", self.rate_limiter.is_some()),
        ];
        let given = ignored.iter().filter(|(_, given)| *given);
        warnings.extend(given.map(|(field, _)| format!("{field} of instance_group is ignored")));
        if device == Some(Device::Cpu) || cards.is_empty() {
            cards = vec![0];
        }
        let each =
            |card| std::iter::repeat_n(Instance { device, card }, count.clamp(1, INSTANCES + 1));
        Ok(cards.into_iter().flat_map(each).collect())
    }
}

/// All instances of a model; one where nothing is said.
pub fn instances(
    groups: &[TypedGroup],
    warnings: &mut Vec<String>,
) -> Result<Vec<Instance>, String> {
    let mut all = Vec::new();
    for group in groups {
        all.extend(group.check(warnings)?);
        if all.len() > INSTANCES {
            return Err(format!(
                "instance_group: more than {INSTANCES} instances, which is as many as are run"
            ));
        }
    }
    if all.is_empty() {
        all.push(Instance::default());
    }
    Ok(all)
}

/// How cards are used.
pub fn accelerator(
    typed: TypedOptimization,
    text: &str,
    warnings: &mut Vec<String>,
) -> Result<Accelerator, String> {
    let others = typed.others.keys();
    warnings.extend(others.map(|field| format!("{field} of optimization is ignored")));
    let TypedAccelerators {
        gpu_execution_accelerator: ours,
        cpu_execution_accelerator: cpu,
    } = typed.execution_accelerators;
    if !cpu.is_empty() {
        warnings.push("cpu_execution_accelerator is ignored".into());
    }
    let asked = !ours.is_empty();
    let mut accelerator = Accelerator {
        unused: asked.then(|| place::of_field(text, UNUSED)),
        ..Accelerator::default()
    };
    for TypedAccelerator { name, parameters } in ours {
        match name.as_str() {
            "tensorrt" => accelerator.tensorrt = true,
            "cuda" => {}
            other => {
                return Err(format!(
                    "gpu_execution_accelerator: \"{other}\"; expected \"cuda\" or \"tensorrt\""
                ));
            }
        }
        for (key, value) in parameters {
            accelerator.options.extend(option(key, value)?);
        }
    }
    Ok(accelerator)
}

/// A parameter as the execution provider calls it; `None` where it says what holds anyway.
fn option(key: String, value: String) -> Result<Option<(String, String)>, String> {
    if [&key, &value].iter().any(|text| text.contains('\0')) {
        return Err("gpu_execution_accelerator: a parameter holds a zero byte".into());
    }
    let on = |option: &str| Ok(Some((option.to_owned(), "1".to_owned())));
    let name = match (key.as_str(), value.as_str()) {
        ("precision_mode", "FP32") => return Ok(None),
        ("precision_mode", "FP16") => return on("trt_fp16_enable"),
        ("precision_mode", "INT8") => return on("trt_int8_enable"),
        ("precision_mode", other) => {
            return Err(format!(
                "precision_mode: \"{other}\"; expected \"FP32\", \"FP16\" or \"INT8\""
            ));
        }
        ("max_workspace_size_bytes", _) => "trt_max_workspace_size",
        ("int8_calibration_table_name", _) => "trt_int8_calibration_table_name",
        ("int8_use_native_calibration_table", _) => "trt_int8_use_native_calibration_table",
        _ => return Ok(Some((key, value))),
    };
    Ok(Some((name.to_owned(), value)))
}
