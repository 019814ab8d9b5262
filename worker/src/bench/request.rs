//! What is asked of a model: of one that reads texts, a sentence as its clients send it; of any other, tensors of
//! zeros, which every model takes, as binary data.
//!
//! All requests of a load are equal, so that they can run together, as requests of one length do; a model's answers are
//! not kept meanwhile. A request of a sequence is not made: it would have to be many.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ENSEMBLE;
use super::client::Request;
use crate::line::{Embedder, Model, Work};
use crate::serve::warm_up::{Sizes, zeros};
use crate::tensor::Tensor;

/// A sentence of 32 tokens or so.
const SENTENCE: &str = "The forebay above a power station holds the water back and gives every turbine as much as it \
                        can take, whatever the river brings, by night and in a dry summer.";

/// What a model is asked.
pub struct Example {
    model: Arc<Model>,
    asked: Asked,
}

enum Asked {
    /// Texts, by this path.
    Texts(Arc<Embedder>, &'static str),
    /// Tensors; inputs of any size have these.
    Tensors(Sizes),
}

impl Example {
    /// What this model is asked, or why it can't be.
    pub fn of(model: &Arc<Model>, sizes: &Sizes) -> Result<Example, String> {
        match model.work {
            Work::Engine(_) => {}
            Work::Sequences(..) => {
                return Err("its requests form sequences, which are not measured".into());
            }
            Work::Ensemble(_) => return Err(ENSEMBLE.into()),
        }
        let asked = match (&model.embedder, &model.classifier) {
            (Some(embedder), None) => Asked::Texts(Arc::clone(embedder), "/v1/embeddings"),
            (Some(embedder), Some(_)) => Asked::Texts(Arc::clone(embedder), "/v1/classify"),
            (None, _) => Asked::Tensors(sizes.clone()),
        };
        let model = Arc::clone(model);
        Ok(Example { model, asked })
    }

    /// What the engine is fed for so many rows, and which of its outputs are wanted.
    pub fn tensors(&self, rows: usize) -> Result<(Vec<Tensor>, Vec<usize>), String> {
        let signature = &self.model.signature;
        match &self.asked {
            Asked::Texts(embedder, _) => {
                let (inputs, output) = embedder.example(SENTENCE, rows)?;
                Ok((inputs, vec![output]))
            }
            Asked::Tensors(sizes) => {
                let rows = self.model.has_rows().then_some(rows);
                let inputs = zeros(signature, rows, sizes);
                let inputs = inputs.map_err(|problem| {
                    format!("{problem}; say which by --shape NAME:SIZES, without the rows")
                })?;
                Ok((inputs, (0..signature.outputs.len()).collect()))
            }
        }
    }

    /// A request of so many rows.
    pub fn request(&self, rows: usize) -> Result<Request, String> {
        let name = self.model.name.as_str();
        match &self.asked {
            Asked::Texts(_, path) => Ok(Request {
                path: (*path).to_owned(),
                headers: "content-type: application/json\r\n".to_owned(),
                body: texts(name, rows),
            }),
            Asked::Tensors(_) => {
                let (inputs, _) = self.tensors(rows)?;
                let (json, mut bytes) = self.binary(&inputs);
                let length = json.len();
                let mut body = json.into_bytes();
                body.append(&mut bytes);
                Ok(Request {
                    path: format!("/v2/models/{}/infer", escaped(name)),
                    headers: format!("inference-header-content-length: {length}\r\n"),
                    body,
                })
            }
        }
    }

    /// The JSON of an infer request, and the bytes behind it.
    fn binary(&self, inputs: &[Tensor]) -> (String, Vec<u8>) {
        let mut bytes = Vec::new();
        let specs = &self.model.signature.inputs;
        let described = specs.iter().zip(inputs).map(|(spec, tensor)| {
            let before = bytes.len();
            tensor.elements().push_raw(&mut bytes);
            json!({
                "name": spec.name,
                "shape": tensor.shape(),
                "datatype": spec.datatype.name(),
                "parameters": {"binary_data_size": bytes.len() - before},
            })
        });
        let described: Vec<Value> = described.collect();
        let json = json!({"inputs": described, "parameters": {"binary_data_output": true}});
        (json.to_string(), bytes)
    }
}

/// A request of so many texts, as OpenAI's own client writes it.
fn texts(model: &str, rows: usize) -> Vec<u8> {
    let input = vec![SENTENCE; rows];
    let body = json!({"model": model, "input": input, "encoding_format": "base64"});
    body.to_string().into_bytes()
}

/// A name as part of a path.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        assert_eq!(escaped("mini-LM_6.v2"), "mini-LM_6.v2");
        assert_eq!(escaped("a b/ü?"), "a%20b%2F%C3%BC%3F");
    }
}
