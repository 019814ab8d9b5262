//! Tenants and their keys.

use forebay::config::plan::KeyHash;

/// A `[[tenant]]` with this key and further lines.
pub fn tenant(name: &str, key: &str, lines: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\nkey_hash = \"{}\"\n{lines}\n",
        hash(key)
    )
}

/// A key's hash, as it is typed.
pub fn hash(key: &str) -> String {
    KeyHash::of(key.as_bytes()).to_string()
}

/// The header in which most clients send a key.
pub fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}
