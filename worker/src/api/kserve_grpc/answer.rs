//! Messages that are given: outputs always as raw bytes, as Triton gives them, so that NaN and Infinity are exact.

use prost::bytes::Bytes;
use serde_json::Value;

use super::inference::infer_parameter::ParameterChoice;
use super::inference::model_infer_response::InferOutputTensor;
use super::inference::model_metadata_response::TensorMetadata;
use super::inference::repository_index_response::ModelIndex;
use super::inference::{
    InferParameter, ModelConfigResponse, ModelInferResponse, ModelMetadataResponse,
    RepositoryIndexResponse,
};
use crate::api::parameters::Parameters;
use crate::api::repository::{complete, state};
use crate::fault::{Fault, Kind};
use crate::line::{Model, Output, Standing};
use crate::repository::encode;
use crate::tensor::{Tensor, TensorSpec};

/// The answer to an infer request.
pub fn render(
    model: &Model,
    id: Option<String>,
    parameters: Parameters,
    outputs: &[Output],
) -> ModelInferResponse {
    ModelInferResponse {
        model_name: model.name.as_str().into(),
        model_version: model.version.to_string(),
        id: id.unwrap_or_default(),
        parameters: parameters.into_iter().map(parameter).collect(),
        outputs: outputs.iter().map(describe).collect(),
        raw_output_contents: outputs.iter().map(|output| raw(&output.tensor)).collect(),
    }
}

fn describe(output: &Output) -> InferOutputTensor {
    let sizes = output.tensor.shape().iter();
    InferOutputTensor {
        name: output.name.clone(),
        datatype: output.tensor.elements().datatype().name().into(),
        shape: sizes
            .map(|&size| i64::try_from(size).unwrap_or(i64::MAX))
            .collect(),
        ..InferOutputTensor::default()
    }
}

fn raw(tensor: &Tensor) -> Bytes {
    let mut bytes = Vec::new();
    tensor.elements().push_raw(&mut bytes);
    bytes.into()
}

/// A client's own parameter, which is a scalar.
fn parameter((name, value): (String, Value)) -> (String, InferParameter) {
    let choice = match value {
        Value::Bool(value) => Some(ParameterChoice::BoolParam(value)),
        Value::String(value) => Some(ParameterChoice::StringParam(value)),
        Value::Number(number) => (number.as_i64().map(ParameterChoice::Int64Param))
            .or_else(|| number.as_u64().map(ParameterChoice::Uint64Param))
            .or_else(|| number.as_f64().map(ParameterChoice::DoubleParam)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let parameter = InferParameter {
        parameter_choice: choice,
    };
    (name, parameter)
}

impl From<bool> for InferParameter {
    fn from(value: bool) -> InferParameter {
        let parameter_choice = Some(ParameterChoice::BoolParam(value));
        InferParameter { parameter_choice }
    }
}

/// What a model takes and gives.
pub fn metadata(model: &Model, versions: &[u64]) -> ModelMetadataResponse {
    let describe = |spec: &TensorSpec| TensorMetadata {
        name: spec.name.clone(),
        datatype: spec.datatype.name().into(),
        shape: spec.kserve_shape(),
    };
    ModelMetadataResponse {
        name: model.name.as_str().into(),
        versions: versions.iter().map(u64::to_string).collect(),
        platform: model.platform.name.into(),
        inputs: model.signature.inputs.iter().map(describe).collect(),
        outputs: model.signature.outputs.iter().map(describe).collect(),
    }
}

/// How a model is served.
pub fn config(model: &Model) -> Result<ModelConfigResponse, Fault> {
    let unwritable =
        |problem| Fault::new(Kind::EngineFailed, format!("the configuration: {problem}"));
    let config = encode(&complete(model)).map_err(unwritable)?.into();
    Ok(ModelConfigResponse { config })
}

/// How the models of the folder stand.
pub fn index(standings: &[Standing]) -> RepositoryIndexResponse {
    let describe = |standing: &Standing| ModelIndex {
        name: standing.name.as_str().into(),
        version: standing
            .version
            .map_or_else(String::new, |version| version.to_string()),
        state: state(standing).unwrap_or_default().into(),
        reason: standing.reason.clone(),
    };
    RepositoryIndexResponse {
        models: standings.iter().map(describe).collect(),
    }
}
