//! `forebay key new`: a key for a tenant's clients, and the line that lets it in.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::terminal::say;
use crate::config::plan::KeyHash;

/// What a key begins with, so that people and secret scanners know it for one.
const PREFIX: &str = "fb_";
/// RFC 4648 §5.
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Keys that clients show.
#[derive(Args)]
#[command(after_help = "Example:\n  forebay key new")]
pub struct Key {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    New(New),
}

/// Make a key, and print it once together with its hash.
#[derive(Args)]
#[command(after_help = "Example:\n  forebay key new --json")]
struct New {
    /// Print {"key", "hash"}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made {
    key: String,
    hash: String,
}

impl Key {
    /// Prints a key; nothing is kept.
    pub fn run(self) -> ExitCode {
        let Verb::New(New { json }) = self.verb;
        let made = made();
        if json {
            say(sonic_rs::to_string(&made).unwrap_or_default());
        } else {
            let Made { key, hash } = made;
            say(format_args!(
                "The key, for the client. It is shown now and never again:\n\n  {key}\n"
            ));
            say(format_args!(
                "The line for its [[tenant]] in the configuration:\n\n  key_hash = \"{hash}\""
            ));
        }
        ExitCode::SUCCESS
    }
}

/// 256 bits from the system's generator, and their hash.
fn made() -> Made {
    let random: [u8; 32] = rand::random();
    let key = format!("{PREFIX}{}", base64url(&random));
    let hash = KeyHash::of(key.as_bytes()).to_string();
    Made { key, hash }
}

/// Without padding.
fn base64url(bytes: &[u8]) -> String {
    let group = |three: &[u8]| {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        let digit = move |place| char::from(BASE64URL[(bits >> (18 - 6 * place)) as usize & 63]);
        (0..=three.len()).map(digit)
    };
    bytes.chunks(3).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard() {
        // RFC 4648 §10, without its padding.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64url(bytes.as_bytes()), text);
        }
        assert_eq!(base64url(&[0xfb, 0xff, 0xfe]), "-__-");
    }

    #[test]
    fn keys_are_long_and_unlike_each_other() {
        let (one, other) = (made(), made());
        assert_eq!(one.key.len(), PREFIX.len() + 43);
        assert_ne!(one.key, other.key);
        assert_eq!(
            KeyHash::typed(&one.hash),
            Some(KeyHash::of(one.key.as_bytes()))
        );
    }
}
