//! The body of an infer request: JSON, and after it the bytes of the tensors that are not in it, in their order
//! ("Binary Tensor Data Extension"). `Inference-Header-Content-Length` says where the JSON ends; 0 means that there is
//! none, and the whole body is the one input of the model.

use axum::http::HeaderMap;
use serde::Deserialize;

use crate::api::json_tensor::Cells;
use crate::api::parameters::{self, Parameters};
use crate::api::{Asked, unreadable};
use crate::fault::Fault;
use crate::line::{self, Form, InferRequest, Model, Named, Wanted};
use crate::tensor::{Axis, Datatype, Elements, Tensor, TensorSpec, volume};

/// Where the JSON of a body ends.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// Reads a body.
pub(in crate::api) fn read(
    model: &Model,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Asked, Fault> {
    let length = header_length(headers, body.len())?;
    if length == Some(0) {
        return alone(model, body);
    }
    let (json, mut bytes) = body.split_at(length.unwrap_or(body.len()));
    let typed: InferBody = serde_json::from_slice(json).map_err(|error| unreadable(&error))?;
    let asked = typed.check(&mut bytes)?;
    match bytes.len() {
        0 => Ok(asked),
        left => Err(Fault::bad(format!(
            "{left} bytes at the end of the body belong to no input; the sum of `binary_data_size` must be what follows \
             the JSON"
        ))),
    }
}

/// How long the JSON is, where the head says so: at most as long as the body.
fn header_length(headers: &HeaderMap, body: usize) -> Result<Option<usize>, Fault> {
    let mut values = headers.get_all(HEADER_LENGTH).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let length = value
        .to_str()
        .ok()
        .filter(digits)
        .and_then(|text| text.parse().ok());
    match length {
        Some(length) if length <= body && values.next().is_none() => Ok(Some(length)),
        _ => Err(Fault::bad(format!(
            "Inference-Header-Content-Length is not one whole number of at most {body}, the length of the body"
        ))),
    }
}

/// A body that is nothing but the elements of a model's one input, in one row.
fn alone(model: &Model, body: &[u8]) -> Result<Asked, Fault> {
    let [spec] = &model.signature.inputs[..] else {
        return Err(Fault::bad(
            "a body without JSON (Inference-Header-Content-Length: 0) is taken by models of one input only",
        ));
    };
    let name = spec.name.clone();
    let problem = |what: String| Fault::bad(format!("input `{name}`: {what}"));
    let elements = match spec.datatype {
        // The one string has no length before it: it is the body.
        Datatype::Bytes => {
            let text = String::from_utf8(body.to_vec());
            Elements::Bytes(vec![
                text.map_err(|_| problem("is no UTF-8, which strings are here".into()))?,
            ])
        }
        datatype => Elements::from_raw(datatype, body).map_err(problem)?,
    };
    let (count, expected) = (elements.len(), spec.kserve_shape());
    let unfit = || {
        problem(format!(
            "{count} elements in one row don't tell its shape {expected:?}"
        ))
    };
    let shape = shape(spec, model.has_rows(), count).ok_or_else(unfit)?;
    let tensor = Tensor::new(shape, elements).ok_or_else(unfit)?;
    Ok(Asked {
        id: None,
        parameters: Parameters::new(),
        request: InferRequest {
            inputs: vec![Named { name, tensor }],
            outputs: vec![],
            form: Form {
                binary: true,
                classes: None,
            },
            urgency: Default::default(),
            sequence: None,
        },
    })
}

/// The shape of one row of so many elements, if at most one axis is free.
pub(super) fn shape(spec: &TensorSpec, rows: bool, count: usize) -> Option<Vec<usize>> {
    let mut free = None;
    let mut shape = Vec::with_capacity(spec.axes.len());
    for (place, axis) in spec.axes.iter().enumerate() {
        shape.push(match axis {
            Axis::Fixed(size) => *size,
            Axis::Free(_) if rows && place == 0 => 1,
            Axis::Free(_) if free.is_some() => return None,
            Axis::Free(_) => {
                free = Some(place);
                1
            }
        });
    }
    if let Some(place) = free {
        let others = volume(&shape)?;
        shape[place] = count.checked_div(others)?;
    }
    Some(shape)
}

/// An infer request as typed.
#[derive(Deserialize)]
struct InferBody {
    id: Option<String>,
    #[serde(default)]
    parameters: Parameters,
    inputs: Vec<InputBody>,
    #[serde(default)]
    outputs: Vec<OutputBody>,
}

#[derive(Deserialize)]
struct InputBody {
    name: String,
    shape: Vec<i64>,
    datatype: String,
    #[serde(default)]
    parameters: Parameters,
    data: Option<Cells>,
}

#[derive(Deserialize)]
struct OutputBody {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

impl InferBody {
    fn check(self, bytes: &mut &[u8]) -> Result<Asked, Fault> {
        let binary = parameters::flag(&self.parameters, "binary_data_output")?.unwrap_or(false);
        let urgency = parameters::urgency(&self.parameters)?;
        let sequence = parameters::sequence(&self.parameters)?;
        let outputs = self.outputs.into_iter().map(|output| output.check(binary));
        let inputs = self.inputs.into_iter().map(|input| input.check(bytes));
        Ok(Asked {
            id: self.id,
            parameters: parameters::own(self.parameters)?,
            request: InferRequest {
                inputs: inputs.collect::<Result<_, _>>()?,
                outputs: outputs.collect::<Result<_, _>>()?,
                form: Form {
                    binary,
                    classes: None,
                },
                urgency,
                sequence,
            },
        })
    }
}

impl InputBody {
    /// Takes the input's bytes off the front of what is left, where its elements are not in the JSON.
    fn check(self, bytes: &mut &[u8]) -> Result<Named, Fault> {
        let name = self.name;
        let problem = |what: String| Fault::bad(format!("input `{name}`: {what}"));
        parameters::refuse_shared(&self.parameters, &format!("input `{name}`"))?;
        let datatype = Datatype::from_name(&self.datatype).ok_or_else(|| {
            problem(format!(
                "`{}` is no datatype of the protocol",
                self.datatype
            ))
        })?;
        let size = parameters::number(&self.parameters, "binary_data_size")?;
        let elements = match (size, self.data) {
            (None, None) => return Err(problem("`data` is missing".into())),
            (Some(_), Some(_)) => {
                return Err(problem("has both `data` and `binary_data_size`".into()));
            }
            (None, Some(cells)) => cells.into_elements(datatype),
            (Some(size), None) => {
                let left = bytes.len();
                let taken = usize::try_from(size)
                    .ok()
                    .and_then(|size| bytes.split_off(..size));
                let short = || {
                    problem(format!(
                        "`binary_data_size` is {size}, and {left} bytes are left"
                    ))
                };
                Elements::from_raw(datatype, taken.ok_or_else(short)?)
            }
        };
        let tensor = line::tensor(&name, &self.shape, elements.map_err(problem)?)?;
        Ok(Named { name, tensor })
    }
}

impl OutputBody {
    fn check(self, binary: bool) -> Result<Wanted, Fault> {
        let whose = format!("output `{}`", self.name);
        let form = parameters::form(&self.parameters, &whose, binary)?;
        Ok(Wanted {
            name: self.name,
            form,
        })
    }
}
