//! What a test request says: made up, or the operator's own.
//!
//! A made-up prompt is of words that are a token each in every vocabulary, three letters and a space, so that it is as
//! long by the estimate that clients' prompts are measured with (four bytes a token) as by the engine's own count. It
//! begins with a random word: engines cache prompts from their start, and a cached one measures nothing. A body of the
//! operator's is sent as it is, so an engine with a prefix cache answers it faster from the second time on.

use bytes::Bytes;

use crate::config::plan::{Engine, TestPlan, WorkerPlan};
use crate::decide::{TEST_OUTPUT, Tests, Work};
use crate::facts::{self, INFER, path_of, percent_encoded};
use crate::units::{Length, ModelName};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const EMBEDDINGS: &str = "/v1/embeddings";

/// Words of one token, each with the space behind it …
const BYTES_PER_WORD: f64 = 4.0;
/// … as there are many.
const WORDS: [&str; 8] = ["the", "sun", "and", "sea", "are", "old", "for", "you"];

/// A test request, ready to be sent.
#[derive(Debug, PartialEq)]
pub(super) struct Trial {
    /// The path's name, as logs call it: with `*` where a model's stands.
    pub path: &'static str,
    /// The path itself.
    pub target: String,
    pub body: Bytes,
}

/// What a worker may be tested with. Made-up requests need an engine that is known to serve them and costs nobody
/// money.
pub(super) fn tests(test: &TestPlan, engine: Option<Engine>) -> Tests {
    match (test, engine) {
        (TestPlan::Off, _)
        | (TestPlan::Auto, None | Some(Engine::Ollama | Engine::Openai | Engine::Generic)) => {
            Tests::Off
        }
        (TestPlan::Auto, Some(_)) => Tests::MadeUp,
        (TestPlan::File { body, .. }, _) => given(body),
    }
}

/// The operator's body, by its shape; one that no path takes tests nothing.
fn given(body: &str) -> Tests {
    let Some(path) = path_of(body) else {
        return Tests::Off;
    };
    let Ok(peek) = facts::peek(body.as_bytes()) else {
        return Tests::Off;
    };
    let generates = path == CHAT || path == COMPLETIONS;
    let length = if path == INFER {
        facts::kserve_work(body.as_bytes(), None)
    } else {
        peek.prompt_length()
    };
    let prompt = match length {
        Length::Bytes(bytes) => bytes / BYTES_PER_WORD,
        Length::Tokens(tokens) => tokens,
    };
    Tests::Given {
        work: match path {
            _ if generates => Work::Generate,
            INFER => Work::Infer,
            _ => Work::Embed,
        },
        prompt,
        streamed: generates && peek.stream,
    }
}

impl Trial {
    /// A request of this kind and length for a model, by the worker's own name; `seed` makes it like no other.
    pub(super) fn new(
        plan: &WorkerPlan,
        name: &ModelName,
        work: Work,
        prompt: f64,
        seed: u64,
    ) -> Option<Trial> {
        match &plan.test {
            TestPlan::File { body, .. } => Trial::given(body, name),
            TestPlan::Auto | TestPlan::Off => Some(Trial::made_up(name, work, prompt, seed)),
        }
    }

    fn made_up(name: &ModelName, work: Work, prompt: f64, seed: u64) -> Trial {
        let name = quoted(name);
        let text = text(prompt, seed);
        let (path, body) = match work {
            Work::Generate => (
                CHAT,
                format!(
                    r#"{{"model":{name},"messages":[{{"role":"user","content":"{text}"}}],"max_tokens":{TEST_OUTPUT},"stream":true}}"#
                ),
            ),
            // Nobody makes tensors up: their shapes are not known here.
            Work::Embed | Work::Infer => (
                EMBEDDINGS,
                format!(r#"{{"model":{name},"input":"{text}"}}"#),
            ),
        };
        Trial {
            path,
            target: path.to_owned(),
            body: body.into(),
        }
    }

    fn given(body: &str, name: &ModelName) -> Option<Trial> {
        let path = path_of(body)?;
        let span = facts::peek(body.as_bytes()).ok()?.model_span;
        let mut body = body.to_owned();
        if let Some(span) = span {
            body.replace_range(span, &quoted(name));
        }
        Some(Trial {
            path,
            target: path.replace('*', &percent_encoded(name.as_str())),
            body: body.into(),
        })
    }
}

fn quoted(name: &ModelName) -> String {
    sonic_rs::to_string(name.as_str()).unwrap_or_default()
}

/// So many tokens that no cache knows.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test has some thousand tokens"
)]
fn text(prompt: f64, seed: u64) -> String {
    let bytes = (prompt * BYTES_PER_WORD) as usize;
    let mut text = format!("{seed:016x}");
    for word in WORDS.iter().cycle() {
        if text.len() + 4 > bytes {
            break;
        }
        text.push(' ');
        text.push_str(word);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> ModelName {
        ModelName::new("a\"b/c")
    }

    #[test]
    fn made_up_prompts_have_their_length_and_begin_each_in_its_own_way() {
        for tokens in [32.0, 256.0, 2_048.0] {
            let of = |seed| text(tokens, seed);
            let peeked = format!(r#"{{"input":"{}"}}"#, of(1));
            let found = facts::peek(peeked.as_bytes()).unwrap().prompt_length();
            let Length::Bytes(bytes) = found else {
                panic!("{found:?}");
            };
            assert!(
                (bytes / 4.0 / tokens - 1.0).abs() < 0.03,
                "{found:?} {tokens}"
            );
            assert_ne!(of(1)[..16], of(2)[..16]);
        }
    }

    #[test]
    fn a_made_up_body_is_json_whatever_the_model_is_called() {
        for (work, path) in [(Work::Generate, CHAT), (Work::Embed, EMBEDDINGS)] {
            let trial = Trial::made_up(&name(), work, 64.0, 1);
            let body: serde_json::Value = serde_json::from_slice(&trial.body).unwrap();
            assert_eq!((trial.path, &*trial.target), (path, path));
            assert_eq!(body["model"], "a\"b/c");
        }
    }

    #[test]
    fn a_given_body_goes_where_its_shape_belongs_with_the_workers_own_name() {
        let sent = |body: &str| Trial::given(body, &name()).map(|trial| trial.target);
        let target = |text: &str| Some(text.to_owned());
        assert_eq!(sent(r#"{"messages":[]}"#), target(CHAT));
        assert_eq!(sent(r#"{"prompt":"x"}"#), target(COMPLETIONS));
        assert_eq!(sent(r#"{"input":"x"}"#), target(EMBEDDINGS));
        assert_eq!(
            sent(r#"{"inputs":[]}"#),
            target("/v2/models/a%22b%2Fc/infer")
        );
        assert_eq!(sent(r#"{"other":1}"#), None);
        let trial = Trial::given(r#"{"model":"m","input":"x"}"#, &name()).unwrap();
        assert_eq!(&trial.body[..], br#"{"model":"a\"b/c","input":"x"}"#);
        assert_eq!(given(r#"{"other":1}"#), Tests::Off);
        let chat = given(r#"{"messages":"12345678","stream":true}"#);
        assert!(matches!(
            chat,
            Tests::Given { work: Work::Generate, streamed: true, prompt } if prompt > 1.0
        ));
    }
}
