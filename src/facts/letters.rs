//! What of a prompt must fit into a context at once, and how long that is at least.
//!
//! A context is asked to hold one prompt. Token ids are counted. Of text no vocabulary is known here, so it is measured
//! in what tokens are made of in every script: letters. One counts however it is written (`д`, in two bytes or in the
//! six of `\u0434`); one that is repeated counts once, since vocabularies have tokens for long runs of white space,
//! lines and dots; the JSON around strings does not count. Pictures, sounds and files come as data in strings, whose
//! length says nothing of their tokens: they count for nothing. All of that errs downwards, which is what "at least"
//! wants.
//!
//! Nothing is said of several prompts in one request, each of which has a context of its own, and of requests that let
//! the engine cut them.
//!
//! Guaranteed: the prompt is walked once and not copied; no input panics.

use super::nesting::string_end;
use super::openai::Peek;
use super::prefix::{LONG, is_data_key};
use crate::units::Length;

/// Three of each byte of a stretch fit a byte.
const STRETCH: usize = 64;

/// What must fit at once; text in letters.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
pub fn fills(body: &[u8], peek: &Peek, generates: bool) -> Option<Length> {
    let pieces = || {
        let spans = peek.prompt.iter().map(|piece| piece.span.clone());
        spans.filter_map(|span| body.get(span))
    };
    if peek.cuts {
        return None;
    }
    let mut letters = 0;
    for piece in pieces() {
        match first_item(piece) {
            Some(first) if first.is_ascii_digit() => {
                return Some(Length::Tokens(peek.token_ids as f64));
            }
            Some(b'"' | b'[') => return None,
            Some(_) if !generates => return None,
            _ => letters += letters_of(piece),
        }
    }
    Some(Length::Bytes(letters as f64))
}

/// How the first item of an array begins.
fn first_item(json: &[u8]) -> Option<u8> {
    let items = json.strip_prefix(b"[")?.trim_ascii_start();
    items.first().copied()
}

/// The letters in the strings of a JSON value.
fn letters_of(json: &[u8]) -> usize {
    let (mut at, mut letters, mut is_data) = (0, 0, false);
    while let Some(byte) = json.get(at) {
        at += 1;
        if *byte != b'"' {
            continue;
        }
        let begin = at;
        at = string_end(json, at).min(json.len());
        let text = json.get(begin..at).unwrap_or_default();
        let text = text.strip_suffix(b"\"").unwrap_or(text);
        if !is_data || text.len() < LONG {
            letters += letters_in(text);
        }
        is_data = is_data_key(text);
    }
    letters
}

/// The letters of a JSON string: its bytes, less those that continue a letter, repeat the one before, or escape.
/// Counted in bytes over short stretches, which processors do for many at a time: every prompt comes along here.
fn letters_in(text: &[u8]) -> usize {
    let takes = |byte: u8| u8::from(byte & 0xc0 == 0x80) + u8::from(byte == b'\\');
    let Some((last, before)) = text.split_last() else {
        return 0;
    };
    let mut taken = usize::from(takes(*last));
    let after = text.get(1..).unwrap_or_default();
    for (ones, nexts) in before.chunks(STRETCH).zip(after.chunks(STRETCH)) {
        let (mut single, mut digits) = (0, 0);
        for (one, next) in ones.iter().zip(nexts) {
            single += takes(*one) + u8::from(one == next);
            digits += u8::from(*one == b'\\') & u8::from(*next == b'u');
        }
        // Four digits each; of an escaped backslash before a `u` too many are taken off.
        taken += usize::from(single) + 4 * usize::from(digits);
    }
    text.len().saturating_sub(taken)
}

#[cfg(test)]
mod tests {
    use super::super::openai::peek;
    use super::*;

    fn of(body: &str, generates: bool) -> Option<Length> {
        let body = body.as_bytes();
        fills(body, &peek(body).unwrap(), generates)
    }

    fn said(text: &str) -> f64 {
        match of(&format!(r#"{{"prompt":"{text}"}}"#), true) {
            Some(Length::Bytes(letters)) => letters,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_letter_is_one_in_every_script_and_spelling() {
        assert_eq!(said("plain text"), 10.0);
        assert_eq!(said("дом नम€😀"), 8.0);
        assert_eq!(said(r"\u0434\u043e\u043c"), 3.0);
        assert_eq!(said(r#"a\n\"b"#), 4.0);
        assert_eq!(said("a          b------"), 4.0);
        assert_eq!(said(r"\\u\\u"), 0.0, "too few, never too many");
    }

    #[test]
    fn only_strings_count_and_pictures_do_not() {
        let picture = "x".repeat(100_000);
        let body = |url: &str| {
            format!(
                r#"{{"messages":[ {{"role" : "user","content":[{{"text":"world"}},{{"image_url":{{"url":"{url}"}}}},
                    {{"source":{{"data": "{url}"}}}}]}} ]}}"#
            )
        };
        let names = "roleusercontenttextworldimage_urlurlsourcedata".len();
        assert_eq!(of(&body(&picture), true), Some(Length::Bytes(names as f64)));
        let short = Some(Length::Bytes((names + 2) as f64));
        assert_eq!(of(&body("x"), true), short);
    }

    #[test]
    fn token_ids_are_counted() {
        let ids = Some(Length::Tokens(3.0));
        assert_eq!(of(r#"{"prompt":[ 1,22, 333]}"#, true), ids);
        assert_eq!(of(r#"{"input":[1,2,3]}"#, false), ids);
    }

    #[test]
    fn nothing_is_said_of_several_prompts_and_of_those_that_may_be_cut() {
        for body in [
            r#"{"prompt":["a","b"]}"#,
            r#"{"prompt":[[1,2],[3]]}"#,
            r#"{"prompt":"a","truncate_prompt_tokens":512}"#,
            r#"{"input":"a","truncation":"auto"}"#,
            r#"{"input":"a","truncate":true}"#,
        ] {
            assert_eq!(of(body, true), None, "{body}");
        }
        assert_eq!(
            of(r#"{"query":"a","documents":[{"text":"b"}]}"#, false),
            None
        );
        for whole in [
            r#"{"input":"a","truncation":"disabled"}"#,
            r#"{"input":"a","truncate":false,"truncate_prompt_tokens":null}"#,
            r#"{"input":"a"}"#,
        ] {
            assert_eq!(of(whole, true), Some(Length::Bytes(1.0)), "{whole}");
        }
    }

    #[test]
    fn what_is_broken_is_walked_to_its_end() {
        for json in [r#"["a"#, r#""\"#, r#"{"data":""#, "", "\""] {
            let whole = letters_of(json.as_bytes());
            assert!(whole <= json.len(), "{json}");
        }
    }
}
