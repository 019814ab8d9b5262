//! OpenAI's API as vLLM serves it, and Anthropic's `/v1/messages` as vLLM serves that.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use forebay::decide::Work;
use serde_json::{Value, json};

use super::answer::{Answer, Body};
use super::generation::{Dialect, Generation, Job, Usage};
use super::pace::{Asked, tokens};
use super::{Framing, Shared, lora, memory};

/// When all answers say they were made.
const CREATED: u64 = 1_700_000_000;

/// `GET /v1/models`.
pub fn model_list(models: &[String], owner: &str, context: u64) -> Value {
    let data: Vec<Value> = models
        .iter()
        .map(|model| {
            json!({"id": model, "object": "model", "created": CREATED, "owned_by": owner, "root": model,
                   "parent": null, "max_model_len": context})
        })
        .collect();
    json!({"object": "list", "data": data})
}

/// A POST on one of the built-in paths.
pub async fn answer(shared: &Arc<Shared>, path: &str, body: &[u8]) -> Answer {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return Answer::error(400, "BadRequestError", "the body is not JSON");
    };
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let (is_known, adapter) = {
        let knobs = shared.knobs.lock();
        let adapter = lora::meant(knobs.dialect, &knobs.lora, &model);
        (knobs.models.contains(&model), adapter)
    };
    if let Some(name) = &adapter {
        lora::ready(shared, name).await;
    } else if !is_known {
        let message = format!("The model `{model}` does not exist.");
        return Answer::error(404, "NotFoundError", &message);
    }
    memory::ready(shared, &model).await;
    match path {
        "/v1/embeddings" => embeddings(shared, &model, &body).await,
        "/v1/chat/completions" | "/v1/completions" | "/v1/messages" => {
            generate(shared, path, &body).await
        }
        "/v1/rerank" | "/v1/classify" => scores(&model, &body),
        _ => Answer::json(404, &json!({"detail": "Not Found"})),
    }
}

/// Chat, completions and messages.
async fn generate(shared: &Arc<Shared>, path: &str, body: &Value) -> Answer {
    let job = job(shared, path, body);
    let mut generation = Generation::new(shared, job);
    if body["stream"] != true {
        return Answer::json(200, &generation.whole().await);
    }
    if !shared.knobs.lock().head_first {
        generation.prefill().await;
    }
    Answer {
        status: 200,
        headers: vec![(
            "content-type".to_owned(),
            "text/event-stream; charset=utf-8".to_owned(),
        )],
        framing: Framing::Chunked,
        body: Body::Stream(Box::new(generation)),
        failure: None,
    }
}

fn job(shared: &Shared, path: &str, body: &Value) -> Job {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let prompt = match path {
        "/v1/completions" => text_of(&body["prompt"]),
        _ => messages
            .iter()
            .map(|message| text_of(&message["role"]) + &text_of(&message["content"]))
            .collect(),
    };
    let last = match messages.last() {
        Some(message) => text_of(&message["content"]),
        None => prompt.clone(),
    };
    let limit = body["max_completion_tokens"]
        .as_u64()
        .or(body["max_tokens"].as_u64())
        .or(body["min_tokens"].as_u64())
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(shared.knobs.lock().output_tokens);
    let number = shared.next_answer();
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let include_usage = body["stream_options"]["include_usage"] == true;
    let dialect: Box<dyn Dialect> = match path {
        "/v1/messages" => Box::new(Messages {
            id: format!("msg_{number}"),
            model,
        }),
        "/v1/completions" => Box::new(Completions {
            chat: false,
            id: format!("cmpl-{number}"),
            model,
            include_usage,
        }),
        _ => Box::new(Completions {
            chat: true,
            id: format!("chatcmpl-{number}"),
            model,
            include_usage,
        }),
    };
    Job {
        prompt,
        words: last.split_whitespace().map(str::to_owned).collect(),
        limit,
        dialect,
    }
}

/// The text of a string, or of the text parts of a list.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .map(|part| part["text"].as_str().or(part.as_str()).unwrap_or_default())
            .collect(),
        _ => String::new(),
    }
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// `/v1/chat/completions` and `/v1/completions`.
struct Completions {
    chat: bool,
    id: String,
    model: String,
    include_usage: bool,
}

impl Completions {
    fn usage(usage: Usage) -> Value {
        json!({"prompt_tokens": usage.prompt, "total_tokens": usage.prompt + usage.output,
               "completion_tokens": usage.output, "prompt_tokens_details": {"cached_tokens": usage.cached}})
    }

    fn chunk(&self, choices: &Value) -> Value {
        let object = if self.chat {
            "chat.completion.chunk"
        } else {
            "text_completion"
        };
        json!({"id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": choices})
    }

    fn said(&self, role: Option<&str>, text: &str, finish: Option<&str>) -> String {
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": finish});
        if self.chat {
            choice["delta"] = json!({"content": text});
            if let Some(role) = role {
                choice["delta"]["role"] = json!(role);
            }
        } else {
            choice["text"] = json!(text);
        }
        event(&self.chunk(&json!([choice])))
    }
}

impl Dialect for Completions {
    fn whole(&self, text: &str, usage: Usage) -> Value {
        let mut choice =
            json!({"index": 0, "logprobs": null, "finish_reason": "length", "stop_reason": null});
        if self.chat {
            choice["message"] = json!({"role": "assistant", "content": text, "tool_calls": []});
        } else {
            choice["text"] = json!(text);
        }
        let object = if self.chat {
            "chat.completion"
        } else {
            "text_completion"
        };
        json!({"id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": [choice],
               "usage": Self::usage(usage)})
    }

    fn opening(&self, _: Usage) -> Vec<String> {
        if self.chat {
            vec![self.said(Some("assistant"), "", None)]
        } else {
            Vec::new()
        }
    }

    fn token(&self, text: &str) -> String {
        self.said(None, text, None)
    }

    fn closing(&self, usage: Usage) -> Vec<String> {
        let mut events = vec![self.said(None, "", Some("length"))];
        if self.include_usage {
            let mut last = self.chunk(&json!([]));
            last["usage"] = Self::usage(usage);
            events.push(event(&last));
        }
        events.push("data: [DONE]\n\n".to_owned());
        events
    }
}

/// `/v1/messages`.
struct Messages {
    id: String,
    model: String,
}

impl Messages {
    fn message(&self, content: &Value, stop_reason: Option<&str>, usage: Usage) -> Value {
        json!({"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
               "stop_reason": stop_reason, "stop_sequence": null,
               "usage": {"input_tokens": usage.prompt - usage.cached, "output_tokens": usage.output,
                         "cache_read_input_tokens": usage.cached}})
    }

    fn event(data: &Value) -> String {
        let name = data["type"].as_str().unwrap_or_default();
        format!("event: {name}\n{}", event(data))
    }
}

impl Dialect for Messages {
    fn whole(&self, text: &str, usage: Usage) -> Value {
        let content = json!([{"type": "text", "text": text}]);
        self.message(&content, Some("max_tokens"), usage)
    }

    fn opening(&self, usage: Usage) -> Vec<String> {
        let message = self.message(&json!([]), None, usage);
        vec![
            Self::event(&json!({"type": "message_start", "message": message})),
            Self::event(&json!({"type": "content_block_start", "index": 0,
                                "content_block": {"type": "text", "text": ""}})),
        ]
    }

    fn token(&self, text: &str) -> String {
        Self::event(&json!({"type": "content_block_delta", "index": 0,
                            "delta": {"type": "text_delta", "text": text}}))
    }

    fn closing(&self, usage: Usage) -> Vec<String> {
        vec![
            Self::event(&json!({"type": "content_block_stop", "index": 0})),
            Self::event(&json!({"type": "message_delta",
                                "delta": {"stop_reason": "max_tokens", "stop_sequence": null},
                                "usage": {"output_tokens": usage.output}})),
            Self::event(&json!({"type": "message_stop"})),
        ]
    }
}

/// Numbers in a vector.
const DIMENSIONS: usize = 8;

/// The same vector for the same text, of length one at most by its entries.
pub fn embedding(text: &str) -> Vec<f32> {
    (0..DIMENSIONS)
        .map(|place| {
            let mut hasher = DefaultHasher::new();
            (place, text).hash(&mut hasher);
            f32::from(hasher.finish() as i16) / 65_536.0
        })
        .collect()
}

/// `/v1/embeddings`: texts or token lists, as numbers or as base64 of little-endian floats.
async fn embeddings(shared: &Arc<Shared>, model: &str, body: &Value) -> Answer {
    let inputs: Vec<String> = match &body["input"] {
        Value::Array(items) if items.iter().all(Value::is_number) => {
            vec![body["input"].to_string()]
        }
        Value::Array(items) => items
            .iter()
            .map(|item| {
                item.as_str()
                    .map_or_else(|| item.to_string(), str::to_owned)
            })
            .collect(),
        other => vec![text_of(other)],
    };
    let prompt = inputs.concat();
    let asked = Asked {
        work: Work::Embed,
        prompt: &prompt,
        output: 0,
    };
    let _turn = shared.pace.read(asked, &shared.knobs).await;
    let as_base64 = body["encoding_format"] == "base64";
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let numbers = embedding(input);
            let shown = if as_base64 {
                json!(base64(
                    &numbers
                        .iter()
                        .flat_map(|number| number.to_le_bytes())
                        .collect::<Vec<_>>()
                ))
            } else {
                json!(numbers)
            };
            json!({"index": index, "object": "embedding", "embedding": shown})
        })
        .collect();
    let count = tokens(&prompt);
    Answer::json(
        200,
        &json!({"id": format!("embd-{}", shared.next_answer()), "object": "list", "created": CREATED, "model": model,
                "data": data, "usage": {"prompt_tokens": count, "total_tokens": count, "completion_tokens": 0,
                                        "prompt_tokens_details": null}}),
    )
}

/// Base64 with padding (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bytes
        .chunks(3)
        .flat_map(|group| {
            let word = group
                .iter()
                .fold(0u32, |word, byte| word << 8 | u32::from(*byte))
                << (8 * (3 - group.len()));
            (0..4).map(move |place| {
                if place <= group.len() {
                    char::from(ALPHABET[(word >> (18 - 6 * place) & 63) as usize])
                } else {
                    '='
                }
            })
        })
        .collect()
}

/// `/v1/rerank` and `/v1/classify`: a score for each document or input.
fn scores(model: &str, body: &Value) -> Answer {
    let items = body["documents"]
        .as_array()
        .or(body["input"].as_array())
        .cloned()
        .unwrap_or_default();
    let results: Vec<Value> = items
        .iter()
        .enumerate()
        .map(|(index, item)| {
            let score = embedding(&text_of(item))[0].abs();
            json!({"index": index, "relevance_score": score, "probs": [score, 1.0 - score]})
        })
        .collect();
    Answer::json(
        200,
        &json!({"id": "scores", "model": model, "results": results, "data": results}),
    )
}
