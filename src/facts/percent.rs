//! Percent-encoding (RFC 3986 §2.1), by hand: a name in a path, a token in a query, and that is all.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use crate::fault::{Fault, Kind};

/// The bytes that a text stands for: `%41` becomes `A`; a percent sign that begins no such triple stands for itself.
#[must_use]
pub fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let byte = match after {
            [high, low, ..] if *first == b'%' => hex_pair(*high, *low),
            _ => None,
        };
        decoded.push(byte.unwrap_or(*first));
        rest = &rest[if byte.is_some() { 3 } else { 1 }..];
    }
    decoded
}

/// A name as it stands in a path: clients write `/` in it as `%2F`. What then is not UTF-8 is taken as it came.
#[must_use]
pub fn name_in_path(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    String::from_utf8(percent_decoded(segment)).map_or(Cow::Borrowed(segment), Cow::Owned)
}

/// The model that a query names, and where its value stands; a plus sign stands for a blank, as forms have it.
///
/// # Errors
/// `bad_request` when it names two, or one that is not UTF-8.
pub fn model_in_query(query: &str) -> Result<Option<(String, Range<usize>)>, Fault> {
    let bad = |message| Fault::new(Kind::BadRequest, message).param("model");
    let mut found = None;
    let mut at = 0;
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let start = at + pair.len() - value.len();
        at += pair.len() + 1;
        if percent_decoded(key) != b"model" {
            continue;
        }
        if found.is_some() {
            return Err(bad("the query names two models"));
        }
        let name = String::from_utf8(percent_decoded(&value.replace('+', " ")));
        let name = name.map_err(|_| bad("`model` in the query is not UTF-8"))?;
        found = Some((name, start..start + value.len()));
    }
    Ok(found)
}

/// A text as one segment of a path or one value of a query: all but RFC 3986's unreserved characters are written as
/// triples.
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // A string takes all that it is given.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let value = |digit| char::from(digit).to_digit(16);
    u8::try_from(value(high)? * 16 + value(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_comes_back() {
        for text in ["plain", "a+b c/é~", "100%", "%41", ""] {
            assert_eq!(percent_decoded(&percent_encoded(text)), text.as_bytes());
        }
        assert_eq!(percent_encoded("a+b c/é~"), "a%2Bb%20c%2F%C3%A9~");
    }

    #[test]
    fn a_percent_sign_that_begins_nothing_stands_for_itself() {
        for text in ["%", "%4", "%zz", "%%"] {
            assert_eq!(percent_decoded(text), text.as_bytes());
        }
    }

    #[test]
    fn a_model_stands_in_a_query_once() {
        let query = "a=b&mod%65l=a%2Fb+c&d";
        let (name, span) = model_in_query(query).unwrap().unwrap();
        assert_eq!((&name[..], &query[span]), ("a/b c", "a%2Fb+c"));
        for none in ["", "models=x", "a&b=c", "Model=x"] {
            assert_eq!(model_in_query(none), Ok(None), "{none}");
        }
        for odd in ["model=a&model=a", "model=%ff", "model=a&%6dodel="] {
            assert!(model_in_query(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_name_in_a_path_is_the_clients_word_or_what_it_stands_for() {
        assert_eq!(name_in_path("qwen%2Fqwen2.5"), "qwen/qwen2.5");
        assert_eq!(name_in_path("plain"), "plain");
        assert_eq!(name_in_path("%ff"), "%ff");
    }
}
