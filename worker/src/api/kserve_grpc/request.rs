//! An infer request's message: tensors as raw bytes, one for each input in their order, or in the typed fields; never
//! both.

use std::collections::BTreeMap;

use prost::bytes::Bytes;
use serde_json::Value;

use super::inference::infer_parameter::ParameterChoice;
use super::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use super::inference::{InferParameter, InferTensorContents, ModelInferRequest};
use crate::api::Asked;
use crate::api::parameters::{self, Parameters};
use crate::fault::Fault;
use crate::line::{self, Form, InferRequest, Named, Wanted};
use crate::tensor::{Datatype, Elements};

/// Outputs are bytes unless their classes are wanted, which are bytes too.
const FORM: Form = Form {
    binary: true,
    classes: None,
};

/// Reads a message.
pub fn read(message: ModelInferRequest) -> Result<Asked, Fault> {
    let parameters = values(message.parameters);
    let urgency = parameters::urgency(&parameters)?;
    let sequence = parameters::sequence(&parameters)?;
    let raw = message.raw_input_contents;
    if !raw.is_empty() && raw.len() != message.inputs.len() {
        let (inputs, raw) = (message.inputs.len(), raw.len());
        return Err(Fault::bad(format!(
            "there are {inputs} inputs and {raw} raw_input_contents; expected one for each, or none"
        )));
    }
    let mut raw = raw.into_iter();
    let inputs = message
        .inputs
        .into_iter()
        .map(|tensor| input(tensor, raw.next()));
    let outputs = message.outputs.into_iter().map(output);
    Ok(Asked {
        id: (!message.id.is_empty()).then_some(message.id),
        parameters: parameters::own(parameters)?,
        request: InferRequest {
            inputs: inputs.collect::<Result<_, _>>()?,
            outputs: outputs.collect::<Result<_, _>>()?,
            form: FORM,
            urgency,
            sequence,
        },
    })
}

fn input(tensor: InferInputTensor, raw: Option<Bytes>) -> Result<Named, Fault> {
    let name = tensor.name;
    let problem = |what: String| Fault::bad(format!("input `{name}`: {what}"));
    let whose = format!("input `{name}`");
    parameters::refuse_shared(&values(tensor.parameters), &whose)?;
    let datatype = Datatype::from_name(&tensor.datatype).ok_or_else(|| {
        problem(format!(
            "`{}` is no datatype of the protocol",
            tensor.datatype
        ))
    })?;
    let elements = match (raw, tensor.contents) {
        (Some(_), Some(_)) => Err("has `contents` beside raw_input_contents".into()),
        (Some(raw), None) => Elements::from_raw(datatype, &raw),
        (None, contents) => typed(datatype, contents.unwrap_or_default()),
    };
    let tensor = line::tensor(&name, &tensor.shape, elements.map_err(problem)?)?;
    Ok(Named { name, tensor })
}

fn output(asked: InferRequestedOutputTensor) -> Result<Wanted, Fault> {
    let name = asked.name;
    let parameters = values(asked.parameters);
    let form = parameters::form(&parameters, &format!("output `{name}`"), true)?;
    let form = Form {
        binary: true,
        ..form
    };
    Ok(Wanted { name, form })
}

/// The elements of the one field that this type comes in; the others must be empty.
fn typed(datatype: Datatype, contents: InferTensorContents) -> Result<Elements, String> {
    let InferTensorContents {
        bool_contents: bools,
        int_contents: ints,
        int64_contents: longs,
        uint_contents: uints,
        uint64_contents: ulongs,
        fp32_contents: singles,
        fp64_contents: doubles,
        bytes_contents: strings,
    } = contents;
    let signed = bools.len() + ints.len() + longs.len();
    let came = signed + uints.len() + ulongs.len() + singles.len() + doubles.len() + strings.len();
    let elements = match datatype {
        Datatype::Bool => Elements::Bool(bools),
        Datatype::Int8 => Elements::Int8(narrow(ints, datatype)?),
        Datatype::Int16 => Elements::Int16(narrow(ints, datatype)?),
        Datatype::Int32 => Elements::Int32(ints),
        Datatype::Int64 => Elements::Int64(longs),
        Datatype::Uint8 => Elements::Uint8(narrow(uints, datatype)?),
        Datatype::Uint16 => Elements::Uint16(narrow(uints, datatype)?),
        Datatype::Uint32 => Elements::Uint32(uints),
        Datatype::Uint64 => Elements::Uint64(ulongs),
        Datatype::Fp32 => Elements::Fp32(singles),
        Datatype::Fp64 => Elements::Fp64(doubles),
        Datatype::Bytes => Elements::Bytes(texts(strings)?),
        Datatype::Fp16 | Datatype::Bf16 => {
            return Err(format!("{datatype} comes in raw_input_contents only"));
        }
    };
    match elements.len() == came {
        true => Ok(elements),
        false => Err(format!(
            "`contents` holds elements in a field that is not for {datatype}"
        )),
    }
}

fn narrow<A: Copy, B: TryFrom<A>>(values: Vec<A>, datatype: Datatype) -> Result<Vec<B>, String> {
    let narrowed = values.into_iter().map(|value| B::try_from(value).ok());
    let narrowed: Option<Vec<B>> = narrowed.collect();
    narrowed.ok_or_else(|| format!("a number is beyond the range of {datatype}"))
}

fn texts(strings: Vec<Bytes>) -> Result<Vec<String>, String> {
    let text = |(index, string): (usize, Bytes)| {
        let text = std::str::from_utf8(&string);
        let text = text.map_err(|_| format!("element {index} is no UTF-8, which strings are here"));
        text.map(str::to_owned)
    };
    strings.into_iter().enumerate().map(text).collect()
}

/// Parameters as the HTTP front reads them.
fn values(parameters: BTreeMap<String, InferParameter>) -> Parameters {
    let value = |(name, parameter): (String, InferParameter)| {
        let value = match parameter.parameter_choice {
            None => Value::Null,
            Some(ParameterChoice::BoolParam(value)) => value.into(),
            Some(ParameterChoice::Int64Param(value)) => value.into(),
            Some(ParameterChoice::Uint64Param(value)) => value.into(),
            Some(ParameterChoice::DoubleParam(value)) => value.into(),
            Some(ParameterChoice::StringParam(value)) => value.into(),
        };
        (name, value)
    };
    parameters.into_iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_comes_in_its_own_field_and_range() {
        let ints = |values: &[i32]| InferTensorContents {
            int_contents: values.to_vec(),
            ..InferTensorContents::default()
        };
        assert_eq!(
            typed(Datatype::Int8, ints(&[-128, 127])),
            Ok(Elements::Int8(vec![-128, 127]))
        );
        assert!(
            typed(Datatype::Int8, ints(&[128]))
                .unwrap_err()
                .contains("range of INT8")
        );
        assert!(
            typed(Datatype::Int64, ints(&[1]))
                .unwrap_err()
                .contains("not for INT64")
        );
        assert!(
            typed(Datatype::Fp16, ints(&[]))
                .unwrap_err()
                .contains("raw_input_contents")
        );
        let mixed = InferTensorContents {
            fp32_contents: vec![1.0],
            ..ints(&[1])
        };
        assert!(typed(Datatype::Fp32, mixed).is_err());
        let strings = InferTensorContents {
            bytes_contents: vec![Bytes::from_static(b"ok"), Bytes::from_static(b"\xff")],
            ..InferTensorContents::default()
        };
        assert!(
            typed(Datatype::Bytes, strings)
                .unwrap_err()
                .contains("element 1")
        );
    }
}
