//! OpenAI's `/v1/embeddings` and `/v1/models` (OpenAI API reference, "Embeddings", "Models").

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::path::Path;
use crate::fault::Fault;
use crate::line::{App, Embedded, Inputs, Model};

/// The most inputs of one request; OpenAI's own limit.
const INPUTS: usize = 2048;

/// The OpenAI paths.
pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/models", get(models))
        .route("/v1/models/{model}", get(model))
}

/// An error as OpenAI clients read it.
pub fn refusal(fault: &Fault) -> Response {
    let whose = match fault.kind.status() {
        status if status < 500 => "invalid_request_error",
        _ => "server_error",
    };
    super::refuse(
        fault,
        &json!({"error": {
            "message": fault.message,
            "type": whose,
            "code": fault.kind.label(),
            "param": fault.param,
        }}),
    )
}

async fn models(State(app): State<Arc<App>>) -> Response {
    match app.models() {
        Ok(models) => {
            let data: Vec<Value> = models.iter().map(|model| describe(model)).collect();
            super::json(&json!({"object": "list", "data": data}))
        }
        Err(fault) => refusal(&fault),
    }
}

async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    match app.model(&name, None) {
        Ok(model) => super::json(&describe(&model)),
        Err(fault) => refusal(&fault),
    }
}

fn describe(model: &Model) -> Value {
    json!({
        "id": model.name.as_str(),
        "object": "model",
        "created": model.created,
        "owned_by": "forebay",
    })
}

async fn embeddings(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    match embeddings_inner(&app, &headers, body).await {
        Ok(response) => response,
        Err(fault) => refusal(&fault),
    }
}

async fn embeddings_inner(app: &App, headers: &HeaderMap, body: Body) -> Result<Response, Fault> {
    let body = super::read(headers, body).await?;
    let typed: EmbeddingsBody =
        serde_json::from_slice(&body).map_err(|error| super::unreadable(&error))?;
    let model = app.model(&typed.model, None)?;
    let encoding = Encoding::from_name(typed.encoding_format.as_deref())?;
    let inputs = typed.input.check()?;
    let embedded = model.embed(inputs, typed.dimensions).await?;
    Ok(super::json(&answer(&model, &embedded, encoding)))
}

/// An embeddings request as typed; unknown fields are ignored, as OpenAI does.
#[derive(Deserialize)]
struct EmbeddingsBody {
    model: String,
    input: InputBody,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub enum InputBody {
    Text(String),
    Texts(Vec<String>),
    Ids(Vec<u32>),
    IdLists(Vec<Vec<u32>>),
    Other(IgnoredAny),
}

impl InputBody {
    /// What is to be read, in bounds.
    pub fn check(self) -> Result<Inputs, Fault> {
        let count = match &self {
            InputBody::Texts(texts) => texts.len(),
            InputBody::IdLists(rows) => rows.len(),
            _ => 1,
        };
        if count == 0 {
            return Err(Fault::bad("input is empty").param("input"));
        }
        if count > INPUTS {
            let problem = format!("input has {count} entries; at most {INPUTS} are taken");
            return Err(Fault::bad(problem).param("input"));
        }
        match self {
            InputBody::Text(text) => Ok(Inputs::Texts(vec![text])),
            InputBody::Texts(texts) => Ok(Inputs::Texts(texts)),
            InputBody::Ids(ids) => Ok(Inputs::Ids(vec![ids])),
            InputBody::IdLists(rows) => Ok(Inputs::Ids(rows)),
            InputBody::Other(_) => {
                let problem =
                    "input is neither text, a list of texts, token ids nor a list of lists of them";
                Err(Fault::bad(problem).param("input"))
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Encoding {
    Float,
    Base64,
}

impl Encoding {
    fn from_name(name: Option<&str>) -> Result<Encoding, Fault> {
        match name {
            None | Some("float") => Ok(Encoding::Float),
            Some("base64") => Ok(Encoding::Base64),
            Some(_) => {
                let problem = "encoding_format is neither \"float\" nor \"base64\"";
                Err(Fault::bad(problem).param("encoding_format"))
            }
        }
    }

    fn render(self, vector: &[f32]) -> Vector<'_> {
        match self {
            Encoding::Float => Vector::Floats(vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect();
                Vector::Base64(STANDARD.encode(bytes))
            }
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector<'a> {
    Floats(&'a [f32]),
    /// Little-endian `f32`, one after the other.
    Base64(String),
}

#[derive(Serialize)]
struct EmbeddingsAnswer<'a> {
    object: &'static str,
    data: Vec<EmbeddingAnswer<'a>>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct EmbeddingAnswer<'a> {
    object: &'static str,
    index: usize,
    embedding: Vector<'a>,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

fn answer<'a>(
    model: &'a Model,
    embedded: &'a Embedded,
    encoding: Encoding,
) -> EmbeddingsAnswer<'a> {
    let entry = |(index, vector): (usize, &'a Vec<f32>)| EmbeddingAnswer {
        object: "embedding",
        index,
        embedding: encoding.render(vector),
    };
    EmbeddingsAnswer {
        object: "list",
        data: embedded.vectors.iter().enumerate().map(entry).collect(),
        model: model.name.as_str(),
        usage: Usage {
            prompt_tokens: embedded.tokens,
            total_tokens: embedded.tokens,
        },
    }
}
