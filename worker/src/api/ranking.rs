//! `/v1/rerank` as Cohere, Jina and vLLM shaped it, and `/v1/classify` as vLLM did. `/rerank` and `/v2/rerank` are not
//! served: `/v2` is KServe's here.

use std::cmp::Ordering;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::openai::{InputBody, refusal};
use crate::fault::Fault;
use crate::line::{App, Classifier};

/// The most documents of one request, as many as inputs elsewhere.
const DOCUMENTS: usize = 2048;

/// The paths.
pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/rerank", post(rerank))
        .route("/v1/classify", post(classify))
}

async fn rerank(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    let answer = rerank_inner(&app, &headers, body).await;
    answer.map_or_else(|fault| refusal(&fault), |answer| super::json(&answer))
}

async fn classify(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    let answer = classify_inner(&app, &headers, body).await;
    answer.map_or_else(|fault| refusal(&fault), |answer| super::json(&answer))
}

/// A rerank request as typed; unknown fields are ignored, as elsewhere on OpenAI's paths.
#[derive(Deserialize)]
struct RerankBody {
    model: String,
    query: String,
    documents: Vec<Document>,
    top_n: Option<usize>,
    #[serde(default)]
    return_documents: bool,
}

/// A document, bare or wrapped.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Bare(String),
    Wrapped { text: String },
}

impl RerankBody {
    fn texts(&mut self) -> Result<Vec<String>, Fault> {
        let documents = std::mem::take(&mut self.documents).into_iter();
        let text = |document| match document {
            Document::Bare(text) | Document::Wrapped { text } => text,
        };
        let texts: Vec<String> = documents.map(text).collect();
        match (texts.len(), texts.iter().position(String::is_empty)) {
            (0, _) => Err(Fault::bad("documents is empty").param("documents")),
            (count, _) if count > DOCUMENTS => {
                let problem =
                    format!("documents has {count} entries; at most {DOCUMENTS} are taken");
                Err(Fault::bad(problem).param("documents"))
            }
            (_, Some(index)) => {
                Err(Fault::bad(format!("documents[{index}] is empty")).param("documents"))
            }
            _ if self.query.is_empty() => Err(Fault::bad("query is empty").param("query")),
            _ => Ok(texts),
        }
    }
}

async fn rerank_inner(app: &App, headers: &HeaderMap, body: Body) -> Result<Value, Fault> {
    let body = super::read(headers, body).await?;
    let mut typed: RerankBody =
        serde_json::from_slice(&body).map_err(|error| super::unreadable(&error))?;
    let texts = typed.texts()?;
    let model = app.model(&typed.model, None)?;
    let kept = typed.return_documents.then(|| texts.clone());
    let (scores, tokens) = model.rank(typed.query, texts).await?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // Equal scores keep their order.
    order.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap_or(Ordering::Equal));
    order.truncate(typed.top_n.unwrap_or(usize::MAX));
    let result = |index: usize| {
        let mut result = json!({"index": index, "relevance_score": scores[index]});
        if let Some(texts) = &kept {
            result["document"] = json!({"text": texts[index]});
        }
        result
    };
    Ok(json!({
        "model": model.name.as_str(),
        "results": order.into_iter().map(result).collect::<Vec<_>>(),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }))
}

/// A classify request as typed.
#[derive(Deserialize)]
struct ClassifyBody {
    model: String,
    input: InputBody,
}

async fn classify_inner(app: &App, headers: &HeaderMap, body: Body) -> Result<Value, Fault> {
    let body = super::read(headers, body).await?;
    let typed: ClassifyBody =
        serde_json::from_slice(&body).map_err(|error| super::unreadable(&error))?;
    let model = app.model(&typed.model, None)?;
    let (classifier, scores) = model.classify(typed.input.check()?).await?;
    let rows = scores.vectors.iter().enumerate();
    let data: Vec<Value> = rows
        .map(|(index, row)| classified(classifier, index, row))
        .collect();
    Ok(json!({
        "object": "list",
        "model": model.name.as_str(),
        "data": data,
        "usage": {"prompt_tokens": scores.tokens, "total_tokens": scores.tokens},
    }))
}

/// The class of the highest score, and all scores.
fn classified(classifier: &Classifier, index: usize, scores: &[f32]) -> Value {
    let higher = |best: usize, place: usize| {
        if scores[place] > scores[best] {
            place
        } else {
            best
        }
    };
    let best = (0..scores.len()).fold(0, higher);
    json!({
        "index": index,
        "label": classifier.label(best),
        "probs": scores,
        "num_classes": scores.len(),
    })
}
