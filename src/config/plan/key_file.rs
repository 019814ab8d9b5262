//! A file of a tenant's keys, which may be changed while the proxy runs.
//!
//! A line per key: its hash, then `until=` and a time if it ends, then a comment if there is something to say. Nothing of
//! a line is repeated when it is wrong: what stands in the place of a hash may be the key itself.
//!
//! ```text
//! # The office
//! sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821
//! sha256:8aecb9a1e85d7828ba15a521486cde608bc8e883b8b0f61d4fa83d7ac649a2a1 until=2027-01-01 # until all have changed over
//! ```

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{KeyHash, KeyPlan};
use crate::clock;

/// A longer file is a wrong path: this is room for a hundred thousand keys.
const LARGEST: u64 = 16 << 20;

/// A file of keys, and what it held when it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its keys; no other tenant had one of them.
    pub keys: Vec<KeyPlan>,
}

/// Reads a file of keys.
///
/// # Errors
/// When it can't be read, or a line is wrong: which, and how.
pub fn read_keys(path: &Path) -> io::Result<Vec<KeyPlan>> {
    let mut text = String::new();
    let length = File::open(path)?
        .take(LARGEST + 1)
        .read_to_string(&mut text)?;
    if length as u64 > LARGEST {
        return Err(io::Error::other("it is longer than 16 MiB"));
    }
    parse(&text).map_err(io::Error::other)
}

fn parse(text: &str) -> Result<Vec<KeyPlan>, String> {
    let mut keys: Vec<KeyPlan> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let wrong = |what: &str| format!("line {number}: {what}");
        let hash = KeyHash::typed(first).ok_or_else(|| {
            wrong("this is not the hash of a key; write what `forebay key new` prints, sha256:…")
        })?;
        let until = match (words.next(), words.next()) {
            (None, _) => None,
            (Some(word), None) => {
                let time = word.strip_prefix("until=").and_then(clock::from_rfc3339);
                let way_out = "after the hash only until=2027-01-01, or a time in UTC, may follow";
                Some(time.ok_or_else(|| wrong(way_out))?)
            }
            _ => return Err(wrong("there is more than a hash and an until=")),
        };
        keys.push(KeyPlan { hash, until });
    }
    let mut hashes: Vec<_> = keys.iter().map(|key| key.hash).collect();
    hashes.sort_unstable();
    match hashes.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twins) => Err(format!("{} stands there twice", twins[0].beginning())),
        None => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;

    #[test]
    fn keys_are_read_with_their_ends_and_without_comments() {
        let (one, other) = (KeyHash::of(b"one"), KeyHash::of(b"other"));
        let text = format!("# two\n\n {one}\n{other}  until=1970-01-02 # gone\n");
        let keys = parse(&text).unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!((keys[0].hash, keys[0].until), (one, None));
        assert_eq!(
            (keys[1].hash, keys[1].until),
            (other, Some(Seconds(86_400.0)))
        );
        assert_eq!(parse("# nobody\n"), Ok(Vec::new()));
    }

    #[test]
    fn a_wrong_line_is_told_by_its_number_and_never_repeated() {
        let hash = KeyHash::of(b"one");
        for (line, told) in [
            ("fb_the-key-itself".to_owned(), "not the hash"),
            (format!("{hash} until=tomorrow"), "until=2027-01-01"),
            (format!("{hash} fb_the-key-itself"), "until=2027-01-01"),
            (
                format!("{hash} until=2027-01-01 fb_the-key-itself"),
                "more than",
            ),
        ] {
            let flaw = parse(&format!("# keys\n{line}\n")).unwrap_err();
            assert!(
                flaw.starts_with("line 2: ") && flaw.contains(told),
                "{flaw}"
            );
            assert!(
                !flaw.contains("fb_the") && !flaw.contains("tomorrow"),
                "{flaw}"
            );
        }
        let twice = parse(&format!("{hash}\n{hash}\n")).unwrap_err();
        assert!(twice.contains(&hash.beginning()) && !twice.contains(&hash.to_string()));
    }
}
