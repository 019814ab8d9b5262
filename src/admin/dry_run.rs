//! `POST /api/dry-run?path=…`: what would become of a request now.
//!
//! The body is the request's own, the path where it would be sent; without one it is the path where such bodies belong
//! (`facts/shape.rs`), or that of chats. The answer:
//!
//! | key | what |
//! |---|---|
//! | `sentence` | all of it in a sentence |
//! | `path` | where it would be sent |
//! | `model` | what it asks for |
//! | `worker` | who would have it, if somebody would now |
//! | `waits_for` | else, if it would stand in line, what for |
//! | `refused` | else the `status`, `reason` and `message` that its client would get |
//! | `prompt_tokens`, `candidates`, `left_out` | as in a choice of `/api/requests/ID` |

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::queue::waits_for;
use super::requests::Candidate;
use crate::decide::{Entry, Terms};
use crate::facts::{INFER, name_in_path, path_of};
use crate::fault::Fault;
use crate::observe::Observe;
use crate::queue::{Fate, Foreseen};
use crate::units::ModelName;

/// Where a request is sent if nobody says and its body does not tell.
const USUAL_PATH: &str = "/v1/chat/completions";

#[derive(Serialize)]
struct Shown<'a> {
    sentence: String,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refused<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<f32>,
    candidates: Vec<Candidate>,
    left_out: usize,
}

#[derive(Serialize)]
struct Refused<'a> {
    status: u16,
    reason: &'static str,
    message: &'a str,
}

/// The path that a query names, or else that of the body's shape.
pub(super) fn path(query: &str, body: &Bytes) -> Result<String, &'static str> {
    let mut named = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("path", value)) => named = Some(name_in_path(value).into_owned()),
            _ => return Err("a query here is path=/v1/chat/completions"),
        }
    }
    let belongs = || std::str::from_utf8(body).ok().and_then(path_of);
    match named.or_else(|| belongs().map(str::to_owned)) {
        None => Ok(USUAL_PATH.to_owned()),
        Some(path) if path == INFER => {
            Err("KServe's path names the model: say it, as path=/v2/models/NAME/infer")
        }
        Some(path) if path.starts_with('/') => Ok(path),
        Some(_) => Err("a path begins with /"),
    }
}

/// As JSON, its workers by name.
pub(super) fn to_json(
    path: &str,
    foreseen: &Foreseen,
    observe: &Observe,
) -> sonic_rs::Result<String> {
    let Foreseen {
        model,
        fate,
        considered,
    } = foreseen;
    let prompt = Some(considered.prompt).filter(|tokens| *tokens > 0.0);
    let candidates = considered.entries.iter();
    let candidates = candidates.map(|entry| Candidate::of(entry, prompt.is_some(), observe));
    let mut shown = Shown {
        sentence: String::new(),
        path,
        model: model.as_ref().map(ModelName::as_str),
        worker: None,
        waits_for: None,
        refused: None,
        prompt_tokens: prompt,
        candidates: candidates.collect(),
        left_out: considered.left_out,
    };
    let fate = match fate {
        Fate::Sent(worker) => {
            let name = observe.worker_name(*worker);
            let told = name.as_deref().unwrap_or("a worker that is gone");
            let fate = sent(told, considered.entries.first());
            shown.worker = name;
            fate
        }
        Fate::Waits(holds) => {
            let reason = waits_for(model.as_ref(), holds);
            let fate = format!("wait: {reason}");
            shown.waits_for = Some(reason);
            fate
        }
        Fate::Refused(fault) => {
            let refused = refused(fault);
            let Refused {
                status,
                reason,
                message,
            } = refused;
            shown.refused = Some(refused);
            format!("be refused: {status} {reason}: {message}")
        }
    };
    shown.sentence = format!("it would {fate}");
    sonic_rs::to_string(&shown)
}

fn refused(fault: &Fault) -> Refused<'_> {
    Refused {
        status: fault.kind.status().as_u16(),
        reason: fault.kind.label(),
        message: &fault.message,
    }
}

/// Who would have it, and what most of the time there would go to.
fn sent(name: &str, picked: Option<&Entry>) -> String {
    let names = Terms::default().parts().map(|(name, _)| name);
    let terms = picked.map_or([0.0; Terms::PARTS], |entry| entry.seconds);
    let total: f32 = terms.iter().sum();
    let most = names
        .iter()
        .zip(terms)
        .max_by(|one, other| one.1.total_cmp(&other.1));
    let most = most
        .filter(|(_, span)| *span > 0.0)
        .map_or_else(String::new, |(term, span)| {
            format!(", {:.0} % of it {}", span / total * 100.0, in_words(term))
        });
    format!("go to {name}: {total:.3} s expected{most}")
}

/// What a term of a price stands for.
fn in_words(term: &str) -> &'static str {
    match term {
        "net" => "the way there and back",
        "lora" => "loading its adapter",
        "swap" => "bringing in its model",
        "wait" => "waiting inside it behind others",
        "own" => "reading the prompt",
        "decode" => "writing the answer",
        "external" => "the delay for those already there",
        "failure" => "the risk that it fails",
        _ => "its price",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_or_that_of_the_shape_or_the_usual_one() {
        let path = |query, body: &'static str| path(query, &Bytes::from_static(body.as_bytes()));
        assert_eq!(path("", "{").as_deref(), Ok(USUAL_PATH));
        assert_eq!(
            path("", r#"{"input":"x"}"#).as_deref(),
            Ok("/v1/embeddings")
        );
        assert_eq!(
            path("path=%2Fv1%2Fresponses", r#"{"input":"x"}"#).as_deref(),
            Ok("/v1/responses")
        );
        for wrong in ["paht=/v1", "x", "path=", "path=v1", "path=http://desk/v1"] {
            assert!(path(wrong, "{}").is_err(), "{wrong}");
        }
        let nameless = path("", r#"{"inputs":[]}"#).unwrap_err();
        assert!(
            nameless.contains("path=/v2/models/NAME/infer"),
            "{nameless}"
        );
    }

    #[test]
    fn every_term_has_words_of_its_own() {
        let words = Terms::default().parts().map(|(term, _)| in_words(term));
        let mut distinct = words.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), words.len());
    }
}
