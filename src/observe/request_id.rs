//! The id that follows a request through headers and logs.
//!
//! A client's own id is taken over so that its logs and ours can be joined, but only if it is plain: an id is repeated
//! in answers, logs and requests to workers, and nothing that needs quoting anywhere should travel that far.

use bytes::Bytes;
use http::HeaderValue;

/// The longest id that is taken over.
const LONGEST: usize = 128;

/// The client's id if it is plain, else a random one.
pub(super) fn taken_or_made(client: Option<&HeaderValue>) -> HeaderValue {
    match client.filter(|id| is_plain(id.as_bytes())) {
        Some(id) => id.clone(),
        None => made(),
    }
}

/// One to 128 letters, digits, dots, colons, dashes and underscores.
fn is_plain(id: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(plain)
}

/// 128 random bits. Text and reference count share one allocation, because every id is cloned.
fn made() -> HeaderValue {
    let text = hexadecimal(rand::random());
    HeaderValue::from_maybe_shared(Bytes::from_owner(text))
        .unwrap_or_else(|_| HeaderValue::from_static("unnamed"))
}

fn hexadecimal(bits: u128) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(bits.to_be_bytes()) {
        *pair = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_for(client: &[u8]) -> String {
        let client = HeaderValue::from_bytes(client).unwrap();
        let id = taken_or_made(Some(&client));
        id.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_plain_id_is_taken_over() {
        assert_eq!(id_for(b"Req-1.2:3_4"), "Req-1.2:3_4");
        assert_eq!(id_for(&[b'x'; 128]), "x".repeat(128));
    }

    #[test]
    fn any_other_is_replaced_by_a_random_one() {
        let odd: [&[u8]; 5] = [b"", b"two words", b"\"quoted\"", b"\xff\xfe", &[b'x'; 129]];
        for id in odd {
            let made = id_for(id);
            assert!(made.len() == 32 && made.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_ne!(taken_or_made(None), taken_or_made(None));
    }

    #[test]
    fn every_bit_shows() {
        let bits = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
        assert_eq!(&hexadecimal(bits), b"0123456789abcdeffedcba9876543210");
    }
}
