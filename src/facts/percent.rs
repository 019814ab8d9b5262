//! Percent-encoding (RFC 3986 §2.1), by hand: a name in a path, a token in a query, and that is all.

use std::borrow::Cow;
use std::fmt::Write as _;

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
    fn a_name_in_a_path_is_the_clients_word_or_what_it_stands_for() {
        assert_eq!(name_in_path("qwen%2Fqwen2.5"), "qwen/qwen2.5");
        assert_eq!(name_in_path("plain"), "plain");
        assert_eq!(name_in_path("%ff"), "%ff");
    }
}
