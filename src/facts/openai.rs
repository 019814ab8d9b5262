//! Peeks into a JSON body of the OpenAI or Anthropic API: one pass over the top-level keys, nothing built.
//!
//! Guaranteed: the model read here is the model the worker reads. A body in which two keys spell `model` (also by
//! escapes) has two readings and is refused. So is one with a key that differs from `model` only in case, which engines
//! in Go take for the same (`encoding/json`), one with anything behind its object, and one that is not a JSON object or
//! not UTF-8. Everything else in the body is the worker's business and passes unread.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr_iter, memrchr};

use super::members::{Member, Unreadable, members, text};
use super::nesting::DEEPEST;
use super::prefix::Part;
use crate::fault::{Fault, Kind};
use crate::units::Length;

/// What a body says at its top level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peek {
    /// The model's name, unescaped.
    pub model: Option<String>,
    /// Where its JSON value stands, quotes included.
    pub model_span: Option<Range<usize>>,
    /// `stream`.
    pub stream: bool,
    /// `max_completion_tokens`, `max_output_tokens` or `max_tokens`.
    pub max_tokens: Option<u32>,
    /// `user`, or the session a client names in its body; only ever compared, never shown.
    pub session: Option<String>,
    /// What makes up the prompt, in the order of the body.
    pub prompt: Vec<Piece>,
    /// Token ids of a prompt that comes as such and not as text.
    pub token_ids: usize,
    /// Whether the engine is to cut a prompt that is too long.
    pub cuts: bool,
}

/// A value that is a piece of the prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub(super) part: Part,
    /// Where it stands.
    pub span: Range<usize>,
}

impl Peek {
    /// How long the prompt is: its token ids, if it has any, else its text.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
    pub fn prompt_length(&self) -> Length {
        if self.token_ids > 0 {
            return Length::Tokens(self.token_ids as f64);
        }
        let bytes: usize = self.prompt.iter().map(|piece| piece.span.len()).sum();
        Length::Bytes(bytes as f64)
    }
}

/// Reads what routing needs.
///
/// # Errors
/// `bad_request` when the body is no JSON object, is not UTF-8, is nested too deep, has two `model` keys, or a `model`
/// that is no string.
pub fn peek(body: &[u8]) -> Result<Peek, Fault> {
    let json = simdutf8::basic::from_utf8(body).map_err(|_| bad("the body is not UTF-8"))?;
    let mut seen = Peek::default();
    let mut walk = members(json);
    for member in &mut walk {
        let Member { name, value: span } = member.map_err(|why| unreadable(json, why))?;
        let value = &json[span.clone()];
        match &*name {
            "model" => read_model(&mut seen, value, span)?,
            "stream" => seen.stream = value == "true",
            "max_tokens" | "max_completion_tokens" | "max_output_tokens" => {
                seen.max_tokens = value.parse().ok();
            }
            "user" | "session_id" => seen.session = text(value).map(Cow::into_owned),
            "truncate" | "truncation" | "truncate_prompt_tokens" => {
                let off = matches!(value, "false" | "null" | "\"disabled\"");
                seen.cuts |= !off;
            }
            "messages" | "prompt" | "input" | "system" | "instructions" | "tools" | "query"
            | "documents" => {
                if matches!(&*name, "prompt" | "input") {
                    seen.token_ids += token_ids(value.as_bytes());
                }
                let part = Part::of(&name);
                seen.prompt.push(Piece { part, span });
            }
            key if key.eq_ignore_ascii_case("model") => return Err(twice()),
            _ => {}
        }
    }
    if !walk.rest().trim_ascii().is_empty() {
        let message = "something stands behind the JSON object; send one object and nothing else";
        return Err(bad(message));
    }
    Ok(seen)
}

fn twice() -> Fault {
    let message = "the body has two `model` keys, or one in other letters; send one, in small letters, so that it has \
                   one reading";
    bad(message).param("model")
}

fn read_model(seen: &mut Peek, value: &str, span: Range<usize>) -> Result<(), Fault> {
    if seen.model_span.is_some() {
        return Err(twice());
    }
    let name = text(value).ok_or_else(|| bad("`model` must be a string").param("model"))?;
    seen.model = Some(name.into_owned());
    seen.model_span = Some(span);
    Ok(())
}

/// How many token ids a JSON value holds: an array of numbers, or of such arrays. None in anything else.
fn token_ids(value: &[u8]) -> usize {
    let mut inside = value
        .iter()
        .skip_while(|byte| **byte == b'[' || byte.is_ascii_whitespace());
    if value.starts_with(b"[") && inside.next().is_some_and(u8::is_ascii_digit) {
        1 + value.iter().filter(|byte| **byte == b',').count()
    } else {
        0
    }
}

/// Never quotes the body.
fn unreadable(json: &str, why: Unreadable) -> Fault {
    match why {
        Unreadable::TooDeep => bad(format!("the body is nested more than {DEEPEST} deep")),
        Unreadable::Broken(_) if json.is_empty() => bad("the body is empty; send a JSON object"),
        Unreadable::Broken(at) => {
            let before = &json.as_bytes()[..at];
            let line = 1 + memchr_iter(b'\n', before).count();
            let column = at - memrchr(b'\n', before).map_or(0, |end| end + 1) + 1;
            let place = format!("line {line}, column {column}");
            bad(format!("the body is not a JSON object ({place})"))
        }
    }
}

fn bad(message: impl Into<String>) -> Fault {
    Fault::new(Kind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_routing_needs_in_any_order_and_spacing() {
        let body =
            br#"{ "messages" : [{"role":"user","content":"hi"}] ,"stream":true,"max_tokens":7, "model"  :  "m\u0031" }"#;
        let seen = peek(body).unwrap();
        assert_eq!(seen.model.as_deref(), Some("m1"));
        assert_eq!(&body[seen.model_span.clone().unwrap()], br#""m\u0031""#);
        assert!(seen.stream);
        assert_eq!(seen.max_tokens, Some(7));
        assert_eq!(
            &body[seen.prompt[0].span.clone()],
            br#"[{"role":"user","content":"hi"}]"#
        );
    }

    #[test]
    fn a_prompt_of_token_ids_is_counted_and_a_text_is_measured() {
        let length = |body: &str| peek(body.as_bytes()).unwrap().prompt_length();
        assert_eq!(length(r#"{"prompt":[1, 22,333]}"#), Length::Tokens(3.0));
        assert_eq!(length(r#"{"input":[ [7,8],[9] ]}"#), Length::Tokens(3.0));
        assert_eq!(length(r#"{"input":["1,2","3"]}"#), Length::Bytes(11.0));
        assert_eq!(length(r#"{"prompt":"[1,2]"}"#), Length::Bytes(7.0));
        assert_eq!(length(r#"{"prompt":7,"input":[]}"#), Length::Bytes(3.0));
        assert_eq!(length("{}"), Length::Bytes(0.0));
    }

    #[test]
    fn a_nested_model_key_is_not_the_model() {
        let seen = peek(br#"{"metadata":{"model":"x"},"model":"m"}"#).unwrap();
        assert_eq!(seen.model.as_deref(), Some("m"));
    }

    #[test]
    fn two_readings_are_refused_also_by_escapes() {
        for body in [
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","mod\u0065l":"b"}"#,
            r#"{"model":"a","MODEL":"b"}"#,
            r#"{"Model":"b"}"#,
            r#"{"model":"a"}{"model":"b"}"#,
            r#"{} 1"#,
        ] {
            assert_eq!(
                peek(body.as_bytes()).unwrap_err().kind,
                Kind::BadRequest,
                "{body}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_quoting_it() {
        for body in [
            &b""[..],
            b"canary",
            b"[1]",
            b"{\"model\":\"canary",
            b"{\"model\":7}",
            b"{\"model\":\"\xff\"}",
        ] {
            let fault = peek(body).unwrap_err();
            assert_eq!(fault.kind, Kind::BadRequest);
            assert!(!fault.message.contains("canary"), "{}", fault.message);
        }
    }

    #[test]
    fn a_body_without_model_is_readable() {
        for body in [&b"{}"[..], b" { }\n"] {
            assert_eq!(peek(body).unwrap(), Peek::default());
        }
    }
}
