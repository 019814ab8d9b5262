//! A client's key as it is kept: its SHA-256, never the key.
//!
//! A plain hash is enough here, where a password would want a slow one: keys are made by `forebay key new` out of 256
//! random bits, which nobody guesses however fast they hash (NIST SP 800-63B §5.1.2.2, "look-up secrets" of 112 bits and
//! more). For the same reason hashes may be looked up in a tree: the time that takes tells of a hash, from which no key follows.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// What stands before the digits.
const PREFIX: &str = "sha256:";
/// Digits of a hash that is shown: enough to tell keys apart, by far not enough to be one.
const SHOWN: usize = 8;

/// The hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of this key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        KeyHash(Sha256::digest(key).into())
    }

    /// A hash as it is typed, `sha256:` and 64 hexadecimal digits of either case.
    #[must_use]
    pub fn typed(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16);
            let (high, low) = (value(pair[0])?, value(pair[1])?);
            *byte = u8::try_from(16 * high + low).ok()?;
        }
        Some(KeyHash(bytes))
    }

    /// Its beginning, for people.
    #[must_use]
    pub fn beginning(&self) -> String {
        let whole = self.to_string();
        format!("{}…", &whole[..PREFIX.len() + SHOWN])
    }
}

/// As it is typed.
impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// By its beginning.
impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.beginning())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_the_standard_and_comes_back_as_typed() {
        // FIPS 180-2, appendix B.1.
        let of_abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let hash = KeyHash::of(b"abc");
        assert_eq!(hash.to_string(), of_abc);
        assert_eq!(KeyHash::typed(of_abc), Some(hash));
        assert_eq!(
            KeyHash::typed(&of_abc.to_uppercase().replace("SHA", "sha")),
            Some(hash)
        );
        assert_eq!(format!("{hash:?}"), "sha256:ba7816bf…");
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let digits = "0".repeat(64);
        for text in [
            "",
            "sha256:",
            &digits,
            &format!("sha1:{digits}"),
            &format!("sha256:{digits}0"),
            &format!("sha256:{}", &digits[1..]),
            &format!("sha256:+{}", &digits[1..]),
            &format!("sha256:{}é", &digits[2..]),
        ] {
            assert_eq!(KeyHash::typed(text), None, "{text}");
        }
    }
}
