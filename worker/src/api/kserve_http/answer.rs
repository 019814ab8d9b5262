//! The answer to an infer request: JSON, and after it the bytes of those outputs that are wanted as such.

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use serde::Serialize;

use crate::api::compress;
use crate::api::json_tensor::Flat;
use crate::api::kserve_http::request::HEADER_LENGTH;
use crate::api::parameters::Parameters;
use crate::fault::{Fault, Kind};
use crate::line::{Model, Output};
use crate::tensor::Elements;

/// A body, not yet compressed.
pub struct Answer {
    body: Vec<u8>,
    /// Where its JSON ends, if something follows.
    json: Option<usize>,
}

#[derive(Serialize)]
struct InferAnswer<'a> {
    model_name: &'a str,
    model_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: Parameters,
    outputs: Vec<OutputAnswer<'a>>,
}

#[derive(Serialize)]
struct OutputAnswer<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: Parameters,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Flat<'a>>,
}

/// Writes the answer down.
pub fn render(
    model: &Model,
    id: Option<String>,
    parameters: Parameters,
    outputs: &[Output],
) -> Result<Answer, Fault> {
    let mut bytes = Vec::new();
    let outputs = outputs.iter().map(|output| describe(output, &mut bytes));
    let answer = InferAnswer {
        model_name: model.name.as_str(),
        model_version: model.version.to_string(),
        id,
        parameters,
        outputs: outputs.collect(),
    };
    let binary = answer.outputs.iter().any(|output| output.data.is_none());
    let unwritable = |_| Fault::new(Kind::EngineFailed, "the answer can't be written as JSON");
    let mut body = serde_json::to_vec(&answer).map_err(unwritable)?;
    let json = binary.then_some(body.len());
    body.append(&mut bytes);
    Ok(Answer { body, json })
}

/// An output as the JSON tells of it; its elements go into the JSON or to the bytes.
fn describe<'a>(output: &'a Output, bytes: &mut Vec<u8>) -> OutputAnswer<'a> {
    let elements = output.tensor.elements();
    let (mut parameters, mut data) = (Parameters::new(), None);
    if output.binary {
        let before = bytes.len();
        elements.push_raw(bytes);
        parameters.insert("binary_data_size".into(), (bytes.len() - before).into());
    } else {
        data = Some(Flat(elements));
        not_finite(elements, &mut parameters);
    }
    OutputAnswer {
        name: &output.name,
        datatype: elements.datatype().name(),
        shape: output.tensor.shape(),
        parameters,
        data,
    }
}

/// Says how many nulls stand for NaN or Infinity.
fn not_finite(elements: &Elements, parameters: &mut Parameters) {
    let count = elements.not_finite();
    if count > 0 {
        parameters.insert("not_finite".into(), count.into());
    }
}

impl Answer {
    /// The whole response, compressed as the client's head allows.
    pub async fn response(self, headers: &HeaderMap) -> Result<Response, Fault> {
        let (body, encoding) = compress(headers, self.body).await?;
        let mut response = Response::new(Body::from(body));
        let head = response.headers_mut();
        let mut set =
            |name, value: &'static str| head.insert(name, HeaderValue::from_static(value));
        match self.json {
            None => set(CONTENT_TYPE, "application/json"),
            Some(_) => set(CONTENT_TYPE, "application/octet-stream"),
        };
        if let Some(encoding) = encoding {
            set(CONTENT_ENCODING, encoding.name());
        }
        if let Some(length) = self.json {
            head.insert(
                HeaderName::from_static(HEADER_LENGTH),
                HeaderValue::from(length),
            );
        }
        Ok(response)
    }
}
